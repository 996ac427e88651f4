-- create_counter(): makes the table as its caller, and attaches it.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
BEGIN;
SET LOCAL client_min_messages = warning;
-- what other tests left of counters whose tables are gone
SELECT likecount.flush() \g /dev/null
SELECT plan(43);

CREATE ROLE lc_maker;
CREATE ROLE lc_team;
CREATE ROLE lc_poor;
GRANT lc_team TO lc_maker;
CREATE SCHEMA app;
GRANT ALL ON SCHEMA app TO lc_maker, lc_team;
GRANT USAGE ON SCHEMA app TO lc_poor;
GRANT USAGE ON SCHEMA likecount TO lc_maker, lc_team, lc_poor;
GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA pg_temp TO PUBLIC;

SET LOCAL ROLE lc_maker;
SET LOCAL search_path = app, public;
SELECT is(likecount.create_counter()::text, 'likes', 'the default is the table likes in the current schema');
SELECT is((SELECT relowner::regrole::text FROM pg_class WHERE oid = 'app.likes'::regclass), 'lc_maker', 'it belongs to the caller');
SELECT is((SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'NOT NULL' END, pg_get_expr(adbin, adrelid)), ', ' ORDER BY attnum)
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid = 'app.likes'::regclass AND attnum > 0),
    'post_id bigint NOT NULL, user_id bigint NOT NULL, liked_at timestamp with time zone NOT NULL clock_timestamp()', 'its columns');
SELECT is((SELECT array_agg(pg_get_indexdef(indexrelid) COLLATE "default" ORDER BY indexrelid) FROM pg_index WHERE indrelid = 'app.likes'::regclass), ARRAY[
    'CREATE UNIQUE INDEX likes_pkey ON app.likes USING btree (post_id, user_id)',
    'CREATE INDEX likes_liked_at_idx ON app.likes USING brin (liked_at) WITH (autosummarize=''on'')'], 'its indexes');
SELECT ok((SELECT indisprimary FROM pg_index WHERE indexrelid = 'app.likes_pkey'::regclass), 'one of which is the primary key');
SELECT is((SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.likes'::regclass), 4::bigint, 'it is attached');
SELECT is(likecount.like(1, 1), true, 'and works');

SELECT is(likecount.create_counter('reposts', post_type => 'uuid', user_type => 'text')::text, 'reposts', 'other types');
SELECT is(likecount.repost('11111111-1111-1111-1111-111111111111', 'a'), true, 'work, too');
SELECT is(likecount.create_counter('"My Table"', 'bookmark', 'kept')::text, '"My Table"', 'a quoted name, with a verb and a past form');
SELECT is(likecount.kept(1, 1), false, 'which names the functions');
SELECT is(likecount.create_counter('app."a.b"', 'save')::text, '"a.b"', 'a qualified name with a dot in it');
SELECT is(likecount.create_counter(format('%I.app.stars', current_database()))::text, 'stars', 'a name qualified by the database');
SET LOCAL ROLE lc_team;
SELECT likecount.create_counter('team_likes') \g /dev/null
SELECT is((SELECT relowner::regrole::text FROM pg_class WHERE oid = 'app.team_likes'::regclass), 'lc_team', 'with SET ROLE the role owns the table');
SET LOCAL ROLE lc_maker;

-- if_not_exists
SELECT throws_ok($$SELECT likecount.create_counter('likes')$$, '42P07', 'relation app.likes already exists', 'a second time');
SELECT is(likecount.create_counter('likes', if_not_exists => true)::text, 'likes', 'a second time with if_not_exists');
CREATE TABLE app.plain (post_id bigint);
SELECT throws_ok($$SELECT likecount.create_counter('plain', if_not_exists => true)$$, '42P07', 'relation app.plain already exists', 'a table that is not counted is an error');
SELECT throws_ok($$SELECT likecount.create_counter('likes_pkey', if_not_exists => true)$$, '42P07', 'relation app.likes_pkey already exists', 'as is an index');
SELECT throws_ok($$SELECT likecount.create_counter('app.hearts', 'like', if_not_exists => true)$$, '42710', 'verb "like" is in use', 'or a verb in use');
SELECT hasnt_table('app', 'hearts', 'then there is no table either');

-- refused
SELECT throws_ok($$SELECT likecount.create_counter(NULL)$$, '22004', 'argument "source" of likecount.create_counter() must not be null', 'no name');
SELECT throws_ok($$SELECT likecount.create_counter('x', post_type => NULL)$$, '22004', 'argument "post_type" of likecount.create_counter() must not be null', 'no post type');
SELECT throws_ok($$SELECT likecount.create_counter('x', user_type => NULL)$$, '22004', 'argument "user_type" of likecount.create_counter() must not be null', 'no user type');
SELECT throws_ok($$SELECT likecount.create_counter('x', mode => NULL)$$, '22004', 'argument "mode" of likecount.create_counter() must not be null', 'no mode');
SELECT throws_ok($$SELECT likecount.create_counter('x', if_not_exists => NULL)$$, '22004', 'argument "if_not_exists" of likecount.create_counter() must not be null', 'if_not_exists NULL');
SELECT throws_ok($$SELECT likecount.create_counter('x', mode => '')$$, '22023', 'unknown mode ""', 'unknown mode');
SELECT throws_ok($$SELECT likecount.create_counter('x', post_type => 'numeric')$$, '0A000', 'post_type is of type numeric, which cannot be counted by', 'an unsupported post type');
SELECT throws_ok($$SELECT likecount.create_counter('x', user_type => 'bytea')$$, '0A000', 'user_type is of type bytea, which cannot be counted by', 'an unsupported user type');
SELECT throws_ok($$SELECT likecount.create_counter('x', post_type => 0::oid::regtype)$$, '0A000', 'post_type is of type -, which cannot be counted by', 'no type at all');
SELECT throws_ok($$SELECT likecount.create_counter('')$$, '42602', 'invalid name syntax', 'an empty name');
SELECT throws_ok($$SELECT likecount.create_counter('a b')$$, '42602', 'invalid name syntax', 'a malformed name');
SELECT throws_ok($$SELECT likecount.create_counter('likes; DROP TABLE app.likes')$$, '42602', 'invalid name syntax', 'more than a name');
SELECT throws_ok($$SELECT likecount.create_counter('a.b.c.d')$$, '42601', NULL, 'a name with too many parts');
SELECT throws_ok($$SELECT likecount.create_counter('nowhere.likes')$$, '3F000', 'schema "nowhere" does not exist', 'an unknown schema');
SELECT throws_ok($$SELECT likecount.create_counter('likecount.x')$$, '42939', 'table "x" cannot be created in schema likecount, which belongs to the extension', 'our schema');
SELECT throws_ok($$SELECT likecount.create_counter('pg_temp.x')$$, '0A000', 'temporary table "x" cannot be counted', 'a temporary schema');
SELECT throws_ok($$SELECT likecount.create_counter('x', 'Like')$$, '42602', 'verb "Like" is not a valid name', 'a bad verb');
CREATE FUNCTION app.nowhere() RETURNS regclass LANGUAGE sql SET search_path = '' AS $$SELECT likecount.create_counter('x')$$;
SELECT throws_ok('SELECT app.nowhere()', '3F000', 'no schema has been selected to create in', 'no current schema');
SET LOCAL search_path = pg_temp, app, public;
SELECT throws_ok($$SELECT likecount.create_counter('x')$$, '0A000', 'temporary table "x" cannot be counted', 'a temporary schema first');
-- the schema of the extension on the path must not get the user's table: DROP EXTENSION would drop it
RESET ROLE;
SET LOCAL search_path = likecount, app, public;
SELECT throws_ok($$SELECT likecount.create_counter('x')$$, '42939', 'table "x" cannot be created in schema likecount, which belongs to the extension', 'our schema first on the path');
SET LOCAL search_path = app, public;

-- with the rights of the caller, and no others
SET LOCAL ROLE lc_poor;
SELECT throws_ok($$SELECT likecount.create_counter('app.x')$$, '42501', 'permission denied for schema app', 'CREATE on the schema is needed');
SELECT throws_ok($$SELECT likecount.create_counter('pg_catalog.x')$$, '42501', 'permission denied for schema pg_catalog', 'as for pg_catalog');
RESET ROLE;
SELECT is_empty($$SELECT relname FROM pg_class WHERE relname = 'x'$$, 'nothing is left of what was refused');

SELECT * FROM finish();
ROLLBACK;
