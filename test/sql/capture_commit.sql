-- What a commit appends: ends of transactions of every kind, and DDL in the same transaction.  Dropped at the end.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
\i :oracle
SELECT plan(39);

CREATE SCHEMA app;
SELECT likecount.create_counter('app.ends') \g /dev/null
SELECT likecount.flush() \g /dev/null

-- one delta for each post that a transaction likes
INSERT INTO app.ends SELECT 1, n FROM generate_series(1, 1000) n;
SELECT is(waiting('end'), 'queue 1:1000', 'a statement with a thousand likes of one post leaves one delta');
COPY app.ends (post_id, user_id) FROM stdin;
2	1
2	2
3	1
2	3
\.
SELECT is(waiting('end'), 'queue 1:1000 queue 2:3 queue 3:1', 'COPY leaves one delta a post');
SELECT likecount.flush() \g /dev/null
BEGIN;
INSERT INTO app.ends VALUES (4, 1);
SAVEPOINT a;
INSERT INTO app.ends VALUES (4, 2), (5, 1);
RELEASE a;
SAVEPOINT a;
INSERT INTO app.ends VALUES (4, 3);
COMMIT;
SELECT is(waiting('end'), 'queue 4:3 queue 5:1', 'the levels that are open at COMMIT count as released');
SELECT likecount.flush() \g /dev/null
BEGIN;
INSERT INTO app.ends VALUES (6, 1);
SAVEPOINT a;
INSERT INTO app.ends VALUES (6, 2);
ROLLBACK TO a;
SAVEPOINT b;
COMMIT AND CHAIN;
INSERT INTO app.ends VALUES (6, 3), (7, 1);
ROLLBACK AND CHAIN;
INSERT INTO app.ends VALUES (6, 4);
COMMIT;
SELECT is(waiting('end'), 'queue 6:1 queue 6:1', 'COMMIT AND CHAIN, ROLLBACK AND CHAIN');
SELECT is(settle('end'), '1:1000 2:3 3:1 4:3 5:1 6:2', 'all of it is flushed');
SELECT is(waiting('end'), '', 'and gone from queue and journal');
DELETE FROM app.ends;
SELECT is(settle('end'), '', 'a DELETE takes it all back');

-- procedures
CREATE PROCEDURE app.steps(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n LOOP
        INSERT INTO app.ends VALUES (10, i), (10 + i, 1);
        IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
    END LOOP;
    INSERT INTO app.ends VALUES (10, 1000);
END
$$;
CALL app.steps(6);
SELECT is(waiting('end'), 'queue 10:1 queue 10:1 queue 10:1 queue 10:1 queue 10:1 queue 11:1 queue 12:1 queue 14:1 queue 15:1', 'a procedure that commits and rolls back');
DO $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT n FROM generate_series(1, 4) n LOOP
        BEGIN
            INSERT INTO app.ends VALUES (20, r.n);
            IF r.n = 3 THEN PERFORM 1 / 0; END IF;
        EXCEPTION WHEN division_by_zero THEN
            INSERT INTO app.ends VALUES (21, r.n);
        END;
        COMMIT;
    END LOOP;
END
$$;
SELECT is(settle('end'), '10:5 11:1 12:1 14:1 15:1 20:3 21:1', 'COMMIT in a cursor loop with exception blocks');
CREATE PROCEDURE app.flushing() LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO app.ends VALUES (30, 1);
    PERFORM likecount.flush();
    COMMIT;
    INSERT INTO app.ends VALUES (30, 2);
    PERFORM likecount.flush();
    ROLLBACK;
    INSERT INTO app.ends VALUES (30, 3);
    COMMIT;
    PERFORM likecount.flush();
END
$$;
CALL app.flushing();
SELECT is(likecount.end_count(30), 2::bigint, 'a procedure that flushes between its commits');
SELECT is(drifts('end'), '', 'is exact');
DELETE FROM app.ends;
SELECT is(settle('end'), '', 'and back');

-- what likes at the very end of a transaction
CREATE FUNCTION app.later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM likecount.end(NEW.post_id + 100, NEW.user_id);
    DELETE FROM app.ends WHERE post_id = NEW.post_id + 99;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON app.ends DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.post_id < 300) EXECUTE FUNCTION app.later();
BEGIN;
INSERT INTO app.ends VALUES (40, 1), (41, 1), (40, 2);
SELECT is(drifts('end'), '40:2 41:1', 'a deferred constraint trigger has not fired yet');
COMMIT;
SELECT is(settle('end'), '40:2 41:1 140:1 141:1 240:1 241:1 340:1 341:1', 'when it likes at COMMIT, which makes it fire again, that counts');
BEGIN;
INSERT INTO app.ends VALUES (250, 1);
SET CONSTRAINTS ALL IMMEDIATE;
SELECT is(settle('end'), '40:2 41:1 140:1 141:1 240:1 241:1 250:1 340:1 341:1 350:1', 'or at SET CONSTRAINTS');
ROLLBACK;
SELECT is(settle('end'), '40:2 41:1 140:1 141:1 240:1 241:1 340:1 341:1', 'until it is rolled back');
DROP TRIGGER later ON app.ends;
BEGIN;
DECLARE held CURSOR WITH HOLD FOR SELECT likecount.end(50, n) FROM generate_series(1, 3) n;
COMMIT;
SELECT is(settle('end'), '40:2 41:1 50:3 140:1 141:1 240:1 241:1 340:1 341:1', 'a holdable cursor likes when COMMIT materialises it');
CLOSE held;
BEGIN;
INSERT INTO app.ends VALUES (51, 1);
DELETE FROM app.ends WHERE post_id = 50 AND user_id = 1;
SET TRANSACTION READ ONLY;
COMMIT;
SELECT is(waiting('end'), 'queue 51:1 journal 50:-1', 'a transaction that becomes READ ONLY after its likes commits them');
BEGIN READ ONLY;
SELECT throws_ok('INSERT INTO app.ends VALUES (51, 2)', '25006', NULL, 'a READ ONLY transaction cannot like');
SELECT throws_ok('SELECT likecount.end(51, 2)', '25006', NULL, 'whichever way');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO app.ends VALUES (52, 1);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT likecount.end(52, 2), likecount.unend(51, 1) \g /dev/null
COMMIT;
SELECT is(settle('end'), '40:2 41:1 50:2 52:2 140:1 141:1 240:1 241:1 340:1 341:1', 'REPEATABLE READ and SERIALIZABLE transactions');
DELETE FROM app.ends;
SELECT likecount.flush() \g /dev/null

-- two-phase commit
BEGIN;
INSERT INTO app.ends VALUES (60, 1), (61, 1);
SAVEPOINT a;
INSERT INTO app.ends VALUES (60, 2);
PREPARE TRANSACTION 'likecount one';
BEGIN;
INSERT INTO app.ends VALUES (60, 3), (62, 1);
PREPARE TRANSACTION 'likecount two';
SELECT is(settle('end'), '', 'prepared transactions count for nothing');
INSERT INTO app.ends VALUES (60, 4);
COMMIT PREPARED 'likecount one';
SELECT is(waiting('end'), 'queue 60:1 journal 60:2 journal 61:1', 'COMMIT PREPARED brings its deltas, which are in the journal');
SELECT is(settle('end'), '60:3 61:1', 'and they are flushed');
ROLLBACK PREPARED 'likecount two';
SELECT is(settle('end'), '60:3 61:1', 'ROLLBACK PREPARED brings none');
BEGIN;
INSERT INTO app.ends VALUES (63, 1);
TRUNCATE app.ends;
INSERT INTO app.ends VALUES (63, 2);
PREPARE TRANSACTION 'likecount three';
COMMIT PREPARED 'likecount three';
SELECT is(settle('end'), '63:1', 'a prepared TRUNCATE');

-- DDL in the same transaction
BEGIN;
CREATE TABLE app.fresh (post int NOT NULL, fan int NOT NULL, UNIQUE (post, fan));
INSERT INTO app.fresh VALUES (1, 1), (1, 2);
SELECT likecount.attach('app.fresh', 'post', 'fan', verb => 'fresh') \g /dev/null
SELECT likecount.fresh(1, 3), likecount.fresh(2, 1) \g /dev/null
SELECT is(settle('fresh'), '1:3 2:1', 'CREATE TABLE, attach, like and flush in one transaction');
COMMIT;
SELECT is(settle('fresh'), '1:3 2:1', 'and committed');
BEGIN;
INSERT INTO app.fresh VALUES (9, 9);
ALTER TABLE app.fresh ADD COLUMN note text;
ALTER TABLE app.fresh RENAME COLUMN fan TO who;
ALTER TABLE app.fresh RENAME TO renamed;
INSERT INTO app.renamed VALUES (9, 10, 'x');
COMMIT;
SELECT is(settle('fresh'), '1:3 2:1 9:2', 'ALTER TABLE between likes');
BEGIN;
INSERT INTO app.renamed VALUES (3, 1);
SELECT likecount.detach('app.renamed') \g /dev/null
INSERT INTO app.renamed VALUES (3, 2);
SELECT is(to_regclass('likecount.fresh_slots'), NULL, 'detach after a like');
COMMIT;
SELECT is((SELECT count(*) FROM app.renamed), 8::bigint, 'does not fail the commit, and the rows stay');
BEGIN;
INSERT INTO app.renamed VALUES (4, 1);
SELECT likecount.attach('app.renamed', 'post', 'who', verb => 'fresh') \g /dev/null
INSERT INTO app.renamed VALUES (4, 2);
SELECT likecount.detach('app.renamed') \g /dev/null
SELECT likecount.attach('app.renamed', 'post', 'who', verb => 'fresh') \g /dev/null
INSERT INTO app.renamed VALUES (4, 3);
COMMIT;
SELECT is(settle('fresh'), '1:3 2:1 3:2 4:3 9:2', 'attach, like, detach, attach and like in one transaction');
BEGIN;
INSERT INTO app.renamed VALUES (5, 1);
SAVEPOINT a;
SELECT likecount.detach('app.renamed') \g /dev/null
INSERT INTO app.renamed VALUES (5, 2);
ROLLBACK TO a;
INSERT INTO app.renamed VALUES (5, 3);
COMMIT;
SELECT is(settle('fresh'), '1:3 2:1 3:2 4:3 5:2 9:2', 'a detach that is rolled back to a savepoint');
INSERT INTO app.renamed VALUES (6, 1);
BEGIN;
INSERT INTO app.renamed VALUES (6, 2);
DROP TABLE app.renamed;
INSERT INTO app.ends VALUES (63, 3);
COMMIT;
SELECT is(settle('end'), '63:2', 'DROP TABLE after a like does not keep another counter''s likes');
SELECT is((SELECT count(*) FROM likecount.counters WHERE verb = 'fresh'), 0::bigint, 'and the counter is gone');

-- deltas of a counter that is not registered any more
INSERT INTO app.ends VALUES (64, 1);
DELETE FROM app.ends WHERE post_id = 63;
SELECT discarded AS before FROM likecount.status \gset
SELECT id AS counter FROM likecount._counter WHERE verb = 'end' \gset
SELECT likecount.detach('app.ends', 'end') \g /dev/null
SELECT likecount.attach('app.ends', 'post_id', 'user_id', 'liked_at', verb => 'end') \g /dev/null
SELECT isnt(id, :counter, 'a counter that is attached again has another number') FROM likecount.counters WHERE verb = 'end';
SELECT is(settle('end'), '64:1', 'so deltas of the old one are not counted for it');
SELECT is(discarded - :before, 2::bigint, 'but discarded, and shown') FROM likecount.status;
SELECT is((SELECT count(*) FROM likecount._queue_0) + (SELECT count(*) FROM likecount._journal_0), 0::bigint, 'they are gone');

DROP SCHEMA app CASCADE;
SELECT * FROM finish();
