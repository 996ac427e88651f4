-- Capture: every way in which SQL can add, remove or move likes, in one transaction that is rolled back.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
BEGIN;
\i :oracle
SELECT plan(54);

CREATE SCHEMA app;
CREATE TABLE app.posts (id bigint PRIMARY KEY, title text);
CREATE TABLE app.users (id bigint PRIMARY KEY);
SELECT likecount.create_counter('app.likes') \g /dev/null

-- INSERT
INSERT INTO app.likes VALUES (1, 1), (1, 2), (2, 1);
SELECT is(drifts('like'), '1:2 2:1', 'before the flush, what is missing in the totals are this transaction''s own deltas');
SELECT is(settle('like'), '1:2 2:1', 'INSERT of several rows');
INSERT INTO app.likes SELECT 3, n FROM generate_series(1, 100) n;
SELECT is(settle('like'), '1:2 2:1 3:100', 'INSERT ... SELECT');
COPY app.likes (post_id, user_id) FROM stdin;
4	1
4	2
5	1
\.
SELECT is(settle('like'), '1:2 2:1 3:100 4:2 5:1', 'COPY');
INSERT INTO app.likes VALUES (1, 1), (1, 3), (6, 1), (6, 1) ON CONFLICT DO NOTHING;
SELECT is(settle('like'), '1:3 2:1 3:100 4:2 5:1 6:1', 'ON CONFLICT DO NOTHING counts only the rows that are new');
WITH new AS (INSERT INTO app.likes VALUES (7, 1), (7, 2) RETURNING *), gone AS (DELETE FROM app.likes WHERE post_id = 3 RETURNING *)
SELECT is((SELECT count(*) FROM new) + (SELECT count(*) FROM gone), 102::bigint, 'two changes in one WITH');
SELECT is(settle('like'), '1:3 2:1 4:2 5:1 6:1 7:2', 'are both captured');
SELECT throws_ok('INSERT INTO app.likes VALUES (8, 1), (8, 2), (1, 1)', '23505', NULL, 'a statement that fails at its third row');
SELECT is(settle('like'), '1:3 2:1 4:2 5:1 6:1 7:2', 'has added nothing');

-- UPDATE
UPDATE app.likes SET user_id = user_id + 1000;
SELECT is(drifts('like'), '', 'UPDATE of the user changes no count');
UPDATE app.likes SET liked_at = liked_at - interval '1 day';
SELECT is(drifts('like'), '', 'UPDATE of liked_at changes no count');
UPDATE app.likes SET user_id = user_id - 1000;
UPDATE app.likes SET post_id = post_id;
SELECT is(drifts('like'), '', 'UPDATE of the post to what it was');
UPDATE app.likes SET post_id = 9 WHERE post_id IN (6, 7) AND (post_id, user_id) <> (7, 1);
SELECT is(settle('like'), '1:3 2:1 4:2 5:1 7:1 9:2', 'UPDATE of the post moves a like');
INSERT INTO app.likes VALUES (1, 1), (10, 1) ON CONFLICT (post_id, user_id) DO UPDATE SET post_id = 11;
SELECT is(settle('like'), '1:2 2:1 4:2 5:1 7:1 9:2 10:1 11:1', 'ON CONFLICT DO UPDATE that moves the like in the way');
INSERT INTO app.likes VALUES (2, 1), (12, 1) ON CONFLICT (post_id, user_id) DO UPDATE SET liked_at = clock_timestamp();
SELECT is(settle('like'), '1:2 2:1 4:2 5:1 7:1 9:2 10:1 11:1 12:1', 'ON CONFLICT DO UPDATE of something else');

-- DELETE
DELETE FROM app.likes WHERE post_id >= 7;
SELECT is(settle('like'), '1:2 2:1 4:2 5:1', 'DELETE of many rows of many posts');
DELETE FROM app.likes WHERE post_id = 404;
DELETE FROM app.likes a USING app.likes b WHERE a.post_id = 4 AND b.post_id = 4;
SELECT is(settle('like'), '1:2 2:1 5:1', 'DELETE ... USING that finds rows twice');

-- MERGE
MERGE INTO app.likes l
USING (VALUES (1, 2, 'remove'), (2, 1, 'move'), (13, 1, 'add'), (13, 2, 'add'), (14, 1, 'nothing')) AS want (post, actor, what)
   ON l.post_id = want.post AND l.user_id = want.actor
 WHEN MATCHED AND want.what = 'remove' THEN DELETE
 WHEN MATCHED THEN UPDATE SET post_id = 20
 WHEN NOT MATCHED AND want.what = 'add' THEN INSERT VALUES (want.post, want.actor)
 WHEN NOT MATCHED THEN DO NOTHING;
SELECT is(settle('like'), '1:1 5:1 13:2 20:1', 'MERGE with all its actions');

-- cursors
DECLARE each CURSOR FOR SELECT * FROM app.likes WHERE post_id = 13 ORDER BY user_id FOR UPDATE;
FETCH each \g /dev/null
DELETE FROM app.likes WHERE CURRENT OF each;
FETCH each \g /dev/null
UPDATE app.likes SET post_id = 14 WHERE CURRENT OF each;
CLOSE each;
SELECT is(settle('like'), '1:1 5:1 14:1 20:1', 'DELETE and UPDATE through a cursor');
DECLARE adding CURSOR FOR SELECT n, likecount.like(30, n) FROM generate_series(1, 10) n;
FETCH 4 FROM adding \g /dev/null
SELECT is(drifts('like'), '30:4', 'a cursor that likes counts what was fetched');
FETCH ALL FROM adding \g /dev/null
CLOSE adding;
SELECT is(settle('like'), '1:1 5:1 14:1 20:1 30:10', 'and the rest when it is');
DELETE FROM app.likes;
SELECT is(settle('like'), '', 'DELETE of everything');

-- cascades
ALTER TABLE app.likes ADD FOREIGN KEY (post_id) REFERENCES app.posts ON DELETE CASCADE ON UPDATE CASCADE;
ALTER TABLE app.likes ADD FOREIGN KEY (user_id) REFERENCES app.users ON DELETE CASCADE;
INSERT INTO app.posts SELECT n FROM generate_series(1, 3) n;
INSERT INTO app.users SELECT n FROM generate_series(1, 10) n;
INSERT INTO app.likes SELECT p.id, u.id FROM app.posts p, app.users u WHERE u.id <= 3 * p.id;
SELECT is(settle('like'), '1:3 2:6 3:9', 'rows with foreign keys');
DELETE FROM app.posts WHERE id = 1;
SELECT is(settle('like'), '2:6 3:9', 'a post is deleted, its likes by ON DELETE CASCADE');
DELETE FROM app.users WHERE id IN (1, 8, 9, 10);
SELECT is(settle('like'), '2:5 3:6', 'users are deleted');
UPDATE app.posts SET id = 33 WHERE id = 3;
SELECT is(settle('like'), '2:5 33:6', 'a post gets another number, ON UPDATE CASCADE');
DELETE FROM app.users;
DELETE FROM app.posts;
SELECT is(settle('like'), '', 'and everybody leaves');
ALTER TABLE app.likes DROP CONSTRAINT likes_post_id_fkey, DROP CONSTRAINT likes_user_id_fkey;

-- BEFORE triggers that change or skip rows
CREATE FUNCTION app.redirect() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN RETURN CASE WHEN OLD.user_id = 666 THEN NULL ELSE OLD END; END IF;
    IF NEW.user_id = 404 THEN RETURN NULL; END IF;
    IF TG_OP = 'INSERT' AND NEW.post_id = 100 THEN NEW.post_id := 101; END IF;
    IF TG_OP = 'UPDATE' AND NEW.user_id > 10000 THEN NEW.post_id := 102; END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER redirect BEFORE INSERT OR UPDATE OR DELETE ON app.likes FOR EACH ROW EXECUTE FUNCTION app.redirect();
INSERT INTO app.likes VALUES (100, 1), (100, 2), (100, 404), (101, 666);
SELECT is(settle('like'), '101:3', 'a trigger that changes the post of an INSERT, or skips the row');
UPDATE app.likes SET user_id = 10001 WHERE user_id = 1;
SELECT is(settle('like'), '101:2 102:1', 'a trigger that changes the post in an UPDATE of another column');
UPDATE app.likes SET post_id = 103, user_id = 404 WHERE user_id = 2;
DELETE FROM app.likes WHERE post_id = 101;
SELECT is(settle('like'), '101:1 102:1', 'a trigger that skips an UPDATE and a DELETE');
DROP TRIGGER redirect ON app.likes;
DELETE FROM app.likes;

-- triggers that like
CREATE FUNCTION app.echo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_WHEN = 'BEFORE' THEN
        PERFORM likecount.like(500, NEW.user_id);
        RETURN NEW;
    END IF;
    INSERT INTO app.likes VALUES (NEW.post_id + 1, NEW.user_id) ON CONFLICT DO NOTHING;
    DELETE FROM app.likes WHERE post_id = NEW.post_id - 2 AND user_id = NEW.user_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER echo_row AFTER INSERT ON app.likes FOR EACH ROW WHEN (NEW.post_id BETWEEN 200 AND 204) EXECUTE FUNCTION app.echo();
INSERT INTO app.likes VALUES (200, 1), (200, 2);
SELECT is(settle('like'), '203:2 204:2 205:2', 'a trigger that likes, which fires a trigger that likes');
CREATE TRIGGER echo_post BEFORE INSERT ON app.users FOR EACH ROW WHEN (NEW.id < 100) EXECUTE FUNCTION app.echo();
CREATE FUNCTION app.statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.likes SELECT 600, id FROM fresh;
    RETURN NULL;
END
$$;
ALTER FUNCTION app.echo() SET search_path = app;
CREATE TRIGGER echo_all AFTER INSERT ON app.users REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION app.statement();
CREATE OR REPLACE FUNCTION app.echo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM likecount.like(500, NEW.id);
    RETURN NEW;
END
$$;
INSERT INTO app.users VALUES (1), (2), (3), (100);
SELECT is(settle('like'), '203:2 204:2 205:2 500:3 600:4', 'triggers of other tables that like, before a row and after a statement');
DROP TRIGGER echo_row ON app.likes;
DELETE FROM app.likes;

-- several counters of one table, with and without a user, with a condition
CREATE TABLE app.replies (id bigint PRIMARY KEY, parent bigint NOT NULL, author bigint, deleted_at timestamptz, status text DEFAULT 'shown', body text);
SELECT likecount.attach('app.replies', 'parent', verb => 'reply', past => 'replied') \g /dev/null
SELECT likecount.attach('app.replies', 'parent', verb => 'shown_reply', only_where => $$deleted_at IS NULL AND status = 'shown'$$) \g /dev/null
-- the server does not know that a counter would not be made over such a column
ALTER TABLE app.replies ALTER parent DROP NOT NULL;
INSERT INTO app.replies (id, parent, body) SELECT n, n % 3, 'text' FROM generate_series(1, 9) n;
INSERT INTO app.replies (id, parent, status) VALUES (10, 1, 'hidden'), (11, NULL, 'shown'), (12, 1, NULL);
SELECT is(settle('reply'), '0:3 1:5 2:3', 'rows without a user are counted, but for those without a post');
SELECT is(settle('shown_reply'), '0:3 1:3 2:3', 'and by another counter those for which its condition is true');
UPDATE app.replies SET deleted_at = now() WHERE id IN (1, 2);
SELECT is(settle('shown_reply'), '0:3 1:2 2:2', 'a row that is deleted softly leaves the condition');
SELECT is(settle('reply'), '0:3 1:5 2:3', 'which does not concern the other counter');
UPDATE app.replies SET deleted_at = NULL WHERE id = 2;
SELECT is(settle('shown_reply'), '0:3 1:2 2:3', 'one that is restored comes back');
UPDATE app.replies SET body = 'edited', author = 7;
SELECT is(drifts('shown_reply'), '', 'UPDATE of other columns changes no count');
UPDATE app.replies SET parent = 2, status = 'shown' WHERE id IN (10, 12);
SELECT is(settle('shown_reply'), '0:3 1:2 2:5', 'into the condition and to another post at once');
UPDATE app.replies SET parent = 0, status = NULL WHERE id IN (10, 12);
SELECT is(settle('shown_reply'), '0:3 1:2 2:3', 'out of it and to another post at once');
UPDATE app.replies SET parent = CASE WHEN id = 11 THEN 1 END WHERE id IN (11, 3);
SELECT is(settle('shown_reply'), '0:2 1:3 2:3', 'a post that becomes NULL, and one that is no longer');
DELETE FROM app.replies WHERE id IN (1, 4, 12);
SELECT is(settle('shown_reply'), '0:2 1:2 2:3', 'DELETE of rows inside and outside of the condition');
SELECT is(settle('reply'), '0:3 1:2 2:3', 'counts for the other counter as well');
-- the predicate's column is changed by a trigger, so no list of columns would name it
CREATE FUNCTION app.soft() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.body = 'bad' THEN NEW.status := 'hidden'; END IF; RETURN NEW; END $$;
CREATE TRIGGER soft BEFORE INSERT OR UPDATE ON app.replies FOR EACH ROW EXECUTE FUNCTION app.soft();
UPDATE app.replies SET body = 'bad' WHERE id IN (5, 6);
INSERT INTO app.replies (id, parent, body) VALUES (20, 2, 'bad'), (21, 2, 'good');
SELECT is(settle('shown_reply'), '0:1 1:2 2:3', 'a trigger that moves rows out of the condition');
INSERT INTO app.replies (id, parent) VALUES (5, 8), (22, 8) ON CONFLICT (id) DO UPDATE SET status = 'shown', body = 'good';
SELECT is(settle('shown_reply'), '0:1 1:2 2:4 8:1', 'ON CONFLICT DO UPDATE into the condition');

-- partitions, whose columns have other numbers
CREATE TABLE app.hearts (post bigint, fan bigint, at timestamptz NOT NULL DEFAULT clock_timestamp(), region text DEFAULT 'eu',
    visible boolean DEFAULT true, PRIMARY KEY (post, fan)) PARTITION BY RANGE (post);
CREATE TABLE app.hearts_low PARTITION OF app.hearts FOR VALUES FROM (0) TO (100);
CREATE TABLE app.hearts_high (junk int, visible boolean DEFAULT true, at timestamptz NOT NULL DEFAULT clock_timestamp(), junk2 text, fan bigint NOT NULL,
    region text DEFAULT 'eu', post bigint NOT NULL, PRIMARY KEY (post, fan));
ALTER TABLE app.hearts_high DROP COLUMN junk, DROP COLUMN junk2;
ALTER TABLE app.hearts ATTACH PARTITION app.hearts_high FOR VALUES FROM (100) TO (200);
CREATE TABLE app.hearts_rest PARTITION OF app.hearts DEFAULT PARTITION BY HASH (fan);
CREATE TABLE app.hearts_rest_all PARTITION OF app.hearts_rest FOR VALUES WITH (MODULUS 1, REMAINDER 0);
SELECT likecount.attach('app.hearts', 'post', 'fan', 'at', verb => 'heart') \g /dev/null
SELECT likecount.attach('app.hearts', 'post', 'fan', 'at', verb => 'visible_heart', only_where => 'visible') \g /dev/null
INSERT INTO app.hearts (post, fan, visible) SELECT p, f, f <> 3 FROM unnest(ARRAY[1, 150, 999]) p, generate_series(1, 3) f;
SELECT is(settle('heart'), '1:3 150:3 999:3', 'a partitioned table, rows into all partitions');
SELECT is(settle('visible_heart'), '1:2 150:2 999:2', 'with a condition too');
INSERT INTO app.hearts_high (post, fan) VALUES (150, 10), (151, 10);
SELECT is(likecount.heart(152, 10), true, 'and by the generated function');
SELECT is(settle('heart'), '1:3 150:4 151:1 152:1 999:3', 'rows that go to a partition by name');
UPDATE app.hearts SET post = 2 WHERE post IN (1, 151);
UPDATE app.hearts SET post = 160 WHERE fan = 3 AND post = 2;
SELECT is(settle('heart'), '2:3 150:4 152:1 160:1 999:3', 'UPDATE of the post within a partition and from one to another');
SELECT is(settle('visible_heart'), '2:3 150:3 152:1 999:2', 'under the condition');
UPDATE app.hearts SET post = 3, visible = true WHERE post = 160;
UPDATE app.hearts SET visible = false WHERE post = 150 AND fan = 1;
DELETE FROM app.hearts WHERE fan = 2;
SELECT is(settle('heart'), '2:2 3:1 150:3 152:1 999:2', 'across partitions and into the condition at once');
SELECT is(settle('visible_heart'), '2:2 3:1 150:1 152:1 999:1', 'and a DELETE over all partitions');
CREATE TABLE app.hearts_more (LIKE app.hearts INCLUDING ALL);
ALTER TABLE app.hearts ATTACH PARTITION app.hearts_more FOR VALUES FROM (200) TO (300);
INSERT INTO app.hearts VALUES (200, 1), (201, 1);
TRUNCATE app.hearts;
SELECT is(settle('heart'), '', 'TRUNCATE of the partitioned table');

SELECT * FROM finish();
ROLLBACK;
