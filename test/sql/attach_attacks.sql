-- Set-up by somebody who should not, and owners who try for more.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
BEGIN;
SET LOCAL client_min_messages = warning;
-- what other tests left of counters whose tables are gone
SELECT likecount.flush() \g /dev/null
SELECT plan(35);

CREATE ROLE lc_owner;
CREATE ROLE lc_member IN ROLE lc_owner;
CREATE ROLE lc_app;
CREATE ROLE lc_outside;
GRANT USAGE ON SCHEMA likecount TO lc_owner, lc_app;
CREATE SCHEMA app AUTHORIZATION lc_owner;
GRANT USAGE ON SCHEMA app TO lc_app, lc_outside;
GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA pg_temp TO PUBLIC;
SET LOCAL ROLE lc_owner;
CREATE TABLE app.likes (p bigint, u bigint, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (p, u));
CREATE TABLE app.tags (p bigint, u bigint, PRIMARY KEY (p, u));
GRANT ALL ON app.likes TO lc_app;

-- who may
SET LOCAL ROLE lc_app;
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'p', 'u', 'at')$$, '42501', 'must be owner of table likes', 'all privileges do not make an owner');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'p', only_where => 'syntax error(')$$, '42501', 'must be owner of table likes', 'and nothing is parsed for who is none');
SELECT throws_ok($$SELECT likecount.attach('pg_catalog.pg_class', 'relname')$$, '42501', 'must be owner of table pg_class', 'of a catalog');
SELECT throws_ok($$SELECT likecount.attach('likecount._counter', 'id')$$, '42501', 'must be owner of table _counter', 'of a table of the extension');
SET LOCAL ROLE lc_outside;
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'p', 'u', 'at')$$, '42501', 'permission denied for schema likecount', 'USAGE on the schema is the gate');
RESET ROLE;
SET LOCAL ROLE lc_member;
SELECT lives_ok($$SELECT likecount.attach('app.tags', 'p', 'u')$$, 'a member of the owner''s role may');
SELECT lives_ok($$SELECT likecount.detach('app.tags')$$, 'also detach');

-- code of the owner's in reach of set-up: nothing of it runs with other rights
SET LOCAL ROLE lc_owner;
CREATE TABLE app.ran (who name, what text);
GRANT INSERT ON app.ran TO PUBLIC;
CREATE FUNCTION app.sum(bigint) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN INSERT INTO app.ran VALUES (current_user, 'sum'); RETURN 1; END$$;
CREATE FUNCTION app.int8ne(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN INSERT INTO app.ran VALUES (current_user, 'int8ne'); RETURN true; END$$;
CREATE OPERATOR app.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = app.int8ne);
CREATE FUNCTION app.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN INSERT INTO app.ran VALUES (current_user, 'clock'); RETURN now(); END$$;
CREATE FUNCTION pg_temp.nextval(regclass) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN INSERT INTO app.ran VALUES (current_user, 'nextval'); RETURN 1; END$$;
CREATE TYPE pg_temp.bigint AS ENUM ('x');
CREATE TABLE pg_temp.like_slots (post bigint);
CREATE TABLE pg_temp._counter (id int);
CREATE VIEW pg_temp.pg_class AS SELECT 1 AS oid FROM app.int8ne(1, 1);
CREATE VIEW pg_temp.pg_extension AS SELECT 'evil'::text AS extversion FROM app.int8ne(1, 1);
SET LOCAL search_path = pg_temp, app, pg_catalog, public;
SELECT lives_ok($$SELECT likecount.attach('app.likes', 'p', 'u', 'at')$$, 'attach() among traps');
SELECT lives_ok($$SELECT likecount.create_counter('app.votes')$$, 'create_counter() among traps');
SELECT lives_ok('INSERT INTO app.likes VALUES (1, 1)', 'a like among traps');
SELECT lives_ok('UPDATE app.likes SET p = 2', 'an update among traps');
RESET ROLE;
-- not inside lives_ok(): its subtransaction could not flush what the levels above it captured
SELECT likecount.flush() \g /dev/null
SET LOCAL ROLE lc_owner;
SELECT lives_ok($$SELECT likecount.detach('app.votes')$$, 'detach() among traps');
RESET ROLE;
SET LOCAL search_path = public;
-- compared only now: on the path above, = itself is a trap
SELECT is_empty('SELECT * FROM app.ran', 'no trap was sprung');
SELECT is(likecount.like_count(2), 1::bigint, 'and a flush among traps counts right');
SELECT is((SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'app.votes'::regclass), 'clock_timestamp()', 'the clock is the built-in one');
SELECT is((SELECT version FROM likecount._counter WHERE verb = 'like'), (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'likecount'), 'the version is the real one');

-- the objects are not the owner's: no rule, no trigger, no code in them
SET LOCAL ROLE lc_owner;
SELECT throws_ok($$CREATE OR REPLACE VIEW likecount.like_totals AS SELECT 1::bigint AS post_id, 1::bigint AS total$$, '42501', NULL, 'the totals view is not replaced');
SELECT throws_ok($$CREATE OR REPLACE RULE "_RETURN" AS ON SELECT TO likecount.like_totals DO INSTEAD SELECT 1::bigint AS post_id, 1::bigint AS total$$, '42501', 'must be owner of view like_totals', 'nor its rule');
SELECT throws_ok($$CREATE OR REPLACE RULE "_RETURN" AS ON SELECT TO likecount.like_rows DO INSTEAD SELECT 1::bigint, 1::bigint, now()$$, '42501', 'must be owner of view like_rows', 'nor that of the rows view');
SELECT throws_ok($$CREATE RULE r AS ON UPDATE TO likecount.like_slots DO ALSO DELETE FROM app.ran$$, '42501', NULL, 'no rule on slots');
SELECT throws_ok($$CREATE TRIGGER t AFTER UPDATE ON likecount.like_slots EXECUTE FUNCTION suppress_redundant_updates_trigger()$$, '42501', 'permission denied for table like_slots', 'no trigger on slots');
SELECT throws_ok($$CREATE OR REPLACE FUNCTION likecount.like(post_id bigint, user_id bigint) RETURNS boolean LANGUAGE sql RETURN true$$, '42501', NULL, 'no other function');
SELECT throws_ok($$CREATE FUNCTION likecount.like(post_id text, user_id bigint) RETURNS boolean LANGUAGE sql RETURN true$$, '42501', 'permission denied for schema likecount', 'no overload');
SELECT throws_ok($$DROP FUNCTION likecount.like$$, '42501', 'must be owner of function likecount.like', 'none is dropped');
SELECT throws_ok($$UPDATE likecount.like_slots SET value = 1000000$$, '42501', 'permission denied for table like_slots', 'no number is forged');
SELECT throws_ok($$DELETE FROM likecount._counter$$, '42501', 'permission denied for table _counter', 'no registration');
SELECT throws_ok($$CREATE TABLE likecount.x ()$$, '42501', 'permission denied for schema likecount', 'nothing is made in the schema');
SELECT throws_ok($$ALTER TABLE app.tags SET SCHEMA likecount$$, '42501', 'permission denied for schema likecount', 'or moved there');
SELECT throws_ok($$ALTER TABLE likecount.like_slots DISABLE TRIGGER ALL$$, '42501', 'must be owner of table like_slots', 'or changed');
-- what the owner has
SELECT lives_ok('SELECT * FROM likecount.like_totals', 'the owner reads totals');
SELECT lives_ok('SELECT * FROM likecount.like_rows', 'and the definition');
SELECT lives_ok('GRANT SELECT ON likecount.like_totals TO lc_app', 'and passes that on');
SET LOCAL ROLE lc_app;
SELECT is((SELECT total FROM likecount.like_totals WHERE post_id = 2), 1::bigint, 'to an application');
SELECT throws_ok('SELECT * FROM likecount.like_rows', '42501', 'permission denied for view like_rows', 'which sees no more than that');
RESET ROLE;
-- row-level security of the source holds in the rows view
ALTER TABLE app.likes ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON likecount.like_rows TO lc_app;
SET LOCAL ROLE lc_app;
SELECT is_empty('SELECT * FROM likecount.like_rows', 'policies hold for the reader of the rows view');
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
