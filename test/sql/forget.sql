-- forget: what is kept about a post goes, and on demand its likes; nothing that waits makes it come back.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
SELECT likecount.flush() \g /dev/null
CREATE SCHEMA fgt;
CREATE ROLE fgt_owner;
CREATE ROLE fgt_app;
GRANT USAGE, CREATE ON SCHEMA fgt TO fgt_owner;
GRANT USAGE ON SCHEMA fgt, likecount TO fgt_app;
GRANT USAGE ON SCHEMA likecount TO fgt_owner;
SET ROLE fgt_owner;
SELECT likecount.create_counter('fgt.likes', verb => 'like') \g /dev/null
RESET ROLE;
GRANT SELECT, INSERT, DELETE ON fgt.likes TO fgt_app;
INSERT INTO fgt.likes SELECT p, u FROM generate_series(1, 9) p, generate_series(1, 10) u;
SELECT likecount.flush(), likecount.flush() \g /dev/null
CREATE FUNCTION fgt.kept(p bigint) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws('|', likecount.like_count(p), likecount.like_count_now(p), (SELECT count(*) FROM fgt.likes WHERE post_id = p),
        (SELECT count(*) FROM likecount.like_slots WHERE post = p)) $$;
SELECT plan(52);

SELECT throws_ok($$SELECT likecount.forget('fgt.likes', 1)$$, '55000', 'post 1 has 10 likes in table fgt.likes', 'a post with likes is not forgotten');
SELECT is(fgt.kept(1), '10|10|10|1', 'nothing is changed');
SELECT is(likecount.forget('fgt.likes', 4711), true, 'one that nobody knows is');

-- its likes are gone already
DELETE FROM fgt.likes WHERE post_id = 1;
SELECT likecount.flush() \g /dev/null
SELECT is(fgt.kept(1), '0|0|0|1', 'a post whose likes are gone keeps a slot');
SELECT is(likecount.forget('fgt.likes', 1), true, 'forgotten');
SELECT is(fgt.kept(1), '0|0|0|0', 'it has none');
-- not flushed yet: the delta that waits would make a new slot
DELETE FROM fgt.likes WHERE post_id = 2;
SELECT is(likecount.forget('fgt.likes', 2), true, 'forgotten before the flush');
SELECT is(fgt.kept(2), '0|0|0|0', 'at once');
SELECT is_empty($$SELECT * FROM likecount.check('fgt.likes')$$, 'nothing is wrong');
SELECT likecount.flush() \g /dev/null
SELECT is(fgt.kept(2), '0|0|0|0', 'nor comes anything back');
-- within the transaction that deletes
BEGIN;
DELETE FROM fgt.likes WHERE post_id = 3;
SELECT is(likecount.forget('fgt.likes', 3), true, 'forgotten before the commit');
SELECT is(fgt.kept(3), '0|0|0|0', 'at once');
COMMIT;
SELECT likecount.flush() \g /dev/null
SELECT is(fgt.kept(3), '0|0|0|0', 'and for good');
SELECT is_empty($$SELECT * FROM likecount.check('fgt.likes')$$, 'nothing is wrong');
BEGIN;
DELETE FROM fgt.likes WHERE post_id = 4;
SELECT likecount.forget('fgt.likes', 4) \g /dev/null
ROLLBACK;
SELECT is(fgt.kept(4), '10|10|10|1', 'rolled back: nothing has happened');

-- with its likes, in batches
SELECT is(likecount.forget('fgt.likes', 4, with_likes => true, batch => 4), false, 'the first batch: there are likes left');
SELECT is((SELECT count(*) FROM fgt.likes WHERE post_id = 4), 6::bigint, 'six of them');
SELECT is(likecount.forget('fgt.likes', 4, true, 4), false, 'the second one');
SELECT is(likecount.forget('fgt.likes', 4, true, 4), true, 'the third one is the last');
SELECT is(fgt.kept(4), '0|0|0|0', 'nothing is left');
SELECT is(likecount.forget('fgt.likes', 5, true, 10), false, 'a batch that is full may not be the last');
SELECT is(likecount.forget('fgt.likes', 5, true, 10), true, 'the next call knows');
SELECT is(likecount.forget('fgt.likes', 6, true), true, 'all in one call');
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT fgt.kept(p) FROM generate_series(4, 7) p', $$VALUES ('0|0|0|0'), ('0|0|0|0'), ('0|0|0|0'), ('10|10|10|1')$$, 'after the flush, too; others are as they were');
-- in a loop that commits
DO $$ BEGIN
    WHILE NOT likecount.forget('fgt.likes', 7, with_likes => true, batch => 3) LOOP
        COMMIT;
    END LOOP;
END $$;
SELECT is(fgt.kept(7), '0|0|0|0', 'in a loop that commits');

-- a frozen post
SELECT likecount.freeze('fgt.likes', 8) \g /dev/null
SELECT is(likecount.forget('fgt.likes', 8, true, 7), false, 'a frozen post');
SELECT is(likecount.like_count(8), 10::bigint, 'is displayed as it was until the last batch');
SELECT throws_ok('SELECT likecount.like(8, 99)', '55000', NULL, 'and takes no likes');
SELECT is(likecount.forget('fgt.likes', 8, true, 7), true, 'then it is forgotten');
SELECT is(fgt.kept(8), '0|0|0|0', 'with its mark');
SELECT is(likecount.like(8, 99), true, 'and a post like any other');
SELECT likecount.flush() \g /dev/null
SELECT is(fgt.kept(8), '1|1|1|1', 'which counts');

-- with drift, which is gone with the slots
UPDATE likecount.like_slots SET value = 17 WHERE post = 9;
SELECT is(likecount.forget('fgt.likes', 9, true), true, 'a post whose total was wrong');
SELECT likecount.flush() \g /dev/null
SELECT is(fgt.kept(9), '0|0|0|0', 'is forgotten like others');
SELECT is_empty($$SELECT * FROM likecount.check('fgt.likes')$$, 'nothing is wrong');

-- who may: the owner, with what the owner may do to the table
INSERT INTO fgt.likes SELECT 1, u FROM generate_series(1, 10) u;
SET ROLE fgt_app;
SELECT throws_ok($$SELECT likecount.forget('fgt.likes', 1, true)$$, '42501', 'must be owner of table likes', 'it takes the owner');
RESET ROLE;
REVOKE DELETE ON fgt.likes FROM fgt_owner;
SET ROLE fgt_owner;
SELECT throws_ok($$SELECT likecount.forget('fgt.likes', 1, true)$$, '42501', 'permission denied for table likes', 'who may delete');
GRANT DELETE ON fgt.likes TO fgt_owner;
ALTER TABLE fgt.likes ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY few ON fgt.likes USING (user_id < 5);
SELECT is(likecount.forget('fgt.likes', 1, true), false, 'row security holds');
SELECT throws_ok($$SELECT likecount.forget('fgt.likes', 1, true)$$, '55000', 'post 1 has 6 likes in table fgt.likes', 'a call that can''t delete any more says so');
ALTER TABLE fgt.likes DISABLE ROW LEVEL SECURITY;
SELECT is(likecount.forget('fgt.likes', '1', true), true, 'of a literal, by the owner');
RESET ROLE;

-- refusals
SELECT throws_ok($$SELECT likecount.forget('fgt.likes', NULL::bigint)$$, '22004', 'argument "post" must not be null', 'not of NULL');
SELECT throws_ok($$SELECT likecount.forget('fgt.likes', 1, NULL)$$, '22004', NULL, 'with or without likes');
SELECT throws_ok($$SELECT likecount.forget('fgt.likes', 1, true, 0)$$, '22023', 'batch must be at least 1', 'no empty batch');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT throws_ok($$SELECT likecount.forget('fgt.likes', 1)$$, '25000', 'cannot forget a post in a REPEATABLE READ or SERIALIZABLE transaction', 'not in REPEATABLE READ');
ROLLBACK;
BEGIN READ ONLY;
SELECT throws_ok($$SELECT likecount.forget('fgt.likes', 1)$$, '25006', NULL, 'not in a read-only transaction');
ROLLBACK;

-- partitions, a condition, other types
CREATE TABLE fgt.loves (post text NOT NULL, fan int NOT NULL, gone boolean NOT NULL DEFAULT false, PRIMARY KEY (post, fan)) PARTITION BY HASH (fan);
CREATE TABLE fgt.loves_0 PARTITION OF fgt.loves FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE fgt.loves_1 PARTITION OF fgt.loves FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT likecount.attach('fgt.loves', 'post', 'fan', verb => 'love', only_where => 'NOT gone') \g /dev/null
INSERT INTO fgt.loves SELECT p, f FROM unnest(ARRAY['a', 'b']) p, generate_series(1, 40) f;
UPDATE fgt.loves SET gone = true WHERE fan = 1;
SELECT likecount.flush(), likecount.flush() \g /dev/null
SELECT is((SELECT count(*) FROM generate_series(1, 50) WHERE likecount.forget('fgt.loves', 'a', true, 5)) > 0, true, 'a partitioned table');
SELECT results_eq('SELECT post, gone, count(*) FROM fgt.loves GROUP BY 1, 2 ORDER BY 1, 2', $$VALUES ('a', true, 1::bigint), ('b', false, 39), ('b', true, 1)$$, 'rows that do not count stay');
SELECT likecount.flush() \g /dev/null
SELECT results_eq($$SELECT post_id, total FROM likecount.love_totals$$, $$VALUES ('b', 39::bigint)$$, 'and the other post');

-- a cascade from a table of posts, and what is left of it
CREATE TABLE fgt.posts (id bigint PRIMARY KEY);
INSERT INTO fgt.posts SELECT generate_series(100, 104);
CREATE TABLE fgt.stars (post_id bigint NOT NULL REFERENCES fgt.posts ON DELETE CASCADE, user_id bigint NOT NULL, PRIMARY KEY (post_id, user_id));
SELECT likecount.attach('fgt.stars', 'post_id', 'user_id', past => 'starred') \g /dev/null
INSERT INTO fgt.stars SELECT p, u FROM generate_series(100, 104) p, generate_series(1, 5) u;
SELECT likecount.flush(), likecount.flush() \g /dev/null
SELECT likecount.freeze('fgt.stars', 101) \g /dev/null
DELETE FROM fgt.posts WHERE id < 102;
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT post_id, total FROM likecount.star_totals ORDER BY 1', 'VALUES (100::bigint, 0::bigint), (101, 5), (102, 5), (103, 5), (104, 5)', 'a cascade passes, also over a frozen post, whose total stays');
WITH gone AS MATERIALIZED (SELECT post_id FROM likecount.star_totals t WHERE NOT EXISTS (SELECT FROM fgt.posts p WHERE p.id = t.post_id))
SELECT is(count(likecount.forget('fgt.stars', post_id)), 2::bigint, 'a job forgets what has no post') FROM gone;
SELECT results_eq('SELECT post_id FROM likecount.star_totals ORDER BY 1', 'VALUES (102::bigint), (103), (104)', 'and nothing else');
SELECT is((SELECT count(*) FROM likecount.star_slots), 3::bigint, 'no slot of it is left');

SELECT * FROM finish();
DROP SCHEMA fgt CASCADE;
SELECT likecount.flush() \g /dev/null
REVOKE USAGE ON SCHEMA likecount FROM fgt_owner, fgt_app;
DROP ROLE fgt_owner, fgt_app;
