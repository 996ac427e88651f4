-- Direct mode: each transaction adds its deltas to slots above 0 at its commit; set_mode() and folding.  Dropped at the end.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
SELECT likecount.flush() \g /dev/null
CREATE SCHEMA app;
SET search_path = app, public;
\i :oracle
CREATE ROLE drc_owner;
CREATE ROLE drc_app;
GRANT USAGE, CREATE ON SCHEMA app TO drc_owner;
GRANT USAGE ON SCHEMA app, likecount TO drc_app;
GRANT USAGE ON SCHEMA likecount TO drc_owner;
SELECT plan(117);

SET check_function_bodies = off;
-- slots(post): the post's slots as "number:value ..."
CREATE FUNCTION slots(p bigint) RETURNS text LANGUAGE sql AS $$
    SELECT COALESCE(string_agg(format('%s:%s', slot, value), ' ' ORDER BY slot), '') FROM likecount.like_slots WHERE post = p $$;
-- mode(verb): mode, path and why
CREATE FUNCTION mode(v text) RETURNS text LANGUAGE sql AS $$ SELECT concat_ws('|', mode, path, path_reason) FROM likecount.counters WHERE verb = v $$;
-- quiet() makes all slots of the past
-- fold() has them folded, in as many chunks as it takes
CREATE PROCEDURE fold(chunks int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..chunks LOOP PERFORM likecount.flush(); COMMIT; END LOOP; END $$;
CREATE PROCEDURE quiet() LANGUAGE sql AS $$ UPDATE likecount.like_slots SET updated_at = updated_at - interval '1 minute' $$;

-- a new counter is recounted first, as any, and likes take the journal meanwhile
SET ROLE drc_owner;
SELECT likecount.create_counter('app.likes', verb => 'like', mode => 'direct') \g /dev/null
RESET ROLE;
GRANT SELECT, INSERT, DELETE ON app.likes TO drc_app;
GRANT SELECT ON likecount.like_totals TO drc_app;
SELECT is(mode('like'), 'direct|journal|the posts are being recounted', 'a counter that was just made');
SELECT likecount.like(1, 1) \g /dev/null
SELECT is(waiting('like'), 'journal 1:1', 'its likes take the journal');
SELECT likecount.flush() \g /dev/null
SELECT is(mode('like'), 'direct|slots', 'from then on its transactions write slots');
SELECT is(slots(1), '0:1', 'what came before is in slot 0');
SELECT is((SELECT string_agg(DISTINCT tgargs::text, '') FROM pg_trigger WHERE tgrelid = 'app.likes'::regclass), 'like\000liked\000direct\000'::bytea::text, 'the triggers say the mode, for dumps');

-- every call, by whomever
SET ROLE drc_app;
SELECT is(likecount.like(1, 2), true, 'like()');
SELECT is(likecount.like_count(1), 2::bigint, 'is counted when it is committed');
SELECT is(likecount.like(1, 2), false, 'a second one');
SELECT is(likecount.like_count(1), 2::bigint, 'is not');
SELECT is(likecount.unlike(1, 1), true, 'unlike()');
SELECT is(likecount.like_count(1), 1::bigint, 'is');
SELECT is(likecount.like_many(ARRAY[1, 1, 2, 2, 3], ARRAY[5, 6, 5, 6, 5]), 5::bigint, 'like_many()');
SELECT results_eq('SELECT * FROM likecount.like_counts(ARRAY[1, 2, 3, 4])', 'VALUES (1::bigint, 3::bigint), (2, 2), (3, 1), (4, 0)', 'is counted');
SELECT results_eq('SELECT * FROM likecount.like_totals ORDER BY 1', 'VALUES (1::bigint, 3::bigint), (2, 2), (3, 1)', 'in the view, too');
RESET ROLE;
SELECT is(slots(1), '0:1 1:2', 'one writer at a time needs one slot');
SELECT is(waiting('like'), '', 'nothing waits');
SELECT is(drifts('like'), '', 'all is exact');
COPY app.likes (post_id, user_id) FROM stdin;
4	1
4	2
5	1
\.
SELECT is(slots(4), '1:2', 'COPY');
UPDATE app.likes SET post_id = 5, user_id = 9 WHERE post_id = 4 AND user_id = 1;
SELECT is(slots(4) || ' ' || slots(5), '1:1 1:2', 'UPDATE');
DELETE FROM app.likes WHERE post_id = 5;
SELECT is(slots(5), '1:0', 'DELETE');
MERGE INTO app.likes l USING (VALUES (4, 2), (6, 1)) v (p, u) ON l.post_id = v.p AND l.user_id = v.u
    WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (post_id, user_id) VALUES (v.p, v.u);
SELECT is(slots(4) || ' ' || slots(6), '1:0 1:1', 'MERGE');
WITH l AS (DELETE FROM app.likes WHERE post_id = 6 RETURNING *) INSERT INTO app.likes SELECT post_id, 77 FROM l;
SELECT is(slots(6) || '|' || waiting('like'), '1:1|', 'a net of 0 writes nothing, and leaves no mark');
SELECT is((SELECT string_agg(format('%s/%s', indexrelid::regclass, indisunique), ' ' ORDER BY indexrelid::regclass::text COLLATE "C") FROM pg_index WHERE indrelid = 'likecount.like_slots'::regclass),
    'likecount.like_slots_frozen/f likecount.like_slots_open/f likecount.like_slots_pkey/t', 'the indexes of the slots');

-- in a transaction
BEGIN;
SELECT likecount.like(7, u) FROM generate_series(1, 3) u \g /dev/null
SELECT is(slots(7), '', 'before the commit nothing is written');
SELECT is(likecount.like_count_now(7), 3::bigint, 'though like_count_now() knows');
SAVEPOINT a;
SELECT likecount.like(7, 4), likecount.like(8, 1) \g /dev/null
ROLLBACK TO a;
SAVEPOINT b;
SELECT likecount.like(7, 5), likecount.unlike(7, 1) \g /dev/null
RELEASE b;
COMMIT;
SELECT is(slots(7) || slots(8), '1:3', 'savepoints');
BEGIN;
SELECT likecount.like(7, 10) \g /dev/null
ROLLBACK;
SELECT is(slots(7), '1:3', 'a transaction that is rolled back');
CREATE TABLE posts (id bigint PRIMARY KEY);
INSERT INTO posts SELECT generate_series(1, 9);
ALTER TABLE app.likes ADD FOREIGN KEY (post_id) REFERENCES posts ON DELETE CASCADE;
DELETE FROM posts WHERE id = 7;
SELECT is(slots(7), '1:0', 'a cascade');
ALTER TABLE app.likes DROP CONSTRAINT likes_post_id_fkey;
BEGIN;
SELECT likecount.like(7, 1) \g /dev/null
SET TRANSACTION READ ONLY;
COMMIT;
SELECT is(slots(7), '1:1', 'a transaction that becomes read-only');
BEGIN;
SELECT likecount.like(7, 2) \g /dev/null
COMMIT AND CHAIN;
SELECT likecount.like(7, 3) \g /dev/null
COMMIT;
SELECT is(slots(7), '1:3', 'COMMIT AND CHAIN');
DO $$ BEGIN FOR u IN 4..6 LOOP PERFORM likecount.like(7, u); COMMIT; END LOOP; END $$;
SELECT is(slots(7), '1:6', 'COMMIT in a loop');
BEGIN;
SELECT likecount.like(7, 7) \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is(slots(7), '0:1 1:6', 'flush() takes the own deltas, to slot 0');
SELECT likecount.like(7, 8) \g /dev/null
COMMIT;
SELECT is(slots(7), '0:1 1:7', 'and what comes after is added at the commit');
SELECT is(drifts('like'), '', 'all is exact');

-- what takes the journal
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT likecount.like(7, 20) \g /dev/null
COMMIT;
SELECT is(waiting('like'), 'journal 7:1', 'REPEATABLE READ');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT likecount.unlike(7, 20) \g /dev/null
COMMIT;
SELECT is(waiting('like'), 'journal 7:-1 journal 7:1', 'SERIALIZABLE');
BEGIN;
SELECT likecount.like(7, 21) \g /dev/null
PREPARE TRANSACTION 'direct';
SELECT is(waiting('like'), 'journal 7:-1 journal 7:1', 'a prepared transaction is not committed');
SELECT likecount.like(7, 22) \g /dev/null
SELECT is(slots(7), '0:1 1:8', 'and is in nobody''s way');
COMMIT PREPARED 'direct';
SELECT is(waiting('like'), 'journal 7:-1 journal 7:1 journal 7:1', 'PREPARE');
SELECT likecount.flush() \g /dev/null
SELECT is(slots(7) || '|' || drifts('like'), '0:2 1:8|', 'they are flushed to slot 0');
UPDATE likecount.like_slots SET value = 9223372036854775807 WHERE post = 7 AND slot = 1;
DELETE FROM likecount.like_slots WHERE post = 7 AND slot = 0;
SELECT lives_ok('SELECT likecount.like(7, 23)', 'a total that would not fit is no error');
SELECT is(waiting('like'), 'journal 7:1', 'but takes the journal');
DELETE FROM likecount.like_slots WHERE post = 7;
SELECT likecount.flush(), likecount.reconcile('app.likes', 7), likecount.flush() \g /dev/null
SELECT is(drifts('like'), '', 'recounted');
UPDATE likecount.like_slots SET value = 9223372036854775807 WHERE post = 7;
SELECT likecount.like(7, 24) \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT string_agg(delta || ': ' || r.reason, ', ') FROM likecount._rejected r JOIN likecount._counter c ON c.id = r.counter AND c.verb = 'like'), '1: the total would not fit a bigint', 'from where the flush sets it aside');
DELETE FROM likecount.like_slots WHERE post = 7;
DELETE FROM likecount._rejected;
SELECT likecount.reconcile('app.likes', 7), likecount.flush() \g /dev/null
SELECT is(drifts('like'), '', 'recounted');

-- many posts
SELECT likecount.like_many(array_agg(p), array_agg(1)) FROM generate_series(1000, 1999) p \g /dev/null
SELECT ok((SELECT count(*) FROM likecount.like_slots WHERE post BETWEEN 1000 AND 1999) = current_setting('max_locks_per_transaction')::int / 2, 'as many slots are opened as a transaction should have locks');
SELECT is((SELECT sum(pending)::bigint FROM likecount.pending WHERE verb = 'like'), 1000 - current_setting('max_locks_per_transaction')::bigint / 2, 'the other posts take the journal');
SELECT is(drifts('like'), '', 'nothing is lost');
SELECT likecount.flush() \g /dev/null
SELECT likecount.like(p, 2) FROM generate_series(1000, 1499) p \g /dev/null
SELECT is(drifts('like'), '', 'nor here');
INSERT INTO app.likes SELECT p, 1 FROM generate_series(100000, 170000) p;
SELECT is(drifts('like'), '', 'nor where the accumulator is spilled');
DELETE FROM app.likes WHERE post_id >= 1000;
SELECT is(drifts('like'), '', 'nor in a DELETE of all of them');
SELECT likecount.flush() \g /dev/null

-- the cache of totals: a slot that is changed by hand shows what comes from it
SELECT is(likecount.like_count(20), 0::bigint, 'a post without likes');
INSERT INTO likecount.like_slots VALUES (20, 0, 0, 100, now());
SELECT is(likecount.like_count(20), 0::bigint, 'is cached');
SELECT likecount.like(20, 1) \g /dev/null
SELECT is(likecount.like_count(20) || '|' || slots(20), '101|0:100 1:1', 'a like that opens a slot shows at once');
UPDATE likecount.like_slots SET value = 0 WHERE post = 20 AND slot = 0;
SELECT is(likecount.like_count(20), 101::bigint, 'and is cached');
SELECT likecount.like(20, 2) \g /dev/null
SELECT is((SELECT total FROM likecount.like_counts(ARRAY[20])) || '|' || slots(20), '2|0:0 1:2', 'so does one that finds a slot');
UPDATE likecount.like_slots SET value = 100 WHERE post = 20 AND slot = 0;
BEGIN;
SELECT likecount.unlike(20, 1) \g /dev/null
SELECT is(likecount.like_count(20), 2::bigint, 'one that is not committed does not');
ROLLBACK;
SELECT is(likecount.like_count(20), 2::bigint, 'nor one that is rolled back');
UPDATE likecount.like_slots SET updated_at = updated_at - interval '1 minute' WHERE post = 20;
CALL fold(1);
SELECT is(likecount.like_count(20) || '|' || slots(20), '102|0:102', 'folding counts as a change');
UPDATE likecount.like_slots SET value = 2 WHERE post = 20;
DELETE FROM app.likes WHERE post_id = 20;
SELECT is(likecount.like_count(20), 0::bigint, 'as does an unlike');
DELETE FROM likecount.like_slots WHERE post = 20;
SELECT is(drifts('like'), '', 'all is exact');

-- frozen posts
SELECT is(likecount.freeze('app.likes', 1), 3::bigint, 'freeze() counts');
SELECT is(slots(1), '-1:0 0:1 1:2', 'slots above 0 stay');
DELETE FROM app.likes WHERE post_id = 1 AND user_id = 5;
SELECT is(slots(1) || '|' || waiting('like'), '-1:0 0:1 1:2|journal 1:-1', 'what goes from a frozen post takes the journal');
SELECT throws_ok('SELECT likecount.like(1, 99)', '55000', 'post 1 is frozen', 'likes are refused');
SELECT likecount.flush() \g /dev/null
SELECT is(slots(1), '-1:1 0:0 1:2', 'and changes slot 0 and the mark');
CALL quiet();
CALL fold(10);
SELECT is(slots(1), '-1:1 0:2', 'its slots are folded, and the mark stays');
SELECT is(likecount.like_count(1), 3::bigint, 'as does the total');
SELECT likecount.unfreeze('app.likes', 1) \g /dev/null
SELECT likecount.like(1, 50) \g /dev/null
SELECT is(slots(1), '0:2 1:1', 'unfrozen, it is liked as ever');
SELECT likecount.like(9, 1) \g /dev/null
SELECT is(likecount.forget('app.likes', 9, with_likes => true), true, 'forget()');
SELECT is(slots(9), '', 'takes all slots');
SELECT likecount.flush() \g /dev/null
SELECT is(slots(9) || drifts('like'), '', 'and nothing comes after');

-- TRUNCATE
SELECT likecount.like(2, 70) \g /dev/null
BEGIN;
SELECT likecount.like(2, 71), likecount.like(10, 1) \g /dev/null
SAVEPOINT a;
TRUNCATE app.likes;
SELECT likecount.like(2, 1) \g /dev/null
ROLLBACK TO a;
COMMIT;
SELECT is(likecount.like_count(2) || '|' || likecount.like_count(10) || '|' || drifts('like'), '4|1|', 'TRUNCATE that is rolled back');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT likecount.like(2, 72), likecount.like(11, 1) \g /dev/null
TRUNCATE app.likes;
SELECT likecount.like(2, 1) \g /dev/null
COMMIT;
SELECT is(drifts('like'), '', 'TRUNCATE in REPEATABLE READ');
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT * FROM likecount.like_totals WHERE total <> 0', 'VALUES (2::bigint, 1::bigint)', 'leaves what came after it');
SELECT likecount.like(p, 3) FROM generate_series(1, 5) p \g /dev/null
BEGIN;
TRUNCATE app.likes;
SELECT likecount.like(2, 1) \g /dev/null
COMMIT;
SELECT results_eq('SELECT * FROM likecount.like_totals WHERE total <> 0', 'VALUES (2::bigint, 1::bigint)', 'TRUNCATE is exact at once');

-- recounts
ALTER TABLE app.likes DISABLE TRIGGER ALL;
INSERT INTO app.likes VALUES (3, 1), (3, 2);
ALTER TABLE app.likes ENABLE TRIGGER ALL;
BEGIN;
SELECT likecount.like(3, 3) \g /dev/null
SELECT is(likecount.reconcile('app.likes', 3), 2::bigint, 'reconcile() leaves out what this transaction will add');
COMMIT;
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(3) || drifts('like'), '3', 'and both find their place');

-- folding
CALL quiet();
SELECT likecount.like(p, 9) FROM generate_series(1, 4) p \g /dev/null
SELECT is((SELECT open_slots FROM likecount.counters WHERE verb = 'like') > 4, true, 'counters has how many slots are open');
SELECT is((SELECT count(*) FROM likecount.like_slots WHERE post BETWEEN 1 AND 4 AND slot > 0), 4::bigint, 'four posts are hot');
CALL fold(2);
SELECT results_eq('SELECT verb::text, post::int, slots, total FROM likecount.hot_posts ORDER BY 2', $$VALUES ('like' COLLATE "C", 1, 1, 1::bigint), ('like', 2, 1, 2), ('like', 3, 1, 4), ('like', 4, 1, 1)$$, 'the others are folded');
SELECT is(drifts('like'), '', 'which changes no total');
CALL quiet();
INSERT INTO likecount.like_slots SELECT 5, 0, s, 1, now() - interval '1 day' FROM generate_series(2, 1000) s;
INSERT INTO likecount.like_slots SELECT 5, 7, s, 1, now() - interval '1 day' FROM generate_series(1, 3) s;
CALL fold(40);
SELECT is((SELECT open_slots FROM likecount.counters WHERE verb = 'like'), 3::bigint, 'in chunks; those of other nodes are not ours');
SELECT is((SELECT string_agg(format('%s/%s:%s', node, slot, value), ' ' ORDER BY node, slot) FROM likecount.like_slots WHERE post = 5), '0/0:999 7/1:1 7/2:1 7/3:1', 'their sum is in slot 0');
DELETE FROM likecount.like_slots WHERE post = 5;
UPDATE likecount.like_slots SET value = 9223372036854775807 WHERE post = 4 AND slot = 0;
INSERT INTO likecount.like_slots VALUES (4, 0, 2, 1, now() - interval '1 day'), (3, 0, 2, 1, now() - interval '1 day'), (5, 0, 2, 1, now() - interval '1 day');
CALL fold(2);
SELECT is((SELECT string_agg(post || '/' || slot, ' ') FROM likecount.like_slots WHERE slot > 0), '4/2', 'a slot that does not fit stays, and stops no others');
INSERT INTO likecount.like_slots VALUES (3, 0, 2, 1, now() + interval '1 day'), (3, 0, 3, 1, now());
CALL fold(2);
SELECT is((SELECT string_agg(slot::text, ' ') FROM likecount.like_slots WHERE post = 3 AND slot > 0), '3', 'one that was written before the clock was set back is quiet');
DELETE FROM likecount.like_slots;
SELECT likecount.reconcile('app.likes', p) FROM generate_series(1, 5) p \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is(drifts('like'), '', 'recounted');

-- set_mode()
SET ROLE drc_app;
SELECT throws_ok($$SELECT likecount.set_mode('app.likes', 'queued')$$, '42501', 'must be owner of table likes', 'set_mode() is the owner''s');
SET ROLE drc_owner;
SELECT throws_ok($$SELECT likecount.set_mode('app.likes', 'fast')$$, '22023', 'unknown mode "fast"', 'it knows two modes');
SELECT throws_ok($$SELECT likecount.set_mode('app.likes', NULL)$$, '22004', 'argument "mode" of likecount.set_mode() must not be null', 'NULL is none');
SELECT throws_ok($$SELECT likecount.set_mode('app.likes', 'queued', 'love')$$, '42704', 'table app.likes has no counter with verb "love"', 'another verb');
SELECT lives_ok($$SELECT likecount.set_mode('app.likes', 'direct')$$, 'the mode that it has');
RESET ROLE;
SELECT is((SELECT count(*) FROM likecount._mode), 1::bigint, 'changes nothing');
SET ROLE drc_owner;
SELECT likecount.set_mode('app.likes', 'queued', verb => 'like') \g /dev/null
RESET ROLE;
SELECT is(mode('like'), 'queued|queue', 'queued, at once');
SELECT likecount.like(2, 30) \g /dev/null
SELECT is(waiting('like'), 'queue 2:1', 'likes take the queue');
SELECT is((SELECT string_agg(DISTINCT tgargs::text, '') FROM pg_trigger WHERE tgrelid = 'app.likes'::regclass), 'like\000liked\000queued\000'::bytea::text, 'the triggers say so, too');
SET ROLE drc_owner;
SELECT likecount.set_mode('app.likes', 'direct') \g /dev/null
RESET ROLE;
SELECT is(mode('like'), 'switching to direct|journal|the counter is being switched to direct mode', 'to direct it takes a flush');
SELECT likecount.like(2, 31), likecount.unlike(2, 30) \g /dev/null
SELECT is(waiting('like'), 'queue 2:1 journal 2:0', 'until then deltas take the journal, and leave their marks');
SELECT likecount.flush() \g /dev/null
SELECT is(mode('like'), 'direct|slots', 'which finds nothing left in the queue');
SELECT is((SELECT count(*) FROM likecount._mode), 1::bigint, 'and deletes older rows');
SELECT likecount.like(2, 32) \g /dev/null
SELECT is(slots(2) || '|' || drifts('like'), '0:3 1:1|', 'direct');
BEGIN;
SELECT likecount.set_mode('app.likes', 'queued') \g /dev/null
ROLLBACK;
SELECT likecount.like(2, 33) \g /dev/null
SELECT is(slots(2) || '|' || drifts('like'), '0:3 1:2|', 'a switch that is rolled back');
BEGIN;
SELECT likecount.like(2, 34) \g /dev/null
SELECT likecount.set_mode('app.likes', 'queued') \g /dev/null
SELECT likecount.like(2, 35) \g /dev/null
SELECT likecount.set_mode('app.likes', 'direct') \g /dev/null
SELECT likecount.like(2, 36) \g /dev/null
COMMIT;
SELECT is(waiting('like') || '|' || mode('like'), 'journal 2:3|switching to direct|journal|the counter is being switched to direct mode', 'likes around two switches in one transaction');
SELECT likecount.set_mode('app.likes', 'queued') \g /dev/null
SELECT likecount.like(2, 37) \g /dev/null
BEGIN;
SELECT likecount.set_mode('app.likes', 'direct') \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is(mode('like'), 'direct|slots', 'a flush in the same transaction');
SELECT likecount.like(2, 38) \g /dev/null
COMMIT;
SELECT is(slots(2) || '|' || drifts('like'), '0:7 1:3|', 'will do');

-- other types, a condition, no users, partitions
SELECT likecount.create_counter('app.stars', verb => 'star', past => 'starred', post_type => 'text', user_type => 'uuid', mode => 'direct') \g /dev/null
CREATE TABLE app.loves (post int NOT NULL, fan int NOT NULL, gone boolean NOT NULL DEFAULT false, PRIMARY KEY (post, fan)) PARTITION BY RANGE (post);
CREATE TABLE app.loves_1 PARTITION OF app.loves FOR VALUES FROM (0) TO (10);
CREATE TABLE app.loves_2 PARTITION OF app.loves FOR VALUES FROM (10) TO (20);
SELECT likecount.attach('app.loves', 'post', 'fan', verb => 'love', only_where => 'NOT gone', mode => 'direct') \g /dev/null
CREATE TABLE app.replies (post uuid NOT NULL);
INSERT INTO app.replies VALUES ('00000000-0000-0000-0000-000000000001');
SELECT likecount.attach('app.replies', 'post', verb => 'reply', past => 'replied', mode => 'direct') \g /dev/null
SELECT likecount.flush(), likecount.flush() \g /dev/null
SELECT likecount.star('a-key-of-more-than-sixteen-bytes', gen_random_uuid()), likecount.star('a-key-of-more-than-sixteen-bytes', gen_random_uuid()) \g /dev/null
SELECT is((SELECT string_agg(concat_ws('/', post, slot, value), ' ') FROM likecount.star_slots), 'a-key-of-more-than-sixteen-bytes/1/2', 'posts that are texts');
INSERT INTO app.loves VALUES (1, 1, false), (1, 2, true), (11, 1, false), (12, 1, false);
UPDATE app.loves SET post = 13 WHERE post = 1 AND fan = 1;
UPDATE app.loves SET gone = true WHERE post = 12;
DELETE FROM app.loves_2 WHERE post = 13;
SELECT is((SELECT string_agg(concat_ws('/', post, slot, value), ' ' ORDER BY post) FROM likecount.love_slots), '1/1/0 11/1/1 12/1/0 13/1/0', 'partitions and a condition');
TRUNCATE app.loves_2;
SELECT likecount.flush(), likecount.flush() \g /dev/null
SELECT is((SELECT sum(total)::bigint FROM likecount.love_totals), 0::bigint, 'TRUNCATE of a partition');
SELECT likecount.set_mode('app.loves', 'queued') \g /dev/null
SELECT is((SELECT count(DISTINCT tgargs) || ' ' || count(*) FROM pg_trigger WHERE tgfoid = 'likecount._capture'::regproc AND tgrelid::regclass::text LIKE '%loves%'), '1 10', 'set_mode() tells the triggers of partitions, too');
INSERT INTO app.replies SELECT '00000000-0000-0000-0000-000000000001' FROM generate_series(1, 4);
SELECT is((SELECT string_agg(concat_ws('/', slot, value), ' ' ORDER BY slot) FROM likecount.reply_slots), '0/1 1/4', 'rows without users');
INSERT INTO likecount.like_slots SELECT p, 0, 1, 0, now() - interval '1 day' FROM generate_series(901, 930) p;
INSERT INTO likecount.star_slots SELECT p, 0, 1, 0, now() - interval '1 day' FROM generate_series(901, 930) p;
INSERT INTO likecount.love_slots SELECT p, 0, 1, 0, now() - interval '1 day' FROM generate_series(901, 930) p;
BEGIN;
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'object' AND classid::regclass::text LIKE 'likecount.%\_slots'), current_setting('max_locks_per_transaction')::bigint / 2,
    'the slots that are folded in one transaction are as many as it should have locks, whatever the number of counters');
COMMIT;
CALL fold(3);
SELECT is((SELECT string_agg(DISTINCT format('%s/%s', slot, value), ' ') FROM (SELECT post::text, slot, value FROM likecount.like_slots UNION ALL SELECT post, slot, value FROM likecount.star_slots UNION ALL SELECT post::text, slot, value FROM likecount.love_slots) s
    WHERE post BETWEEN '901' AND '930' AND length(post) = 3), '0/0', 'the others follow');
INSERT INTO likecount.star_slots SELECT 'a post that is folded ' || p, 0, 1, 0, now() FROM generate_series(1, 20000) p;
DELETE FROM likecount.star_slots;
INSERT INTO likecount.star_slots VALUES (repeat('z', 1000), 0, 1, 1, now() - interval '1 day');
CALL fold(1);
SELECT is((SELECT string_agg(concat_ws('/', length(post), slot, value), ' ') FROM likecount.star_slots), '1000/1/1', 'where very many slots have gone a chunk looks at some of their entries');
CALL fold(3);
SELECT is((SELECT string_agg(concat_ws('/', length(post), slot, value), ' ') FROM likecount.star_slots), '1000/0/1', 'and the next ones at the others');
-- a slots table with a column more, in both modes
ALTER TABLE likecount.reply_slots ADD COLUMN note text;
ALTER TABLE likecount.love_slots ADD COLUMN note text, ADD COLUMN gone text;
ALTER TABLE likecount.love_slots DROP COLUMN gone;
INSERT INTO app.replies VALUES ('00000000-0000-0000-0000-000000000001'), ('00000000-0000-0000-0000-000000000002');
INSERT INTO app.loves VALUES (1, 3, false), (2, 1, false);
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT string_agg(concat_ws('/', right(post::text, 1), slot, value), ' ' ORDER BY post, slot) FROM likecount.reply_slots), '1/0/1 1/1/5 2/1/1', 'a column that somebody added to the slots is left empty');
SELECT is((SELECT string_agg(concat_ws('/', post_id, total), ' ' ORDER BY post_id) FROM likecount.love_totals WHERE post_id < 10), '1/1 2/1', 'by flushes, too');
CREATE TABLE app.elsewhere (LIKE app.likes INCLUDING ALL);
CREATE TRIGGER like_capture_ins AFTER INSERT ON app.elsewhere FOR EACH ROW EXECUTE FUNCTION likecount._capture('like', 'liked', 'direct');
ALTER TABLE app.elsewhere OWNER TO drc_owner;
INSERT INTO app.elsewhere VALUES (2, 1);
SELECT is(waiting('like'), 'journal 2:1', 'a table of the same owner, which set_mode() does not lock, takes the journal');

SELECT * FROM finish();
SET search_path = public;
DROP SCHEMA app CASCADE;
SELECT likecount.flush() \g /dev/null
REVOKE USAGE ON SCHEMA likecount FROM drc_owner, drc_app;
DROP ROLE drc_owner, drc_app;
