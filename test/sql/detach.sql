-- detach(): drops what attach() made, and nothing else.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
BEGIN;
SET LOCAL client_min_messages = warning;
-- what other tests left of counters whose tables are gone
SELECT likecount.flush() \g /dev/null
SELECT plan(31);

CREATE ROLE lc_owner;
CREATE ROLE lc_other;
GRANT USAGE ON SCHEMA likecount TO lc_owner, lc_other;
CREATE SCHEMA app AUTHORIZATION lc_owner;
GRANT USAGE ON SCHEMA app TO lc_other;
GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA pg_temp TO PUBLIC;
-- everything that must be the same before and after
CREATE FUNCTION public.world() RETURNS TABLE (kind text, object text) LANGUAGE sql AS $$
    SELECT 'function', p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'likecount'::regnamespace
    UNION ALL SELECT 'relation', c.oid::regclass::text FROM pg_class c WHERE relnamespace IN ('likecount'::regnamespace, 'app'::regnamespace)
    UNION ALL SELECT 'trigger', tgname::text FROM pg_trigger WHERE tgrelid::regclass::text LIKE 'app.%'
    UNION ALL SELECT 'type', t.oid::regtype::text FROM pg_type t WHERE typnamespace = 'likecount'::regnamespace
    UNION ALL SELECT 'state', id::text FROM likecount._counter
    UNION ALL SELECT 'sentinel', counter::text FROM likecount._sentinel $$;

SET LOCAL ROLE lc_owner;
CREATE TABLE app.likes (p bigint, u bigint, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (p, u));
CREATE TABLE app.parts (p bigint, u bigint, PRIMARY KEY (p, u)) PARTITION BY LIST (p);
CREATE TABLE app.part_1 PARTITION OF app.parts FOR VALUES IN (1);
CREATE TABLE app.plain (p bigint NOT NULL);
RESET ROLE;
CREATE TEMP TABLE before AS SELECT * FROM world();
GRANT SELECT ON pg_temp.before TO PUBLIC;
SET LOCAL ROLE lc_owner;
SELECT likecount.attach('app.likes', 'p', 'u', 'at') \g /dev/null
SELECT likecount.attach('app.parts', 'p', 'u') \g /dev/null
INSERT INTO app.likes VALUES (1, 1), (1, 2);
INSERT INTO app.parts VALUES (1, 1);
RESET ROLE;
SELECT likecount.flush() \g /dev/null
SELECT ok((SELECT count(*) > 20 FROM (SELECT * FROM world() EXCEPT SELECT * FROM before) s), 'there is something to drop');
SET LOCAL ROLE lc_owner;
INSERT INTO app.likes VALUES (1, 3);
SELECT is(pg_typeof(likecount.detach('app.likes'))::text, 'void', 'the owner detaches');
SELECT lives_ok($$SELECT likecount.detach('app.parts', 'part')$$, 'a partitioned table, by its verb');
RESET ROLE;
SELECT likecount.flush() \g /dev/null
SELECT is_empty('SELECT * FROM world() EXCEPT SELECT * FROM before', 'everything is gone');
SELECT is_empty('SELECT * FROM before EXCEPT SELECT * FROM world()', 'nothing else is');
SELECT is((SELECT count(*) FROM app.likes), 3::bigint, 'the rows stay');
INSERT INTO app.likes VALUES (2, 1);
SELECT lives_ok('SELECT likecount.flush()', 'nobody misses the counter');
SELECT lives_ok($$SELECT likecount.attach('app.likes', 'p', 'u', 'at')$$, 'it can be attached again');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(1), 3::bigint, 'and counts anew');

-- arguments
SELECT throws_ok('SELECT likecount.detach(NULL)', '22004', 'argument "source" of likecount.detach() must not be null', 'no table');
SELECT throws_ok($$SELECT likecount.detach('app.likes', if_exists => NULL)$$, '22004', 'argument "if_exists" of likecount.detach() must not be null', 'if_exists NULL');
SELECT throws_ok($$SELECT likecount.detach('app.likes', cascade => NULL)$$, '22004', 'argument "cascade" of likecount.detach() must not be null', 'cascade NULL');
SELECT throws_ok($$SELECT likecount.detach('app.missing')$$, '42P01', NULL, 'no such table');
SELECT throws_ok($$SELECT likecount.detach('app.plain')$$, '42704', 'table app.plain has no counter', 'a table without a counter');
SELECT lives_ok($$SELECT likecount.detach('app.plain', if_exists => true)$$, 'with if_exists');
SELECT throws_ok($$SELECT likecount.detach('app.likes', 'heart')$$, '42704', 'table app.likes has no counter "heart"', 'another verb');
SELECT lives_ok($$SELECT likecount.detach('app.likes', 'heart', if_exists => true)$$, 'with if_exists');
SELECT likecount.attach('app.likes', 'u', verb => 'fan') \g /dev/null
SELECT throws_ok($$SELECT likecount.detach('app.likes')$$, '42P08', 'table app.likes has more than one counter', 'two verbs: one is demanded');
SELECT throws_ok($$SELECT likecount.detach('app.likes', if_exists => true)$$, '42P08', 'table app.likes has more than one counter', 'with if_exists, too');
SELECT lives_ok($$SELECT likecount.detach('app.likes', 'fan')$$, 'one of two');
SELECT is((SELECT array_agg(verb::text) FROM likecount.counters), '{like}', 'the other stays');
SELECT is((SELECT count(*) FROM pg_trigger WHERE tgrelid = 'app.likes'::regclass), 4::bigint, 'with its triggers');

-- not the owner
SET LOCAL ROLE lc_other;
SELECT throws_ok($$SELECT likecount.detach('app.likes')$$, '42501', 'must be owner of table likes', 'somebody else');
SELECT throws_ok($$SELECT likecount.detach('app.plain', if_exists => true)$$, '42501', 'must be owner of table plain', 'whatever there is to detach');

-- somebody uses the totals
SET LOCAL ROLE lc_owner;
CREATE VIEW app.feed AS SELECT * FROM likecount.like_totals;
CREATE FUNCTION app.refused() RETURNS text LANGUAGE plpgsql AS $$
DECLARE d text; h text; BEGIN PERFORM likecount.detach('app.likes'); EXCEPTION WHEN dependent_objects_still_exist THEN GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT; RETURN d || ' ' || h; END $$;
SELECT is(app.refused(), 'view app.feed depends on view likecount.like_totals Pass cascade => true to drop the dependent objects too.', 'a view over the totals is in the way');
SELECT has_view('likecount', 'like_totals', 'nothing is dropped then');
SELECT lives_ok($$SELECT likecount.detach('app.likes', cascade => true)$$, 'cascade');
SELECT hasnt_view('app', 'feed', 'drops it');

-- in the transaction that liked
SELECT likecount.attach('app.likes', 'p', 'u', 'at') \g /dev/null
INSERT INTO app.likes VALUES (5, 5);
DELETE FROM app.likes WHERE p = 1;
SELECT lives_ok($$SELECT likecount.detach('app.likes')$$, 'deltas of this transaction are forgotten');
SELECT hasnt_table('likecount', 'like_slots', 'it is gone');
SELECT has_table('app', 'likes', 'the table stays');

SELECT * FROM finish();
ROLLBACK;
