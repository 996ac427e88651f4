-- like_many, like_counts, liked_posts: the calls that take arrays.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
BEGIN;
SELECT plan(40);

SELECT likecount.create_counter('public.likes') \g /dev/null

-- like_many
SELECT is(likecount.like_many(ARRAY[1, 1, 2, 1], ARRAY[10, 11, 10, 10]), 3::bigint, 'a pair that comes twice is recorded once');
SELECT is(likecount.like_many(ARRAY[1, 3], ARRAY[10, 10]), 1::bigint, 'pairs that are there are not counted');
SELECT is(likecount.like_many('{}', '{}'), 0::bigint, 'no pairs');
SELECT is(likecount.like_many('[5:6]={3,4}', ARRAY[20, 20]), 2::bigint, 'whatever the lower bound');
SELECT bag_eq('SELECT post_id, user_id FROM likes', 'VALUES (1::bigint, 10::bigint), (1, 11), (2, 10), (3, 10), (3, 20), (4, 20)', 'the rows are there');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(1), 2::bigint, 'and counted');

SELECT throws_ok('SELECT likecount.like_many(NULL, ARRAY[1])', '22004', 'argument "post_ids" of likecount.like_many() must not be null', 'posts must not be NULL');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[1], NULL)', '22004', 'argument "user_ids" of likecount.like_many() must not be null', 'nor users');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[1, NULL], ARRAY[1, 2])', '22004', 'argument "post_ids" of likecount.like_many() must not contain nulls', 'nor one of the posts');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[1, 2], ARRAY[1, NULL])', '22004', 'argument "user_ids" of likecount.like_many() must not contain nulls', 'nor one of the users');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[1, 2], ARRAY[1])', '2202E', 'the arrays of likecount.like_many() must have the same length', 'the arrays have one length');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[[1, 2], [3, 4]], ARRAY[1, 2, 3, 4])', '2202E', 'argument "post_ids" of likecount.like_many() must be one-dimensional', 'and one dimension');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[1, 2, 3, 4], ARRAY[[1, 2], [3, 4]])', '2202E', 'argument "user_ids" of likecount.like_many() must be one-dimensional', 'both of them');

-- a big batch: one delta a post
SELECT is(likecount.like_many(array_agg(1000 + n % 10), array_agg(n)), 10000::bigint, '10,000 pairs') FROM generate_series(1, 10000) n;
SELECT likecount.flush() \g /dev/null
SELECT is(sum(total), 10000::numeric, 'are all counted') FROM likecount.like_totals WHERE post_id >= 1000;

-- like_counts
SELECT results_eq('SELECT * FROM likecount.like_counts(ARRAY[3, 99, 1, 3, 2])',
    'VALUES (3::bigint, 2::bigint), (99, 0), (1, 2), (3, 2), (2, 1)', 'like_counts() keeps order, duplicates and unknown posts');
SELECT results_eq('SELECT post_id, total FROM likecount.like_counts(ARRAY[1])', 'VALUES (1::bigint, 2::bigint)', 'the columns have names');
SELECT is_empty('SELECT * FROM likecount.like_counts(''{}'')', 'of no posts');
SELECT is_empty('SELECT * FROM likecount.like_counts(NULL)', 'of NULL, which array_agg() makes of no rows');
SELECT throws_ok('SELECT * FROM likecount.like_counts(ARRAY[1, NULL])', '22004', 'argument "post_ids" of likecount.like_counts() must not contain nulls', 'a NULL among the posts is refused');
SELECT throws_ok('SELECT * FROM likecount.like_counts(ARRAY[[1, 2]])', '2202E', 'argument "post_ids" of likecount.like_counts() must be one-dimensional', 'and more dimensions');
SELECT results_eq('SELECT likecount.like_counts(ARRAY[1, 2])::text', $$VALUES ('(1,2)'), ('(2,1)')$$, 'in the select list too');
SELECT results_eq('SELECT p, c.total FROM (VALUES (1, ARRAY[1, 2]), (2, ARRAY[3])) f(p, ids), likecount.like_counts(f.ids) c ORDER BY p, c.post_id',
    'VALUES (1, 2::bigint), (1, 1), (2, 2)', 'and lateral');
SELECT is((SELECT count(*) FROM likecount.like_counts(ARRAY(SELECT generate_series(1, 20000)))), 20000::bigint, 'of many posts');
SELECT is((SELECT sum(total) FROM likecount.like_counts(ARRAY(SELECT generate_series(1, 20000)))), (SELECT count(*)::numeric FROM likes), 'the totals add up');

-- liked_posts
SELECT results_eq('SELECT * FROM likecount.liked_posts(10, ARRAY[3, 99, 1, 3, 2, 4])', 'VALUES (3::bigint), (1), (2)', 'liked_posts() keeps the order, once each');
SELECT is_empty('SELECT * FROM likecount.liked_posts(77777, ARRAY[1, 2])', 'of a user who likes nothing');
SELECT is_empty('SELECT * FROM likecount.liked_posts(10, ''{}'')', 'of no posts');
SELECT is_empty('SELECT * FROM likecount.liked_posts(10, NULL)', 'of NULL');
SELECT throws_ok('SELECT * FROM likecount.liked_posts(NULL, ARRAY[1])', '22004', 'argument "user_id" of likecount.liked_posts() must not be null', 'the user must not be NULL');
SELECT throws_ok('SELECT * FROM likecount.liked_posts(10, ARRAY[1, NULL])', '22004', 'argument "post_ids" of likecount.liked_posts() must not contain nulls', 'a NULL among the posts is refused');
SELECT results_eq('SELECT likecount.liked_posts(10, ARRAY[2, 1])', 'VALUES (2::bigint), (1)', 'in the select list too');
SELECT likecount.unlike(1, 10) \g /dev/null
SELECT results_eq('SELECT * FROM likecount.liked_posts(10, ARRAY[1, 2])', 'VALUES (2::bigint)', 'it is exact at once');

-- only_where: a soft delete is no like
CREATE TABLE public.stars (post_id bigint NOT NULL, user_id bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), deleted_at timestamptz);
CREATE UNIQUE INDEX ON public.stars (post_id, user_id) WHERE deleted_at IS NULL;
SELECT likecount.attach('public.stars', 'post_id', 'user_id', 'at', only_where => 'deleted_at IS NULL') \g /dev/null
INSERT INTO public.stars VALUES (1, 10), (2, 10), (1, 11);
UPDATE public.stars SET deleted_at = now() WHERE post_id = 2;
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.stared(1, 10), true, 'liked() with a condition: the row is in');
SELECT is(likecount.stared(2, 10), false, 'the row is out');
SELECT results_eq('SELECT * FROM likecount.stared_posts(10, ARRAY[1, 2])', 'VALUES (1::bigint)', 'liked_posts() with a condition');
SELECT results_eq('SELECT total FROM likecount.star_counts(ARRAY[1, 2])', 'VALUES (2::bigint), (0)', 'the totals agree');
SELECT hasnt_function('likecount', 'star', 'no writing function where a condition decides what counts');
SELECT throws_ok('SELECT likecount._add(''star'', 3::bigint, 3::bigint)', '0A000', 'counter "star" counts only rows under a condition', 'nor by the function behind it');
SELECT throws_ok('SELECT likecount._remove(''star'', 1::bigint, 10::bigint)', '0A000', 'counter "star" counts only rows under a condition', 'neither to remove');

SELECT * FROM finish();
ROLLBACK;
