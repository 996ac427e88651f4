-- like_count_now: total, pending deltas and the caller's own, in one number.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
SELECT likecount.flush() \g /dev/null
CREATE SCHEMA now;
CREATE ROLE now_owner;
CREATE ROLE now_reader;
GRANT USAGE, CREATE ON SCHEMA now TO now_owner;
GRANT USAGE ON SCHEMA likecount TO now_owner, now_reader;
SET ROLE now_owner;
SELECT likecount.create_counter('now.likes', verb => 'like') \g /dev/null
RESET ROLE;
SELECT likecount.flush() \g /dev/null
SELECT plan(34);

SELECT is(likecount.like_count_now(1), 0::bigint, 'of an unknown post it is 0');
SELECT is(likecount.like_count_now(NULL), NULL, 'of NULL it is NULL');
INSERT INTO now.likes VALUES (1, 1), (1, 2), (2, 1);
DELETE FROM now.likes WHERE post_id = 1 AND user_id = 2;
SELECT results_eq('SELECT likecount.like_count(1), likecount.like_count_now(1)', 'VALUES (0::bigint, 1::bigint)', 'it has what waits in queue and journal');
SELECT is(likecount.like_count_now(2), 1::bigint, 'of this post only');
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT likecount.like_count(1), likecount.like_count_now(1)', 'VALUES (1::bigint, 1::bigint)', 'after the flush it is the total');

-- the caller's own, committed or not
BEGIN;
SELECT likecount.like(1, 3) \g /dev/null
SELECT results_eq('SELECT likecount.like_count(1), likecount.like_count_now(1)', 'VALUES (1::bigint, 2::bigint)', 'the caller''s like is in it before it is committed');
SAVEPOINT a;
SELECT likecount.like(1, 4), likecount.unlike(1, 1) \g /dev/null
SELECT likecount.like(1, 5) \g /dev/null
SELECT is(likecount.like_count_now(1), 3::bigint, 'of all levels');
ROLLBACK TO a;
SELECT is(likecount.like_count_now(1), 2::bigint, 'not what was rolled back');
SELECT results_eq('SELECT likecount.like(1, 6), likecount.like_count_now(1)', 'VALUES (true, 3::bigint)', 'in the statement that likes');
SELECT is((SELECT array_agg(likecount.like_count_now(1)) FROM (SELECT likecount.like(1, 100 + n) FROM generate_series(1, 3) n OFFSET 0) s), '{4,5,6}', 'row by row');
SELECT is(ARRAY[likecount.like_count_now(1), likecount.flush(), likecount.like_count_now(1)], '{6,1,6}', 'and in the statement that flushes');
SELECT is(likecount.like_count_now(1), (SELECT count(*) FROM now.likes WHERE post_id = 1), 'exact');
ROLLBACK;
SELECT is(likecount.like_count_now(1), 1::bigint, 'after the end of it what was before');
-- spilled early, to the journal
BEGIN;
INSERT INTO now.likes SELECT p, 9 FROM generate_series(1, 70000) p;
SELECT results_eq('SELECT likecount.like_count_now(p) FROM (VALUES (1), (40000), (70000), (70001)) v (p)', 'VALUES (2::bigint), (1), (1), (0)', 'what the accumulator has spilled is in it, too');
ROLLBACK;
-- between a row and its trigger it is what is captured
SELECT results_eq('WITH i AS (INSERT INTO now.likes VALUES (3, 1) RETURNING post_id) SELECT likecount.like_count_now(post_id) FROM i', 'VALUES (0::bigint)', 'a row whose trigger has not fired is not');
SELECT is(likecount.like_count_now(3), 1::bigint, 'then it is');

-- isolation levels, read-only transactions, functions
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT likecount.like(4, 1) \g /dev/null
SELECT results_eq('SELECT likecount.like_count_now(4), likecount.like_count_now(3)', 'VALUES (1::bigint, 1::bigint)', 'in REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT is(likecount.like_count_now(4), 1::bigint, 'in a read-only transaction');
COMMIT;
CREATE FUNCTION now.tap(p bigint, u bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM likecount.like(p, u);
    RETURN likecount.like_count_now(p);
END $$;
SELECT is(now.tap(4, 2), 2::bigint, 'in a function');
CREATE FUNCTION now.stable(p bigint) RETURNS bigint LANGUAGE sql STABLE AS $$SELECT likecount.like_count_now(p) + 0$$;
SELECT is(now.stable(4), 2::bigint, 'in one that claims to be STABLE');

-- no lock is left on what the worker wants to empty
BEGIN;
SELECT likecount.like_count_now(4) \g /dev/null
SELECT is_empty($$SELECT relation::regclass FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text ~ '^likecount\._(queue|journal)|^likecount\..*_slots'$$, 'it keeps no lock');
COMMIT;

-- who may
SET ROLE now_reader;
SELECT throws_ok('SELECT likecount.like_count_now(1)', '42501', 'permission denied for view like_totals', 'not without SELECT on the totals');
RESET ROLE;
GRANT SELECT ON likecount.like_totals TO now_reader;
SET ROLE now_reader;
SELECT is(likecount.like_count_now(1), 1::bigint, 'with it, without any right on the table');
SET ROLE now_owner;
SELECT is(likecount.like_count_now(1), 1::bigint, 'the owner of the table');
SELECT throws_ok('SELECT likecount._total_now(''like'', ''abc''::text)', '42804', 'argument 2 has type text, but counter "like" takes bigint', 'a value of another type is not read');
RESET ROLE;

-- other types, and a counter without users
SELECT likecount.create_counter('now.stars', verb => 'star', past => 'starred', post_type => 'text', user_type => 'uuid') \g /dev/null
SELECT likecount.create_counter('now.smalls', verb => 'small', post_type => 'smallint') \g /dev/null
CREATE TABLE now.replies (post uuid NOT NULL, body text);
SELECT likecount.attach('now.replies', 'post', verb => 'reply', past => 'replied') \g /dev/null
INSERT INTO now.stars SELECT 'a-key-of-more-than-sixteen-bytes', gen_random_uuid() FROM generate_series(1, 3);
INSERT INTO now.stars SELECT 'short', gen_random_uuid() FROM generate_series(1, 2);
INSERT INTO now.replies SELECT '11111111-1111-1111-1111-111111111111' FROM generate_series(1, 4);
INSERT INTO now.smalls VALUES (7, 1);
SELECT is(likecount.star_count_now('a-key-of-more-than-sixteen-bytes'), 3::bigint, 'text');
SELECT is(likecount.star_count_now('short'), 2::bigint, 'a short one');
SELECT is(likecount.star_count_now(repeat('x', 2000)), 0::bigint, 'one that cannot be');
SELECT is(likecount.reply_count_now('11111111-1111-1111-1111-111111111111'), 4::bigint, 'uuid, without users');
SELECT is(likecount.small_count_now(7), 1::bigint, 'smallint');
SELECT is(likecount.small_count_now(100000), 0::bigint, 'a number beyond it');

-- an entry that is about another counter is not read
SELECT is(likecount.like_count_now(7), 0::bigint, 'two counters with the same post are two');
SELECT likecount.flush() \g /dev/null
SELECT results_eq($$SELECT likecount.star_count_now('short'), likecount.like_count_now(4), likecount.small_count_now(7)$$, 'VALUES (2::bigint, 2::bigint, 1::bigint)', 'after the flush');
SELECT likecount.like(5, 1) \g /dev/null
TRUNCATE now.likes;
SELECT is(likecount.like_count_now(5), 0::bigint, 'after TRUNCATE it is 0');

SELECT * FROM finish();
DROP SCHEMA now CASCADE;
SELECT likecount.flush() \g /dev/null
REVOKE USAGE ON SCHEMA likecount FROM now_owner, now_reader;
DROP ROLE now_owner, now_reader;
