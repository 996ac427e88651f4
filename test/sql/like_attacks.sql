-- A role can do through likecount only what it may do to the table directly.  Each block plays somebody who tries more.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
BEGIN;
SELECT plan(88);

CREATE ROLE lc_owner;
CREATE ROLE lc_app;
CREATE ROLE lc_columns;
CREATE ROLE lc_reader;
CREATE ROLE lc_nobody;
CREATE ROLE lc_outside;
CREATE ROLE lc_monitor IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA likecount TO lc_owner, lc_app, lc_columns, lc_reader, lc_nobody;
CREATE SCHEMA app AUTHORIZATION lc_owner;
CREATE SCHEMA evil AUTHORIZATION lc_nobody;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
-- pgTAP's own tables, for all of them
GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA pg_temp TO PUBLIC;

SET LOCAL ROLE lc_owner;
SELECT likecount.create_counter('app.likes') \g /dev/null
GRANT USAGE ON SCHEMA app TO lc_app, lc_columns;
GRANT SELECT, INSERT, DELETE ON app.likes TO lc_app;
-- on the table, which is worth nothing without the schema
GRANT SELECT, INSERT, DELETE ON app.likes TO lc_nobody, lc_reader;
GRANT SELECT (post_id, user_id), INSERT (post_id, user_id) ON app.likes TO lc_columns;
GRANT SELECT ON likecount.like_totals TO lc_app, lc_reader;
RESET ROLE;

-- an application with the documented grants
SET LOCAL ROLE lc_app;
SELECT is(likecount.like(1, 1), true, 'the application likes');
SELECT is(likecount.like_many(ARRAY[1, 1], ARRAY[2, 3]), 2::bigint, 'in batches');
SELECT is(likecount.liked(1, 1), true, 'asks');
SELECT is(likecount.unlike(1, 3), true, 'unlikes');
SELECT lives_ok('SELECT likecount.like_count(1)', 'reads a total');
SELECT lives_ok('SELECT * FROM likecount.like_counts(ARRAY[1])', 'and totals');
SELECT lives_ok('SELECT * FROM likecount.like_totals', 'by the view, too');
SELECT lives_ok('SELECT likecount.lag()', 'asks for the lag');
SELECT lives_ok('SELECT likecount.version()', 'and the version');

-- the owner
SET LOCAL ROLE lc_owner;
SELECT lives_ok('SELECT likecount.like_count(1)', 'the owner of the table reads totals');
SELECT lives_ok('SELECT * FROM likecount.like_totals', 'and has the view, to grant it on');

-- column privileges are enough, as they are for INSERT
SET LOCAL ROLE lc_columns;
SELECT is(likecount.like(1, 4), true, 'with privileges on the columns alone');
SELECT is(likecount.liked(1, 4), true, 'liked()');
SELECT throws_ok('SELECT likecount.unlike(1, 4)', '42501', 'permission denied for table likes', 'unlike() wants DELETE');

-- a reader of totals
SET LOCAL ROLE lc_reader;
SELECT lives_ok('SELECT likecount.like_count(1)', 'a reader with SELECT on the view');
SELECT lives_ok('SELECT * FROM likecount.like_counts(ARRAY[1])', 'reads totals');
SELECT throws_ok('SELECT likecount.like(1, 5)', '42501', 'permission denied for schema app', 'and likes nothing');

-- somebody with USAGE on the schema likecount, but not on that of the table; the plans of this session are warm from those above
SET LOCAL ROLE lc_nobody;
SELECT throws_ok('INSERT INTO app.likes VALUES (1, 5)', '42501', 'permission denied for schema app', 'what a plain INSERT may not');
SELECT throws_ok('SELECT likecount.like(1, 5)', '42501', 'permission denied for schema app', 'like() may not');
SELECT throws_ok('SELECT likecount.unlike(1, 1)', '42501', 'permission denied for schema app', 'unlike()');
SELECT throws_ok('SELECT likecount.liked(1, 1)', '42501', 'permission denied for schema app', 'liked()');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[1], ARRAY[5])', '42501', 'permission denied for schema app', 'like_many()');
SELECT throws_ok('SELECT * FROM likecount.liked_posts(1, ARRAY[1])', '42501', 'permission denied for schema app', 'liked_posts()');
SELECT throws_ok('SELECT likecount.like_count(1)', '42501', 'permission denied for view like_totals', 'like_count()');
SELECT throws_ok('SELECT * FROM likecount.like_counts(ARRAY[1])', '42501', 'permission denied for view like_totals', 'like_counts()');
SELECT throws_ok('SELECT * FROM likecount.like_totals', '42501', 'permission denied for view like_totals', 'the view');
SELECT throws_ok('SELECT likecount.flush()', '42501', NULL, 'flush()');
SELECT throws_ok('SELECT likecount.reset_stats()', '42501', NULL, 'reset_stats()');
SELECT throws_ok('SELECT likecount.attach(''app.likes'', ''post_id'', ''user_id'', verb => ''mine'')', '42501', NULL, 'attach() of another''s table');
SELECT throws_ok('SELECT likecount.detach(''app.likes'')', '42501', NULL, 'detach()');
SELECT throws_ok('SELECT * FROM likecount.counters', '42501', NULL, 'the view counters');
SELECT throws_ok('SELECT * FROM likecount.status', '42501', NULL, 'the view status');
SELECT throws_ok('SELECT * FROM likecount.pending', '42501', NULL, 'the view pending');
SELECT throws_ok('SELECT * FROM likecount.progress', '42501', NULL, 'the view progress');
SELECT throws_ok('SELECT likecount.reconcile(''app.likes'', 1)', '42501', NULL, 'reconcile()');
SELECT throws_ok('SELECT * FROM likecount.check(''app.likes'')', '42501', NULL, 'check()');
SELECT throws_ok('SELECT likecount._status()', '42501', NULL, 'nor the functions behind them');
SELECT throws_ok('SELECT likecount._pending()', '42501', NULL, 'which read for pg_monitor');
SELECT throws_ok('SELECT likecount._counter_facts(1)', '42501', NULL, 'and nobody else');
SELECT throws_ok('CREATE FUNCTION likecount.like(text, text) RETURNS boolean LANGUAGE sql AS ''SELECT true''', '42501', NULL, 'an overload of like()');
SELECT throws_ok('CREATE TABLE likecount.mine ()', '42501', NULL, 'a table in our schema');

-- in a schema that is open, with no privilege on the table
RESET ROLE;
REVOKE ALL ON app.likes FROM lc_nobody;
GRANT USAGE ON SCHEMA app TO lc_nobody;
SET LOCAL ROLE lc_nobody;
SELECT throws_ok('SELECT likecount.like(1, 5)', '42501', 'permission denied for table likes', 'like() without INSERT');
SELECT throws_ok('SELECT likecount.unlike(1, 1)', '42501', 'permission denied for table likes', 'unlike() without DELETE');
SELECT throws_ok('SELECT likecount.liked(1, 1)', '42501', 'permission denied for table likes', 'liked() without SELECT');
SELECT throws_ok('SELECT likecount.like_many(ARRAY[1], ARRAY[5])', '42501', 'permission denied for table likes', 'like_many() without INSERT');
SELECT throws_ok('SELECT * FROM likecount.liked_posts(1, ARRAY[1])', '42501', 'permission denied for table likes', 'liked_posts() without SELECT');

-- somebody without USAGE on the schema likecount
SET LOCAL ROLE lc_outside;
SELECT throws_ok('SELECT likecount.like(1, 5)', '42501', 'permission denied for schema likecount', 'the schema is the gate');

-- pg_monitor
SET LOCAL ROLE lc_monitor;
SELECT lives_ok('SELECT * FROM likecount.counters', 'pg_monitor reads counters');
SELECT lives_ok('SELECT * FROM likecount.status', 'status');
SELECT lives_ok('SELECT * FROM likecount.pending', 'pending');
SELECT throws_ok('SELECT likecount.flush()', '42501', NULL, 'and does not flush');
SELECT throws_ok('SELECT likecount.like(1, 5)', '42501', NULL, 'nor like');

-- nobody but likecount writes its tables: not the application, not the owner of the source
RESET ROLE;
CREATE FUNCTION pg_temp.can_write(who name) RETURNS TABLE (relation name) LANGUAGE sql AS $$
    SELECT c.relname FROM pg_catalog.pg_class c
     WHERE c.relnamespace = 'likecount'::regnamespace AND c.relkind IN ('r', 'v', 'S')
       AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(who, c.oid, 'USAGE, UPDATE')
                ELSE has_table_privilege(who, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') END
$$;
SELECT is_empty('SELECT * FROM pg_temp.can_write(''lc_app'')', 'the application can write none of the tables');
SELECT is_empty('SELECT * FROM pg_temp.can_write(''lc_owner'')', 'the owner neither');
SET LOCAL ROLE lc_owner;
SELECT throws_ok('UPDATE likecount.like_slots SET value = 1000000', '42501', NULL, 'no update of the slots');
SELECT throws_ok('INSERT INTO likecount._journal_0 VALUES (1000000, now(), 1, '''')', '42501', NULL, 'no row for the journal');
SELECT throws_ok('CREATE OR REPLACE VIEW likecount.like_totals AS SELECT 1::bigint AS post_id, 1::bigint AS total', '42501', NULL, 'no other definition of the totals');
CREATE FUNCTION app.evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil runs as %', current_user; END $$;
SELECT throws_ok('CREATE TRIGGER evil BEFORE INSERT OR UPDATE ON likecount.like_slots FOR EACH ROW EXECUTE FUNCTION app.evil()', '42501', NULL, 'no trigger on the slots');
SELECT throws_ok('CREATE RULE "_RETURN" AS ON SELECT TO likecount.like_totals DO INSTEAD SELECT 1::bigint AS post_id, 1::bigint AS total', '42501', NULL, 'no rule on the view');
SELECT throws_ok('ALTER TABLE likecount.like_slots DISABLE TRIGGER ALL', '42501', NULL, 'no ALTER TABLE');
SELECT throws_ok('DROP TABLE likecount.like_slots', '42501', NULL, 'no DROP TABLE');

-- forging counts with our trigger on a table of one's own
SELECT set_config('role', 'none', true) \g /dev/null
SELECT likecount.flush() \g /dev/null
SET LOCAL ROLE lc_nobody;
CREATE TABLE evil.likes (post_id bigint, user_id bigint, liked_at timestamptz DEFAULT clock_timestamp());
CREATE TRIGGER forge AFTER INSERT OR DELETE ON evil.likes FOR EACH ROW EXECUTE FUNCTION likecount._capture('like', 'queued');
CREATE TRIGGER forge_truncate AFTER TRUNCATE ON evil.likes FOR EACH STATEMENT EXECUTE FUNCTION likecount._capture('like', 'queued');
INSERT INTO evil.likes SELECT 1, n FROM generate_series(1, 1000) n;
TRUNCATE evil.likes;
INSERT INTO evil.likes SELECT 1, n FROM generate_series(1, 1000) n;
RESET ROLE;
SELECT is((SELECT count(*) FROM likecount.pending), 0::bigint, 'our trigger on another''s table counts nothing');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(1), (SELECT count(*) FROM app.likes WHERE post_id = 1), 'the total is that of the table');
SELECT is((SELECT warnings[1] FROM likecount.counters WHERE verb = 'like'), '2 triggers on tables of other owners name this verb, and are ignored', 'and whoever watches is told');
SET LOCAL ROLE lc_nobody;
DROP TABLE evil.likes;
CREATE TABLE evil.likes (post_id bigint, user_id bigint);
CREATE TRIGGER forge BEFORE INSERT ON evil.likes FOR EACH ROW EXECUTE FUNCTION likecount._capture('like');
SELECT throws_ok('INSERT INTO evil.likes VALUES (1, 1)', '39P01', NULL, 'our trigger, fired BEFORE');
DROP TRIGGER forge ON evil.likes;
CREATE TRIGGER forge AFTER INSERT ON evil.likes FOR EACH ROW EXECUTE FUNCTION likecount._capture();
SELECT throws_ok('INSERT INTO evil.likes VALUES (1, 1)', '39P01', NULL, 'without a verb');
DROP TRIGGER forge ON evil.likes;
CREATE TRIGGER forge AFTER INSERT ON evil.likes FOR EACH STATEMENT EXECUTE FUNCTION likecount._capture('like');
SELECT throws_ok('INSERT INTO evil.likes VALUES (1, 1)', '39P01', NULL, 'once for a statement');
DROP TRIGGER forge ON evil.likes;
CREATE TRIGGER forge AFTER INSERT ON evil.likes FOR EACH ROW EXECUTE FUNCTION likecount._capture('nothing');
SELECT lives_ok('INSERT INTO evil.likes VALUES (1, 1)', 'for a verb that is none: it does nothing');
SELECT throws_ok('SELECT likecount._capture()', '39P01', NULL, 'or called by hand');

-- types: a pointer must not be read as a number, nor a number as a pointer
SET LOCAL ROLE lc_app;
SELECT throws_ok('SELECT likecount._add(''like'', ''abc''::text, 1::bigint)', '42804', 'argument 2 has type text, but counter "like" takes bigint', '_add of a text');
SELECT throws_ok('SELECT likecount._add(''like'', 1::bigint, ''abc''::text)', '42804', 'argument 3 has type text, but counter "like" takes bigint', 'as user');
SELECT throws_ok('SELECT likecount._add(''like'', ''1'', ''2'')', '42804', 'argument 2 has type unknown, but counter "like" takes bigint', '_add of literals');
SELECT throws_ok('SELECT likecount._add(''like'', NULL, NULL)', '42804', NULL, '_add of bare nulls');
SELECT throws_ok('SELECT likecount._add(''like'', 1::int, 2::int)', '42804', NULL, '_add of integers');
SELECT throws_ok('SELECT likecount._add(''like'', 1::float8, 2::bigint)', '42804', NULL, '_add of a float');
SELECT throws_ok('SELECT likecount._add(''like'', ARRAY[1::bigint], 2::bigint)', '42804', NULL, '_add of an array');
SELECT throws_ok('SELECT likecount._remove(''like'', ''abc''::text, 1::bigint)', '42804', NULL, '_remove');
SELECT throws_ok('SELECT likecount._has(''like'', ''abc''::text, 1::bigint)', '42804', NULL, '_has');
SELECT throws_ok('SELECT likecount._add_many(''like'', 1::bigint, 1::bigint)', '42804', 'argument 2 has type bigint, but counter "like" takes bigint[]', '_add_many of no arrays');
SELECT throws_ok('SELECT likecount._add_many(''like'', ARRAY[''a''], ARRAY[1::bigint])', '42804', NULL, '_add_many of texts');
SELECT throws_ok('SELECT likecount._total(''like'', ''abc''::text)', '42804', NULL, '_total');
SELECT throws_ok('SELECT * FROM likecount._totals(''like'', ARRAY[''abc''])', '42804', NULL, '_totals');
SELECT throws_ok('SELECT * FROM likecount._posts_of(''like'', 1::bigint, ARRAY[''abc''])', '42804', NULL, '_posts_of');
SELECT throws_ok('SELECT * FROM likecount._posts_of(''like'', ''abc''::text, ARRAY[1::bigint])', '42804', NULL, 'as user');
SELECT throws_ok('SELECT likecount._add(''nothing'', 1::bigint, 1::bigint)', '42704', NULL, 'a verb that is none');
SELECT throws_ok('SELECT likecount._add(repeat(''like'', 100), 1::bigint, 1::bigint)', '42704', NULL, 'nor a long one');
SELECT throws_ok('SELECT likecount._add(NULL, 1::bigint, 1::bigint)', '22004', 'argument "verb" must not be null', 'nor NULL');

-- names: objects of the caller's choice in front of everything
RESET ROLE;
GRANT lc_nobody TO lc_app;
CREATE FUNCTION evil.no(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil operator'; END $$;
CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.no);
CREATE FUNCTION evil.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil function'; END $$;
CREATE TEMP TABLE likes (post_id bigint, user_id bigint);
GRANT ALL ON pg_temp.likes TO lc_app;
SET LOCAL search_path = evil, pg_temp, pg_catalog, public;
SET LOCAL ROLE lc_app;
SELECT results_eq('SELECT likecount.like(9, 1)::text, likecount.like_many(ARRAY[9, 9], ARRAY[2, 3])::text, likecount.liked(1, 1)::text, likecount.unlike(9, 2)::text',
    'VALUES (''true'', ''2'', ''true'', ''true'')', 'operators, functions and tables in front of ours change nothing');

SELECT * FROM finish();
ROLLBACK;
