-- Row-level security of the table holds for every generated function.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
BEGIN;
SELECT plan(16);

CREATE ROLE lc_owner;
CREATE ROLE lc_app;
GRANT USAGE ON SCHEMA likecount TO lc_owner, lc_app;
CREATE SCHEMA app AUTHORIZATION lc_owner;
GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA pg_temp TO PUBLIC;
SET LOCAL ROLE lc_owner;
SELECT likecount.create_counter('app.likes') \g /dev/null
GRANT USAGE ON SCHEMA app TO lc_app;
GRANT SELECT, INSERT, DELETE ON app.likes TO lc_app;
GRANT SELECT ON likecount.like_totals TO lc_app;
-- the owner's calls come first, so that the plans of this session are made without the policies
SELECT likecount.like(1, 1), likecount.like(1, 2), likecount.liked(1, 2), likecount.unlike(9, 9), likecount.like_many(ARRAY[2], ARRAY[2]) \g /dev/null
ALTER TABLE app.likes ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON app.likes USING (user_id = current_setting('app.me')::bigint);
SELECT likecount.like(3, 3), likecount.liked(3, 3), likecount.unlike(9, 9) \g /dev/null

SET LOCAL ROLE lc_app;
SET LOCAL app.me = '1';
SELECT is(likecount.like(3, 1), true, 'a user likes');
SELECT throws_ok('SELECT likecount.like(3, 2)', '42501', 'new row violates row-level security policy for table "likes"', 'but not for another');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[4, 4], ARRAY[1, 2])', '42501', 'new row violates row-level security policy for table "likes"', 'not in a batch');
SELECT is(likecount.unlike(1, 2), false, 'nor takes another''s like back');
SELECT is(likecount.unlike(1, 1), true, 'own ones go');
SELECT is(likecount.liked(1, 2), false, 'nor sees another''s');
SELECT is(likecount.liked(3, 1), true, 'own ones show');
SELECT results_eq('SELECT * FROM likecount.liked_posts(1, ARRAY[1, 2, 3])', 'VALUES (3::bigint)', 'also in a list');
SELECT is_empty('SELECT * FROM likecount.liked_posts(2, ARRAY[1, 2, 3])', 'and another''s do not');
SET LOCAL app.me = '2';
SELECT is(likecount.liked(1, 2), true, 'the policy is asked on each call');
SELECT is(likecount.unlike(1, 2), true, 'whoever calls');
RESET ROLE;
SELECT likecount.flush() \g /dev/null
SET LOCAL ROLE lc_app;
SELECT is(likecount.like_count(3), 2::bigint, 'totals count everybody''s likes');

-- forced on the owner, too
SET LOCAL ROLE lc_owner;
ALTER TABLE app.likes FORCE ROW LEVEL SECURITY;
SELECT is(likecount.liked(3, 3), false, 'forced: the owner is a user like others');
SELECT throws_ok('SELECT likecount.like(5, 5)', '42501', NULL, 'and likes for itself only');
SELECT is(likecount.like(5, 2), true, 'which it does');
RESET ROLE;
SELECT ok(warnings[1] LIKE 'row-level security is forced%', 'the view counters mentions it') FROM likecount.counters WHERE verb = 'like';

SELECT * FROM finish();
ROLLBACK;
