-- attach() and create_counter() refuse, each with its own error, and leave nothing behind.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
BEGIN;
SET LOCAL client_min_messages = warning;
-- what other tests left of counters whose tables are gone
SELECT likecount.flush() \g /dev/null
SELECT plan(61);

CREATE SCHEMA app;
CREATE TABLE app.likes (post bigint NOT NULL, who bigint NOT NULL, maybe bigint, at timestamptz, note text, UNIQUE (post, who));

-- NULL and modes
SELECT throws_ok($$SELECT likecount.attach(NULL, 'post')$$, '22004', 'argument "source" of likecount.attach() must not be null', 'no table');
SELECT throws_ok($$SELECT likecount.attach('app.likes', NULL)$$, '22004', 'argument "post_column" of likecount.attach() must not be null', 'no post column');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', mode => NULL)$$, '22004', 'argument "mode" of likecount.attach() must not be null', 'no mode');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', count_replicated => NULL)$$, '22004', 'argument "count_replicated" of likecount.attach() must not be null', 'count_replicated NULL');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', if_not_exists => NULL)$$, '22004', 'argument "if_not_exists" of likecount.attach() must not be null', 'if_not_exists NULL');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', mode => 'fast')$$, '22023', 'unknown mode "fast"', 'unknown mode');

-- the table
SELECT throws_ok($$SELECT likecount.attach('app.missing', 'post')$$, '42P01', 'relation "app.missing" does not exist', 'unknown table');
SELECT throws_ok($$SELECT likecount.attach(4294967295::oid::regclass, 'post')$$, '42P01', 'relation with OID 4294967295 does not exist', 'unknown OID');
CREATE VIEW app.a_view AS SELECT * FROM app.likes;
CREATE MATERIALIZED VIEW app.a_matview AS SELECT * FROM app.likes;
CREATE SEQUENCE app.a_sequence;
CREATE TYPE app.a_composite AS (post bigint, who bigint);
CREATE FOREIGN DATA WRAPPER fdw;
CREATE SERVER srv FOREIGN DATA WRAPPER fdw;
CREATE FOREIGN TABLE app.a_foreign (post bigint NOT NULL, who bigint NOT NULL) SERVER srv;
SELECT throws_ok($$SELECT likecount.attach('app.a_view', 'post')$$, '42809', 'app.a_view cannot be counted', 'a view');
SELECT throws_ok($$SELECT likecount.attach('app.a_matview', 'post')$$, '42809', 'app.a_matview cannot be counted', 'a materialized view');
SELECT throws_ok($$SELECT likecount.attach('app.a_sequence', 'post')$$, '42809', 'app.a_sequence cannot be counted', 'a sequence');
SELECT throws_ok($$SELECT likecount.attach('app.a_composite', 'post')$$, '42809', 'app.a_composite cannot be counted', 'a type');
SELECT throws_ok($$SELECT likecount.attach('app.a_foreign', 'post')$$, '42809', 'app.a_foreign cannot be counted', 'a foreign table');
SELECT throws_ok($$SELECT likecount.attach('app.likes_post_who_key', 'post')$$, '42809', 'app.likes_post_who_key cannot be counted', 'an index');
CREATE TEMP TABLE temps (post bigint NOT NULL);
CREATE UNLOGGED TABLE app.unlogged (post bigint NOT NULL);
SELECT throws_ok($$SELECT likecount.attach('temps', 'post')$$, '0A000', format('temporary table %s.temps cannot be counted', pg_my_temp_schema()::regnamespace), 'a temporary table');
SELECT throws_ok($$SELECT likecount.attach('app.unlogged', 'post')$$, '0A000', 'unlogged table app.unlogged cannot be counted', 'an unlogged table');
SELECT throws_ok($$SELECT likecount.attach('pg_catalog.pg_class', 'relname')$$, '42809', 'system catalog pg_catalog.pg_class cannot be counted', 'a catalog');
SELECT throws_ok($$SELECT likecount.attach('information_schema.sql_features', 'feature_id')$$, '42809', 'system catalog information_schema.sql_features cannot be counted', 'information_schema');
SELECT throws_ok($$SELECT likecount.attach('likecount._rejected', 'id')$$, '42939', 'likecount._rejected cannot be counted: schema likecount belongs to the extension', 'a table of likecount');
CREATE TABLE app.parent (post bigint NOT NULL);
CREATE TABLE app.child () INHERITS (app.parent);
SELECT throws_ok($$SELECT likecount.attach('app.parent', 'post')$$, '0A000', 'table app.parent cannot be counted: other tables inherit from it', 'an inheritance parent');
SELECT throws_ok($$SELECT likecount.attach('app.child', 'post')$$, '0A000', 'table app.child cannot be counted: it inherits from another table', 'an inheritance child');
CREATE TABLE app.parts (post bigint NOT NULL, who bigint NOT NULL) PARTITION BY LIST (post);
CREATE TABLE app.part_1 PARTITION OF app.parts FOR VALUES IN (1);
SELECT throws_ok($$SELECT likecount.attach('app.part_1', 'post')$$, '0A000', 'partition app.part_1 cannot be counted by itself', 'a partition');
ALTER TABLE app.part_1 SET UNLOGGED;
SELECT throws_ok($$SELECT likecount.attach('app.parts', 'post')$$, '0A000', 'unlogged table app.part_1 cannot be counted', 'an unlogged partition');
ALTER TABLE app.part_1 SET LOGGED;
CREATE FOREIGN TABLE app.part_2 PARTITION OF app.parts FOR VALUES IN (2) SERVER srv;
SELECT throws_ok($$SELECT likecount.attach('app.parts', 'post')$$, '42809', 'partition app.part_2 of app.parts cannot be counted', 'a foreign partition');
DROP FOREIGN TABLE app.part_2;
SELECT throws_ok($$SELECT likecount.attach('app.parts', 'post', 'who')$$, '42P16', 'table app.parts has no unique index on exactly (post, who)', 'a partitioned table needs the unique index, too');

-- columns
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'pots')$$, '42703', 'column "pots" of table app.likes does not exist', 'unknown post column');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', 'whom')$$, '42703', 'column "whom" of table app.likes does not exist', 'unknown user column');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', 'who', 'when')$$, '42703', 'column "when" of table app.likes does not exist', 'unknown time column');
ALTER TABLE app.likes ADD gone bigint;
ALTER TABLE app.likes DROP gone;
SELECT throws_ok($$SELECT likecount.attach('app.likes', '........pg.dropped.6........')$$, '42703', NULL, 'a dropped column');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'ctid')$$, '42P10', 'system column "ctid" cannot be counted by', 'a system column');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'maybe')$$, '42P16', 'column "maybe" may be NULL', 'a nullable post column');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', 'maybe')$$, '42P16', 'column "maybe" may be NULL', 'a nullable user column');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', 'post')$$, '22023', 'post_column and user_column are both "post"', 'one column twice');
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post', 'who', 'note')$$, '0A000', 'time column "note" is of type text', 'a time that is none');
CREATE DOMAIN app.positive AS bigint CHECK (VALUE > 0);
CREATE TYPE app.mood AS ENUM ('good', 'bad');
CREATE COLLATION app.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE app.types (n numeric NOT NULL, d app.positive NOT NULL, m app.mood NOT NULL, a bigint[] NOT NULL, c char(3) NOT NULL, na name NOT NULL, j jsonb NOT NULL, f float8 NOT NULL,
    by bytea NOT NULL, l text COLLATE app.loose NOT NULL, ok bigint NOT NULL, UNIQUE (ok, l));
SELECT throws_ok(format($$SELECT likecount.attach('app.types', %L)$$, col), '0A000', format('column "%s" is of type %s, which cannot be counted by', col, type), 'type ' || type)
  FROM (VALUES ('n', 'numeric'), ('d', 'app.positive'), ('m', 'app.mood'), ('a', 'bigint[]'), ('c', 'character'), ('na', 'name'), ('j', 'jsonb'), ('f', 'double precision'), ('by', 'bytea')) AS v (col, type);
SELECT throws_ok($$SELECT likecount.attach('app.types', 'l')$$, '0A000', 'column "l" has the nondeterministic collation "loose"', 'a nondeterministic collation');
SELECT throws_ok($$SELECT likecount.attach('app.types', 'ok', 'l')$$, '0A000', 'column "l" has the nondeterministic collation "loose"', 'of the user column');

-- the unique index
CREATE FUNCTION app.why(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; BEGIN EXECUTE query; RETURN 'no error'; EXCEPTION WHEN invalid_table_definition THEN GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL; RETURN detail; END $$;
CREATE TABLE app.keys (p bigint NOT NULL, u bigint NOT NULL, x bigint NOT NULL DEFAULT 0, t text NOT NULL DEFAULT '');
SELECT throws_ok($$SELECT likecount.attach('app.keys', 'p', 'u')$$, '42P16', 'table app.keys has no unique index on exactly (p, u)', 'no index at all');
CREATE INDEX ON app.keys (p, u);
CREATE UNIQUE INDEX ON app.keys (p, u, x);
CREATE UNIQUE INDEX ON app.keys (p);
CREATE UNIQUE INDEX ON app.keys (p, (u + 1));
SELECT is(app.why($$SELECT likecount.attach('app.keys', 'p', 'u')$$), 'It makes sure that a user likes a post once.', 'others do not do');
ALTER TABLE app.keys ADD CONSTRAINT later UNIQUE (p, u) DEFERRABLE;
SELECT is(app.why($$SELECT likecount.attach('app.keys', 'p', 'u')$$), 'Index "later" belongs to a deferrable constraint.', 'a deferrable one');
ALTER TABLE app.keys DROP CONSTRAINT later;
CREATE UNIQUE INDEX partial ON app.keys (u, p) WHERE x = 0;
SELECT is(app.why($$SELECT likecount.attach('app.keys', 'p', 'u')$$), 'Index "partial" is partial, with another condition than only_where.', 'a partial one');
SELECT is(app.why($$SELECT likecount.attach('app.keys', 'p', 'u', only_where => 'x = 1')$$), 'Index "partial" is partial, with another condition than only_where.', 'of another condition');
DROP INDEX app.partial;
CREATE UNIQUE INDEX broken ON app.keys (u, p);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'app.broken'::regclass;
SELECT is(app.why($$SELECT likecount.attach('app.keys', 'p', 'u')$$), 'Index "broken" is not valid.', 'an invalid one');
DROP INDEX app.broken;
CREATE UNIQUE INDEX strange ON app.keys (p, t COLLATE app.loose);
SELECT is(app.why($$SELECT likecount.attach('app.keys', 'p', 't')$$), 'Index "strange" compares by a special operator class or collation.', 'one that finds different keys equal');
CREATE UNIQUE INDEX fine ON app.keys (t text_pattern_ops, p DESC) INCLUDE (x);
SELECT is(app.why($$SELECT likecount.attach('app.keys', 'p', 't')$$), 'no error', 'one that does not');
SELECT likecount.detach('app.keys') \g /dev/null

-- what is in the way
CREATE TRIGGER like_capture_upd AFTER UPDATE ON app.likes FOR EACH STATEMENT EXECUTE FUNCTION suppress_redundant_updates_trigger();
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post')$$, '42710', 'trigger "like_capture_upd" of table app.likes exists already', 'a trigger of our name');
DROP TRIGGER like_capture_upd ON app.likes;
SELECT likecount.attach('app.likes', 'post') \g /dev/null
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post')$$, '42710', 'table app.likes has a counter "like" already', 'attached already');
DELETE FROM likecount._counter;
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post')$$, '42710', 'table app.likes has a restored counter "like" already', 'or restored');
SELECT likecount.detach('app.likes') \g /dev/null

-- nothing half done
SELECT is_empty($$SELECT proname FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql')$$, 'no function is left');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relname ~ '_(rows|slots|totals)$'$$, 'no view, no slots');
SELECT is_empty($$SELECT tgname FROM pg_trigger WHERE tgfoid = 'likecount._capture'::regproc$$, 'no trigger');
SELECT is((SELECT count(*) FROM likecount._counter), 0::bigint, 'no registration');

SET LOCAL transaction_read_only = on;
SELECT throws_ok($$SELECT likecount.attach('app.likes', 'post')$$, '25006', NULL, 'a read-only transaction');

SELECT * FROM finish();
ROLLBACK;
