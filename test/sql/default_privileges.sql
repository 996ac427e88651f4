-- Default privileges of whoever installs likecount and attaches tables must neither open nor close anything; only the views of a
-- counter, which are there to be read, are given as they say.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
BEGIN;
SELECT plan(8);

CREATE ROLE lc_app;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO lc_app, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO lc_app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO lc_app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO lc_app, PUBLIC;
DROP EXTENSION likecount CASCADE;
CREATE EXTENSION likecount;

SELECT ok(NOT has_schema_privilege('lc_app', 'likecount', 'USAGE, CREATE'), 'the schema stays closed');
GRANT USAGE ON SCHEMA likecount TO lc_app;
SELECT likecount.create_counter('public.likes') \g /dev/null
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM lc_app, PUBLIC;

SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relkind = 'r'
    AND has_table_privilege('lc_app', oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')$$, 'no table can be written');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relkind = 'r'
    AND has_any_column_privilege('lc_app', oid, 'SELECT')$$, 'or read');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'likecount'::regnamespace 
    AND CASE WHEN relkind = 'S' THEN has_sequence_privilege('lc_app', oid, 'USAGE, SELECT, UPDATE') END$$, 'no sequence used');
SELECT set_eq($$SELECT proname::text FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace AND NOT has_function_privilege('lc_app', oid, 'EXECUTE')$$,
    ARRAY['flush', 'reset_stats', '_status', '_pending', '_counter_facts', '_frozen_posts', '_open_slots', '_hot_posts', '_discard'], 'what is not for everybody is not executable');

GRANT SELECT, INSERT, DELETE ON public.likes TO lc_app;
GRANT SELECT ON likecount.like_totals TO lc_app;
GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA pg_temp TO PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC;
SET LOCAL ROLE lc_app;
SELECT is(likecount.like(1, 1), true, 'and what is for everybody is');
SELECT is(likecount.liked(1, 1), true, 'each of them');
SELECT is(likecount.like_count(1), 0::bigint, 'with one more grant to read totals');

SELECT * FROM finish();
ROLLBACK;
