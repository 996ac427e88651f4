-- TRUNCATE of the source zeroes its counters exactly, whatever waits.  Many transactions; what they commit is dropped at the end.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
\i :oracle
SELECT plan(27);

CREATE SCHEMA app;
CREATE TABLE app.posts (id bigint PRIMARY KEY);
CREATE TABLE app.likes (id bigint GENERATED ALWAYS AS IDENTITY, post bigint NOT NULL REFERENCES app.posts, fan bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    shown boolean NOT NULL DEFAULT true, UNIQUE (post, fan));
CREATE INDEX ON app.likes (at);
CREATE TABLE app.notes (post bigint NOT NULL, fan bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (post, fan));
CREATE INDEX ON app.notes (at);
SELECT likecount.attach('app.likes', 'post', 'fan', 'at', verb => 'cut') \g /dev/null
SELECT likecount.attach('app.likes', 'post', 'fan', 'at', verb => 'shown_cut', only_where => 'shown') \g /dev/null
SELECT likecount.attach('app.notes', 'post', 'fan', 'at', verb => 'note') \g /dev/null
SELECT likecount.flush() \g /dev/null
INSERT INTO app.posts SELECT generate_series(1, 9);

-- totals, and deltas that wait in queue and journal
INSERT INTO app.likes (post, fan, shown) VALUES (1, 1, true), (1, 2, false), (2, 1, true);
SELECT is(settle('cut'), '1:2 2:1', 'likes are flushed');
TRUNCATE app.likes;
SELECT is(drifts('cut'), '', 'TRUNCATE is exact at once');
SELECT is(settle('cut'), '', 'and zeroes the totals');
INSERT INTO app.likes (post, fan, shown) VALUES (1, 1, true), (1, 2, false), (2, 1, true);
SELECT is(settle('cut'), '1:2 2:1', 'the next likes count from there');
INSERT INTO app.likes (post, fan, shown) VALUES (1, 3, true), (3, 1, true);
DELETE FROM app.likes WHERE post = 2;
SELECT is(waiting('cut'), 'queue 1:1 queue 3:1 journal 2:-1', 'some deltas wait in the queue, some in the journal');
TRUNCATE app.likes RESTART IDENTITY;
SELECT is(drifts('cut') || drifts('shown_cut'), '', 'TRUNCATE ... RESTART IDENTITY takes back totals and pending deltas');
SELECT is(settle('cut') || settle('shown_cut'), '', 'of both counters');

-- with likes of the same transaction, before and after
BEGIN;
INSERT INTO app.likes (post, fan) VALUES (4, 1), (5, 1);
SAVEPOINT a;
DELETE FROM app.likes WHERE post = 4;
INSERT INTO app.likes (post, fan) VALUES (5, 2);
TRUNCATE app.likes;
INSERT INTO app.likes (post, fan) VALUES (5, 9), (6, 9);
COMMIT;
SELECT is(drifts('cut') || drifts('shown_cut'), '', 'likes of the same transaction, from two levels');
SELECT is(settle('cut'), '5:1 6:1', 'and those that come after it');
BEGIN;
INSERT INTO app.likes (post, fan) VALUES (5, 10);
SAVEPOINT a;
INSERT INTO app.likes (post, fan) VALUES (5, 11), (7, 1);
TRUNCATE app.likes;
SELECT is((SELECT sum(drift) FROM drift('cut')), -2::numeric, 'inside the transaction the zeroing is one of its own deltas');
ROLLBACK TO a;
COMMIT;
SELECT is(settle('cut'), '5:2 6:1', 'ROLLBACK TO takes it back with the likes of its level');
BEGIN;
TRUNCATE app.likes;
ROLLBACK;
SELECT is(settle('cut'), '5:2 6:1', 'ROLLBACK takes it back');
BEGIN;
INSERT INTO app.likes (post, fan) VALUES (6, 10);
SELECT likecount.flush() \g /dev/null
TRUNCATE app.likes;
INSERT INTO app.likes (post, fan) VALUES (8, 1);
SELECT is(settle('cut'), '8:1', 'flush(), TRUNCATE and flush() in one transaction');
ROLLBACK;
SELECT is(settle('cut'), '5:2 6:1', 'which is rolled back');

-- more than the accumulator keeps, so that some of it is in the journal already
BEGIN;
ALTER TABLE app.likes DROP CONSTRAINT likes_post_fkey;
INSERT INTO app.likes (post, fan) SELECT n, 5 FROM generate_series(1, 70000) n;
TRUNCATE app.likes;
INSERT INTO app.likes (post, fan) VALUES (9, 1);
SELECT ok((SELECT count(*) FROM segments WHERE place = 'journal') > 0, 'after an early spill');
COMMIT;
SELECT is(drifts('cut') || drifts('shown_cut'), '', 'TRUNCATE is exact');
SELECT is(settle('cut'), '9:1', 'too');

-- several tables
INSERT INTO app.notes (post, fan) VALUES (1, 1), (2, 1), (2, 2);
SELECT is(settle('note'), '1:1 2:2', 'another source');
INSERT INTO app.likes (post, fan) VALUES (1, 1);
INSERT INTO app.notes (post, fan) VALUES (1, 2);
TRUNCATE app.notes, app.posts, app.likes;
SELECT is(drifts('note') || drifts('cut'), '', 'three tables in one command');
SELECT is(settle('note') || settle('cut'), '', 'are all zeroed');
ALTER TABLE app.likes ADD FOREIGN KEY (post) REFERENCES app.posts;
INSERT INTO app.posts VALUES (1), (2);
INSERT INTO app.likes (post, fan) VALUES (1, 1), (2, 1);
SELECT is(settle('cut'), '1:1 2:1', 'likes of posts');
TRUNCATE app.posts CASCADE;
SELECT is(settle('cut') || settle('shown_cut'), '', 'TRUNCATE ... CASCADE of the posts');

-- a counter whose rows are not counted yet
CREATE TABLE app.old (post bigint NOT NULL, fan bigint NOT NULL, UNIQUE (post, fan));
INSERT INTO app.old SELECT n, 1 FROM generate_series(1, 2500) n;
SELECT likecount.attach('app.old', 'post', 'fan', verb => 'old') \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT state FROM likecount.counters WHERE verb = 'old'), 'backfilling', 'one flush() recounts one chunk');
TRUNCATE app.old;
INSERT INTO app.old VALUES (1, 1), (2500, 1);
SELECT likecount.flush(), likecount.flush(), likecount.flush(), likecount.flush() \g /dev/null
SELECT is((SELECT state FROM likecount.counters WHERE verb = 'old'), 'active', 'TRUNCATE in the middle of a backfill');
SELECT is(settle('old'), '1:1 2500:1', 'is exact as well');

-- likes of before attach() that go away before the recount comes to them: their posts are in the slots alone then
SELECT likecount.detach('app.old', 'old') \g /dev/null
INSERT INTO app.old SELECT n, 2 FROM generate_series(1, 2500) n;
SELECT likecount.attach('app.old', 'post', 'fan', verb => 'old') \g /dev/null
SELECT likecount.flush() \g /dev/null
DELETE FROM app.old WHERE post BETWEEN 2301 AND 2400 OR post > 2450;
SELECT is((SELECT state FROM likecount.counters WHERE verb = 'old'), 'backfilling', 'unlikes of what is not counted yet');
SELECT likecount.flush(), likecount.flush(), likecount.flush(), likecount.flush() \g /dev/null
SELECT is(drifts('old') || (SELECT count(*) FROM likecount.old_totals WHERE total < 0), '0', 'are found by the backfill');

DROP SCHEMA app CASCADE;
SELECT * FROM finish();
