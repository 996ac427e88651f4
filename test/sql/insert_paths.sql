-- The fast insert and the statement that it stands for, on tables of every shape: the same rows, errors and totals, and which way was taken.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
\set twins :test_dir '/twins.sql'
\i :oracle
\i :twins
SELECT plan(196);

-- keys and indexes
BEGIN;
SELECT * FROM twins.shape('ordinary', 'CREATE TABLE @t (p bigint, u bigint, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (p, u)); CREATE INDEX ON @t USING brin (at)', 'fast', at => 'at');
SELECT * FROM twins.shape('reversed', 'CREATE TABLE @t (note text, p bigint NOT NULL, x int, u bigint NOT NULL); CREATE UNIQUE INDEX ON @t (u DESC, p)', 'fast');
SELECT * FROM twins.shape('included', 'CREATE TABLE @t (p bigint NOT NULL, u bigint NOT NULL, at timestamptz DEFAULT now(), note text DEFAULT ''a'', UNIQUE (p, u) INCLUDE (at, note))', 'fast');
SELECT * FROM twins.shape('twice_unique', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), UNIQUE (u, p))', 'fast');
-- ON CONFLICT (p, u) takes these too: whatever is repeated in them, and however they compare
SELECT * FROM twins.shape('repeated_columns', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE UNIQUE INDEX ON @t (p, u, p)', 'executor: an unusual unique index is over the post and the user');
SELECT * FROM twins.shape('another_comparison', 'CREATE TABLE @t (p text, u bigint, PRIMARY KEY (p, u)); CREATE UNIQUE INDEX ON @t (u, p text_pattern_ops); CREATE UNIQUE INDEX ON @t (p COLLATE "C", u)', 'fast', post_key => 'text');
SELECT EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i') AS icu \gset
\if :icu
CREATE COLLATION twins.blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
-- before and after the other one
SELECT * FROM twins.shape('blind_comparison_first', 'CREATE TABLE @t (p text NOT NULL, u bigint NOT NULL); CREATE UNIQUE INDEX ON @t (p COLLATE twins.blind, u); ALTER TABLE @t ADD UNIQUE (p, u)', 'fast',
    '{"SELECT @like(''a'', 1)", "SELECT @like(''A'', 1)", "SELECT @unlike(''A'', 1)", "SELECT @unlike(''a'', 1)", "SELECT @like(''A'', 1)"}', post_key => 'text');
SELECT * FROM twins.shape('blind_comparison', 'CREATE TABLE @t (p text, u bigint, PRIMARY KEY (p, u)); CREATE UNIQUE INDEX ON @t (p COLLATE twins.blind, u)', 'fast',
    '{"SELECT @like(''a'', 1)", "SELECT @like(''A'', 1)", "SELECT @like(''A'', 2)", "SELECT @many(''{a,A,B}'', ''{1,1,1}'')"}', post_key => 'text');
\else
SELECT skip('no ICU', 4);
\endif
SELECT * FROM twins.shape('true_condition', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE UNIQUE INDEX ON @t (p, u) WHERE 1 = 1', 'executor: an unusual unique index is over the post and the user');
SELECT * FROM twins.shape('condition_on_keys', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE UNIQUE INDEX ON @t (p, u) WHERE p < 3', 'executor: an unusual unique index is over the post and the user');
SELECT * FROM twins.shape('never_null', 'CREATE TABLE @t (p bigint NOT NULL, u bigint NOT NULL, x int, UNIQUE NULLS NOT DISTINCT (p, u))', 'fast');
-- other rules of uniqueness: 23505
SELECT * FROM twins.shape('unique_user', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), UNIQUE (u))', 'fast; 23505');
SELECT * FROM twins.shape('unique_post', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), UNIQUE (p))', 'fast; 23505');
SELECT * FROM twins.shape('unique_user_somewhere', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE UNIQUE INDEX ON @t (u) WHERE p < 5', 'fast; 23505');
SELECT * FROM twins.shape('unique_expression', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE UNIQUE INDEX ON @t ((p % 5), (u % 2))', 'fast; 23505');
SELECT * FROM twins.shape('unique_null', 'CREATE TABLE @t (p bigint, u bigint, x int, PRIMARY KEY (p, u), UNIQUE NULLS NOT DISTINCT (x))', 'fast; 23505');
SELECT * FROM twins.shape('deferrable_too', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), UNIQUE (u, p) DEFERRABLE)',
    'executor: trigger "Unique_ConstraintTrigger_<n>" fires on INSERT; 55000', '{"SELECT @like(1, 1)", "SELECT @many(''{1}'', ''{1}'')"}');
SELECT * FROM twins.shape('deferred', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), UNIQUE (u) DEFERRABLE INITIALLY DEFERRED)',
    'executor: trigger "Unique_ConstraintTrigger_<n>" fires on INSERT; 23505',
    '{"SELECT @like(1, 1)", "SELECT @like(2, 1)", "SET CONSTRAINTS ALL IMMEDIATE", "DELETE FROM @t WHERE p = 2", "SET CONSTRAINTS ALL IMMEDIATE"}');
SELECT * FROM twins.shape('excluding_btree', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), EXCLUDE USING btree (u WITH =))', 'fast; 23P01');
SELECT * FROM twins.shape('excluding_keys', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), EXCLUDE USING btree (p WITH =, u WITH =))', 'fast');
SELECT * FROM twins.shape('excluding_hash', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), EXCLUDE USING hash (u WITH =) WHERE (p < 5))', 'fast; 23P01');
SELECT * FROM twins.shape('excluding_gist', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), EXCLUDE USING gist (int8range(u, u + 2) WITH &&))', 'fast; 23P01');
SELECT * FROM twins.shape('excluding_late', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), EXCLUDE USING gist (int8range(u, u + 2) WITH &&) DEFERRABLE INITIALLY DEFERRED)',
    'executor: trigger "Unique_ConstraintTrigger_<n>" fires on INSERT; 23P01', '{"SELECT @like(1, 1)", "SELECT @like(2, 1)", "SET CONSTRAINTS ALL IMMEDIATE"}');
COMMIT;
CREATE TABLE twins.posts (p bigint PRIMARY KEY);
INSERT INTO twins.posts VALUES (1), (2), (3);
CREATE TABLE twins.long AS SELECT n AS p, n || repeat('abcdefghi ', 98) AS t FROM generate_series(1, 3) n;
ALTER TABLE twins.long ADD filler text; ALTER TABLE twins.long ALTER t SET STORAGE EXTERNAL;
UPDATE twins.long SET t = t || '', filler = repeat(md5(t), 300);
CREATE TYPE twins.mood AS ENUM ('sad', 'ok');
CREATE TYPE twins.both AS (a int, b text);
CREATE DOMAIN twins.any_number AS int;
CREATE DOMAIN twins.small_number AS int NOT NULL DEFAULT 3 CHECK (VALUE < 10);
CREATE FUNCTION twins.two() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2';
CREATE FUNCTION twins.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE FUNCTION twins.change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.note := 'changed'; RETURN NEW; END $$;
CREATE FUNCTION twins.cancel() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.u = 3 THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE FUNCTION twins.cancel_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE FUNCTION twins.say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '% % %', TG_WHEN, TG_LEVEL, TG_OP; END $$;
-- keys
BEGIN;
SELECT * FROM twins.shape('small_keys', 'CREATE TABLE @t (p smallint, u integer, PRIMARY KEY (p, u))', 'fast');
SELECT * FROM twins.shape('uuid_keys', 'CREATE TABLE @t (p uuid, u uuid, PRIMARY KEY (p, u))', 'fast', post_key => 'uuid', user_key => 'uuid');
SELECT * FROM twins.shape('text_keys', 'CREATE TABLE @t (p text, u varchar, PRIMARY KEY (p, u))', 'fast', post_key => 'text', user_key => 'text');
SELECT * FROM twins.shape('long_keys', 'CREATE TABLE @t (p text, u text, PRIMARY KEY (p, u))', 'fast', post_key => 'long', user_key => 'long');
SELECT * FROM twins.shape('keys_out_of_line', 'CREATE TABLE @t (p text, u bigint, PRIMARY KEY (p, u))', 'fast',
    '{"SELECT string_agg(@like(t, p)::text, '' '') FROM twins.long", "SELECT string_agg(@like(t, p)::text, '' '') FROM twins.long", "SELECT @many(array_agg(t), array_agg(p + p % 2)) FROM twins.long"}', post_key => 'text');
SELECT * FROM twins.shape('limited_keys', 'CREATE TABLE @t (p varchar(5), u bigint, PRIMARY KEY (p, u))', 'executor: column "p" has a limited length; 22001',
    '{"SELECT @like(''abc'', 1)", "SELECT @like(''abcde '', 1)", "SELECT @like(''abcdef'', 1)", "SELECT @like(''abcde'', 1)"}', post_key => 'text');
COMMIT;
-- columns: dropped, constant, of the time
BEGIN;
SELECT * FROM twins.shape('dropped_columns', 'CREATE TABLE @t (a int DEFAULT 1, p bigint, b text NOT NULL DEFAULT ''b'', u bigint, c int, d int DEFAULT 4, e int, PRIMARY KEY (p, u));
    ALTER TABLE @t DROP a, DROP b, DROP c, DROP e', 'fast');
SELECT * FROM twins.shape('added_columns', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); INSERT INTO @t VALUES (1, 1), (5, 5);
    ALTER TABLE @t ADD a int DEFAULT 7, ADD b text NOT NULL DEFAULT ''abc'', ADD c int DEFAULT 8, ADD d int DEFAULT 9;
    ALTER TABLE @t ALTER c SET DEFAULT 88, ALTER d DROP DEFAULT', 'fast');
SELECT * FROM twins.shape('constants', $$CREATE TABLE @t (p bigint, u bigint, a bigint NOT NULL DEFAULT 0, b numeric(10, 2) DEFAULT 1.005, c numeric DEFAULT -1e30, d text DEFAULT 'it''s', e varchar(5) DEFAULT 'abc',
    f char(3) DEFAULT 'a', g boolean DEFAULT true, h jsonb DEFAULT '{"a": [1, null]}', i json DEFAULT '{}', j text[] DEFAULT '{}', k int[] DEFAULT ARRAY[1, 2], l real DEFAULT 0.1, m interval DEFAULT '1 day',
    n bytea DEFAULT '\x00ff', o int4range DEFAULT '[1,5)', q twins.mood NOT NULL DEFAULT 'ok', r twins.both DEFAULT ROW(1, 'x'), s point DEFAULT '(1,2)', t inet DEFAULT '::1', v int DEFAULT NULL,
    w text DEFAULT NULL::varchar, x int DEFAULT 2 + 3 * length('abc'), y text DEFAULT upper('x') || repeat('y', 3), z bit(4) DEFAULT B'1010', "A" xid DEFAULT '7', "B" timestamptz DEFAULT '2001-02-03 04:05+06',
    "C" date DEFAULT '2001-02-03', "D" twins.both[] DEFAULT ARRAY[ROW(1, 'x')::twins.both], PRIMARY KEY (p, u))$$, 'fast');
SELECT * FROM twins.shape('long_constants', $$CREATE TABLE @t (p bigint, u bigint, a text DEFAULT repeat('compressed ', 10000), b text DEFAULT repeat('out of line ', 1000), PRIMARY KEY (p, u));
    ALTER TABLE @t ALTER b SET STORAGE EXTERNAL$$, 'fast');
SELECT * FROM twins.shape('times', 'CREATE TABLE @t (p bigint, u bigint, a timestamptz NOT NULL DEFAULT now(), b timestamptz DEFAULT current_timestamp, c timestamptz DEFAULT transaction_timestamp(),
    d timestamptz DEFAULT statement_timestamp(), e timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (p, u))', 'fast');
COMMIT;
-- columns that need the executor, each alone
BEGIN;
SELECT twins.shape(name, format('CREATE TABLE @t (p bigint, u bigint, x %s, PRIMARY KEY (p, u))', x), 'executor: the default of column "x" is neither constant nor the time',
        '{"SELECT @like(1, 1)", "SELECT @like(1, 2)", "SELECT @like(1, 1)", "SELECT @many(''{1,2}'', ''{1,1}'')"}')
  FROM (VALUES ('rounded_time', 'timestamptz DEFAULT current_timestamp(2)'), ('rounded_column', 'timestamptz(2) DEFAULT now()'), ('local_time', 'timestamp DEFAULT localtimestamp'),
               ('time_of_zone', 'timestamp DEFAULT now()'), ('rounded_local_time', 'timestamp DEFAULT localtimestamp(1)'), ('utc', $$timestamp DEFAULT (now() AT TIME ZONE 'utc')$$), ('today', 'date DEFAULT current_date'),
               ('today_by_cast', 'date DEFAULT now()'), ('some_time_ago', $$timestamptz DEFAULT now() - interval '1 minute'$$), ('stable_text', $$timestamptz DEFAULT 'now'::text::timestamptz$$),
               ('serials', 'serial'), ('who', 'text DEFAULT current_user'), ('who_not', 'text DEFAULT session_user'), ('setting', $$text DEFAULT current_setting('server_version')$$),
               ('function_of_user', 'int DEFAULT twins.two()'), ('around_function_of_user', 'bigint NOT NULL DEFAULT 1 + twins.two()'), ('domain_in_passing', 'int DEFAULT 5::twins.any_number'),
               ('domain_in_an_array', 'int[] DEFAULT ARRAY[5]::twins.any_number[]')) AS s (name, x);
SELECT * FROM twins.shape('uuid_default', 'CREATE TABLE @t (p bigint, u bigint, x uuid DEFAULT gen_random_uuid(), PRIMARY KEY (p, u))', 'executor: the default of column "x" is neither constant nor the time');
SELECT * FROM twins.shape('always_identity', 'CREATE TABLE @t (p bigint, u bigint, x int GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (p, u))', 'executor: column "x" is generated');
SELECT * FROM twins.shape('default_identity', 'CREATE TABLE @t (p bigint, x int GENERATED BY DEFAULT AS IDENTITY, u bigint, PRIMARY KEY (p, u))', 'executor: column "x" is generated');
SELECT * FROM twins.shape('stored', 'CREATE TABLE @t (p bigint, x bigint GENERATED ALWAYS AS (p + u) STORED, u bigint, PRIMARY KEY (p, u))', 'executor: column "x" is generated');
SELECT * FROM twins.shape('of_domain', 'CREATE TABLE @t (p bigint, u bigint, x twins.any_number, PRIMARY KEY (p, u))', 'executor: column "x" is of a domain');
SELECT * FROM twins.shape('domain_default', 'CREATE TABLE @t (p bigint, u bigint, x twins.small_number, PRIMARY KEY (p, u))', 'executor: column "x" is of a domain');
SELECT * FROM twins.shape('domain_broken', 'CREATE TABLE @t (p bigint, u bigint, x twins.small_number DEFAULT 11, PRIMARY KEY (p, u))', 'executor: column "x" is of a domain; 23514');
COMMIT;
-- a default that fails does so in a like, and not in the view
BEGIN;
SELECT * FROM twins.shape('failing_default', 'CREATE TABLE @t (p bigint, u bigint, x int DEFAULT 1 / 0, PRIMARY KEY (p, u))', 'fast; 22012', '{"SELECT @like(1, 1)", "SELECT @like(1, 1)", "ALTER TABLE @t ALTER x SET DEFAULT 1", "SELECT @like(1, 1)"}');
SELECT * FROM twins.shape('failing_length', 'CREATE TABLE @t (p bigint, u bigint, x varchar(3) DEFAULT ''four'', PRIMARY KEY (p, u))', 'fast; 22001', '{"SELECT @like(1, 1)", "SELECT @many(''{1}'', ''{1}'')"}');
COMMIT;
-- rules for rows
BEGIN;
SELECT * FROM twins.shape('checked', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u), CHECK (p < 4))', 'executor: the table has a CHECK constraint; 23514');
SELECT * FROM twins.shape('referencing', 'CREATE TABLE @t (p bigint REFERENCES twins.posts ON DELETE CASCADE, u bigint, PRIMARY KEY (p, u))', 'executor: trigger "RI_ConstraintTrigger_c_<n>" fires on INSERT; 23503',
    '{"SELECT @like(1, 1)", "SELECT @like(9, 1)", "SELECT @many(''{1,2}'', ''{1,1}'')", "SELECT @like(2, 1)"}');
SELECT * FROM twins.shape('referenced', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE TABLE @side.replies (p bigint, u bigint, FOREIGN KEY (p, u) REFERENCES @t)', 'fast, and DELETE');
SELECT * FROM twins.shape('row_security', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); ALTER TABLE @t ENABLE ROW LEVEL SECURITY', 'executor: row-level security is enabled, and DELETE');
-- a publication wants to know what is deleted
SELECT * FROM twins.shape('published', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); ALTER TABLE @t REPLICA IDENTITY NOTHING; CREATE PUBLICATION twins_@side FOR TABLE @t', 'fast; 55000',
    twins.script() || ARRAY['ALTER TABLE @t REPLICA IDENTITY DEFAULT', 'SELECT @unlike(1, 1)', 'DROP PUBLICATION twins_@side']);
SELECT * FROM twins.shape('policy_only', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE POLICY none ON @t USING (false); ALTER TABLE @t FORCE ROW LEVEL SECURITY', 'fast');
SELECT * FROM twins.shape('rule_also', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE RULE r AS ON INSERT TO @t DO ALSO SELECT 1', 'executor: the table has a rule, without a statement, and DELETE; 0A000');
SELECT * FROM twins.shape('rule_instead', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE RULE r AS ON INSERT TO @t DO INSTEAD NOTHING', 'executor: the table has a rule, and DELETE');
SELECT * FROM twins.shape('rule_of_delete', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE RULE r AS ON DELETE TO @t DO INSTEAD NOTHING', 'executor: the table has a rule',
    '{"SELECT @like(1, 1)", "SELECT @like(1, 1)", "DELETE FROM @t"}');
COMMIT;
-- triggers
BEGIN;
SELECT twins.shape(name, 'CREATE TABLE @t (p bigint, u bigint, note text DEFAULT ''note'', PRIMARY KEY (p, u)); ' || ddl, 'executor: trigger "of_user" fires on INSERT' || errors)
  FROM (VALUES ('changing', '', 'CREATE TRIGGER of_user BEFORE INSERT ON @t FOR EACH ROW EXECUTE FUNCTION twins.change()'),
               ('cancelling', '', 'CREATE TRIGGER of_user BEFORE INSERT ON @t FOR EACH ROW EXECUTE FUNCTION twins.cancel()'),
               ('before_statement', '; P0001', 'CREATE TRIGGER of_user BEFORE INSERT ON @t EXECUTE FUNCTION twins.say()'),
               ('after_row', '; P0001', 'CREATE TRIGGER of_user AFTER UPDATE OR INSERT ON @t FOR EACH ROW WHEN (new.u = 3) EXECUTE FUNCTION twins.say()'),
               ('after_row_with_argument', '; P0001', 'CREATE TRIGGER of_user AFTER INSERT ON @t FOR EACH ROW EXECUTE FUNCTION twins.say(''verb'')'),
               ('after_statement', '; P0001', 'CREATE TRIGGER of_user AFTER INSERT ON @t REFERENCING NEW TABLE AS n EXECUTE FUNCTION twins.say()'),
               ('constraint_trigger', '; P0001', 'CREATE CONSTRAINT TRIGGER of_user AFTER INSERT ON @t DEFERRABLE FOR EACH ROW WHEN (new.u = 3) EXECUTE FUNCTION twins.say()'),
               ('disabled_trigger', '', 'CREATE TRIGGER of_user BEFORE INSERT ON @t FOR EACH ROW EXECUTE FUNCTION twins.say(); ALTER TABLE @t DISABLE TRIGGER of_user')) AS s (name, errors, ddl);
SELECT * FROM twins.shape('other_triggers', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE TRIGGER of_user BEFORE UPDATE ON @t FOR EACH ROW EXECUTE FUNCTION twins.say();
    CREATE TRIGGER of_user_too AFTER TRUNCATE ON @t EXECUTE FUNCTION twins.say()', 'fast');
SELECT * FROM twins.shape('deleting', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE TRIGGER of_user BEFORE DELETE ON @t FOR EACH ROW WHEN (old.u = 2) EXECUTE FUNCTION twins.cancel_all()', 'fast, and DELETE');
SELECT * FROM twins.shape('deleting_after', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)); CREATE TRIGGER of_user AFTER DELETE ON @t REFERENCING OLD TABLE AS o EXECUTE FUNCTION twins.say()', 'fast, and DELETE; P0001');
-- ours, in other forms
SELECT twins.shape(name, 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u))', path, ARRAY['SELECT @like(1, 1)', ddl, 'SELECT @like(1, 2)', 'SELECT @many(''{1,1,2}'', ''{2,3,3}'')', 'SELECT @like(1, 3)', 'SELECT @unlike(1, 2)'])
  FROM (VALUES ('captured_under_condition', 'executor: trigger "of_user" fires on INSERT', 'CREATE TRIGGER of_user AFTER INSERT ON @t FOR EACH ROW WHEN (new.u = 3) EXECUTE FUNCTION likecount._capture(''captured_under_condition@verb'')'),
               ('captured_late', 'executor: trigger "of_user" fires on INSERT', 'CREATE CONSTRAINT TRIGGER of_user AFTER INSERT ON @t DEFERRABLE FOR EACH ROW EXECUTE FUNCTION likecount._capture(''captured_late@verb'')'),
               ('captured_before', 'executor: trigger "of_user" fires on INSERT; 39P01', 'CREATE TRIGGER of_user BEFORE INSERT ON @t FOR EACH ROW EXECUTE FUNCTION likecount._capture(''captured_before@verb'')'),
               ('captured_by_statement', 'executor: trigger "of_user" fires on INSERT; 39P01', 'CREATE TRIGGER of_user AFTER INSERT ON @t EXECUTE FUNCTION likecount._capture(''captured_by_statement@verb'')'),
               ('captured_without_verb', 'executor: trigger "of_user" fires on INSERT; 39P01', 'CREATE TRIGGER of_user AFTER INSERT ON @t FOR EACH ROW EXECUTE FUNCTION likecount._capture()'),
               ('captured_from_tables', 'executor: trigger "of_user" fires on INSERT', 'CREATE TRIGGER of_user AFTER INSERT ON @t REFERENCING NEW TABLE AS n FOR EACH ROW EXECUTE FUNCTION likecount._capture(''captured_from_tables@verb'')'),
               ('captured_from_old_tables', 'fast, and DELETE', 'CREATE TRIGGER of_user AFTER DELETE ON @t REFERENCING OLD TABLE AS o FOR EACH ROW EXECUTE FUNCTION likecount._capture(''captured_from_old_tables@verb'')'),
               ('captured_by_constraint', 'fast', 'CREATE CONSTRAINT TRIGGER of_user AFTER INSERT ON @t FOR EACH ROW EXECUTE FUNCTION likecount._capture(''captured_by_constraint@verb'')'),
               ('captured_twice', 'fast', 'CREATE TRIGGER of_user AFTER INSERT OR UPDATE ON @t FOR EACH ROW EXECUTE FUNCTION likecount._capture(''captured_twice@verb'')'),
               ('captured_for_nobody', 'fast', 'CREATE TRIGGER of_user AFTER INSERT ON @t FOR EACH ROW EXECUTE FUNCTION likecount._capture(''nobody'')'),
               ('captures_disabled', 'fast', 'ALTER TABLE @t DISABLE TRIGGER USER'),
               ('captures_of_replica', 'fast', 'ALTER TABLE @t ENABLE REPLICA TRIGGER captures_of_replica@verb_capture_ins'),
               ('captures_always', 'fast', 'ALTER TABLE @t ENABLE ALWAYS TRIGGER captures_always@verb_capture_ins')) AS s (name, path, ddl);
COMMIT;
-- storage
BEGIN;
SELECT * FROM twins.shape('other_indexes', 'CREATE TABLE @t (p bigint, u bigint, at timestamptz DEFAULT now(), note text DEFAULT ''some words'', PRIMARY KEY (p, u)); CREATE INDEX ON @t USING hash (u); CREATE INDEX ON @t USING brin (at);
    CREATE INDEX ON @t USING gin (to_tsvector(''simple'', note)); CREATE INDEX ON @t USING gist (point(p, u)); CREATE INDEX ON @t USING spgist (note); CREATE INDEX ON @t ((p + u)) WHERE u <> 3', 'fast',
    twins.script() || '{SET LOCAL enable_seqscan = off, SET LOCAL enable_indexonlyscan = off}' || ARRAY['SELECT count(*) FROM @t WHERE u = 3', 'SELECT count(*) FROM @t WHERE at > ''2001-01-01''', 'SELECT count(*) FROM @t WHERE to_tsvector(''simple'', note) @@ ''words''',
    'SELECT count(*) FROM @t WHERE point(p, u) <@ box(point(0, 0), point(99, 99))', 'SELECT count(*) FROM @t WHERE note >= ''some''', 'SELECT count(*) FROM @t WHERE p + u < 99 AND u <> 3'] || '{SET LOCAL enable_seqscan = on, SET LOCAL enable_indexonlyscan = on}');
CREATE ACCESS METHOD heap_too TYPE TABLE HANDLER heap_tableam_handler;
SELECT * FROM twins.shape('another_access_method', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)) USING heap_too', 'executor: the table is not an ordinary heap, and DELETE');
SELECT * FROM twins.shape('partitioned', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u)) PARTITION BY RANGE (p); CREATE TABLE @side.partitioned_1 PARTITION OF @t FOR VALUES FROM (1) TO (2);
    CREATE TABLE @side.partitioned_2 PARTITION OF @t FOR VALUES FROM (2) TO (6)', 'executor: the table is partitioned, and DELETE; 23514');
COMMIT;
-- as if Citus were there: its planner knows where the rows of a table belong
BEGIN;
SET LOCAL allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition ();
SELECT * FROM twins.shape('distributed', 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u))', 'executor: tables may be distributed by Citus, and DELETE');
DROP TABLE pg_catalog.pg_dist_partition;
COMMIT;

SELECT * FROM finish();
DROP SCHEMA fast, plain, inserting, twins CASCADE;
DROP EXTENSION amcheck;
DROP EXTENSION pageinspect;
SELECT likecount.flush() \g /dev/null
