-- What a flush does after the queue was lost, which is emptied here as a crash empties it.  Dropped at the end.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
\i :oracle
SELECT plan(13);

CREATE SCHEMA app;
CREATE TABLE app.likes (post_id bigint, user_id bigint, liked_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (post_id, user_id)) PARTITION BY HASH (post_id);
CREATE TABLE app.likes_0 PARTITION OF app.likes FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE app.likes_1 PARTITION OF app.likes FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX ON app.likes (liked_at);
SELECT likecount.attach('app.likes', 'post_id', 'user_id', 'liked_at', verb => 'mend') \g /dev/null
SELECT likecount.flush() \g /dev/null
CREATE PROCEDURE app.lose_queue() LANGUAGE sql AS $$ TRUNCATE likecount._sentinel, likecount._queue_0, likecount._queue_1, likecount._queue_2 $$;
CREATE FUNCTION app.todo() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM likecount._repair_todo t JOIN likecount._counter c ON c.id = t.counter WHERE c.verb = 'mend' $$;

-- likes that only the queue knew
INSERT INTO app.likes SELECT p, u FROM generate_series(1, 20) p, generate_series(1, 3) u;
SELECT is((SELECT count(*) FROM likecount.pending WHERE verb = 'mend'), 20::bigint, 'deltas wait');
CALL app.lose_queue();
SELECT is((SELECT count(*) FROM likecount.pending WHERE verb = 'mend'), 0::bigint, 'and are lost');
SELECT is(settle('mend'), '1:3 2:3 3:3 4:3 5:3 6:3 7:3 8:3 9:3 10:3 11:3 12:3 13:3 14:3 15:3 16:3 17:3 18:3 19:3 20:3', 'flush() finds their posts');
SELECT is((SELECT state FROM likecount.counters WHERE verb = 'mend'), 'active', 'the repair is over');
SELECT is(app.todo(), 0::bigint, 'nothing is left to do');

-- a recount of everything takes the place of a repair that is under way, and of its list
INSERT INTO app.likes SELECT p, 4 FROM generate_series(1, 60000) p;
CALL app.lose_queue();
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT state FROM likecount.counters WHERE verb = 'mend'), 'repairing', 'a repair of many posts takes several turns');
SELECT cmp_ok(app.todo(), '>', 0::bigint, 'and has a list');
TRUNCATE app.likes_1;
SELECT likecount.flush() \g /dev/null
SELECT is(app.todo(), 0::bigint, 'TRUNCATE of a partition: the list is forgotten, since every post is recounted');
DO $$ BEGIN WHILE (SELECT state <> 'active' FROM likecount.counters WHERE verb = 'mend') LOOP PERFORM likecount.flush(); END LOOP; PERFORM likecount.flush(); END $$;
SELECT is(drifts('mend'), '', 'all are exact');

-- a copy of a database that had lost its queue, and in which no flush had looked yet
INSERT INTO app.likes SELECT p, 6 FROM generate_series(1, 20) p;
CALL app.lose_queue();
UPDATE likecount._counter SET home_database = 1 WHERE verb = 'mend';
DO $$ BEGIN LOOP PERFORM likecount.flush(); EXIT WHEN (SELECT state = 'active' FROM likecount.counters WHERE verb = 'mend'); END LOOP; PERFORM likecount.flush(); END $$;
SELECT is((SELECT backfill_done FROM likecount.counters WHERE verb = 'mend'), (SELECT count(DISTINCT post) FROM (SELECT post_id AS post FROM app.likes UNION SELECT post FROM likecount.mend_slots) p), 'a copy does not know what was lost');
SELECT is(drifts('mend'), '', 'so it recounts every post');

-- a detached counter's list
INSERT INTO app.likes SELECT p, 5 FROM generate_series(1, 60000) p;
CALL app.lose_queue();
SELECT likecount.flush() \g /dev/null
SELECT likecount.detach('app.likes', 'mend') \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is((SELECT count(*) FROM likecount._repair_todo t WHERE NOT EXISTS (SELECT FROM likecount._counter c WHERE c.id = t.counter)), 0::bigint, 'a detached counter leaves none either');
SELECT cmp_ok((SELECT count(*) FROM app.likes), '>', 30000::bigint, 'the source keeps its rows');

DROP SCHEMA app CASCADE;
SELECT * FROM finish();
