-- An accumulator that gets too big is spilled: the innermost level's entries alone, and always to the journal.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
BEGIN;
\i :oracle
SELECT plan(11);

CREATE SCHEMA app;
SELECT likecount.create_counter('app.likes') \g /dev/null

INSERT INTO app.likes VALUES (1, 1), (2, 1), (3, 1);
SAVEPOINT a;
INSERT INTO app.likes SELECT n, 2 FROM generate_series(1, 131069) n;
SELECT is((SELECT count(*) FROM segments), 0::bigint, 'up to 131072 entries are kept in memory');
INSERT INTO app.likes VALUES (200000, 2);
SELECT is((SELECT count(*) FROM segments WHERE place = 'journal'), 131069::bigint, 'the next one spills the innermost level to the journal');
SELECT is(drifts('like'), '1:1 2:1 3:1 200000:1', 'an outer level''s deltas stay in memory');
ROLLBACK TO a;
SELECT is(drifts('like'), '1:1 2:1 3:1', 'ROLLBACK TO takes the spilled ones back and leaves the outer ones');
RELEASE a;
SELECT is(settle('like'), '1:1 2:1 3:1', 'which are flushed');
INSERT INTO app.likes SELECT n, 3 FROM generate_series(1, 280000) n;
SELECT is((SELECT count(*) FROM segments WHERE place = 'journal'), 262144::bigint, 'a statement that likes many posts spills more than once');
SELECT is((SELECT count(*) FROM drift('like')), 17856::bigint, 'and keeps the rest');
DELETE FROM app.likes WHERE user_id = 3;
SELECT is(settle('like'), '1:1 2:1 3:1', 'spilled and kept deltas are flushed together');

-- a level that captures nothing itself, but into which a loop of exception blocks merges
DO $$
BEGIN
    FOR n IN 1 .. 131172 LOOP
        BEGIN
            INSERT INTO app.likes VALUES (n, 4);
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
    END LOOP;
END
$$;
SELECT ok((SELECT count(*) FROM segments WHERE place = 'journal') >= 100, 'a loop of exception blocks spills past the bound');
SELECT is((SELECT count(*) FROM segments WHERE place = 'journal') + (SELECT count(*) FROM drift('like')), 131172::bigint, 'what the outer level has stays in memory');
DELETE FROM app.likes WHERE user_id = 4;
SELECT is(settle('like'), '1:1 2:1 3:1', 'and nothing of it is lost or counted twice');

SELECT * FROM finish();
ROLLBACK;
