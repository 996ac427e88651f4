-- The recounts that people ask for: reconcile, reconcile_recent, reconcile_all, check.
\set ECHO none
\set QUIET on
\pset format unaligned
\pset tuples_only on
SELECT likecount.flush() \g /dev/null
CREATE SCHEMA app;
CREATE ROLE rc_owner;
CREATE ROLE rc_reader;
GRANT USAGE, CREATE ON SCHEMA app TO rc_owner;
GRANT USAGE ON SCHEMA app TO rc_reader;
GRANT USAGE ON SCHEMA likecount TO rc_owner, rc_reader;
SET client_min_messages = warning;
SET ROLE rc_owner;
SELECT likecount.create_counter('app.likes', verb => 'like') \g /dev/null
INSERT INTO app.likes SELECT i % 7, i FROM generate_series(1, 700) i;
RESET ROLE;
SELECT likecount.flush() \g /dev/null
-- wrong totals of every kind: too many, too few, no row any more, never counted
CREATE PROCEDURE app.spoil() LANGUAGE sql AS $$
    UPDATE likecount.like_slots SET value = value + 5 WHERE post = 2;
    UPDATE likecount.like_slots SET value = value - 7 WHERE post = 3;
    INSERT INTO likecount.like_slots AS s VALUES (1000, 0, 0, 4, now()) ON CONFLICT (post, node, slot) DO UPDATE SET value = s.value + 4;
    DELETE FROM likecount.like_slots WHERE post = 6 $$;

SELECT plan(53);

SELECT is_empty($$SELECT * FROM likecount.check('app.likes')$$, 'check of a right counter is empty');
CALL app.spoil();
SELECT results_eq($$SELECT post, was, now FROM likecount.check('app.likes') ORDER BY post::int$$,
    $$VALUES ('2', 105::bigint, 100::bigint), ('3', 93, 100), ('6', 0, 100), ('1000', 4, 0)$$, 'check tells what is wrong');
SELECT is((SELECT total FROM likecount.like_totals WHERE post_id = 2), 105::bigint, 'and touches nothing');
SELECT is((SELECT count(*) FROM likecount.pending), 0::bigint, 'and appends nothing');
SELECT results_eq($$SELECT post, was, now FROM likecount.check('app.likes', 1000000) ORDER BY post::int$$,
    $$VALUES ('2', 105::bigint, 100::bigint), ('3', 93, 100), ('6', 0, 100), ('1000', 4, 0)$$, 'a sample that holds every post finds them all');

-- one post, however it is given
SELECT is(likecount.reconcile('app.likes', 2), -5::bigint, 'reconcile returns the drift');
SELECT is(likecount.reconcile('app.likes', 2), 0::bigint, 'twice: the pending correction counts');
SELECT is(likecount.reconcile('app.likes', '3'), 7::bigint, 'a post as a literal');
SELECT is(likecount.reconcile('app.likes', '1000'::varchar), -4::bigint, 'as varchar, one that has no rows');
SELECT is(likecount.reconcile('app.likes', 6::smallint), 100::bigint, 'as smallint, one that was never counted');
SELECT is(likecount.reconcile('app.likes', 4711), 0::bigint, 'one that nobody knows');
PREPARE untyped AS SELECT likecount.reconcile('app.likes', $1);
EXECUTE untyped('5') \g /dev/null
SELECT pass('an untyped parameter');
SELECT likecount.flush() \g /dev/null
SELECT is_empty($$SELECT * FROM likecount.check('app.likes')$$, 'after a flush all is right');

-- the caller's own deltas of every level
BEGIN;
INSERT INTO app.likes VALUES (1, 9001);
SAVEPOINT a;
INSERT INTO app.likes VALUES (1, 9002);
SELECT is(likecount.reconcile('app.likes', 1), 0::bigint, 'what this transaction has captured is no drift');
ROLLBACK TO a;
SELECT is(likecount.reconcile('app.likes', 1), 0::bigint, 'nor after a rollback to a savepoint');
COMMIT;
SELECT likecount.flush() \g /dev/null
SELECT is_empty($$SELECT * FROM likecount.check('app.likes')$$, 'exact');
SELECT is(likecount.like(1, 9003)::int + likecount.reconcile('app.likes', 1), 1::bigint, 'nor is what this very statement has captured');
SELECT is(likecount.unlike(1, 9003)::int + likecount.reconcile('app.likes', 1), 1::bigint, 'or taken back');

-- inside a statement whose capture triggers have not fired
SELECT throws_ok($$WITH i AS (INSERT INTO app.likes VALUES (1, 9100) RETURNING post_id) SELECT likecount.reconcile('app.likes', post_id) FROM i$$,
    '55006', NULL, 'refused while triggers are pending');
SELECT is(likecount.reconcile('app.likes', 1), 0::bigint, 'and nothing is left behind');
CREATE FUNCTION app.recount() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM likecount.reconcile('app.likes', NEW.post_id); RETURN NULL; END $$;
CREATE TRIGGER a_recount AFTER INSERT ON app.likes FOR EACH ROW EXECUTE FUNCTION app.recount();
SELECT throws_ok('INSERT INTO app.likes VALUES (1, 9100)', '55006', NULL, 'also in a trigger that fires before capture');
DROP TRIGGER a_recount ON app.likes;
CREATE TABLE app.parts (post_id bigint, user_id bigint, PRIMARY KEY (post_id, user_id)) PARTITION BY LIST (post_id);
CREATE TABLE app.part_1 PARTITION OF app.parts FOR VALUES IN (1);
SELECT likecount.attach('app.parts', 'post_id', 'user_id', verb => 'part') \g /dev/null
SELECT throws_ok($$WITH i AS (INSERT INTO app.parts VALUES (1, 1) RETURNING post_id) SELECT likecount.reconcile('app.parts', post_id) FROM i$$,
    '55006', NULL, 'and for rows of a partition');

-- isolation, prepare, read only
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT throws_ok($$SELECT likecount.reconcile('app.likes', 1)$$, '25000', NULL, 'not in REPEATABLE READ');
SELECT throws_ok($$SELECT * FROM likecount.check('app.likes')$$, '25000', NULL, 'nor check');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT throws_ok($$SELECT * FROM likecount.reconcile_recent('app.likes', '1 h')$$, '25000', NULL, 'not in SERIALIZABLE');
ROLLBACK;
BEGIN READ ONLY;
SELECT throws_ok($$SELECT likecount.reconcile('app.likes', 1)$$, '25006', NULL, 'not in a read-only transaction');
ROLLBACK;
-- the number below is the answer to PREPARE
BEGIN;
SELECT likecount.reconcile('app.likes', 1) \g /dev/null
\set VERBOSITY sqlstate
PREPARE TRANSACTION 'likecount reconcile';
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) > 0 AS prepared FROM pg_prepared_xacts WHERE gid = 'likecount reconcile' \gset
SELECT ok(NOT :'prepared', 'nor is a correction prepared');
\if :prepared
ROLLBACK PREPARED 'likecount reconcile';
\endif

-- recent activity: by liked_at, by flush, by what waits
UPDATE app.likes SET liked_at = now() - interval '1 day' WHERE post_id IN (0, 5);
SELECT likecount.flush() \g /dev/null
UPDATE likecount.like_slots SET updated_at = now() - interval '1 day';
UPDATE likecount.like_slots SET value = value + 1 WHERE post IN (0, 4);
SELECT results_eq($$SELECT * FROM likecount.reconcile_recent('app.likes', '1 h')$$, $$VALUES ('4', 101::bigint, 100::bigint)$$, 'only posts with activity since then');
DELETE FROM app.likes WHERE post_id = 5 AND user_id = 5;
UPDATE likecount.like_slots SET value = value + 1 WHERE post = 5;
SELECT results_eq($$SELECT * FROM likecount.reconcile_recent('app.likes', '1 h')$$, $$VALUES ('5', 100::bigint, 99::bigint)$$, 'a pending unlike is activity');
SELECT likecount.flush() \g /dev/null
SELECT results_eq($$SELECT * FROM likecount.check('app.likes')$$, $$VALUES ('0', 101::bigint, 100::bigint)$$, 'the rest is left');

-- everything, in chunks
CALL app.spoil();
CALL likecount.reconcile_all('app.likes', 2);
SELECT likecount.flush() \g /dev/null
SELECT is_empty($$SELECT * FROM likecount.check('app.likes')$$, 'reconcile_all puts everything right');
SELECT results_eq($$SELECT phase, posts_done, drift_found FROM likecount.progress WHERE verb = 'like'$$, $$VALUES ('idle', 8::bigint, 97::bigint)$$, 'and leaves its figures');
SELECT ok(likecount._reconcile_chunk('app.likes', 2, NULL), 'one that is interrupted');
SELECT is((SELECT phase FROM likecount.progress WHERE verb = 'like'), 'reconcile_all', 'shows');
SELECT is((SELECT posts_done FROM likecount.progress WHERE verb = 'like'), 2::bigint, 'how far it came');
CALL likecount.reconcile_all('app.likes', 3);
SELECT is((SELECT concat_ws(' ', phase, posts_done) FROM likecount.progress WHERE verb = 'like'), 'idle 8', 'the next call goes on there');
SELECT throws_ok($$SELECT likecount._reconcile_chunk('app.likes', 0, NULL)$$, '22023', NULL, 'a chunk of no posts');
SELECT throws_ok($$SELECT * FROM likecount.check('app.likes', 0)$$, '22023', NULL, 'a sample of no posts');

-- rows of an inheritance child are nobody's: no trigger captures them, and no recount may count them
CREATE TABLE app.child () INHERITS (app.likes);
INSERT INTO app.child VALUES (1, 9300), (3000, 1);
SELECT is_empty($$SELECT * FROM likecount.check('app.likes')$$, 'rows of an inheritance child are not counted');
SELECT is(likecount.reconcile('app.likes', 1), 0::bigint, 'by no recount');
SELECT is_empty($$SELECT * FROM likecount.reconcile_recent('app.likes', '1 h')$$, 'and are no activity');
DROP TABLE app.child;

-- forced row security must not make right totals wrong
ALTER TABLE app.likes ENABLE ROW LEVEL SECURITY;
ALTER TABLE app.likes FORCE ROW LEVEL SECURITY;
SET ROLE rc_owner;
SELECT is((SELECT count(*) FROM app.likes), 0::bigint, 'the owner sees nothing');
SELECT is_empty($$SELECT * FROM likecount.check('app.likes')$$, 'check sees everything');
SELECT is(likecount.reconcile('app.likes', 1), 0::bigint, 'reconcile too');
RESET ROLE;
ALTER TABLE app.likes NO FORCE ROW LEVEL SECURITY;
ALTER TABLE app.likes DISABLE ROW LEVEL SECURITY;

-- whose table it is
SET ROLE rc_reader;
SELECT throws_ok($$SELECT likecount.reconcile('app.likes', 1)$$, '42501', NULL, 'not the owner');
SELECT throws_ok($$SELECT * FROM likecount.check('app.likes')$$, '42501', NULL, 'nor check');
SELECT throws_ok($$SELECT * FROM likecount.reconcile_recent('app.likes', '1 h')$$, '42501', NULL, 'nor the recent ones');
SELECT throws_ok($$CALL likecount.reconcile_all('app.likes')$$, '42501', NULL, 'nor all');
RESET ROLE;
SELECT throws_ok($$SELECT likecount.reconcile('app.likes', NULL::bigint)$$, '22004', NULL, 'no post');
SELECT throws_ok($$SELECT likecount.reconcile('app.likes', 'x')$$, '22P02', NULL, 'a text that is no post');
SELECT throws_ok($$SELECT likecount.reconcile('pg_class', 1)$$, '42704', NULL, 'a table without a counter');
SELECT throws_ok($$SELECT likecount.reconcile('app.likes', 1, 'heart')$$, '42704', NULL, 'another verb');

-- what the owner's row triggers or a replica role kept from us is put right
SET session_replication_role = replica;
INSERT INTO app.likes VALUES (1, 9200);
RESET session_replication_role;
SELECT is(likecount.reconcile('app.likes', 1), 1::bigint, 'rows that came without their triggers');

SELECT * FROM finish();
DROP SCHEMA app CASCADE;
SELECT likecount.flush() \g /dev/null
DROP OWNED BY rc_owner, rc_reader;
DROP ROLE rc_owner, rc_reader;
