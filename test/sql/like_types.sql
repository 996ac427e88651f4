-- Counters of every key type: smallint, integer, bigint, uuid, text, varchar.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
BEGIN;
SELECT plan(50);

CREATE TABLE public.smalls (p smallint, u integer, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (p, u));
CREATE TABLE public.ints (p integer, u smallint, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (u, p));
CREATE TABLE public.uuids (p uuid, u uuid, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (p, u));
CREATE TABLE public.texts (p text, u varchar(20), at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (p, u));
CREATE TABLE public.varchars (p varchar(30) COLLATE "C", u text, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (p, u));
SELECT likecount.attach('smalls', 'p', 'u', 'at', verb => 'small', past => 'smalled') \g /dev/null
SELECT likecount.attach('ints', 'p', 'u', 'at', verb => 'int', past => 'inted') \g /dev/null
SELECT likecount.attach('uuids', 'p', 'u', 'at', verb => 'uu', past => 'uued') \g /dev/null
SELECT likecount.attach('texts', 'p', 'u', 'at', verb => 'txt', past => 'txted') \g /dev/null
SELECT likecount.attach('varchars', 'p', 'u', 'at', verb => 'vc', past => 'vced') \g /dev/null

-- one function a name, never an overload; integers of any width go in
SELECT is(count(*), count(DISTINCT proname), 'no generated function has an overload')
  FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace AND prosqlbody IS NOT NULL;
SELECT is((SELECT proargtypes::regtype[]::text FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace AND proname = 'small'), '[0:1]={bigint,bigint}', 'smallint and integer take bigint');
SELECT is(likecount.small(1::smallint, 2::smallint), true, 'smallint arguments');
SELECT is(likecount.small(1::int, 3::int), true, 'integer arguments');
SELECT is(likecount.small(1::bigint, 4::bigint), true, 'bigint arguments');
SELECT is(likecount.int(32768, 1), true, 'an integer post');
SELECT is(likecount.small_many(ARRAY[1, 2]::smallint[], ARRAY[5, 5]::int[]), 2::bigint, 'arrays of smallint and integer');
SELECT is(likecount.int_many(ARRAY[2147483647, -2147483648], ARRAY[1, -32768]), 2::bigint, 'to the ends of the range');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.small_count(1), 4::bigint, 'smallint: the total');
SELECT is(likecount.int_count(2147483647), 1::bigint, 'integer: the total');
SELECT results_eq('SELECT post_id, total FROM likecount.int_counts(ARRAY[-2147483648, 7, 32768])', 'VALUES (-2147483648::bigint, 1::bigint), (7, 0), (32768, 1)', 'integer: the totals, as bigint');
SELECT results_eq('SELECT * FROM likecount.inted_posts(1, ARRAY[32768, 5, 2147483647])', 'VALUES (32768::bigint), (2147483647)', 'integer: liked posts');

-- out of range: nobody has that id; to store it is an error
SELECT throws_ok('SELECT likecount.small(32768, 1)', '22003', 'argument "post_id" of likecount.small() is out of range', 'a post that a smallint cannot hold');
SELECT throws_ok('SELECT likecount.small(1, 2147483648)', '22003', 'argument "user_id" of likecount.small() is out of range', 'a user that an integer cannot hold');
SELECT throws_ok('SELECT likecount.small_many(ARRAY[1, 32768], ARRAY[1, 1])', '22003', NULL, 'one of many');
SELECT is(likecount.unsmall(32768, 1), false, 'unlike() removes nothing');
SELECT is(likecount.unsmall(1, 2147483648), false, 'of no such user');
SELECT is(likecount.smalled(32769, 2), false, 'liked() is false');
SELECT is(likecount.smalled(1, 4294967298), false, 'for no such user');
SELECT is(likecount.small_count(65537), 0::bigint, 'the total is 0, not that of post 1');
SELECT is(likecount.small_count(-9223372036854775808), 0::bigint, 'at the end of bigint too');
SELECT results_eq('SELECT * FROM likecount.small_counts(ARRAY[65537, 1])', 'VALUES (65537::bigint, 0::bigint), (1, 4)', 'in a list too');
SELECT results_eq('SELECT * FROM likecount.smalled_posts(5, ARRAY[65537, 2, 1])', 'VALUES (2::bigint), (1)', 'and for liked posts');
SELECT is_empty('SELECT * FROM likecount.smalled_posts(4294967301, ARRAY[1, 2])', 'of no such user');

-- uuid
SELECT is(likecount.uu('11111111-1111-1111-1111-111111111111', '22222222-2222-2222-2222-222222222222'), true, 'uuid: like');
SELECT is(likecount.uu('11111111111111111111111111111111', '{22222222-2222-2222-2222-222222222222}'), false, 'uuid: the same, written otherwise');
SELECT is(likecount.uued('11111111-1111-1111-1111-111111111111', '22222222-2222-2222-2222-222222222222'), true, 'uuid: liked');
SELECT is(likecount.uu_many(ARRAY['33333333-3333-3333-3333-333333333333', '11111111-1111-1111-1111-111111111111']::uuid[],
    ARRAY['22222222-2222-2222-2222-222222222222', '44444444-4444-4444-4444-444444444444']::uuid[]), 2::bigint, 'uuid: many');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.uu_count('11111111-1111-1111-1111-111111111111'), 2::bigint, 'uuid: the total');
SELECT results_eq('SELECT * FROM likecount.uu_counts(''{55555555-5555-5555-5555-555555555555,11111111-1111-1111-1111-111111111111}'')',
    'VALUES (''55555555-5555-5555-5555-555555555555''::uuid, 0::bigint), (''11111111-1111-1111-1111-111111111111'', 2)', 'uuid: the totals');
SELECT results_eq('SELECT * FROM likecount.uued_posts(''22222222-2222-2222-2222-222222222222'', ''{33333333-3333-3333-3333-333333333333,55555555-5555-5555-5555-555555555555}'')',
    'VALUES (''33333333-3333-3333-3333-333333333333''::uuid)', 'uuid: liked posts');
SELECT is(likecount.unuu('33333333-3333-3333-3333-333333333333', '22222222-2222-2222-2222-222222222222'), true, 'uuid: unlike');

-- text and varchar
SELECT is(likecount.txt('a', 'ann'), true, 'text: like');
SELECT is(likecount.txt('a ', 'ann'), true, 'text: a blank makes a difference');
SELECT is(likecount.txt('', 'ann'), true, 'text: an empty key is a key');
SELECT is(likecount.txt('%', 'ann'), true, 'text: no pattern');
SELECT is(likecount.txted('_', 'ann'), false, 'text: no pattern in liked()');
SELECT is(likecount.txt_many(ARRAY['äöü', 'a', repeat('x', 1000)], ARRAY['bob', 'bob', 'bob']), 3::bigint, 'text: many');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.txt_count('a'), 2::bigint, 'text: the total');
SELECT is(likecount.txt_count(repeat('x', 1000)), 1::bigint, 'text: of a key of 1,000 bytes');
SELECT is(likecount.txt_count(repeat('x', 1001)), 0::bigint, 'text: nobody has a longer one');
SELECT throws_ok('SELECT likecount.txt(repeat(''x'', 1001), ''bob'')', '22001', 'argument "post_id" of likecount.txt() is too long', 'text: none can be stored');
SELECT throws_ok('SELECT likecount.txt(''a'', repeat(''x'', 21))', '22001', NULL, 'varchar(20): its limit holds');
SELECT throws_ok('SELECT likecount.txt_many(ARRAY[''a''], ARRAY[repeat(''x'', 21)])', '22001', NULL, 'varchar(20): and nothing is cut off');
SELECT results_eq('SELECT * FROM likecount.txt_counts(ARRAY[repeat(''x'', 1001), ''äöü'', ''nobody'', '''', ''a''])',
    'VALUES (repeat(''x'', 1001), 0::bigint), (''äöü'', 1), (''nobody'', 0), ('''', 1), (''a'', 2)', 'text: the totals');
SELECT results_eq('SELECT * FROM likecount.txted_posts(''bob'', ARRAY[''a'', ''b'', ''äöü'', ''a'', repeat(''x'', 1001)])', 'VALUES (''a''), (''äöü'')', 'text: liked posts');
SELECT is(likecount.vc('x', 'ann'), true, 'varchar with a collation: like');
SELECT is(likecount.vced('x', 'ann'), true, 'varchar with a collation: liked');
SELECT results_eq('SELECT * FROM likecount.vced_posts(''ann'', ARRAY[''x'', ''X''])', 'VALUES (''x'')', 'varchar with a collation: liked posts');
SELECT is(likecount.unvc('x', 'ann'), true, 'varchar with a collation: unlike');

SELECT * FROM finish();
ROLLBACK;
