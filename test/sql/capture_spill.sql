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
INSERT INTO app.likes SELECT n, 2 FROM generate_series(1, 65533) n;
SELECT is((SELECT count(*) FROM segments), 0::bigint, 'up to 65536 entries are kept in memory');
INSERT INTO app.likes VALUES (100000, 2);
SELECT is((SELECT count(*) FROM segments WHERE place = 'journal'), 65533::bigint, 'the next one spills the innermost level to the journal');
SELECT is(drifts('like'), '1:1 2:1 3:1 100000:1', 'an outer level''s deltas stay in memory');
ROLLBACK TO a;
SELECT is(drifts('like'), '1:1 2:1 3:1', 'ROLLBACK TO takes the spilled ones back and leaves the outer ones');
RELEASE a;
SELECT is(settle('like'), '1:1 2:1 3:1', 'which are flushed');
INSERT INTO app.likes SELECT n, 3 FROM generate_series(1, 140000) n;
SELECT is((SELECT count(*) FROM segments WHERE place = 'journal'), 131072::bigint, 'a statement that likes many posts spills more than once');
SELECT is((SELECT count(*) FROM drift('like')), 8928::bigint, 'and keeps the rest');
DELETE FROM app.likes WHERE user_id = 3;
SELECT is(settle('like'), '1:1 2:1 3:1', 'spilled and kept deltas are flushed together');

-- a level that captures nothing itself, but into which a loop of exception blocks merges
DO $$
BEGIN
    FOR n IN 1 .. 65636 LOOP
        BEGIN
            INSERT INTO app.likes VALUES (n, 4);
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
    END LOOP;
END
$$;
SELECT ok((SELECT count(*) FROM segments WHERE place = 'journal') >= 100, 'a loop of exception blocks spills past the bound');
SELECT is((SELECT count(*) FROM segments WHERE place = 'journal') + (SELECT count(*) FROM drift('like')), 65636::bigint, 'what the outer level has stays in memory');
DELETE FROM app.likes WHERE user_id = 4;
SELECT is(settle('like'), '1:1 2:1 3:1', 'and nothing of it is lost or counted twice');

SELECT * FROM finish();
ROLLBACK;
