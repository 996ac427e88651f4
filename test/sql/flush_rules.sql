-- flush(): what it refuses, returns, sets aside and locks; the watermark.  Dropped at the end.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
\i :oracle
SELECT plan(44);

CREATE SCHEMA app;
SELECT likecount.create_counter('app.likes', verb => 'rule') \g /dev/null
SELECT likecount.flush() \g /dev/null

-- what it returns
INSERT INTO app.likes VALUES (1, 1), (1, 2), (2, 1);
INSERT INTO app.likes VALUES (1, 3);
DELETE FROM app.likes WHERE post_id = 2;
SELECT is(waiting('rule'), 'queue 1:1 queue 1:2 queue 2:1 journal 2:-1', 'four deltas');
BEGIN;
INSERT INTO app.likes VALUES (3, 1), (3, 2), (4, 1);
SELECT is(likecount.flush(), 6::bigint, 'flush() returns the deltas it has moved, its own transaction''s too');
SELECT is(likecount.flush(), 0::bigint, 'there are no more');
SELECT is(waiting('rule'), '', 'for this transaction');
ROLLBACK;
SELECT is(waiting('rule'), 'queue 1:1 queue 1:2 queue 2:1 journal 2:-1', 'ROLLBACK brings back the four');
SELECT is(likecount.flush(), 4::bigint, 'for the next flush');
SELECT is(settle('rule'), '1:3', 'which is exact');
SELECT is((SELECT count(*) FROM likecount.rule_slots WHERE post = 2), 0::bigint, 'a post whose deltas cancel out gets no row');
SELECT is((SELECT string_agg(format('%s/%s', node, slot), ' ') FROM likecount.rule_slots), '0/0', 'a post has one slot');

-- what it refuses
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT throws_ok('SELECT likecount.flush()', '25000', 'likecount.flush() cannot run in a transaction of isolation level REPEATABLE READ', 'REPEATABLE READ');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT throws_ok('SELECT likecount.flush()', '25000', 'likecount.flush() cannot run in a transaction of isolation level SERIALIZABLE', 'SERIALIZABLE');
ROLLBACK;
BEGIN READ ONLY;
SELECT throws_ok('SELECT likecount.flush()', '25006', NULL, 'READ ONLY');
ROLLBACK;
-- a prepared flush would bring back its totals after a crash, but not the queue rows that it has taken
\set VERBOSITY sqlstate
BEGIN;
SELECT likecount.flush() \g /dev/null
PREPARE TRANSACTION 'likecount flush';
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SAVEPOINT a;
SELECT likecount.flush() \g /dev/null
RELEASE a;
PREPARE TRANSACTION 'likecount flush';
\echo :LAST_ERROR_SQLSTATE
BEGIN;
CREATE TABLE app.loaded (post bigint NOT NULL);
INSERT INTO app.loaded VALUES (1);
SELECT likecount.attach('app.loaded', 'post', verb => 'loaded') \g /dev/null
SELECT likecount.flush() \g /dev/null
PREPARE TRANSACTION 'likecount flush';
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY default
SELECT is((SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'likecount flush'), 0::bigint, 'PREPARE after flush() is refused, as the numbers above say');
BEGIN;
SELECT likecount.flush() \g /dev/null
COMMIT;
BEGIN;
INSERT INTO app.likes VALUES (1, 4);
PREPARE TRANSACTION 'likecount flush';
COMMIT PREPARED 'likecount flush';
SELECT is(settle('rule'), '1:4', 'but not in the next transaction');

-- an aborted statement in between
BEGIN;
INSERT INTO app.likes VALUES (1, 5);
SAVEPOINT a;
SELECT throws_ok('SELECT likecount.flush(), 1 / (likecount.rule_count(1) - likecount.rule_count(1))', '22012', NULL, 'a statement that fails after its flush()');
SELECT is(likecount.rule_count(1), 4::bigint, 'takes the flush back');
RELEASE a;
SELECT is(settle('rule'), '1:5', 'and the next one is exact');
COMMIT;

-- overflow
UPDATE likecount.rule_slots SET value = 9223372036854775806 WHERE post = 1;
INSERT INTO app.likes VALUES (1, 6), (1, 7), (2, 1), (3, 1);
SELECT rejected AS before FROM likecount.status \gset
SELECT is(likecount.flush(), 3::bigint, 'a total that would not fit a bigint does not stop the flush');
SELECT is(likecount.rule_count(1), 9223372036854775806, 'it stays as it is');
SELECT is(likecount.rule_count(2) + likecount.rule_count(3), 2::bigint, 'the others get their likes');
SELECT is(waiting('rule'), '', 'nothing waits');
SELECT is((SELECT format('%s %s %s', c.verb, r.delta, r.reason) FROM likecount._rejected r JOIN likecount._counter c ON c.id = r.counter), 'rule 2 the total would not fit a bigint', 'the delta is set aside with the reason');
SELECT is(rejected, 1::bigint, 'counters shows it') FROM likecount.counters WHERE verb = 'rule';
SELECT is(rejected - :before, 1::bigint, 'status too') FROM likecount.status;
INSERT INTO app.likes VALUES (1, 8);
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.rule_count(1), 9223372036854775807, 'a delta that fits is added');
UPDATE likecount.rule_slots SET value = -9223372036854775808 WHERE post = 1;
DELETE FROM app.likes WHERE post_id = 1;
SELECT likecount.flush() \g /dev/null
SELECT is(total, -9223372036854775808, 'the other end') FROM likecount.rule_totals WHERE post_id = 1;
SELECT is((SELECT count(*) FROM likecount._rejected), 2::bigint, 'is guarded too');
DELETE FROM likecount._rejected;
UPDATE likecount.rule_slots SET value = 0 WHERE post = 1;

-- rows of another node are left alone
INSERT INTO likecount.rule_slots VALUES (2, 7, 0, 100, now()), (2, 0, 3, 10, now()), (7, 7, 0, 100, now());
INSERT INTO app.likes VALUES (2, 2), (7, 1);
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT string_agg(format('%s %s/%s:%s', post, node, slot, value), ', ' ORDER BY post, node, slot) FROM likecount.rule_slots WHERE post IN (2, 7)), '2 0/0:2, 2 0/3:10, 2 7/0:100, 7 0/0:1, 7 7/0:100', 'a flush writes slot 0 of its own node');
SELECT is(likecount.rule_count(2), 112::bigint, 'the total is the sum of all');
DELETE FROM likecount.rule_slots WHERE (node, slot) <> (0, 0);
REINDEX INDEX likecount.rule_slots_open;

-- the watermark
SELECT ok(count(*) = 1 AND bool_and(liked_at <= clock_timestamp() - interval '60 s'), 'there is one watermark, at least a minute behind the clock') FROM likecount._watermark;
UPDATE likecount._watermark SET liked_at = clock_timestamp() - interval '65 s';
SELECT liked_at AS stored, ctid AS place FROM likecount._watermark \gset
INSERT INTO app.likes VALUES (5, 1);
SELECT likecount.flush() \g /dev/null
SELECT is(ctid, :'place'::tid, 'it is not written again within ten seconds') FROM likecount._watermark;
UPDATE likecount._watermark SET liked_at = clock_timestamp() - interval '75 s';
SELECT liked_at AS stored, ctid AS place FROM likecount._watermark \gset
SELECT is(likecount.flush(), 0::bigint, 'a flush that moves nothing');
SELECT is(ctid, :'place'::tid, 'does not write it') FROM likecount._watermark;
INSERT INTO app.likes VALUES (5, 2, clock_timestamp() - interval '1 year'), (5, 3, clock_timestamp() - interval '61 s');
SELECT clock_timestamp() AS start \gset
SELECT likecount.flush() \g /dev/null
SELECT ok(liked_at BETWEEN :'start'::timestamptz - interval '60 s' AND clock_timestamp() - interval '60 s', 'one that moves something does, and old likes do not pull it back') FROM likecount._watermark;
SELECT liked_at AS stored FROM likecount._watermark \gset
BEGIN;
INSERT INTO app.likes VALUES (5, 4, clock_timestamp() - interval '50 s');
SELECT likecount.flush() \g /dev/null
COMMIT;
INSERT INTO app.likes VALUES (5, 5, clock_timestamp() - interval '59 s');
SELECT likecount.flush() \g /dev/null
SELECT ok(liked_at >= :'stored'::timestamptz, 'it never goes back') FROM likecount._watermark;
UPDATE likecount._watermark SET liked_at = clock_timestamp() - interval '1 hour';
BEGIN;
INSERT INTO app.likes VALUES (5, 6);
SELECT likecount.flush() \g /dev/null
SELECT ok(liked_at > clock_timestamp() - interval '62 s', 'it is written with the flush') FROM likecount._watermark;
ROLLBACK;
SELECT ok(liked_at < clock_timestamp() - interval '50 min', 'and rolled back with it') FROM likecount._watermark;

-- reading keeps no lock that would keep a segment from being emptied
INSERT INTO app.likes VALUES (6, 1);
BEGIN;
SELECT * FROM likecount.pending, likecount.status, likecount.counters \g /dev/null
SELECT likecount.lag(), likecount.rule_count(6) \g /dev/null
SELECT is((SELECT string_agg(relation::regclass::text, ' ') FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text ~ '_(queue|journal)_'), NULL, 'the views keep no lock on queue and journal');
SELECT is((SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'object'), 0::bigint, 'nor on the flush or a counter');
INSERT INTO app.likes VALUES (6, 2);
SELECT is((SELECT string_agg(relation::regclass::text, ' ') FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text ~ '_(queue|journal|slots)'), NULL, 'a like has none before its commit');
COMMIT;
SELECT is((SELECT format('%s %s', post, pending) FROM likecount.pending), '6 2', 'the view pending');
SELECT is((SELECT format('%s %s', queue_rows, journal_rows) FROM likecount.status), '2 0', 'the view status');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(drifts('rule'), '', 'in one snapshot of REPEATABLE READ too');
COMMIT;
SELECT is(settle('rule'), '2:2 3:1 5:5 6:2 7:1', 'at the end all is exact');

DROP SCHEMA app CASCADE;
SELECT * FROM finish();
