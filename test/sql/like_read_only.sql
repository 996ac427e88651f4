-- Read-only transactions: what writes fails with 25006, under the name the caller knows; what reads works.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
BEGIN;
SELECT plan(15);

SELECT likecount.create_counter('public.likes') \g /dev/null
SELECT likecount.like(1, 1) \g /dev/null
SELECT likecount.flush() \g /dev/null
SAVEPOINT s;
SET TRANSACTION READ ONLY;
SELECT throws_ok('SELECT likecount.like(1, 2)', '25006', 'cannot execute likecount.like() in a read-only transaction', 'like()');
SELECT throws_ok('SELECT likecount.like(1, 1)', '25006', 'cannot execute likecount.like() in a read-only transaction', 'like() that would change nothing');
SELECT throws_ok('SELECT likecount.like(NULL, 1)', '25006', NULL, 'like() with an argument that would be refused');
SELECT throws_ok('SELECT likecount.unlike(1, 1)', '25006', 'cannot execute likecount.unlike() in a read-only transaction', 'unlike()');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[1], ARRAY[2])', '25006', 'cannot execute likecount.like_many() in a read-only transaction', 'like_many()');
SELECT throws_ok('SELECT likecount.flush()', '25006', NULL, 'flush()');
SELECT throws_ok('SELECT likecount.create_counter(''reposts'')', '25006', 'cannot execute likecount.create_counter() in a read-only transaction', 'create_counter()');
SELECT throws_ok('SELECT likecount.attach(''public.likes'', ''post_id'')', '25006', 'cannot execute likecount.attach() in a read-only transaction', 'attach()');
SELECT throws_ok('SELECT likecount.set_mode(''public.likes'', ''queued'')', '25006', 'cannot execute likecount.set_mode() in a read-only transaction', 'set_mode()');
SELECT throws_ok('SELECT likecount.detach(''public.likes'')', '25006', 'cannot execute likecount.detach() in a read-only transaction', 'detach()');
SELECT is(likecount.liked(1, 1), true, 'liked()');
SELECT is(likecount.like_count(1), 1::bigint, 'like_count()');
SELECT results_eq('SELECT * FROM likecount.like_counts(ARRAY[1, 2])', 'VALUES (1::bigint, 1::bigint), (2, 0)', 'like_counts()');
SELECT results_eq('SELECT * FROM likecount.liked_posts(1, ARRAY[1, 2])', 'VALUES (1::bigint)', 'liked_posts()');
SELECT lives_ok('SELECT FROM likecount.status, likecount.counters, likecount.pending', 'the views');
SELECT * FROM finish();
ROLLBACK;
