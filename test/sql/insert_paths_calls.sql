-- The fast insert and the statement that it stands for, called in every way: the same rows, errors and totals.
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
SELECT plan(51);

CREATE TABLE twins.posts (p bigint PRIMARY KEY, liked boolean);
INSERT INTO twins.posts VALUES (1), (2), (3);
-- calls of every form
BEGIN;
SELECT * FROM twins.shape('statements', $$CREATE TABLE @t (p bigint, u bigint, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (p, u)); CREATE INDEX ON @t USING brin (at); CREATE TABLE @side.replies (p bigint, u bigint, FOREIGN KEY (p, u) REFERENCES @t);
    CREATE FUNCTION @side.volatile_plpgsql(p bigint, u bigint) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN IF @like(p, u) THEN RETURN @like(p, u) AND @like(p, u + 1); END IF; RETURN NULL; END $f$;
    CREATE FUNCTION @side.stable_plpgsql(p bigint, u bigint) RETURNS text LANGUAGE plpgsql STABLE AS $f$ BEGIN RETURN concat_ws(' ', @like(p, u), @like(p, u), (SELECT count(*) FROM @t)); END $f$;
    CREATE FUNCTION @side.volatile_sql(p bigint, u bigint) RETURNS bigint LANGUAGE sql AS $f$ SELECT @like(p, u); SELECT @like(p, u + 1); SELECT count(*) FROM @t $f$;
    CREATE FUNCTION @side.caught(p bigint, u bigint) RETURNS text LANGUAGE plpgsql AS $f$
        DECLARE r text := '';
        BEGIN
            FOR i IN 1 .. 4 LOOP
                BEGIN
                    r := r || @like(p, u + i) || ' ';
                    IF i % 2 = 0 THEN RAISE division_by_zero; END IF;
                EXCEPTION WHEN division_by_zero THEN r := r || 'undone ';
                END;
            END LOOP;
            RETURN r || @like(p, u + 1) || @like(p, u + 2);
        END $f$;
    CREATE FUNCTION @side.on_post() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN PERFORM @like(NEW.p, 500); RETURN NULL; END $f$;
    CREATE TABLE @side.things (p bigint); CREATE TRIGGER likes AFTER INSERT OR UPDATE ON @side.things FOR EACH ROW EXECUTE FUNCTION @side.on_post();
    CREATE CONSTRAINT TRIGGER likes_late AFTER INSERT ON @side.things DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @side.on_post()$$,
    'fast, and DELETE; 21000 23505 27000', ARRAY[
    '=SELECT @like(1, 1)',
    '=SELECT @like(1, 1)',
    '=SELECT concat_ws('' '', @like(1, 2), @like(1, 2), @like(1, 3), (SELECT count(*) FROM @t))',
    '=SELECT string_agg(@like(p, 4)::text, '' '' ORDER BY p) FROM twins.posts',
    -- scans of the table itself do not see what their statement likes
    'SELECT count(@like(p, u + 10)) FROM @t',
    'SELECT count(@like(p, u + 10)) FROM @t',
    'WITH w AS (DELETE FROM @t WHERE u = 4 RETURNING @like(p, u) AS l) SELECT string_agg(l::text, '' '') FROM w',
    'WITH w AS (UPDATE @t SET u = u + 100 WHERE @like(p, u + 50) RETURNING @like(p, u) AS l) SELECT string_agg(l::text, '' '') FROM w',
    'INSERT INTO @t (p, u) SELECT p + 10, u FROM @t WHERE @like(p + 10, u + 1)',
    'INSERT INTO @t (p, u) SELECT 20, 1 WHERE @like(20, 1) ON CONFLICT DO NOTHING',
    'INSERT INTO @t (p, u) SELECT 21, 1 WHERE @like(21, 1) ON CONFLICT (p, u) DO UPDATE SET u = 2',
    'MERGE INTO @t AS t USING (VALUES (22, 1)) AS v (p, u) ON t.p = v.p AND t.u = v.u AND @like(v.p, v.u) WHEN NOT MATCHED THEN INSERT (p, u) VALUES (v.p, v.u + 1)',
    'INSERT INTO @side.replies SELECT 23, 1 WHERE @like(23, 1)',
    'UPDATE twins.posts SET liked = @like(p, 30)',
    'SELECT @like(24, 1) FROM (SELECT @like(24, 1)) AS s WHERE NOT @like(24, 1)',
    'SELECT CASE WHEN false THEN @like(25, 1) END',
    'SELECT concat_ws('' '', @unlike(1, 1), @unlike(1, 1), @like(1, 1), @unlike(1, 1), (SELECT count(*) FROM @t))',
    'SELECT concat_ws('' '', @like(60, 1), @unlike(60, 1), @like(60, 1))', '!SELECT @unlike(60, 1)', 'SELECT count(*) FROM @t WHERE p < 3 AND @unlike(p, u)',
    'UPDATE @t SET u = u + 1 WHERE p = 60 AND @unlike(p, u)', 'DELETE FROM @t WHERE p = 60 AND @unlike(p, u)', 'WITH w AS (UPDATE @t SET u = 2 WHERE p = 60 RETURNING @unlike(p, 1) AS l) SELECT concat_ws('' '', l, @unlike(60, 2)) FROM w',
    'SELECT count(@unlike(p, u)) FROM @t WHERE p = 3', 'WITH w AS (DELETE FROM @t WHERE p = 60 RETURNING @unlike(p, u) AS l) SELECT l FROM w',
    'SELECT @side.volatile_plpgsql(26, 1)', 'SELECT @side.volatile_plpgsql(26, 1)',
    'SELECT @side.stable_plpgsql(27, 1)',
    'SELECT @side.volatile_sql(28, 1)',
    'SELECT @side.caught(29, 1)', '!SELECT @side.caught(30, 1)', 'SELECT @side.caught(30, 1)',
    'INSERT INTO @side.things VALUES (31), (31), (32)', 'UPDATE @side.things SET p = p', 'SET CONSTRAINTS ALL IMMEDIATE', 'DELETE FROM @side.replies',
    -- lists
    'SELECT @many(''{}'', ''{}'')', 'SELECT @many(''{40,41,40}'', ''{2,1,1}'')', 'SELECT concat_ws('' '', @many(''{42,42}'', ''{1,2}''), @like(42, 1), @many(''{42,42}'', ''{3,2}''))',
    '!SELECT @many(''{43}'', ''{1}'')', 'SELECT @many(array_agg(44 + n % 2), array_agg(n % 100)) FROM generate_series(1, 100) n', 'SELECT @many(array_agg(p), array_agg(u)) FROM @t',
    -- what reads with a snapshot of its own sees the like of its statement
    'SELECT concat_ws('' '', @like(50, 1), likecount.reconcile(''@t'', 50))', 'SELECT concat_ws('' '', @many(''{51,51}'', ''{1,2}''), likecount.flush() > 0, likecount.reconcile(''@t'', 51))',
    'SELECT concat_ws('' '', @like(52, 1), (SELECT count(*) FROM likecount.check(''@t'')))'], at => 'at');
COMMIT;
-- the code of an index is the user's, and runs within a like
BEGIN;
SELECT * FROM twins.shape('raising', $$CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u));
    CREATE FUNCTION @side.raise(n bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN IF n = 3 THEN RAISE 'not %', n; END IF; RETURN n; END $f$;
    CREATE INDEX ON @t (@side.raise(u)) WHERE @side.raise(p + 1) > 0$$, 'fast; P0001');
SELECT * FROM twins.shape('replaced', $$CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u));
    CREATE FUNCTION @side.remainder(n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT n % 2';
    CREATE UNIQUE INDEX ON @t (@side.remainder(u), p)$$, 'fast; 23505', ARRAY['SELECT @like(1, 1)', 'SELECT @like(1, 3)', 'CREATE OR REPLACE FUNCTION @side.remainder(n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS ''SELECT n''',
    'SELECT @like(1, 3)', 'SELECT @like(1, 5)']);
-- a like within a like; PostgreSQL warns, in both cases, that it has lost the speculative lock of the outer one
SET LOCAL client_min_messages = error;
SELECT * FROM twins.shape('likes_within', $$CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u));
    CREATE FUNCTION @side.again(p bigint, u bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN IF p < 100 THEN PERFORM @like(p + 50, u), @like(p, u), @many(ARRAY[p, p + 60], ARRAY[u, u]); END IF; RETURN u; END $f$;
    CREATE INDEX ON @t (@side.again(p, u))$$, 'fast');
-- and one that changes the table meanwhile, as far as a lock on it allows
SELECT * FROM twins.shape('changes_within', $$CREATE TABLE @t (p bigint, u bigint, note text DEFAULT 'note', PRIMARY KEY (p, u));
    CREATE FUNCTION @side.change() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN GRANT SELECT ON @t TO PUBLIC; REVOKE SELECT ON @t FROM PUBLIC; COMMENT ON TABLE @t IS 'x'; END $f$;
    CREATE FUNCTION @side.alter() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN ALTER TABLE @t ADD x int DEFAULT 1; END $f$;
    CREATE FUNCTION @side.changing(p bigint, u bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN
        IF u = 2 THEN PERFORM @side.alter(); END IF;
        IF p < 100 THEN PERFORM @side.change(), @like(p + 100, u); END IF; RETURN u; END $f$;
    CREATE INDEX ON @t (@side.changing(p, u))$$, 'fast; 55006');
COMMIT;
-- several counters
BEGIN;
SELECT twins.shape(name, 'CREATE TABLE @t (p bigint, u bigint, post bigint NOT NULL DEFAULT 7, kind text DEFAULT ''love'', at timestamptz DEFAULT now(), PRIMARY KEY (p, u))', path,
        (SELECT array_agg(format('SELECT likecount.attach(''@t'', %s)', replace(replace(x, 'VERB', format('verb => ''%s%s@verb''', name, i)), '''', ''''))) FROM unnest(counters) WITH ORDINALITY AS c (x, i))
        || '{SELECT likecount.flush()}' || twins.script())
  FROM (VALUES ('two_counters', 'fast', ARRAY[$$'u', 'p', VERB$$]),
               ('rows_too', 'fast', ARRAY[$$'post', VERB$$]),
               ('four_counters', 'fast', ARRAY[$$'u', VERB$$, $$'post', time_column => 'at', VERB$$, $$'p', 'u', 'at', VERB$$]),
               ('five_counters', 'executor: many counters share the table, and DELETE', ARRAY[$$'u', VERB$$, $$'post', time_column => 'at', VERB$$, $$'p', 'u', 'at', VERB$$, $$'p', VERB$$]),
               ('conditional_too', 'executor: a counter of the table has a condition, and DELETE', ARRAY[$$'p', 'u', VERB, only_where => 'kind = ''love'''$$]),
               ('conditional_rows', 'executor: a counter of the table has a condition, and DELETE', ARRAY[$$'post', VERB, only_where => 'p > 1'$$])) AS s (name, path, counters);
COMMIT;
-- the replication role decides which triggers fire
BEGIN;
SELECT twins.shape(name, 'CREATE TABLE @t (p bigint, u bigint, PRIMARY KEY (p, u))', path, ARRAY[ddl, 'SET LOCAL session_replication_role = ' || role] || twins.script() || '{SET LOCAL session_replication_role = origin}')
  FROM (VALUES ('replica', 'fast, with a statement, and DELETE', 'replica', 'SELECT 1'), ('locally', 'fast', 'local', 'SELECT 1'),
               ('replica_always', 'fast, with a statement, and DELETE', 'replica', 'ALTER TABLE @t ENABLE ALWAYS TRIGGER replica_always@verb_capture_ins, ENABLE ALWAYS TRIGGER replica_always@verb_capture_del'),
               ('replica_only', 'fast, with a statement, and DELETE', 'replica', 'ALTER TABLE @t ENABLE REPLICA TRIGGER replica_only@verb_capture_ins, ENABLE REPLICA TRIGGER replica_only@verb_capture_del')) AS s (name, path, role, ddl);
COMMIT;
SELECT twins.make('tx', 'CREATE TABLE @t (p bigint, u bigint, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (p, u)); CREATE INDEX ON @t USING brin (at)', at => 'at') \g /dev/null
\o /dev/null
-- ends of transactions
SELECT twins.each('tx', 'SELECT @like(1, 1)') \gexec
BEGIN;
SELECT twins.each('tx', 'SELECT @like(1, 2)') \gexec
ROLLBACK;
SELECT twins.each('tx', 'SELECT @like(1, 2), @like(1, 1)') \gexec
BEGIN;
SELECT twins.each('tx', 'SELECT @like(2, 1)') \gexec
SAVEPOINT a;
SELECT twins.each('tx', 'SELECT @like(2, 2)') \gexec
SELECT twins.each('tx', 'SELECT @like(2, 1)') \gexec
SAVEPOINT b;
SELECT twins.each('tx', 'SELECT @like(2, 3)') \gexec
ROLLBACK TO a;
SELECT twins.each('tx', 'SELECT @like(2, 3)') \gexec
SELECT twins.each('tx', 'SELECT @like(2, 2)') \gexec
RELEASE a;
SELECT twins.each('tx', 'SELECT @like(2, 2)') \gexec
COMMIT;
\o
SELECT twins.compare('tx', 'rollback and savepoints', counts => false);
\o /dev/null
-- cursors
BEGIN;
SELECT twins.each('tx', 'DECLARE c_@side CURSOR FOR SELECT @like(3, n % 4) FROM generate_series(1, 6) n') \gexec
SELECT twins.each('tx', 'FETCH 2 FROM c_@side') \gexec
SELECT twins.each('tx', 'SELECT @like(3, 2), @like(3, 3)') \gexec
SELECT twins.each('tx', 'FETCH ALL FROM c_@side') \gexec
SELECT twins.each('tx', 'DECLARE h_@side CURSOR WITH HOLD FOR SELECT @like(4, n) FROM generate_series(1, 3) n') \gexec
SELECT twins.each('tx', 'FETCH 1 FROM h_@side') \gexec
COMMIT;
SELECT twins.each('tx', 'FETCH ALL FROM h_@side') \gexec
SELECT twins.each('tx', 'CLOSE h_@side') \gexec
-- a prepared statement, with its generic plan
SELECT twins.each('tx', 'PREPARE p_@side(bigint, bigint) AS SELECT @like($1, $2)') \gexec
SET plan_cache_mode = force_generic_plan;
SELECT twins.each('tx', 'EXECUTE p_@side(5, 1)') \gexec
SELECT twins.each('tx', 'EXECUTE p_@side(5, 1)') \gexec
SELECT twins.each('tx', 'EXECUTE p_@side(5, 2)') \gexec
RESET plan_cache_mode;
-- procedures that commit
SELECT twins.each('tx', $$CREATE PROCEDURE twins.steps_@side() LANGUAGE plpgsql AS $p$
BEGIN
    FOR i IN 1 .. 7 LOOP
        IF @like(6, i) AND @like(6, i + 1) THEN COMMIT; ELSE ROLLBACK; END IF;
    END LOOP;
END $p$ $$) \gexec
SELECT twins.each('tx', 'CALL twins.steps_@side()') \gexec
-- triggers of other tables, at the end of the statement and of the transaction
SELECT twins.each('tx', $$CREATE FUNCTION twins.on_thing_@side() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN PERFORM @like(NEW.p, NEW.u), @like(NEW.p, 1); RETURN NULL; END $f$ $$) \gexec
SELECT twins.each('tx', 'CREATE TABLE twins.things_@side (p bigint, u bigint)') \gexec
SELECT twins.each('tx', 'CREATE CONSTRAINT TRIGGER late AFTER INSERT ON twins.things_@side DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION twins.on_thing_@side()') \gexec
SELECT twins.each('tx', 'CREATE TRIGGER soon AFTER UPDATE ON twins.things_@side FOR EACH ROW EXECUTE FUNCTION twins.on_thing_@side()') \gexec
SELECT twins.each('tx', 'INSERT INTO twins.things_@side VALUES (7, 1), (7, 2), (7, 2)') \gexec
SELECT twins.each('tx', 'UPDATE twins.things_@side SET u = u + 2') \gexec
SELECT twins.each('tx', 'UPDATE twins.posts SET liked = @like(p, 8)') \gexec
-- two phases
BEGIN;
SELECT twins.each('tx', 'SELECT @like(9, 1), @many(''{9,9}'', ''{1,2}'')') \gexec
PREPARE TRANSACTION 'insert_paths';
SELECT twins.each('tx', 'SELECT @like(9, 3)') \gexec
COMMIT PREPARED 'insert_paths';
BEGIN;
SELECT twins.each('tx', 'SELECT @like(9, 4)') \gexec
PREPARE TRANSACTION 'insert_paths';
ROLLBACK PREPARED 'insert_paths';
SELECT twins.each('tx', 'SELECT @like(9, 4), @like(9, 1)') \gexec
\o
SELECT twins.compare('tx', 'cursors, procedures, triggers, two phases', counts => false);
SELECT is(twins.path('tx'), 'fast', 'all of them fast');
-- where the deltas wait, by when the likes happened
SELECT twins.each('tx', 'SELECT @like(10, 1), @many(''{11,11}'', ''{1,2}'')') \g /dev/null
\o /dev/null
SELECT twins.each('tx', 'SELECT @like(10, 1), @many(''{11,11}'', ''{1,2}'')') \gexec
\o
SELECT is(waiting('tx'), 'queue 10:1 queue 11:2', 'recent likes take the queue');
SELECT is(waiting('tx'), waiting('tx_plain'), 'as they do by INSERT');
SELECT likecount.flush() \g /dev/null
SELECT twins.each('tx', 'ALTER TABLE @t ALTER at SET DEFAULT ''2001-01-01''') \gexec
\o /dev/null
SELECT twins.each('tx', 'SELECT @like(10, 2)') \gexec
\o
SELECT is(waiting('tx'), 'journal 10:1', 'old likes take the journal');
SELECT is(waiting('tx'), waiting('tx_plain'), 'as they do by INSERT');
SELECT likecount.flush() \g /dev/null
SELECT twins.each('tx', 'ALTER TABLE @t ALTER at DROP DEFAULT, ALTER at DROP NOT NULL') \gexec
\o /dev/null
SELECT twins.each('tx', 'SELECT @like(10, 3)') \gexec
\o
SELECT is(waiting('tx'), 'journal 10:1', 'and those without a time');
SELECT is(waiting('tx'), waiting('tx_plain'), 'as they do by INSERT');
SELECT twins.each('tx', 'ALTER TABLE @t ALTER at SET DEFAULT now()') \gexec
SELECT is(twins.path('tx'), 'fast', 'all of them fast');
-- isolation levels
\o /dev/null
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT twins.each('tx', 'SELECT count(*) FROM @t') \gexec
SELECT twins.each('tx', 'SELECT @like(20, 1)') \gexec
SELECT twins.each('tx', 'SELECT @like(20, 1), @like(20, 2), @like(20, 2)') \gexec
SAVEPOINT a;
SELECT twins.each('tx', 'SELECT @like(20, 3), @like(20, 3)') \gexec
RELEASE a;
SELECT twins.each('tx', 'SELECT @like(20, 3)') \gexec
SELECT twins.each('tx', 'DELETE FROM @t WHERE p = 20 AND u = 2 RETURNING @like(p, u)') \gexec
SELECT twins.each('tx', 'SELECT @like(20, 2), @many(''{20,20}'', ''{3,4}''), @like(20, 4)') \gexec
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT twins.each('tx', 'SELECT @like(21, 1), @like(21, 1)') \gexec
SELECT twins.each('tx', 'SELECT @many(''{21,21,21}'', ''{1,2,3}'')') \gexec
COMMIT;
\o
SELECT twins.compare('tx', 'REPEATABLE READ, SERIALIZABLE', counts => false);
-- where nothing may be written
BEGIN READ ONLY;
SELECT is(left(twins.run('fast', 'tx', 'SELECT @like(1, 1)'), 11), 'ERROR 25006', 'READ ONLY: like()');
SELECT is(left(twins.run('fast', 'tx', 'SELECT @many(''{1}'', ''{1}'')'), 11), 'ERROR 25006', 'READ ONLY: like_many()');
SELECT is(left(twins.run('plain', 'tx', 'SELECT @like(1, 1)'), 11), 'ERROR 25006', 'READ ONLY: INSERT');
ROLLBACK;
-- a function that lies about being safe; in the worker, and in the leader while there are workers
BEGIN;
SELECT set_config(name, 'on', true) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \g /dev/null
SELECT twins.each('tx', 'CREATE FUNCTION twins.safe_@side(p bigint, u bigint) RETURNS boolean PARALLEL SAFE LANGUAGE plpgsql AS ''BEGIN RETURN @like(p, u); END''') \gexec
SELECT twins.each('tx', 'CREATE FUNCTION twins.restricted_@side(p bigint, u bigint) RETURNS boolean PARALLEL RESTRICTED LANGUAGE plpgsql AS ''BEGIN RETURN @like(p, u); END''') \gexec
SELECT is(left(twins.run('fast', 'tx', 'SELECT twins.safe_@side(p, 30) FROM twins.posts'), 11), 'ERROR 25000', 'a worker');
SELECT is(left(twins.run('plain', 'tx', 'SELECT twins.safe_@side(p, 30) FROM twins.posts'), 11), 'ERROR 25000', 'a worker that inserts');
SELECT is(left(twins.run('fast', 'tx', 'SELECT twins.restricted_@side(p, 30) FROM twins.posts'), 11), 'ERROR 25000', 'the leader');
SELECT is(left(twins.run('plain', 'tx', 'SELECT twins.restricted_@side(p, 30) FROM twins.posts'), 11), 'ERROR 25000', 'the leader that inserts');
SELECT is(twins.run('fast', 'tx', 'SELECT @like(30, 1) FROM twins.posts'), twins.run('plain', 'tx', 'SELECT @like(30, 1) FROM twins.posts'), 'no worker');
COMMIT;
SELECT twins.compare('tx', 'nothing of that is left', counts => false);
-- what the statistics collector was told
SELECT pg_stat_force_next_flush() \g /dev/null
SELECT is(fast, plain, 'the statistics of the tables') FROM (
    SELECT array_agg(s::text) FILTER (WHERE relid = 'fast.tx'::regclass) AS fast, array_agg(s::text) FILTER (WHERE relid = 'plain.tx'::regclass) AS plain
      FROM pg_stat_user_tables, LATERAL (SELECT n_tup_ins, n_tup_upd, n_tup_del, n_live_tup, n_dead_tup, n_mod_since_analyze, n_ins_since_vacuum) s) AS both_of_them;
SELECT twins.drop('tx') \g /dev/null

SELECT * FROM finish();
DROP SCHEMA fast, plain, inserting, twins CASCADE;
DROP EXTENSION amcheck;
DROP EXTENSION pageinspect;
SELECT likecount.flush() \g /dev/null
