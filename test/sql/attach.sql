-- attach(): what it makes, for every shape of table, and that it counts.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
BEGIN;
SET LOCAL client_min_messages = warning;
-- what other tests left of counters whose tables are gone
SELECT likecount.flush() \g /dev/null
SELECT plan(46);

-- signatures
SELECT is(pg_get_function_arguments('likecount.attach'::regproc),
    'source regclass, post_column name, user_column name DEFAULT NULL::name, time_column name DEFAULT NULL::name, verb text DEFAULT NULL::text, past text DEFAULT NULL::text, only_where text DEFAULT NULL::text, mode text DEFAULT ''queued''::text, count_replicated boolean DEFAULT false, if_not_exists boolean DEFAULT false',
    'arguments of attach()');
SELECT is(pg_get_function_arguments('likecount.detach'::regproc),
    'source regclass, verb text DEFAULT NULL::text, if_exists boolean DEFAULT false, cascade boolean DEFAULT false', 'arguments of detach()');
SELECT is(pg_get_function_arguments('likecount.create_counter'::regproc),
    'source text DEFAULT ''likes''::text, verb text DEFAULT NULL::text, past text DEFAULT NULL::text, post_type regtype DEFAULT ''bigint''::regtype, user_type regtype DEFAULT ''bigint''::regtype, mode text DEFAULT ''queued''::text, if_not_exists boolean DEFAULT false',
    'arguments of create_counter()');
SELECT is((SELECT array_agg(prosecdef) FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace AND proname IN ('attach', 'detach', 'create_counter')),
    '{f,f,f}', 'they run with the rights of the caller');

CREATE SCHEMA app;
CREATE FUNCTION app.objects(verb text, past text) RETURNS text[] LANGUAGE sql AS $$ SELECT array_agg(o COLLATE "C" ORDER BY o COLLATE "C") FROM (
    SELECT p.oid::regprocedure::text FROM pg_proc p, unnest(ARRAY['', 'un', 'set_']) prefix, unnest(ARRAY['', '_many', '_count', '_counts', '_count_now']) suffix
     WHERE pronamespace = 'likecount'::regnamespace AND proname = prefix || verb || suffix
    UNION ALL
    SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'likecount'::regnamespace AND proname IN (past, past || '_posts')
    UNION ALL
    SELECT c.oid::regclass::text FROM pg_class c, unnest(ARRAY['_rows', '_slots', '_totals']) suffix WHERE relnamespace = 'likecount'::regnamespace AND relname = verb || suffix) AS s (o) $$;
-- a table as an application has it: rows, a dropped column, columns of its own
CREATE TABLE app.hearts (junk int, photo integer, fan uuid DEFAULT gen_random_uuid(), note text, at timestamptz NOT NULL DEFAULT now(), CONSTRAINT hearts_key UNIQUE (fan, photo) INCLUDE (at));
ALTER TABLE app.hearts DROP COLUMN junk;
ALTER TABLE app.hearts ALTER COLUMN photo SET NOT NULL, ALTER COLUMN fan SET NOT NULL;
INSERT INTO app.hearts (photo) SELECT i % 3 FROM generate_series(1, 30) i;
SELECT is(pg_typeof(likecount.attach('app.hearts', 'photo', 'fan', 'at'))::text, 'void', 'attach() returns nothing');
SELECT is(app.objects('heart', 'hearted'), ARRAY[
    'likecount.heart(bigint,uuid)', 'likecount.heart_count(bigint)', 'likecount.heart_count_now(bigint)', 'likecount.heart_counts(bigint[])', 'likecount.heart_many(bigint[],uuid[])',
    'likecount.heart_rows', 'likecount.heart_slots', 'likecount.heart_totals', 'likecount.hearted(bigint,uuid)', 'likecount.hearted_posts(uuid,bigint[])',
    'likecount.unheart(bigint,uuid)'], 'everything is made for a table with users; integers take bigint');
SELECT results_eq($$SELECT attname::text COLLATE "default", format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attrelid = 'likecount.heart_slots'::regclass AND attnum > 0$$,
    $$VALUES ('post', 'integer', true), ('node', 'smallint', true), ('slot', 'smallint', true), ('value', 'bigint', true), ('updated_at', 'timestamp with time zone', true)$$,
    'slots have the key type of the table');
SELECT col_is_pk('likecount', 'heart_slots', ARRAY['post', 'node', 'slot'], 'and their key');
SELECT is((SELECT reloptions FROM pg_class WHERE oid = 'likecount.heart_slots'::regclass), '{fillfactor=70}', 'room for updates in place');
SELECT is((SELECT reloptions FROM pg_class WHERE oid = 'likecount.heart_rows'::regclass), '{security_invoker=true}', 'the rows view has the rights of the reader');
SELECT is(btrim(regexp_replace(regexp_replace(pg_get_viewdef('likecount.heart_rows'), '\s+', ' ', 'g'), '\ms\.', '', 'g')),
    'SELECT photo AS post_id, fan AS user_id, at AS liked_at FROM ONLY app.hearts s;', 'the rows view is the definition');
SELECT is(btrim(regexp_replace(regexp_replace(pg_get_viewdef('likecount.heart_totals'), '\s+', ' ', 'g'), '\ms\.', '', 'g')),
    'SELECT post AS post_id, (sum(value))::bigint AS total FROM likecount.heart_slots s GROUP BY post;', 'totals are the sums of slots');
SELECT is((SELECT array_agg(pg_get_triggerdef(oid) COLLATE "default" ORDER BY tgname) FROM pg_trigger WHERE tgrelid = 'app.hearts'::regclass), ARRAY[
    'CREATE TRIGGER heart_capture_del AFTER DELETE ON app.hearts FOR EACH ROW EXECUTE FUNCTION likecount._capture(''heart'', ''hearted'', ''queued'')',
    'CREATE TRIGGER heart_capture_ins AFTER INSERT ON app.hearts FOR EACH ROW EXECUTE FUNCTION likecount._capture(''heart'', ''hearted'', ''queued'')',
    'CREATE TRIGGER heart_capture_trunc AFTER TRUNCATE ON app.hearts FOR EACH STATEMENT EXECUTE FUNCTION likecount._capture(''heart'', ''hearted'', ''queued'')',
    'CREATE TRIGGER heart_capture_upd AFTER UPDATE ON app.hearts FOR EACH ROW WHEN (((old.photo IS DISTINCT FROM new.photo) OR (old.at IS DISTINCT FROM new.at))) EXECUTE FUNCTION likecount._capture(''heart'', ''hearted'', ''queued'')'],
    'the capture triggers');
SELECT is((SELECT array_agg(DISTINCT tgenabled::text) FROM pg_trigger WHERE tgrelid = 'app.hearts'::regclass), '{O}', 'replicated rows are not captured by default');
SELECT is((SELECT ROW(verb, past, rows_view, direct_since, state, reason, home_system, home_database, version = extversion)::text FROM likecount._counter, pg_extension WHERE extname = 'likecount'),
    '(heart,hearted,likecount.heart_rows,,backfilling,attached,,,t)', 'the registration');
SELECT is((SELECT array_agg(ROW(proname, provolatile, proparallel, prosecdef, proisstrict, proconfig, prosqlbody IS NOT NULL)::text ORDER BY proname)
    FROM pg_proc p WHERE pronamespace = 'likecount'::regnamespace AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql')), ARRAY[
    '(heart,v,u,f,f,,t)', '(heart_count,s,s,f,f,,t)', '(heart_count_now,v,r,f,f,,t)', '(heart_counts,s,s,f,f,,t)', '(heart_many,v,u,f,f,,t)', '(hearted,s,r,f,f,,t)', '(hearted_posts,s,r,f,f,,t)',
    '(unheart,v,u,f,f,,t)'], 'attributes of the functions');
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT * FROM likecount.heart_totals ORDER BY 1', 'VALUES (0, 10::bigint), (1, 10), (2, 10)', 'rows that were there are counted');
SELECT is((SELECT state FROM likecount._counter), 'active', 'and then the counter is active');
INSERT INTO app.hearts (photo) VALUES (7), (7), (8);
DELETE FROM app.hearts WHERE photo = 8;
UPDATE app.hearts SET photo = 9 WHERE photo = 2;
UPDATE app.hearts SET note = 'x';
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT likecount.heart_count(post) FROM unnest(ARRAY[0, 2, 7, 8, 9]) post', ARRAY[10, 0, 2, 0, 10]::bigint[], 'and rows that come, go and move');

-- without users: rows are counted
CREATE TABLE app.replies (id bigserial PRIMARY KEY, post text COLLATE "C" NOT NULL, body text);
SELECT likecount.attach('app.replies', 'post') \g /dev/null
SELECT is(app.objects('reply', 'replyed'), ARRAY['likecount.reply_count(text)', 'likecount.reply_count_now(text)', 'likecount.reply_counts(text[])', 'likecount.reply_rows', 'likecount.reply_slots', 'likecount.reply_totals'],
    'without users there are counts and totals only');
SELECT is((SELECT collname::text FROM pg_attribute a JOIN pg_collation c ON c.oid = attcollation WHERE attrelid = 'likecount.reply_slots'::regclass AND attnum = 1), 'C', 'slots have the collation of the column');
SELECT is((SELECT count(*) FROM pg_attribute WHERE attrelid = 'likecount.reply_rows'::regclass AND attnum > 0), 1::bigint, 'the rows view has the post alone');
INSERT INTO app.replies (post) VALUES ('a'), ('a'), ('b');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.reply_count('a'), 2::bigint, 'replies are counted');

-- a condition
CREATE TYPE app.kind AS ENUM ('love', 'laugh');
CREATE TABLE app.reactions (post bigint NOT NULL, who bigint NOT NULL, kind app.kind NOT NULL, deleted_at timestamptz);
CREATE UNIQUE INDEX ON app.reactions (who, post) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX ON app.reactions (post, who) WHERE kind = 'love' AND deleted_at IS NULL;
SELECT likecount.attach('app.reactions', 'post', 'who', verb => 'love', only_where => 'deleted_at is null and kind = ''love''', past => 'loved') \g /dev/null
SELECT is(app.objects('love', 'loved'), ARRAY['likecount.love_count(bigint)', 'likecount.love_count_now(bigint)', 'likecount.love_counts(bigint[])', 'likecount.love_rows', 'likecount.love_slots', 'likecount.love_totals',
    'likecount.loved(bigint,bigint)', 'likecount.loved_posts(bigint,bigint[])'], 'with a condition there are no writing functions');
SELECT alike(pg_get_triggerdef(oid), '%WHEN (((old.post IS DISTINCT FROM new.post) OR (((old.deleted_at IS NULL) AND (old.kind = ''love''::app.kind)) IS DISTINCT FROM ((new.deleted_at IS NULL) AND (new.kind = ''love''::app.kind))))) EXECUTE %',
    'an update that moves a row in or out of the condition is captured') FROM pg_trigger WHERE tgrelid = 'app.reactions'::regclass AND tgname = 'love_capture_upd';
INSERT INTO app.reactions VALUES (1, 1, 'love', NULL), (1, 2, 'laugh', NULL), (1, 3, 'love', now()), (1, 4, 'love', NULL);
UPDATE app.reactions SET deleted_at = now() WHERE who = 1;
UPDATE app.reactions SET deleted_at = NULL WHERE who = 3;
UPDATE app.reactions SET kind = 'love' WHERE who = 2;
DELETE FROM app.reactions WHERE who IN (1, 4);
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.love_count(1), 2::bigint, 'rows are counted while the condition holds');
SELECT is(likecount.loved(1, 1), false, 'loved() has the condition, too');
SELECT is(likecount.loved(1, 2), true, 'loved(): true');

-- several counters of one table
SELECT likecount.attach('app.reactions', 'post', verb => 'laugh', only_where => $$kind = 'laugh'$$) \g /dev/null
SELECT likecount.attach('app.reactions', 'who', verb => 'activity', past => 'active') \g /dev/null
INSERT INTO app.reactions VALUES (2, 1, 'laugh', NULL), (2, 2, 'laugh', NULL), (2, 3, 'love', NULL);
SELECT likecount.flush() \g /dev/null
SELECT is(ARRAY[likecount.love_count(2), likecount.laugh_count(2), likecount.activity_count(3)], ARRAY[1, 2, 2]::bigint[], 'a table can have several counters');

-- what like() can fill in decides whether it exists
CREATE DOMAIN app.mood AS text NOT NULL;
CREATE DOMAIN app.mild AS app.mood DEFAULT 'mild';
CREATE TABLE app.a_likes (p bigint, u bigint, needed text NOT NULL, PRIMARY KEY (p, u));
CREATE TABLE app.b_likes (p bigint, u bigint, needed app.mood, PRIMARY KEY (p, u));
CREATE TABLE app.c_likes (p bigint, u bigint GENERATED ALWAYS AS (p + 1) STORED, PRIMARY KEY (p, u));
CREATE TABLE app.d_likes (p bigint GENERATED ALWAYS AS IDENTITY, u bigint, PRIMARY KEY (p, u));
CREATE TABLE app.e_likes (p bigint, u bigint, i int GENERATED BY DEFAULT AS IDENTITY, a int GENERATED ALWAYS AS IDENTITY, g int NOT NULL GENERATED ALWAYS AS (1) STORED, d app.mild, n int NOT NULL DEFAULT 1, x text, PRIMARY KEY (p, u));
SELECT likecount.attach(format('app.%s_likes', t)::regclass, 'p', 'u', verb => t || 'like') FROM unnest(ARRAY['a', 'b', 'c', 'd', 'e']) t \g /dev/null
SELECT is((SELECT string_agg(proname, ' ' ORDER BY proname) FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace AND proname ~ '^[a-e]like(_many)?$'),
    'elike elike_many', 'a column that needs a value, or a key that takes none: no like(), no like_many()');
SELECT is((SELECT string_agg(proname, ' ' ORDER BY proname) FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace AND proname ~ '^un[a-e]like$'),
    'unalike unblike unclike undlike unelike', 'unlike() needs no new row');
SELECT is(likecount.elike(1, 1), true, 'everything else is filled in');

-- types of keys and time
CREATE TABLE app.types (s smallint DEFAULT 0, v varchar(20) COLLATE "POSIX" DEFAULT '', u uuid DEFAULT gen_random_uuid(), t text DEFAULT '', d date, ts timestamp, PRIMARY KEY (s, v), UNIQUE (u, t));
ALTER TABLE app.types ALTER u SET NOT NULL, ALTER t SET NOT NULL;
SELECT likecount.attach('app.types', 's', 'v', 'd', verb => 'ta') \g /dev/null
SELECT likecount.attach('app.types', 'v', 's', 'ts', verb => 'tb') \g /dev/null
SELECT likecount.attach('app.types', 'u', 't', verb => 'tc') \g /dev/null
SELECT is((SELECT string_agg(p.oid::regprocedure::text, ' ' ORDER BY proname COLLATE "C") FROM pg_proc p WHERE pronamespace = 'likecount'::regnamespace AND proname IN ('ta_counts', 'tb', 'tb_many', 'tc')),
    'likecount.ta_counts(bigint[]) likecount.tb(text,bigint) likecount.tb_many(text[],bigint[]) likecount.tc(uuid,text)', 'functions for every type of key');
SELECT is((SELECT string_agg(format_type(atttypid, atttypmod) || coalesce(' ' || nullif(collname, 'default'), ''), ', ' ORDER BY attrelid::regclass::text COLLATE "C")
    FROM pg_attribute LEFT JOIN pg_collation c ON c.oid = attcollation WHERE attnum = 1 AND attrelid = ANY (ARRAY['likecount.ta_slots', 'likecount.tb_slots', 'likecount.tc_slots']::regclass[])),
    'smallint, character varying POSIX, uuid', 'slots of every type of key');

-- partitions
CREATE TABLE app.parts (u bigint, p bigint, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (p, u)) PARTITION BY HASH (p);
CREATE TABLE app.parts_0 PARTITION OF app.parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE app.parts_1 (at timestamptz NOT NULL DEFAULT now(), gone int, p bigint NOT NULL, u bigint NOT NULL);
ALTER TABLE app.parts_1 DROP COLUMN gone;
ALTER TABLE app.parts ATTACH PARTITION app.parts_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO app.parts SELECT u, p FROM generate_series(1, 3) u, generate_series(1, 4) p;
SELECT likecount.attach('app.parts', 'p', 'u', 'at', verb => 'part', count_replicated => true, only_where => 'u < 3') \g /dev/null
SELECT is(btrim(regexp_replace(regexp_replace(pg_get_viewdef('likecount.part_rows'), '\s+', ' ', 'g'), '\ms\.', '', 'g')),
    'SELECT p AS post_id, u AS user_id, at AS liked_at FROM app.parts s WHERE (u < 3);', 'a partitioned table is counted with its partitions');
SELECT is((SELECT array_agg(format('%s %s', tgenabled, n) ORDER BY r) FROM (SELECT tgrelid::regclass::text COLLATE "C", tgenabled, count(*) FROM pg_trigger
    WHERE tgrelid = ANY (ARRAY['app.parts', 'app.parts_0', 'app.parts_1']::regclass[]) GROUP BY 1, 2) AS s (r, tgenabled, n)),
    '{A 4,A 3,A 3}', 'count_replicated: the triggers fire always, on partitions too');
INSERT INTO app.parts VALUES (8, 1), (0, 1), (0, 2), (0, 3);
INSERT INTO app.parts_1 (p, u) SELECT p, -1 FROM app.parts_1 GROUP BY p;
UPDATE app.parts SET p = p + 100 WHERE p = 4;
DELETE FROM app.parts WHERE u = 2;
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT post_id, total FROM likecount.part_totals WHERE total <> 0 ORDER BY 1',
    'SELECT p, count(*) FROM app.parts WHERE u < 3 GROUP BY p ORDER BY 1', 'and exactly, with columns in another order');
INSERT INTO app.parts VALUES (1, 777);
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.part_count(777), 1::bigint, 'a new post');

-- if_not_exists
SELECT lives_ok($$SELECT likecount.attach('app.parts', 'p', 'u', verb => 'part', if_not_exists => true)$$, 'if_not_exists');
SELECT is((SELECT count(*) FROM likecount._counter WHERE verb = 'part'), 1::bigint, 'changes nothing');
SELECT lives_ok($$SELECT likecount.attach('app.hearts', 'photo', if_not_exists => true)$$, 'with a derived verb, too');
SELECT throws_ok($$SELECT likecount.attach('app.parts', 'p', 'u', verb => 'heart', if_not_exists => true)$$, '42710', 'verb "heart" is in use', 'but a verb of another table is an error');

-- nothing is a member, everything belongs to the extension's owner, everything is described
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p, pg_extension e WHERE pronamespace = 'likecount'::regnamespace AND extname = 'likecount'
    AND (proowner <> extowner OR (prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql') AND EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e')))$$, 'functions are no members');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c, pg_extension e WHERE relnamespace = 'likecount'::regnamespace AND extname = 'likecount' AND relkind IN ('r', 'v')
    AND (relowner <> extowner OR (relname ~ '_(rows|slots|totals)$' AND EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e')))$$, 'nor are slots and views');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = 'likecount'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL AND proname !~ '^_'
    UNION ALL SELECT NULL FROM pg_class c WHERE relnamespace = 'likecount'::regnamespace AND relname ~ '_(rows|slots|totals)$' AND relkind IN ('r', 'v') AND obj_description(c.oid, 'pg_class') IS NULL
    UNION ALL SELECT NULL FROM pg_trigger WHERE tgfoid = 'likecount._capture'::regproc AND tgparentid = 0 AND obj_description(oid, 'pg_trigger') IS NULL$$, 'each has a comment');
SELECT is_empty($$SELECT proname FROM pg_proc p WHERE pronamespace = 'likecount'::regnamespace GROUP BY 1 HAVING count(*) > 1
    AND NOT bool_and(EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e'))$$, 'no generated name has two functions');

SELECT * FROM finish();
ROLLBACK;
