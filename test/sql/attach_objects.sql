-- What hangs on what: drops, renames, changes of the table.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
BEGIN;
SET LOCAL client_min_messages = warning;
-- what other tests left of counters whose tables are gone
SELECT likecount.flush() \g /dev/null
SELECT plan(45);

CREATE ROLE lc_owner;
CREATE ROLE lc_heir;
GRANT USAGE ON SCHEMA likecount TO lc_owner;
CREATE SCHEMA app AUTHORIZATION lc_owner;
CREATE SCHEMA other AUTHORIZATION lc_owner;
-- the names of all that belongs to the counters, and what a session of the owner makes
CREATE FUNCTION public.left_over() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'likecount'::regnamespace AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql')
    UNION ALL SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'likecount'::regnamespace AND relname ~ '_(rows|slots|totals)$'
    UNION ALL SELECT tgname::text FROM pg_trigger WHERE tgname ~ '_capture_' $$;
CREATE PROCEDURE public.setup() LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL ROLE lc_owner;
    CREATE TABLE app.likes (p bigint, u bigint, at timestamptz NOT NULL DEFAULT now(), hidden boolean NOT NULL DEFAULT false, note text, PRIMARY KEY (p, u));
    PERFORM likecount.attach('app.likes', 'p', 'u', 'at', only_where => 'NOT hidden');
    INSERT INTO app.likes VALUES (1, 1), (1, 2);
    RESET ROLE;
    PERFORM likecount.flush();
END $$;

-- AUTO entries
CALL setup();
SELECT is((SELECT string_agg(format('%s -> %s', object, on_object), E'\n' ORDER BY object COLLATE "C") FROM (
        SELECT pg_describe_object(classid, objid, 0), pg_describe_object(refclassid, refobjid, refobjsubid) FROM pg_depend
         WHERE deptype = 'a' AND refclassid = 'pg_class'::regclass AND refobjsubid = 0 AND (refobjid = 'likecount.like_rows'::regclass OR objid = 'likecount.like_rows'::regclass
            OR (objid = 'likecount.like_totals'::regclass AND refobjid = 'likecount.like_slots'::regclass))) AS s (object, on_object)),
E'function likecount.like_count(bigint) -> view likecount.like_rows
function likecount.like_count_now(bigint) -> view likecount.like_rows
function likecount.like_counts(bigint[]) -> view likecount.like_rows
function likecount.liked(bigint,bigint) -> view likecount.like_rows
function likecount.liked_posts(bigint,bigint[]) -> view likecount.like_rows
table likecount.like_slots -> view likecount.like_rows
trigger like_capture_del on table app.likes -> view likecount.like_rows
trigger like_capture_ins on table app.likes -> view likecount.like_rows
trigger like_capture_trunc on table app.likes -> view likecount.like_rows
trigger like_capture_upd on table app.likes -> view likecount.like_rows
view likecount.like_rows -> table app.likes
view likecount.like_totals -> table likecount.like_slots', 'what depends on what');

-- columns
SELECT throws_ok(format('ALTER TABLE app.likes DROP COLUMN %I', c), '2BP01', NULL, format('column %s is not dropped', c)) FROM unnest(ARRAY['p', 'u', 'at', 'hidden']) c;
SELECT throws_ok(format('ALTER TABLE app.likes ALTER COLUMN %I TYPE %s', c, t), '0A000', 'cannot alter type of a column used by a view or rule', format('column %s keeps its type', c))
  FROM (VALUES ('p', 'numeric'), ('u', 'numeric'), ('at', 'timestamp'), ('hidden', 'text')) AS v (c, t);
SELECT lives_ok('ALTER TABLE app.likes DROP COLUMN note', 'any other is the owner''s');
SELECT lives_ok('ALTER TABLE app.likes ADD COLUMN extra int', 'and may come');

-- renames and moves
SET LOCAL ROLE lc_owner;
ALTER TABLE app.likes RENAME COLUMN p TO photo;
ALTER TABLE app.likes RENAME COLUMN u TO fan;
ALTER TABLE app.likes RENAME COLUMN at TO since;
ALTER TABLE app.likes RENAME COLUMN hidden TO gone;
ALTER TABLE app.likes RENAME TO hearts;
ALTER TABLE app.hearts SET SCHEMA other;
ALTER TRIGGER like_capture_ins ON other.hearts RENAME TO renamed;
RESET ROLE;
ALTER SCHEMA other RENAME TO another;
INSERT INTO another.hearts VALUES (1, 3), (1, 4), (2, 1);
UPDATE another.hearts SET gone = true WHERE fan = 4;
UPDATE another.hearts SET photo = 3 WHERE photo = 2;
DELETE FROM another.hearts WHERE fan = 2;
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT likecount.like_count(p) FROM generate_series(1, 3) p', ARRAY[2, 0, 1]::bigint[], 'all keeps counting');
SELECT is(likecount.liked(1, 3), true, 'and answering');
SELECT is_empty('SELECT FROM likecount.counters WHERE capture <> ''enabled'' OR source <> ''another.hearts''::regclass', 'the view counters shows the new name');
ALTER TABLE another.hearts OWNER TO lc_heir;
GRANT USAGE ON SCHEMA another TO lc_heir;
INSERT INTO another.hearts VALUES (1, 9);
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(1), 3::bigint, 'under a new owner');
SELECT lives_ok($$SELECT likecount.detach('another.hearts')$$, 'a renamed table can be detached');
SELECT is_empty('SELECT left_over()', 'with its renamed trigger');
DROP TABLE another.hearts;
ALTER SCHEMA another RENAME TO other;

-- everything that drops the table takes all along
SELECT likecount.flush() \g /dev/null
CALL setup();
SELECT lives_ok('DROP TABLE app.likes', 'DROP TABLE, without CASCADE');
SELECT is_empty('SELECT left_over()', 'leaves nothing');
SELECT likecount.flush() \g /dev/null
SELECT is_empty('SELECT FROM likecount._counter', 'the state row goes with the next flush');
CALL setup();
SELECT lives_ok('DROP SCHEMA app CASCADE', 'DROP SCHEMA');
SELECT is_empty('SELECT left_over()', 'leaves nothing');
CREATE SCHEMA app AUTHORIZATION lc_owner;
CALL setup();
SELECT lives_ok('DROP OWNED BY lc_owner', 'DROP OWNED');
SELECT is_empty('SELECT left_over()', 'leaves nothing');
CREATE SCHEMA app AUTHORIZATION lc_owner;
GRANT USAGE ON SCHEMA likecount TO lc_owner;
CALL setup();
SELECT lives_ok('ALTER TABLE app.likes DROP COLUMN p CASCADE', 'dropping a key column with CASCADE');
SELECT is_empty('SELECT left_over()', 'removes the counter');
DROP TABLE app.likes;
CALL setup();
SELECT lives_ok('ALTER TABLE app.likes DROP COLUMN hidden CASCADE', 'as does dropping a column of the condition');
SELECT is_empty('SELECT left_over()', 'the counter is gone');
SELECT is((SELECT count(*) FROM app.likes), 2::bigint, 'the rows are not');
DROP TABLE app.likes;

-- an object of the user's over totals
CALL setup();
CREATE VIEW app.feed AS SELECT * FROM likecount.like_totals;
SELECT throws_ok('DROP TABLE app.likes', '2BP01', NULL, 'a view over totals is named');
DROP VIEW app.feed;

-- partitions come and go
DROP TABLE app.likes;
CREATE TABLE app.likes (p bigint, u bigint, PRIMARY KEY (p, u)) PARTITION BY LIST (p);
CREATE TABLE app.l1 PARTITION OF app.likes FOR VALUES IN (1);
SELECT likecount.attach('app.likes', 'p', 'u') \g /dev/null
CREATE TABLE app.l2 PARTITION OF app.likes FOR VALUES IN (2);
SELECT is((SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.l2'::regclass), 3::bigint, 'a new partition is captured');
INSERT INTO app.likes VALUES (1, 1), (2, 2), (2, 3);
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(2), 2::bigint, 'and counted');
SELECT lives_ok('DROP TABLE app.l2', 'a partition is dropped');
SELECT lives_ok('DROP TABLE app.likes', 'the whole is dropped');
SELECT is_empty('SELECT left_over()', 'leaves nothing');

-- the extension
CALL setup();
SELECT throws_ok('DROP EXTENSION likecount', '2BP01', 'cannot drop extension likecount because other objects depend on it', 'DROP EXTENSION refuses while there is a counter');
CREATE FUNCTION public.detail() RETURNS text LANGUAGE plpgsql AS $$
DECLARE d text; BEGIN DROP EXTENSION likecount; EXCEPTION WHEN dependent_objects_still_exist THEN GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL; RETURN d; END $$;
-- of this counter's objects; a view that somebody put over a member is listed as well
SELECT is((SELECT array_agg(line) FROM regexp_split_to_table(detail(), E'\n') line WHERE line ~ 'like_|like\(|liked'), ARRAY['view likecount.like_rows depends on schema likecount'], 'in one line');
SELECT lives_ok('DROP EXTENSION likecount CASCADE', 'CASCADE');
SELECT is((SELECT count(*) FROM app.likes), 2::bigint, 'leaves the rows alone');
SELECT is((SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.likes'::regclass), 0::bigint, 'and takes the triggers');
SELECT lives_ok('INSERT INTO app.likes VALUES (7, 7)', 'the table works on');
SELECT hasnt_schema('likecount', 'nothing of the extension is left');
SELECT lives_ok('CREATE EXTENSION likecount', 'it can come again');
SELECT lives_ok($$SELECT likecount.attach('app.likes', 'p', 'u', 'at')$$, 'and count again');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(1), 2::bigint, 'exactly');

SELECT * FROM finish();
ROLLBACK;
