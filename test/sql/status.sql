-- The views counters, status and pending, and lag(), version(), reset_stats().  Over several transactions: what waits
-- for a flush is what others committed.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
SELECT plan(56);

CREATE ROLE status_owner;
CREATE SCHEMA status_app AUTHORIZATION status_owner;
GRANT USAGE ON SCHEMA likecount TO status_owner;
SET ROLE status_owner;
SELECT likecount.create_counter('status_app.waves') \g /dev/null
RESET ROLE;
SELECT likecount.flush() \g /dev/null
SELECT likecount.flush() \g /dev/null

-- every view and column explains itself
SELECT is_empty($$
    SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
     WHERE c.relnamespace = 'likecount'::regnamespace AND c.relname IN ('counters', 'status', 'pending', 'progress')
       AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid, 'pg_class') IS NULL)$$, 'views and columns have comments');
SELECT is_empty($$
    SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
     WHERE p.pronamespace = 'likecount'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL$$, 'functions too');

-- version()
SELECT is(sql, (SELECT extversion FROM pg_extension WHERE extname = 'likecount'), 'version() of the SQL objects') FROM likecount.version();
SELECT is(library, sql, 'and of the library') FROM likecount.version();

-- nothing waits
SELECT is(likecount.lag(), '0'::interval, 'lag() is zero when nothing waits');
SELECT is_empty('SELECT * FROM likecount.pending', 'and nothing is pending');
SELECT results_eq('SELECT lag, oldest_delta, queue_rows, journal_rows FROM likecount.status', $$VALUES ('0'::interval, NULL::timestamptz, 0::bigint, 0::bigint)$$, 'nor in the status');

-- something waits
SELECT likecount.wave(1, 1), likecount.wave(2, 1) \g /dev/null
SELECT likecount.wave(1, 2) \g /dev/null
SELECT is(array_agg(p::text ORDER BY post)::text, '{"(wave,1,2)","(wave,2,1)"}', 'pending sums up by post') FROM likecount.pending p;
SELECT ok(likecount.lag() > '0', 'lag() is the age of what waits');
SELECT ok(likecount.lag() < '1 hour', 'and no more');
SELECT is(queue_rows, 3::bigint, 'three deltas in the queue') FROM likecount.status;
SELECT ok(queue_bytes > 0, 'which takes room') FROM likecount.status;
SELECT ok(now() - oldest_delta BETWEEN '0' AND '1 hour', 'the oldest has an age') FROM likecount.status;
SELECT likecount.unwave(2, 1) \g /dev/null
SELECT is(journal_rows, 1::bigint, 'an unlike goes to the journal') FROM likecount.status;
SELECT is(pending, 0::bigint, 'deltas that cancel out are still there') FROM likecount.pending WHERE post = '2';

-- pending, totals and rows of one snapshot fit together
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sum(n), 0::numeric, 'rows = totals + pending') FROM (
    SELECT count(*) AS n FROM status_app.waves UNION ALL SELECT -total FROM likecount.wave_totals
    UNION ALL SELECT -pending FROM likecount.pending WHERE verb = 'wave') x;
COMMIT;

-- reading takes no lock that lasts, which would keep a segment from being emptied
BEGIN;
SELECT count(*) FROM likecount.pending, likecount.status, likecount.counters WHERE likecount.lag() IS NOT NULL \g /dev/null
SELECT is_empty($$SELECT relation::regclass FROM pg_locks WHERE pid = pg_backend_pid()
    AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relname ~ '^_(queue|journal)_')$$, 'no lock on queue or journal stays behind');
COMMIT;

-- cumulative numbers
SELECT likecount.reset_stats() \g /dev/null
SELECT results_eq('SELECT flushes, deltas, posts_written, discarded, rejected, errors, truncations FROM likecount.status',
    'VALUES (0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint)', 'reset_stats() sets them to zero');
SELECT ok(now() - stats_reset < '1 hour', 'and notes when') FROM likecount.status;
SELECT is(likecount.flush(), 4::bigint, 'a flush of four deltas');
SELECT is(deltas, 4::bigint, 'is counted') FROM likecount.status;
SELECT ok(flushes >= 1, 'as one flush, or more') FROM likecount.status;
SELECT ok(posts_written >= 1, 'of some posts') FROM likecount.status;
SELECT ok(now() - last_flush_at < '1 hour' AND last_flush_ms >= 0, 'and has left its time') FROM likecount.status;
SELECT is(likecount.lag(), '0'::interval, 'afterwards nothing waits');

-- the rest of status
SELECT is(preloaded, true, 'the library is preloaded') FROM likecount.status;
SELECT is(in_recovery, false, 'this is no standby') FROM likecount.status;
SELECT is(ready, true, 'a flush has made the queue ready') FROM likecount.status;
SELECT is(worker_state, 'off', 'the worker is switched off here') FROM likecount.status;
SELECT is(worker_pid, NULL, 'so there is none') FROM likecount.status;
SELECT ok(launcher_pid IN (SELECT pid FROM pg_stat_activity WHERE backend_type = 'likecount launcher'), 'the launcher is there') FROM likecount.status;
SELECT ok(horizon_age >= 0, 'the oldest snapshot has an age') FROM likecount.status;
SELECT ok(watermark_age > '0', 'and the watermark') FROM likecount.status;
SELECT is(flush_locked_by, NULL, 'nobody is flushing') FROM likecount.status;
SELECT is(unadopted, 0, 'and nothing waits for adoption') FROM likecount.status;

-- counters
SELECT is((verb, past, source, owner, capture, path, path_reason, mode, state, warnings, last_error, locked_by, rejected)::text,
    '(wave,waved,status_app.waves,status_owner,enabled,queue,,queued,active,{},,,0)', 'a counter that is well') FROM likecount.counters WHERE verb = 'wave';
SELECT ok(slots_bytes > 0, 'its totals take room') FROM likecount.counters WHERE verb = 'wave';
SELECT is(version, (likecount.version()).sql, 'and it is of this version') FROM likecount.counters WHERE verb = 'wave';

ALTER TABLE status_app.waves DISABLE TRIGGER wave_capture_del;
SELECT is(capture, 'disabled', 'a disabled trigger') FROM likecount.counters WHERE verb = 'wave';
ALTER TABLE status_app.waves ENABLE REPLICA TRIGGER wave_capture_del;
SELECT is(capture, 'replica', 'a trigger that fires for replication only') FROM likecount.counters WHERE verb = 'wave';
ALTER TABLE status_app.waves ENABLE ALWAYS TRIGGER wave_capture_del;
SELECT is(capture, 'mixed', 'triggers of two kinds') FROM likecount.counters WHERE verb = 'wave';
ALTER TABLE status_app.waves ENABLE ALWAYS TRIGGER wave_capture_ins, ENABLE ALWAYS TRIGGER wave_capture_upd, ENABLE ALWAYS TRIGGER wave_capture_trunc;
SELECT is(capture, 'always', 'all of them for replication, too') FROM likecount.counters WHERE verb = 'wave';
ALTER TABLE status_app.waves ENABLE TRIGGER ALL;
BEGIN;
DROP TRIGGER wave_capture_trunc ON status_app.waves CASCADE;
SELECT is(capture, 'missing', 'a trigger that is gone') FROM likecount.counters WHERE verb = 'wave';
ROLLBACK;

ALTER TABLE status_app.waves FORCE ROW LEVEL SECURITY;
SELECT matches(warnings[1], '^row-level security is forced', 'a warning of FORCE ROW LEVEL SECURITY') FROM likecount.counters WHERE verb = 'wave';
ALTER TABLE status_app.waves NO FORCE ROW LEVEL SECURITY;
BEGIN;
ALTER TABLE status_app.waves SET UNLOGGED;
SELECT matches(warnings[1], '^unlogged: ', 'a warning of an unlogged table') FROM likecount.counters WHERE verb = 'wave';
ROLLBACK;
BEGIN;
CREATE TABLE status_app.child () INHERITS (status_app.waves);
SELECT matches(warnings[1], '^inheritance children: ', 'a warning of inheritance children') FROM likecount.counters WHERE verb = 'wave';
ROLLBACK;
BEGIN;
UPDATE likecount._counter SET version = '0.0.1' WHERE verb = 'wave';
SELECT matches(warnings[1], '^generated by version 0.0.1', 'a warning of another version') FROM likecount.counters WHERE verb = 'wave';
ROLLBACK;
BEGIN;
DROP INDEX status_app.waves_liked_at_idx;
SELECT results_eq($$SELECT path, path_reason FROM likecount.counters WHERE verb = 'wave'$$, $$VALUES ('journal', 'the time column has no valid btree or BRIN index')$$, 'the journal, and why');
ROLLBACK;

-- a partition's triggers count like its parent's
CREATE TABLE status_app.nods (p bigint, u bigint, at timestamptz NOT NULL, PRIMARY KEY (p, u)) PARTITION BY RANGE (p);
CREATE TABLE status_app.nods_1 PARTITION OF status_app.nods FOR VALUES FROM (0) TO (100);
SELECT likecount.attach('status_app.nods', 'p', 'u', 'at') \g /dev/null
SELECT is(capture, 'enabled', 'a partitioned table') FROM likecount.counters WHERE verb = 'nod';
ALTER TABLE status_app.nods_1 DISABLE TRIGGER USER;
SELECT is(capture, 'disabled', 'with a partition that captures nothing') FROM likecount.counters WHERE verb = 'nod';
ALTER TABLE status_app.nods_1 ENABLE TRIGGER USER;
ALTER TABLE status_app.nods_1 SET UNLOGGED;
SELECT matches(warnings[1], '^unlogged: ', 'or one that a crash would empty') FROM likecount.counters WHERE verb = 'nod';
DROP TABLE status_app.nods;
SELECT is_empty('SELECT FROM likecount.counters WHERE verb = ''nod''', 'with its table the counter is gone');

-- a total that is full: the delta is set aside, the others go on
UPDATE likecount.wave_slots SET value = 9223372036854775807 WHERE post = 1;
SELECT likecount.wave(1, 3), likecount.wave(5, 3) \g /dev/null
SELECT lives_ok('SELECT likecount.flush()', 'a total that would not fit a bigint');
SELECT is(likecount.wave_count(5), 1::bigint, 'stops nobody else''s');
SELECT is(rejected, 1::bigint, 'the delta is set aside, and seen') FROM likecount.counters WHERE verb = 'wave';
SELECT results_eq('SELECT rejected, queue_rows + journal_rows FROM likecount.status', 'VALUES (1::bigint, 0::bigint)', 'once, not in every flush');

SELECT * FROM finish();
DROP SCHEMA status_app CASCADE;
DELETE FROM likecount._rejected;
REVOKE USAGE ON SCHEMA likecount FROM status_owner;
DROP ROLE status_owner;
