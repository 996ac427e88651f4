-- Queue or journal: the unlogged queue takes only what a crash could find again by liked_at.  Dropped at the end.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
\i :oracle
SELECT plan(42);

CREATE SCHEMA app;
SELECT likecount.create_counter('app.likes', verb => 'pick') \g /dev/null
SELECT likecount.flush() \g /dev/null
-- a line per case: do it, show where the deltas are, flush
CREATE FUNCTION shown(verb text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text := waiting(verb);
    wrong text := drifts(verb);
BEGIN
    PERFORM likecount.flush();
    RETURN found || CASE WHEN wrong || drifts(verb) = '' THEN '' ELSE ' but wrong' END;
END
$$;

-- the change
INSERT INTO app.likes VALUES (1, 1);
SELECT is(shown('pick'), 'queue 1:1', 'a fresh like goes to the queue');
SELECT likecount.pick(1, 2) \g /dev/null
SELECT is(shown('pick'), 'queue 1:1', 'by whatever way');
DELETE FROM app.likes WHERE user_id = 2;
SELECT is(shown('pick'), 'journal 1:-1', 'a DELETE goes to the journal');
BEGIN; INSERT INTO app.likes VALUES (2, 1); DELETE FROM app.likes WHERE post_id = 1; COMMIT;
SELECT is(shown('pick'), 'queue 2:1 journal 1:-1', 'one transaction may use both, for different posts');
BEGIN; INSERT INTO app.likes VALUES (2, 2), (2, 3); DELETE FROM app.likes WHERE user_id = 1; COMMIT;
SELECT is(shown('pick'), 'journal 2:1', 'but one of them for one post');
BEGIN; INSERT INTO app.likes VALUES (3, 1); DELETE FROM app.likes WHERE post_id = 3; COMMIT;
SELECT is(shown('pick'), 'journal 3:0', 'a net of 0 with a DELETE leaves a mark in the journal');
BEGIN; DELETE FROM app.likes WHERE (post_id, user_id) = (2, 2); INSERT INTO app.likes VALUES (2, 4, clock_timestamp() - interval '1 hour'); COMMIT;
SELECT is(shown('pick'), 'journal 2:0', 'so does a like that takes the place of another');
BEGIN; INSERT INTO app.likes VALUES (3, 1); SAVEPOINT a; DELETE FROM app.likes WHERE post_id = 3; ROLLBACK TO a; COMMIT;
SELECT is(shown('pick'), 'queue 3:1', 'a DELETE that is rolled back does not count as one');
BEGIN; SAVEPOINT a; DELETE FROM app.likes WHERE post_id = 3; RELEASE a; INSERT INTO app.likes VALUES (3, 2); COMMIT;
SELECT is(shown('pick'), 'journal 3:0', 'one that is released does');
BEGIN; SAVEPOINT a; INSERT INTO app.likes VALUES (4, 1); ROLLBACK TO a; COMMIT;
SELECT is(shown('pick'), '', 'nothing done, nothing written');
UPDATE app.likes SET post_id = 5 WHERE post_id = 2;
SELECT is(shown('pick'), 'journal 2:-2 journal 5:2', 'UPDATE of the post');
UPDATE app.likes SET liked_at = clock_timestamp() WHERE post_id = 5;
SELECT is(shown('pick'), 'journal 5:0', 'UPDATE of liked_at leaves a mark: it moves the row out of sight of a repair, or into it');
UPDATE app.likes SET user_id = user_id + 100 WHERE post_id = 5;
SELECT is(shown('pick'), '', 'UPDATE of the user does not');
BEGIN; INSERT INTO app.likes VALUES (6, 1); UPDATE app.likes SET liked_at = '2000-01-01' WHERE post_id = 6; COMMIT;
SELECT is(shown('pick'), 'journal 6:1', 'a like whose liked_at is changed in the same transaction');
CREATE FUNCTION app.redate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.liked_at := '2000-01-01'; RETURN NEW; END $$;
CREATE TRIGGER redate BEFORE UPDATE ON app.likes FOR EACH ROW EXECUTE FUNCTION app.redate();
UPDATE app.likes SET user_id = user_id + 100 WHERE post_id = 5;
SELECT is(shown('pick'), 'journal 5:0', 'or by a trigger, while the statement changes another column');
DROP TRIGGER redate ON app.likes;
INSERT INTO app.likes VALUES (6, 1), (6, 2) ON CONFLICT (post_id, user_id) DO UPDATE SET liked_at = clock_timestamp();
SELECT is(shown('pick'), 'journal 6:1', 'or in the same statement');
TRUNCATE app.likes;
SELECT is(shown('pick'), 'journal 3:-1 journal 5:-2 journal 6:-2', 'TRUNCATE');

-- the time
INSERT INTO app.likes VALUES (10, 1, clock_timestamp() - interval '59 seconds'), (11, 1, clock_timestamp() - interval '61 seconds'), (12, 1, '2001-01-01'),
    (13, 1, clock_timestamp() + interval '1 day'), (14, 1, '-infinity'), (15, 1, 'infinity');
SELECT is(shown('pick'), 'queue 10:1 queue 13:1 queue 15:1 journal 11:1 journal 12:1 journal 14:1', 'likes that are older than the watermark may be go to the journal');
INSERT INTO app.likes VALUES (10, 2, now()), (10, 3, '2001-01-01');
SELECT is(shown('pick'), 'journal 10:2', 'one old like takes the post''s delta there');
BEGIN; INSERT INTO app.likes VALUES (10, 4); SAVEPOINT a; INSERT INTO app.likes VALUES (10, 5, '2001-01-01'), (11, 5, now()); ROLLBACK TO a; COMMIT;
SELECT is(shown('pick'), 'queue 10:1', 'unless it is rolled back');
BEGIN; INSERT INTO app.likes VALUES (10, 5); SAVEPOINT a; INSERT INTO app.likes VALUES (10, 6, '2001-01-01'), (11, 5, now()); RELEASE a; COMMIT;
SELECT is(shown('pick'), 'queue 11:1 journal 10:2', 'or, released, not');
BEGIN;
SET LOCAL TimeZone = 'Pacific/Kiritimati';
INSERT INTO app.likes (post_id, user_id) VALUES (16, 1);
COMMIT;
SELECT is(shown('pick'), 'queue 16:1', 'the session''s time zone does not matter');

-- the transaction
BEGIN; INSERT INTO app.likes VALUES (20, 1); PREPARE TRANSACTION 'likecount where'; COMMIT PREPARED 'likecount where';
SELECT is(shown('pick'), 'journal 20:1', 'a prepared transaction');
INSERT INTO app.likes SELECT n, 9 FROM generate_series(1001, 1001 + 131072) n;
SELECT is((SELECT string_agg(format('%s %s', place, n), ' ' ORDER BY place) FROM (SELECT place, count(*) AS n FROM segments GROUP BY 1) c), 'journal 131072 queue 1',
    'what is spilled before the end');
SELECT likecount.flush() \g /dev/null
BEGIN; INSERT INTO app.likes VALUES (20, 2); DELETE FROM app.likes WHERE post_id = 20 AND user_id = 2; INSERT INTO app.likes SELECT n, 10 FROM generate_series(1001, 1001 + 131072) n; COMMIT;
SELECT is((SELECT count(*) FROM segments WHERE post = 20 AND place = 'journal' AND delta = 0), 1::bigint, 'a mark is spilled, too');
SELECT likecount.flush() \g /dev/null

-- the counter
CREATE FUNCTION app.path(verb text) RETURNS text LANGUAGE sql AS $$ SELECT format('%s: %s', path, path_reason) FROM likecount.counters c WHERE c.verb = $1 $$;
CREATE TABLE app.others (post bigint NOT NULL, fan bigint NOT NULL, at timestamptz DEFAULT clock_timestamp(), local timestamp DEFAULT clock_timestamp(), PRIMARY KEY (post, fan));
SELECT likecount.attach('app.others', 'post', 'fan', 'at', verb => 'timed') \g /dev/null
SELECT likecount.attach('app.others', 'post', 'fan', 'local', verb => 'local') \g /dev/null
SELECT likecount.attach('app.others', 'post', 'fan', verb => 'timeless') \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is(app.path('pick'), 'queue: ', 'why: a BRIN index on a timestamptz column');
SELECT is(app.path('timed'), 'journal: the time column has no valid btree or BRIN index', 'why: no index');
SELECT is(app.path('local'), 'journal: the time column is not of type timestamp with time zone', 'why: timestamp without time zone');
SELECT is(app.path('timeless'), 'journal: the counter has no time column', 'why: no time column');
INSERT INTO app.others VALUES (1, 1);
SELECT is(waiting('timed') || ' ' || waiting('local') || ' ' || shown('timeless'), 'journal 1:1 journal 1:1 journal 1:1', 'and so they do');
CREATE INDEX others_hash ON app.others USING hash (at);
CREATE INDEX others_partial ON app.others (at) WHERE fan > 0;
CREATE INDEX others_second ON app.others (fan, at);
CREATE INDEX others_expression ON app.others ((at AT TIME ZONE 'UTC'));
CREATE INDEX others_local ON app.others (local);
INSERT INTO app.others VALUES (1, 2);
SELECT is(waiting('timed') || ' ' || shown('local'), 'journal 1:1 journal 1:1', 'hash, partial, expression indexes, and one in which the column is second, do not help');
CREATE INDEX others_good ON app.others (at, post);
INSERT INTO app.others VALUES (1, 3);
SELECT is(waiting('timed') || ' ' || waiting('local') || ' ' || shown('timeless'), 'queue 1:1 journal 1:1 journal 1:1', 'a btree index that leads with it does, at once');
INSERT INTO app.others VALUES (1, 4, NULL), (2, 4, clock_timestamp());
SELECT is(shown('timed'), 'queue 2:1 journal 1:1', 'a liked_at that is null');
DROP INDEX app.others_good;
INSERT INTO app.others VALUES (1, 5);
SELECT is(shown('timed'), 'journal 1:1', 'until the index is dropped');
CREATE INDEX others_good ON app.others USING brin (post, at);
INSERT INTO app.others VALUES (1, 6);
SELECT is(shown('timed'), 'queue 1:1', 'in a BRIN index it may be any column');
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'app.others_good'::regclass;
BEGIN; LOCK app.others; ALTER TABLE app.others ALTER fan SET STATISTICS 10; COMMIT;
INSERT INTO app.others VALUES (1, 7);
SELECT is(shown('timed'), 'journal 1:1', 'which is not valid');

-- partitions
CREATE TABLE app.parts (post bigint NOT NULL, fan bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (post, fan)) PARTITION BY HASH (fan);
CREATE TABLE app.parts_0 PARTITION OF app.parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE app.parts_1 (junk int, at timestamptz NOT NULL DEFAULT clock_timestamp(), fan bigint NOT NULL, post bigint NOT NULL);
ALTER TABLE app.parts_1 DROP COLUMN junk;
ALTER TABLE app.parts ATTACH PARTITION app.parts_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX ON app.parts (at);
SELECT likecount.attach('app.parts', 'post', 'fan', 'at', verb => 'part') \g /dev/null
SELECT likecount.flush() \g /dev/null
INSERT INTO app.parts SELECT 1, n FROM generate_series(1, 20) n;
SELECT is(shown('part'), 'queue 1:20', 'likes in several partitions are one delta, in the queue');
UPDATE app.parts SET fan = fan + 100;
SELECT is(shown('part'), 'journal 1:0', 'rows that move between partitions are deleted and inserted, so they leave a mark');
INSERT INTO app.parts VALUES (2, 1, '2001-01-01'), (2, 2, '2001-01-01'), (3, 1, now()), (3, 2, now());
SELECT is(shown('part'), 'queue 3:2 journal 2:2', 'old likes there');

-- the tables
SELECT is((SELECT string_agg(format('%s %s %s', relname, relpersistence, reltoastrelid), ', ' ORDER BY relname) FROM pg_class WHERE relname ~ '^_(queue|journal)_.$'),
    '_journal_0 p 0, _journal_1 p 0, _journal_2 p 0, _queue_0 u 0, _queue_1 u 0, _queue_2 u 0', 'the journal is logged, the queue is not, and none has a TOAST table');
SELECT is((SELECT count(*) FROM pg_class WHERE relname ~ '^_(queue|journal)_.$' AND reloptions @> ARRAY['autovacuum_enabled=off', 'vacuum_truncate=off']), 6::bigint,
    'vacuum takes no lock on them that likes would wait for');
SELECT is((SELECT relpersistence FROM pg_class WHERE relname = '_sentinel'), 'u', 'the sentinel vanishes with the queue');

DROP SCHEMA app CASCADE;
DROP FUNCTION shown(text);
SELECT * FROM finish();
