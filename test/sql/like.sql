-- like, unlike, liked, like_count: what they return and what they refuse.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
BEGIN;
SELECT plan(64);

CREATE SCHEMA app;
SELECT likecount.create_counter('app.likes') \g /dev/null

-- what the calls return, and that the row is there
SELECT is(likecount.like(1, 10), true, 'the first like is recorded');
SELECT is(likecount.like(1, 10), false, 'the same like again is not');
SELECT is(likecount.like(post_id => 1, user_id => 11), true, 'arguments can be named');
SELECT is(count(*), 2::bigint, 'one row for each user who likes') FROM app.likes;
SELECT is(likecount.liked(1, 10), true, 'liked() sees the like');
SELECT is(likecount.liked(1, 99), false, 'liked() of another user is false');
SELECT is(likecount.liked(99, 10), false, 'liked() of another post is false');
SELECT is(likecount.unlike(1, 11), true, 'unlike() removes a like');
SELECT is(likecount.unlike(1, 11), false, 'unlike() again removes nothing');
SELECT is(likecount.unlike(2, 10), false, 'unlike() of what was never liked removes nothing');

-- totals
SELECT is(likecount.like_count(1), 0::bigint, 'the total follows with the flush');
SELECT ok(likecount.flush() > 0, 'flush() moves the deltas of its own transaction');
SELECT is(likecount.like_count(1), 1::bigint, 'then the total is exact');
SELECT is((SELECT total FROM likecount.like_totals WHERE post_id = 1), 1::bigint, 'and the view agrees');
SELECT is(likecount.like_count(404), 0::bigint, 'the total of an unknown post is 0');
SELECT is(likecount.like_count(-1), 0::bigint, 'whatever its number');
SELECT is(likecount.like_count(NULL), NULL, 'the total of NULL is NULL');

-- an unlike changes the total only when a row went away; the count never passes below 0
SELECT likecount.unlike(1, n) FROM generate_series(1, 50) n \g /dev/null
SELECT likecount.like(1, 10), likecount.unlike(1, 10), likecount.unlike(1, 10) \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(1), (SELECT count(*) FROM app.likes WHERE post_id = 1), 'unlikes of nothing change nothing');
SELECT is(likecount.like_count(1), 0::bigint, 'and do not take the total below 0');

-- one statement, many likes; from other functions
SELECT is(count(*) FILTER (WHERE likecount.like(3, n % 7)), 7::bigint, 'in one statement too, only the first like of a user counts')
  FROM generate_series(1, 100) n;
DO $$ BEGIN PERFORM likecount.like(3, 100); PERFORM likecount.like(3, 101); END $$;
CREATE FUNCTION app.tap(post bigint) RETURNS boolean LANGUAGE sql AS 'SELECT likecount.like(post, 102)';
SELECT is(app.tap(3), true, 'from within an SQL function');
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(3), 10::bigint, 'the total has them all');

-- savepoints and exception blocks
SAVEPOINT s;
SELECT likecount.like(4, 1) \g /dev/null
ROLLBACK TO s;
SELECT likecount.like(4, 2) \g /dev/null
DO $$
BEGIN
    PERFORM likecount.like(4, 3);
    RAISE EXCEPTION 'no';
EXCEPTION WHEN raise_exception THEN
    PERFORM likecount.like(4, 4);
END $$;
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(4), 2::bigint, 'what was rolled back is not counted');

-- null arguments
SELECT throws_ok('SELECT likecount.like(NULL, 1)', '22004', 'argument "post_id" of likecount.like() must not be null', 'like() wants a post');
SELECT throws_ok('SELECT likecount.like(1, NULL)', '22004', 'argument "user_id" of likecount.like() must not be null', 'like() wants a user');
SELECT throws_ok('SELECT likecount.unlike(NULL, 1)', '22004', 'argument "post_id" of likecount.unlike() must not be null', 'unlike() wants a post');
SELECT throws_ok('SELECT likecount.unlike(1, NULL)', '22004', 'argument "user_id" of likecount.unlike() must not be null', 'unlike() wants a user');
SELECT throws_ok('SELECT likecount.liked(NULL, 1)', '22004', 'argument "post_id" of likecount.liked() must not be null', 'liked() wants a post');
SELECT throws_ok('SELECT likecount.liked(1, NULL)', '22004', 'argument "user_id" of likecount.liked() must not be null', 'liked() wants a user');

-- a constraint, a trigger and a default of the table act as with a plain INSERT
ALTER TABLE app.likes ADD CONSTRAINT unlucky CHECK (user_id <> 13);
ALTER TABLE app.likes ADD COLUMN note text DEFAULT 'by default';
CREATE FUNCTION app.keep_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.user_id = 666 THEN RETURN NULL; END IF; RETURN NEW; END $$;
CREATE TRIGGER keep_out BEFORE INSERT ON app.likes FOR EACH ROW EXECUTE FUNCTION app.keep_out();
SELECT throws_ok('SELECT likecount.like(5, 13)', '23514', NULL, 'a check constraint holds');
SELECT is(likecount.like(5, 666), false, 'a like that a trigger keeps out is not recorded');
SELECT is(likecount.like(5, 7), true, 'another is');
SELECT is(note, 'by default', 'with the columns'' defaults') FROM app.likes WHERE post_id = 5;
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(5), 1::bigint, 'and only that one is counted');

-- a like from within a like, which also makes the outer one's plan stale while it runs
CREATE FUNCTION app.echo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.post_id < 1000 THEN
        CREATE SCHEMA meanwhile;
        PERFORM likecount.like(NEW.post_id + 1000, NEW.user_id);
        DROP SCHEMA meanwhile;
        PERFORM likecount.like(NEW.post_id + 2000, NEW.user_id);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER echo AFTER INSERT ON app.likes FOR EACH ROW EXECUTE FUNCTION app.echo();
SELECT is(likecount.like(6, 1), true, 'a trigger that likes');
SELECT is(likecount.like(7, 1), true, 'once more');
SELECT likecount.unlike(7, 1) \g /dev/null
SELECT likecount.flush() \g /dev/null
SELECT results_eq('SELECT total FROM likecount.like_counts(ARRAY[6, 1006, 2006, 7, 1007, 2007])', 'VALUES (1::bigint), (1), (1), (0), (1), (1)', 'each like is counted');
DROP TRIGGER echo ON app.likes;
DROP TRIGGER keep_out ON app.likes;

-- the kept plans follow renames, one by one
CREATE FUNCTION pg_temp.calls(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN NEXT is(likecount.like(7, 1), true, what || ': like()');
    RETURN NEXT is(likecount.like_many(ARRAY[7, 7], ARRAY[1, 2]), 1::bigint, what || ': like_many()');
    RETURN NEXT set_eq('SELECT * FROM likecount.liked_posts(1, ARRAY[7, 8])', ARRAY[7::bigint], what || ': liked_posts()');
    RETURN NEXT is(likecount.liked(7, 2), true, what || ': liked()');
    RETURN NEXT is(likecount.unlike(7, 1) AND likecount.unlike(7, 2), true, what || ': unlike()');
END $$;
SELECT pg_temp.calls('as it was');
ALTER TABLE app.likes RENAME TO hearts;
SELECT pg_temp.calls('table renamed');
ALTER TABLE app.hearts RENAME COLUMN post_id TO "the article";
ALTER TABLE app.hearts RENAME COLUMN user_id TO "user";
SELECT pg_temp.calls('columns renamed');
ALTER SCHEMA app RENAME TO site;
SELECT pg_temp.calls('schema renamed');
CREATE SCHEMA "new site";
ALTER TABLE site.hearts SET SCHEMA "new site";
SELECT pg_temp.calls('moved to another schema');

-- another table that takes over the name is not the counter's
CREATE TABLE site.hearts (LIKE "new site".hearts);
SELECT is(likecount.like(8, 1), true, 'a table of the old name');
SELECT is((SELECT count(*) FROM site.hearts), 0::bigint, 'gets no rows');

SELECT * FROM finish();
ROLLBACK;
