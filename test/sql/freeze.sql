-- Frozen posts: the total stays, new likes are refused, what goes or was pending shows when the post is unfrozen.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
SELECT likecount.flush() \g /dev/null
CREATE SCHEMA frz;
CREATE ROLE frz_owner;
CREATE ROLE frz_app;
GRANT USAGE, CREATE ON SCHEMA frz TO frz_owner;
GRANT USAGE ON SCHEMA frz, likecount TO frz_app;
GRANT USAGE ON SCHEMA likecount TO frz_owner;
SET ROLE frz_owner;
SELECT likecount.create_counter('frz.likes', verb => 'like') \g /dev/null
RESET ROLE;
GRANT SELECT, INSERT, DELETE ON frz.likes TO frz_app;
GRANT SELECT ON likecount.like_totals TO frz_app;
INSERT INTO frz.likes SELECT p, u FROM generate_series(1, 9) p, generate_series(1, 10) u;
SELECT likecount.flush() \g /dev/null
-- state(post): displayed | as of now | rows | slots without the mark | mark
CREATE FUNCTION frz.state(p bigint) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws('|', likecount.like_count(p), likecount.like_count_now(p), (SELECT count(*) FROM frz.likes WHERE post_id = p),
        COALESCE((SELECT sum(value) FROM likecount.like_slots WHERE post = p AND slot >= 0), 0), COALESCE((SELECT value::text FROM likecount.like_slots WHERE post = p AND slot = -1), '-')) $$;
SELECT plan(92);

SELECT is((SELECT frozen FROM likecount.counters WHERE verb = 'like'), 0::bigint, 'nothing is frozen');
SELECT is(likecount.unfreeze('frz.likes', 1), false, 'so there is nothing to unfreeze');
SELECT is(likecount.freeze('frz.likes', 1), 10::bigint, 'freeze() returns the count');
SELECT is(frz.state(1), '10|10|10|10|0', 'which is displayed');
SELECT is(likecount.freeze('frz.likes', 1), 10::bigint, 'a second one returns it, too');
SELECT is((SELECT frozen FROM likecount.counters WHERE verb = 'like'), 1::bigint, 'counters has how many there are');
SELECT results_eq($$SELECT * FROM likecount.frozen('frz.likes')$$, $$VALUES ('1', 10::bigint)$$, 'frozen() lists them');

-- new likes are refused, whoever makes them; nothing changes
SELECT throws_ok('SELECT likecount.like(1, 99)', '55000', 'post 1 is frozen', 'like()');
SELECT throws_ok('SELECT likecount.like(1, 1)', '55000', 'post 1 is frozen', 'like() of one who did already');
SELECT throws_ok('SELECT likecount.unlike(1, 1)', '55000', 'post 1 is frozen', 'unlike()');
SELECT throws_ok('SELECT likecount.unlike(1, 99)', '55000', 'post 1 is frozen', 'unlike() of one who never did');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[2, 3, 1, 2], ARRAY[99, 99, 1, 98])', '55000', 'post 1 is frozen', 'like_many() with it among others');
SELECT throws_ok('SELECT likecount.like_many(array_fill(1::bigint, ARRAY[100001]), array_fill(1::bigint, ARRAY[100001]))', '55000', 'post 1 is frozen', 'like_many() of so many that the server sorts them, of one who did already');
SELECT throws_ok('INSERT INTO frz.likes VALUES (2, 99), (1, 99)', '55000', 'post 1 is frozen', 'INSERT');
SELECT throws_ok('UPDATE frz.likes SET post_id = 1, user_id = 50 WHERE post_id = 2 AND user_id = 1', '55000', 'post 1 is frozen', 'UPDATE that moves a like onto it');
SELECT throws_ok('MERGE INTO frz.likes l USING (VALUES (1, 99)) v (p, u) ON l.post_id = v.p AND l.user_id = v.u WHEN NOT MATCHED THEN INSERT (post_id, user_id) VALUES (v.p, v.u)', '55000', 'post 1 is frozen', 'MERGE');
SELECT lives_ok('INSERT INTO frz.likes VALUES (1, 1) ON CONFLICT DO NOTHING', 'an INSERT that inserts nothing');
SELECT is(frz.state(1), '10|10|10|10|0', 'all is as it was');
SELECT is(frz.state(2), '10|10|10|10|-', 'the other posts, too');
SELECT is(likecount.like(2, 99), true, 'which can be liked');
SELECT is(likecount.like_many(ARRAY[2, 3], ARRAY[98, 98]), 2::bigint, 'many at a time, too');
DELETE FROM frz.likes WHERE user_id > 90;
SET ROLE frz_app;
SELECT throws_ok('SELECT likecount.like(1, 99)', '55000', NULL, 'the same for somebody who may not look into the slots');
RESET ROLE;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT throws_ok('SELECT likecount.like(1, 99)', '55000', NULL, 'in REPEATABLE READ');
ROLLBACK;

-- what stays possible: changes of a like's time, and deleting
SELECT lives_ok('UPDATE frz.likes SET liked_at = now() - interval ''1 day'' WHERE post_id = 1 AND user_id = 1', 'a new date of a like');
SELECT lives_ok('UPDATE frz.likes SET user_id = 11 WHERE post_id = 1 AND user_id = 2', 'another user');
SELECT lives_ok('UPDATE frz.likes SET post_id = 2, user_id = 21 WHERE post_id = 1 AND user_id = 3', 'a like that moves away');
SELECT lives_ok('DELETE FROM frz.likes WHERE post_id = 1 AND user_id IN (4, 5)', 'DELETE');
SELECT is(frz.state(1), '10|10|7|10|0', 'the total stays');
SELECT likecount.flush() \g /dev/null
SELECT is(frz.state(1), '10|10|7|7|3', 'after the flush, too');
SELECT is_empty($$SELECT * FROM likecount.check('frz.likes')$$, 'check() finds nothing');
SELECT is(likecount.reconcile('frz.likes', 1), 0::bigint, 'nor does reconcile()');
SELECT is(likecount.freeze('frz.likes', 1), 10::bigint, 'freezing it again does not change it');
BEGIN;
DELETE FROM frz.likes WHERE post_id = 1 AND user_id = 6;
SELECT throws_ok('SELECT likecount.like(1, 6)', '55000', NULL, 'an entry in the accumulator is no permission');
ROLLBACK;
SELECT is(likecount.unfreeze('frz.likes', 1), true, 'unfreeze() tells that it was');
SELECT is(frz.state(1), '7|7|7|7|-', 'and the total is exact');
SELECT is(likecount.like(1, 3), true, 'it can be liked again');
DELETE FROM frz.likes WHERE post_id = 1;
INSERT INTO frz.likes SELECT 1, u FROM generate_series(1, 10) u;
SELECT likecount.flush() \g /dev/null
SELECT is(frz.state(1), '10|10|10|10|-', 'and counts');

-- the exact count, not a total that trails or is wrong
INSERT INTO frz.likes VALUES (2, 31), (2, 32);
UPDATE likecount.like_slots SET value = value + 100 WHERE post = 3;
SELECT is(likecount.freeze('frz.likes', 2), 13::bigint, 'deltas that wait are in it');
SELECT is(likecount.freeze('frz.likes', 3), 10::bigint, 'drift is not');
SELECT is(frz.state(2), '13|13|13|11|2', 'at once');
SELECT is(likecount.reconcile('frz.likes', 3), -100::bigint, 'the drift is that of the rows');
SELECT likecount.flush() \g /dev/null
SELECT is(frz.state(2), '13|13|13|13|0', 'the flush changes slots and mark alike');
SELECT is(frz.state(3), '10|10|10|10|0', 'a correction, too');
SELECT is(likecount.freeze('frz.likes', 4711), 0::bigint, 'a post that nobody likes');
SELECT throws_ok('SELECT likecount.like(4711, 1)', '55000', NULL, 'takes no likes');
SELECT is((SELECT frozen FROM likecount.counters WHERE verb = 'like'), 3::bigint, 'three are frozen');
SELECT likecount.unfreeze('frz.likes', p) FROM (VALUES (2), (3), (4711)) v (p) \g /dev/null
SELECT results_eq('SELECT frz.state(p) FROM (VALUES (2), (3), (4711)) v (p)', $$VALUES ('13|13|13|13|-'), ('10|10|10|10|-'), ('0|0|0|0|-')$$, 'unfrozen, each is exact');

-- within one transaction
BEGIN;
SELECT likecount.like(4, 50) \g /dev/null
SELECT is(likecount.freeze('frz.likes', 4), 11::bigint, 'the caller''s own likes are in it');
SELECT throws_ok('SELECT likecount.like(4, 51)', '55000', NULL, 'it may not like any more, though it did before');
DELETE FROM frz.likes WHERE post_id = 4 AND user_id = 50;
SELECT likecount.flush() \g /dev/null
SELECT is(frz.state(4), '11|11|10|10|1', 'with a flush');
SAVEPOINT a;
SELECT likecount.unfreeze('frz.likes', 4) \g /dev/null
SELECT is(likecount.like(4, 52), true, 'unfrozen in a savepoint');
ROLLBACK TO a;
SELECT throws_ok('SELECT likecount.like(4, 52)', '55000', NULL, 'and frozen again with its rollback');
SELECT likecount.unfreeze('frz.likes', 4) \g /dev/null
SELECT is(frz.state(4), '10|10|10|10|-', 'and unfrozen');
SAVEPOINT b;
SELECT is(likecount.freeze('frz.likes', 4), 10::bigint, 'frozen in a savepoint');
ROLLBACK TO b;
SELECT is(likecount.like(4, 53), true, 'its rollback unfreezes');
COMMIT;
SELECT likecount.flush() \g /dev/null
SELECT is(frz.state(4), '11|11|11|11|-', 'exact');
SELECT is(ARRAY[likecount.freeze('frz.likes', 4), likecount.like_count(4)], '{11,11}', 'in one statement');
SELECT likecount.unfreeze('frz.likes', 4) \g /dev/null

-- TRUNCATE: the rows go, the total of a frozen post stays
SELECT likecount.freeze('frz.likes', 5) \g /dev/null
DELETE FROM frz.likes WHERE post_id = 5 AND user_id = 1;
SELECT likecount.flush() \g /dev/null
DELETE FROM frz.likes WHERE post_id = 5 AND user_id = 2;
INSERT INTO frz.likes VALUES (6, 40);
TRUNCATE frz.likes;
SELECT is(frz.state(5), '10|10|0|9|1', 'TRUNCATE leaves the total');
SELECT likecount.flush() \g /dev/null
SELECT is(frz.state(5), '10|10|0|0|10', 'after the flush, too');
SELECT is(frz.state(6), '0|0|0|0|-', 'others are 0');
SELECT is_empty($$SELECT * FROM likecount.check('frz.likes')$$, 'and nothing is wrong');
SELECT likecount.unfreeze('frz.likes', 5) \g /dev/null
SELECT is(frz.state(5), '0|0|0|0|-', 'unfrozen, it is 0');
INSERT INTO frz.likes SELECT p, u FROM generate_series(1, 9) p, generate_series(1, 10) u;

-- every recount
SELECT likecount.freeze('frz.likes', 7) \g /dev/null
SELECT likecount.flush() \g /dev/null
DELETE FROM frz.likes WHERE post_id = 7 AND user_id = 1;
ALTER TABLE frz.likes DISABLE TRIGGER USER;
DELETE FROM frz.likes WHERE post_id = 7 AND user_id = 2;
ALTER TABLE frz.likes ENABLE TRIGGER USER;
SELECT results_eq($$SELECT * FROM likecount.check('frz.likes')$$, $$VALUES ('7', 9::bigint, 8::bigint)$$, 'check() compares rows with what they are counted as, not with the frozen total');
SELECT results_eq($$SELECT * FROM likecount.reconcile_recent('frz.likes', '1 hour')$$, $$VALUES ('7', 9::bigint, 8::bigint)$$, 'reconcile_recent()');
CALL likecount.reconcile_all('frz.likes');
SELECT likecount.flush() \g /dev/null
SELECT is(frz.state(7), '10|10|8|8|2', 'corrected below the frozen total');
SELECT is_empty($$SELECT * FROM likecount.check('frz.likes', 1000)$$, 'and right');
UPDATE likecount._counter SET state = 'backfilling', walk_after = NULL WHERE verb = 'like';
UPDATE likecount.like_slots SET value = 0 WHERE slot = 0;
UPDATE likecount.like_slots SET value = 10 WHERE slot = -1;
SELECT likecount.flush(), likecount.flush() \g /dev/null
SELECT results_eq($$SELECT frz.state(p) FROM (VALUES (7), (8)) v (p)$$, $$VALUES ('10|10|8|8|2'), ('10|10|10|10|-')$$, 'backfill');
-- a mark of another node, as after a restore on a server with another likecount.node
UPDATE likecount.like_slots SET node = 7 WHERE post = 7;
DELETE FROM frz.likes WHERE post_id = 7 AND user_id = 3;
SELECT throws_ok('SELECT likecount.like(7, 99)', '55000', NULL, 'a mark of another node holds');
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT node, slot, value FROM likecount.like_slots WHERE post = 7 ORDER BY 1, 2',
    'VALUES (0::smallint, (-1)::smallint, 1::bigint), (0::smallint, 0::smallint, -1), (7::smallint, (-1)::smallint, 2), (7::smallint, 0::smallint, 8)', 'this node writes its own slots only');
SELECT is(likecount.like_count(7), 10::bigint, 'and the total stays');
SELECT likecount.unfreeze('frz.likes', 7) \g /dev/null
SELECT is(frz.state(7), '7|7|7|7|-', 'unfreeze() deletes the marks of all nodes');

-- who may, and when not
SET ROLE frz_app;
SELECT throws_ok($$SELECT likecount.freeze('frz.likes', 8)$$, '42501', 'must be owner of table likes', 'freeze() is the owner''s');
SELECT throws_ok($$SELECT likecount.unfreeze('frz.likes', 8)$$, '42501', NULL, 'unfreeze() as well');
SELECT throws_ok($$SELECT * FROM likecount.frozen('frz.likes')$$, '42501', NULL, 'frozen() as well');
SET ROLE frz_owner;
SELECT is(likecount.freeze('frz.likes', '8'), 10::bigint, 'of a literal, by the owner');
PREPARE untyped AS SELECT likecount.unfreeze('frz.likes', $1);
EXECUTE untyped('8') \g /dev/null
SELECT pass('of an untyped parameter');
SELECT throws_ok($$SELECT likecount.freeze('frz.likes', NULL::bigint)$$, '22004', 'argument "post" must not be null', 'not of NULL');
SELECT throws_ok($$SELECT likecount.freeze('frz.likes', 1, 'love')$$, '42704', NULL, 'not of another verb');
RESET ROLE;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT throws_ok($$SELECT likecount.freeze('frz.likes', 8)$$, '25000', 'cannot freeze a post in a REPEATABLE READ or SERIALIZABLE transaction', 'not in REPEATABLE READ');
ROLLBACK;
BEGIN READ ONLY;
SELECT throws_ok($$SELECT likecount.freeze('frz.likes', 8)$$, '25006', NULL, 'not in a read-only transaction');
ROLLBACK;
SELECT throws_ok($$WITH i AS (INSERT INTO frz.likes VALUES (8, 77) RETURNING post_id) SELECT likecount.freeze('frz.likes', post_id) FROM i$$,
    '55006', 'cannot freeze a post while triggers of table frz.likes are pending', 'not while triggers are pending');
BEGIN;
SELECT likecount.freeze('frz.likes', 8) \g /dev/null
\set ON_ERROR_STOP 0
PREPARE TRANSACTION 'frozen';
SELECT is(frz.state(8), '10|10|10|10|-', 'PREPARE is refused');

-- other types, a condition, no users, partitions
SELECT likecount.create_counter('frz.stars', verb => 'star', past => 'starred', post_type => 'text', user_type => 'uuid') \g /dev/null
CREATE TABLE frz.loves (post int NOT NULL, fan int NOT NULL, gone boolean NOT NULL DEFAULT false, PRIMARY KEY (post, fan)) PARTITION BY RANGE (post);
CREATE TABLE frz.loves_1 PARTITION OF frz.loves FOR VALUES FROM (0) TO (10);
CREATE TABLE frz.loves_2 PARTITION OF frz.loves FOR VALUES FROM (10) TO (20);
SELECT likecount.attach('frz.loves', 'post', 'fan', verb => 'love', only_where => 'NOT gone') \g /dev/null
INSERT INTO frz.stars SELECT 'a-key-of-more-than-sixteen-bytes', gen_random_uuid() FROM generate_series(1, 3);
INSERT INTO frz.loves SELECT p, f FROM unnest(ARRAY[1, 11]) p, generate_series(1, 5) f;
SELECT likecount.flush(), likecount.flush() \g /dev/null
SELECT is(likecount.freeze('frz.stars', 'a-key-of-more-than-sixteen-bytes'::varchar), 3::bigint, 'a counter of texts');
SELECT throws_ok($$SELECT likecount.star('a-key-of-more-than-sixteen-bytes', gen_random_uuid())$$, '55000', 'post a-key-of-more-than-sixteen-bytes is frozen', 'refuses');
SELECT is(likecount.star('another-key-of-more-than-sixteen-bytes', gen_random_uuid()), true, 'and takes others');
SELECT is(likecount.freeze('frz.loves', 11::bigint), 5::bigint, 'a partitioned table, with a condition');
UPDATE frz.loves SET gone = true WHERE post = 11 AND fan = 1;
SELECT throws_ok('UPDATE frz.loves SET gone = false WHERE post = 11 AND fan = 1', '55000', 'post 11 is frozen', 'a like that is taken back can''t come again');
SELECT throws_ok('UPDATE frz.loves SET post = 11, fan = 9 WHERE post = 1 AND fan = 1', '55000', 'post 11 is frozen', 'nor one from another partition');
SELECT lives_ok('INSERT INTO frz.loves VALUES (11, 20, true)', 'a row that does not count may');
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT likecount.love_count(1), likecount.love_count(11)', 'VALUES (5::bigint, 5::bigint)', 'the total stays');
SELECT likecount.unfreeze('frz.loves', 11) \g /dev/null
SELECT is(likecount.love_count(11), 4::bigint, 'unfrozen, it is exact');
SELECT throws_ok($$SELECT likecount.freeze('frz.stars', repeat('x', 2000))$$, '22001', NULL, 'a key that is too long');

SELECT * FROM finish();
DROP SCHEMA frz CASCADE;
SELECT likecount.flush() \g /dev/null
REVOKE USAGE ON SCHEMA likecount FROM frz_owner, frz_app;
DROP ROLE frz_owner, frz_app;
