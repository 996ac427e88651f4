-- The accumulator: savepoints, exception blocks, and what flush() takes of it.  One transaction, rolled back.
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
SELECT plan(25);

CREATE SCHEMA app;
SELECT likecount.create_counter('app.likes') \g /dev/null

-- savepoints
INSERT INTO app.likes VALUES (1, 1);
SAVEPOINT a;
INSERT INTO app.likes VALUES (1, 2), (2, 1);
SAVEPOINT b;
INSERT INTO app.likes VALUES (1, 3), (2, 2), (3, 1);
SELECT is(drifts('like'), '1:3 2:2 3:1', 'three levels');
ROLLBACK TO b;
SELECT is(drifts('like'), '1:2 2:1', 'ROLLBACK TO takes back the innermost');
INSERT INTO app.likes VALUES (3, 2);
RELEASE b;
ROLLBACK TO a;
SELECT is(drifts('like'), '1:1', 'ROLLBACK TO takes back what was released into the level');
INSERT INTO app.likes VALUES (2, 3);
SAVEPOINT b;
DELETE FROM app.likes WHERE post_id = 2;
INSERT INTO app.likes VALUES (4, 1);
RELEASE b;
SAVEPOINT b;
SAVEPOINT c;
SAVEPOINT d;
INSERT INTO app.likes VALUES (4, 2), (5, 1);
RELEASE c;
INSERT INTO app.likes VALUES (5, 2);
ROLLBACK TO b;
RELEASE a;
SELECT is(settle('like'), '1:1 4:1', 'released, nested and skipped levels');

-- the same with posts that need memory of their own, and so many that they are found by a hash table
CREATE TABLE app.marks (post text, fan int, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (post, fan));
SELECT likecount.attach('app.marks', 'post', 'fan', 'at', verb => 'mark') \g /dev/null
CREATE FUNCTION app.mark(fan int, first int, last int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO app.marks SELECT 'a post with a name that is longer than a uuid, number ' || n, $1 FROM generate_series($2, $3) n $$;
SELECT app.mark(1, 1, 15) \g /dev/null
SAVEPOINT a;
SELECT app.mark(2, 1, 15) \g /dev/null
SELECT app.mark(2, 16, 40) \g /dev/null
SAVEPOINT b;
SELECT app.mark(3, 11, 60) \g /dev/null
SELECT is((SELECT string_agg(format('%s:%s', n, s), ' ' ORDER BY n, s) FROM (SELECT drift, count(*), sum(drift) FROM drift('mark') GROUP BY 1) d (n, c, s)),
    '1:20 2:70 3:15', 'sixty posts on three levels');
ROLLBACK TO b;
SELECT app.mark(4, 40, 60) \g /dev/null
RELEASE b;
ROLLBACK TO a;
SELECT app.mark(5, 10, 30) \g /dev/null
SAVEPOINT b;
DELETE FROM app.marks WHERE fan = 1;
RELEASE b;
SAVEPOINT b;
DELETE FROM app.marks;
ROLLBACK TO b;
SELECT app.mark(6, 1, 5) \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT count(*) FROM drift('mark')), 21::bigint, 'flush() inside a savepoint leaves what the outer levels have');
RELEASE a;
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT count(*) FROM drift('mark')), 0::bigint, 'and has them when the levels have merged');
SELECT is((SELECT format('%s posts, %s likes', count(*), sum(total)) FROM likecount.mark_totals WHERE total > 0), '26 posts, 26 likes', 'after rollbacks and releases all posts are exact');

-- exception blocks
CREATE PROCEDURE app.try(post bigint, fan bigint, fail boolean) LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        INSERT INTO app.likes VALUES (post, fan);
        IF fail THEN RAISE EXCEPTION 'no'; END IF;
    EXCEPTION WHEN raise_exception OR unique_violation THEN
        INSERT INTO app.likes VALUES (post + 1, fan) ON CONFLICT DO NOTHING;
    END;
END
$$;
CALL app.try(10, 1, false);
CALL app.try(10, 2, true);
CALL app.try(10, 1, false);
SELECT is(drifts('like'), '10:1 11:2', 'an exception block takes back its likes, its handler''s count');
DO $$
BEGIN
    FOR n IN 1 .. 50 LOOP
        BEGIN
            PERFORM likecount.like(20 + n % 3, n);
            IF n % 5 = 0 THEN RAISE EXCEPTION 'no'; END IF;
        EXCEPTION WHEN raise_exception THEN
            PERFORM likecount.unlike(20, n - 2);
        END;
    END LOOP;
END
$$;
SELECT is(drifts('like'), (SELECT string_agg(post_id || ':' || n, ' ' ORDER BY post_id) FROM (SELECT post_id, count(*) AS n FROM app.likes WHERE post_id > 4 GROUP BY 1) c),
    'a loop of exception blocks');
SELECT likecount.flush() \g /dev/null
SELECT is(drifts('like'), '', 'and its flush');
DO $$
DECLARE
    fan int;
BEGIN
    FOR fan IN SELECT likecount.like(30, n)::int FROM generate_series(1, 5) n LOOP
        BEGIN
            RAISE EXCEPTION 'no';
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
    END LOOP;
END
$$;
SELECT is(drifts('like'), '30:5', 'a query that likes under a loop of exception blocks is not theirs');
SELECT throws_ok('DO $$ BEGIN PERFORM likecount.like(31, 1); PERFORM 1 / 0; END $$', '22012', NULL, 'a function that fails');
SELECT is(drifts('like'), '30:5', 'takes its likes back');

-- flush() moves the current level's deltas, and only these
SELECT likecount.flush() \g /dev/null
INSERT INTO app.likes VALUES (40, 1);
SAVEPOINT a;
INSERT INTO app.likes VALUES (40, 2), (41, 1);
SELECT is(likecount.flush(), 2::bigint, 'flush() in a savepoint takes its two posts');
SELECT is(drifts('like'), '40:1', 'and leaves the outer level''s');
SELECT is(likecount.like_count(40), 1::bigint, 'the total shows the savepoint''s like');
ROLLBACK TO a;
SELECT is(likecount.like_count(40), 0::bigint, 'until it is rolled back');
RELEASE a;
SELECT is(drifts('like'), '40:1', 'the outer level''s like still waits');
SELECT is(likecount.flush(), 1::bigint, 'and is flushed once');
SELECT is(likecount.like_count(40), 1::bigint, 'like(), flush(), like_count() = 1 inside one transaction');
SELECT is(likecount.flush(), 0::bigint, 'a flush() right after it finds nothing');
SAVEPOINT a;
DELETE FROM app.likes WHERE post_id = 40;
SELECT is(likecount.flush(), 1::bigint, 'what a flush() has taken is taken back by a delta of its own');
RELEASE a;
SELECT is(drifts('like'), '', 'and released as such');
DELETE FROM app.likes;
SELECT is(settle('like'), '', 'everything is unliked');

SELECT * FROM finish();
ROLLBACK;
