-- The cache of totals.  A slot row that is changed by hand shows what comes from the cache: it still has the old total.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
SELECT likecount.flush() \g /dev/null
CREATE SCHEMA cch;
SELECT likecount.create_counter('cch.likes', verb => 'like') \g /dev/null
INSERT INTO cch.likes SELECT p, u FROM generate_series(1, 3) p, generate_series(1, 10) u WHERE u <= p;
SELECT likecount.flush() \g /dev/null
-- by_hand(post, value) sets slot 0; totals(): like_count and like_counts of posts 1 to 3
CREATE FUNCTION cch.by_hand(p bigint, v bigint) RETURNS void LANGUAGE sql AS $$ UPDATE likecount.like_slots SET value = v WHERE post = p AND slot = 0 $$;
CREATE FUNCTION cch.totals() RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', likecount.like_count(1), likecount.like_count(2), likecount.like_count(3), '|', (SELECT string_agg(total::text, ' ' ORDER BY post_id) FROM likecount.like_counts(ARRAY[1, 2, 3]))) $$;
SELECT plan(40);

SELECT is(current_setting('likecount.cache_size'), '16MB', 'there is a cache');
SELECT is(cch.totals(), '1 2 3 | 1 2 3', 'totals');
SELECT cch.by_hand(2, 50) \g /dev/null
SELECT is(cch.totals(), '1 2 3 | 1 2 3', 'are cached');
SELECT is((SELECT total FROM likecount.like_totals WHERE post_id = 2), 50::bigint, 'the view reads the slots');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(cch.totals(), '1 50 3 | 1 50 3', 'and so does REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(cch.totals(), '1 50 3 | 1 50 3', 'and SERIALIZABLE');
COMMIT;
SELECT is(cch.totals(), '1 2 3 | 1 2 3', 'which leave the cache alone');
SELECT is((SELECT string_agg(total::text, ' ') FROM likecount.like_counts(ARRAY[2, 9, 2, 1, 9])), '2 0 2 1 0', 'a list with repetitions and an unknown post');
SELECT is((SELECT string_agg(total::text, ' ') FROM likecount.like_counts(ARRAY[9, 2, 2, 4])), '0 2 2 0', 'and once more');

-- a flush
INSERT INTO cch.likes VALUES (2, 20);
SELECT is(cch.totals(), '1 2 3 | 1 2 3', 'a like that waits changes nothing');
SELECT likecount.flush() \g /dev/null
SELECT is(cch.totals(), '1 51 3 | 1 51 3', 'one that was flushed shows at once');
SELECT cch.by_hand(2, 3) \g /dev/null
SELECT is(cch.totals(), '1 51 3 | 1 51 3', 'and is cached again');
DELETE FROM cch.likes WHERE post_id = 2 AND user_id = 20;
SELECT likecount.flush() \g /dev/null
SELECT is(cch.totals(), '1 2 3 | 1 2 3', 'so is what goes');
INSERT INTO cch.likes VALUES (4, 1);
SELECT is(likecount.like_count(4), 0::bigint, 'a post without likes');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(4), 1::bigint, 'that gets one');

-- in a transaction, and taken back
BEGIN;
INSERT INTO cch.likes VALUES (1, 20);
SELECT likecount.flush() \g /dev/null
SELECT is(cch.totals(), '2 2 3 | 2 2 3', 'who has flushed sees it');
SAVEPOINT s;
INSERT INTO cch.likes VALUES (1, 21), (3, 21);
SELECT likecount.flush() \g /dev/null
SELECT is(cch.totals(), '3 2 4 | 3 2 4', 'in a savepoint, too');
ROLLBACK TO s;
SELECT is(cch.totals(), '2 2 3 | 2 2 3', 'until that is rolled back');
ROLLBACK;
SELECT is(cch.totals(), '1 2 3 | 1 2 3', 'or all of it');
SELECT cch.by_hand(1, 60) \g /dev/null
SELECT is(cch.totals(), '1 2 3 | 1 2 3', 'after which totals are cached again');
SELECT cch.by_hand(1, 1) \g /dev/null

-- every other way to another total
SELECT likecount.freeze('cch.likes', 3) \g /dev/null
DELETE FROM cch.likes WHERE post_id = 3 AND user_id = 1;
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(3), 3::bigint, 'frozen');
SELECT likecount.unfreeze('cch.likes', 3) \g /dev/null
SELECT is(likecount.like_count(3), 2::bigint, 'unfrozen');
DELETE FROM cch.likes WHERE post_id = 3;
SELECT likecount.flush() \g /dev/null
SELECT cch.by_hand(3, 7) \g /dev/null
SELECT is(likecount.forget('cch.likes', 3), true, 'forgotten');
SELECT is(likecount.like_count(3), 0::bigint, 'has no total');
SELECT cch.by_hand(1, 9) \g /dev/null
SELECT likecount.reconcile('cch.likes', 1) \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(1), 1::bigint, 'reconciled');
TRUNCATE cch.likes;
SELECT likecount.flush() \g /dev/null
SELECT is(cch.totals(), '0 0 0 | 0 0 0', 'truncated');

-- who may read it
CREATE ROLE cch_nobody;
GRANT USAGE ON SCHEMA likecount TO cch_nobody;
SET ROLE cch_nobody;
SELECT throws_ok('SELECT likecount.like_count(1)', '42501', NULL, 'what is cached is for those who may select totals');
SELECT throws_ok('SELECT * FROM likecount.like_counts(ARRAY[1])', '42501', NULL, 'lists, too');
RESET ROLE;

-- another counter of the same posts, and one that comes after
CREATE TABLE cch.reposts (p bigint, u bigint, PRIMARY KEY (p, u));
INSERT INTO cch.reposts SELECT 1, u FROM generate_series(1, 8) u;
SELECT likecount.attach('cch.reposts', 'p', 'u', verb => 'repost') \g /dev/null
INSERT INTO cch.likes VALUES (1, 1);
SELECT likecount.flush() \g /dev/null
SELECT is(concat(likecount.like_count(1), likecount.repost_count(1), likecount.like_count(1), likecount.repost_count(1)), '1818', 'two counters');
SELECT likecount.detach('cch.reposts') \g /dev/null
DELETE FROM cch.reposts WHERE u > 2;
SELECT likecount.attach('cch.reposts', 'p', 'u', verb => 'repost') \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.repost_count(1), 2::bigint, 'attached again');

-- keys of other types; a long one has no place in an entry
CREATE TABLE cch.texts (p text, u bigint, PRIMARY KEY (p, u));
INSERT INTO cch.texts VALUES ('sixteen bytes it', 1), ('seventeen bytes i', 1), ('', 1), ('', 2);
SELECT likecount.attach('cch.texts', 'p', 'u', verb => 'tex') \g /dev/null
CREATE TABLE cch.uuids (p uuid, u bigint, PRIMARY KEY (p, u));
INSERT INTO cch.uuids VALUES ('00000000-0000-0000-0000-000000000001', 1), ('00000000-0000-0000-0000-000000000002', 1), ('00000000-0000-0000-0000-000000000002', 2);
SELECT likecount.attach('cch.uuids', 'p', 'u', verb => 'uui') \g /dev/null
CREATE TABLE cch.smalls (p smallint, u int, PRIMARY KEY (p, u));
INSERT INTO cch.smalls VALUES (-1, 1), (-1, 2), (1, 1);
SELECT likecount.attach('cch.smalls', 'p', 'u', verb => 'sma') \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is(concat_ws(' ', likecount.tex_count('sixteen bytes it'), likecount.tex_count('seventeen bytes i'), likecount.tex_count(''), likecount.tex_count(' '), likecount.tex_count('sixteen bytes i')), '1 1 2 0 0', 'texts')
  FROM generate_series(1, 2);
UPDATE likecount.tex_slots SET value = 9;
SELECT is(concat_ws(' ', likecount.tex_count('sixteen bytes it'), likecount.tex_count('seventeen bytes i')), '1 9', 'up to 16 bytes are cached');
SELECT is((SELECT string_agg(total::text, ' ') FROM likecount.uui_counts(ARRAY['00000000-0000-0000-0000-000000000002', '00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000003']::uuid[])), '2 1 0', 'uuids')
  FROM generate_series(1, 2);
SELECT is(concat_ws(' ', likecount.sma_count(-1), likecount.sma_count(1), likecount.sma_count(65535), likecount.sma_count(NULL)), '2 1 0', 'smallint') FROM generate_series(1, 2);

-- parallel workers
BEGIN;
SELECT set_config(name, 'on', true) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \g /dev/null
SELECT is(likecount.like_count(1), 1::bigint, 'in a parallel worker');
COMMIT;

-- very many
INSERT INTO cch.likes SELECT p, u FROM generate_series(1, 3000) p, generate_series(1000, 1003) u WHERE u - 1000 <= p % 4;
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT count(*) FROM likecount.like_counts(ARRAY(SELECT generate_series(1, 3000))) c JOIN likecount.like_totals t USING (post_id) WHERE c.total = t.total), 3000::bigint, 'each total of many posts')
  FROM generate_series(1, 2);
SELECT * FROM finish();
DROP SCHEMA cch CASCADE;
DROP OWNED BY cch_nobody;
DROP ROLE cch_nobody;
