-- The generated functions cost nothing: each of them inlines, so that a plan has only the C function behind it.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
BEGIN;
SELECT plan(49);

SELECT likecount.create_counter('public.likes') \g /dev/null
CREATE TABLE public.follows (p uuid, u text, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (p, u));
SELECT likecount.attach('follows', 'p', 'u', 'at') \g /dev/null

CREATE FUNCTION pg_temp.plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    result text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' || query LOOP
        result := result || line || E'\n';
    END LOOP;
    RETURN result;
END $$;

-- inlines(query, inner): the plan calls the inner function, and none that was generated
CREATE FUNCTION pg_temp.inlines(query text, inside text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    plan text := pg_temp.plan_of(query);
BEGIN
    RETURN NEXT ok(plan ~ ('likecount\.' || inside || '\M') AND plan !~ 'likecount\.[a-z]', query || ' is ' || inside);
    IF plan !~ ('likecount\.' || inside || '\M') OR plan ~ 'likecount\.[a-z]' THEN
        RETURN NEXT diag(plan);
    END IF;
END $$;

SELECT pg_temp.inlines('SELECT likecount.like(1, 2)', '_add');
SELECT pg_temp.inlines('SELECT likecount.unlike(1, 2)', '_remove');
SELECT pg_temp.inlines('SELECT likecount.liked(1, 2)', '_has');
SELECT pg_temp.inlines('SELECT likecount.like_many(ARRAY[1], ARRAY[2])', '_add_many');
SELECT pg_temp.inlines('SELECT likecount.like_count(1)', '_total');
SELECT pg_temp.inlines('SELECT likecount.like_count_now(1)', '_total_now');
SELECT pg_temp.inlines('SELECT * FROM likecount.like_counts(ARRAY[1, 2])', '_totals');
SELECT pg_temp.inlines('SELECT * FROM likecount.liked_posts(1, ARRAY[1, 2])', '_posts_of');

-- in another type family
SELECT pg_temp.inlines('SELECT likecount.follow(''11111111-1111-1111-1111-111111111111'', ''ann'')', '_add');
SELECT pg_temp.inlines('SELECT likecount.follow_count(''11111111-1111-1111-1111-111111111111'')', '_total');
SELECT pg_temp.inlines('SELECT * FROM likecount.follow_counts(''{11111111-1111-1111-1111-111111111111}'')', '_totals');
SELECT pg_temp.inlines('SELECT * FROM likecount.followed_posts(''ann'', ''{11111111-1111-1111-1111-111111111111}'')', '_posts_of');

-- with arguments that are computed, volatile, or null
SELECT pg_temp.inlines('SELECT likecount.like(n, (random() * 100)::bigint) FROM generate_series(1, 3) n', '_add');
SELECT pg_temp.inlines('SELECT likecount.like(1, (SELECT max(user_id) FROM likes))', '_add');
SELECT pg_temp.inlines('SELECT likecount.like_count(post_id) FROM likes', '_total');
SELECT pg_temp.inlines('SELECT likecount.like_count_now(post_id) FROM likes', '_total_now');
SELECT pg_temp.inlines('SELECT likecount.like(1, 2), likecount.like_count_now((random() * 100)::bigint)', '_total_now');
SELECT pg_temp.inlines('SELECT likecount.like(NULL, 1)', '_add');
SELECT pg_temp.inlines('SELECT likecount.like(user_id => 1, post_id => 2)', '_add');
SELECT pg_temp.inlines('SELECT c.* FROM (VALUES (ARRAY[1, 2])) v(ids), likecount.like_counts(v.ids) c', '_totals');

-- prepared: parameters without types resolve to the counter's, and the generic plan inlines
PREPARE p1 AS SELECT likecount.like($1, $2);
PREPARE p2 AS SELECT likecount.unlike($1, $2);
PREPARE p3 AS SELECT likecount.liked($1, $2);
PREPARE p4 AS SELECT likecount.like_many($1, $2);
PREPARE p5 AS SELECT likecount.like_count($1);
PREPARE p6 AS SELECT * FROM likecount.like_counts($1);
PREPARE p7 AS SELECT * FROM likecount.liked_posts($1, $2);
PREPARE p8 AS SELECT likecount.like_count_now($1);
PREPARE q1 AS SELECT likecount.follow($1, $2);
PREPARE q2 AS SELECT * FROM likecount.followed_posts($1, $2);
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p1'), '{bigint,bigint}', 'like($1, $2)');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p2'), '{bigint,bigint}', 'unlike($1, $2)');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p3'), '{bigint,bigint}', 'liked($1, $2)');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p4'), '{bigint[],bigint[]}', 'like_many($1, $2)');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p5'), '{bigint}', 'like_count($1)');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p6'), '{bigint[]}', 'like_counts($1)');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p7'), '{bigint,bigint[]}', 'liked_posts($1, $2)');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'p8'), '{bigint}', 'like_count_now($1)');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'q1'), '{uuid,text}', 'a counter of uuid and text');
SELECT is((SELECT parameter_types::text FROM pg_prepared_statements WHERE name = 'q2'), '{text,uuid[]}', 'and its lists');
SET LOCAL plan_cache_mode = force_generic_plan;
SELECT pg_temp.inlines('EXECUTE p1(1, 2)', '_add');
SELECT pg_temp.inlines('EXECUTE p1(''1'', ''2'')', '_add');
SELECT pg_temp.inlines('EXECUTE p2(1, 2)', '_remove');
SELECT pg_temp.inlines('EXECUTE p3(1, 2)', '_has');
SELECT pg_temp.inlines('EXECUTE p4(''{1}'', ''{2}'')', '_add_many');
SELECT pg_temp.inlines('EXECUTE p5(1)', '_total');
SELECT pg_temp.inlines('EXECUTE p6(''{1}'')', '_totals');
SELECT pg_temp.inlines('EXECUTE p7(1, ''{1}'')', '_posts_of');
SELECT pg_temp.inlines('EXECUTE p8(1)', '_total_now');
SELECT pg_temp.inlines('EXECUTE q1(''11111111-1111-1111-1111-111111111111'', 2)', '_add');
SELECT pg_temp.inlines('EXECUTE q2(2, ''{11111111-1111-1111-1111-111111111111}'')', '_posts_of');
SELECT ok(pg_temp.plan_of('EXECUTE p1(1, 2)') ~ '\$1, \$2', 'the generic plan is one');
SELECT results_eq('EXECUTE p1(''7'', ''8'')', 'VALUES (true)', 'it runs');
SELECT is((SELECT count(*) FROM likes WHERE post_id = 7 AND user_id = 8), 1::bigint, 'and records the like');

-- what would keep them from inlining
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace AND prosqlbody IS NOT NULL
    AND (proisstrict OR prosecdef OR proconfig IS NOT NULL)$$, 'no generated function is STRICT, SECURITY DEFINER or has a SET clause');

-- names of PostgreSQL's that must keep their meaning with likecount on the search_path
SET LOCAL search_path = likecount, public;
CREATE TABLE public.t (id bigint, small int);
INSERT INTO public.t SELECT n, n FROM generate_series(1, 5) n;
SELECT is((SELECT count(id) FROM t), 5::bigint, 'count(column) counts');
SELECT is((SELECT count(DISTINCT small) FROM t), 5::bigint, 'count(DISTINCT column) too');
SELECT hasnt_function('likecount', 'count', 'nothing of ours is called count');
SELECT is((SELECT proargtypes::regtype[]::text FROM pg_proc WHERE oid = 'likecount.like'::regproc), '[0:1]={bigint,bigint}', 'and like() of text stays PostgreSQL''s');
SELECT * FROM public.finish();
ROLLBACK;
