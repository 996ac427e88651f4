-- Verbs: derived, given, refused.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
BEGIN;
SET LOCAL client_min_messages = warning;
-- what other tests left of counters whose tables are gone
SELECT likecount.flush() \g /dev/null
SELECT plan(87);

CREATE SCHEMA app;
CREATE FUNCTION app.try("table" text, verb text DEFAULT NULL, past text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('CREATE TABLE app.%I (p bigint, u bigint, PRIMARY KEY (p, u))', "table");
    PERFORM likecount.attach(format('app.%I', "table")::regclass, 'p', 'u', verb => verb, past => past);
    SELECT c.verb || ' ' || c.past INTO result FROM likecount._counter c ORDER BY id DESC LIMIT 1;
    RAISE EXCEPTION USING MESSAGE = result, ERRCODE = 'P0002';
EXCEPTION
    WHEN OTHERS THEN RETURN CASE SQLSTATE WHEN 'P0002' THEN SQLERRM ELSE SQLSTATE || ' ' || SQLERRM END;
END $$;

-- -ies -> -y, else one s, unless -ss or -us; past: e -> +d, else +ed
SELECT is(app.try(t), want, format('table "%s"', t)) FROM (VALUES
    ('likes', 'like liked'), ('replies', 'reply replyed'), ('tags', 'tag taged'), ('passes', 'passe passed'), ('press', 'press pressed'),
    ('status_', 'status_ status_ed'), ('bonus', 'bonus bonused'), ('repost', 'repost reposted'), ('s', 's sed'), ('ies', 'ie ied'), ('_likes', '_like _liked'), ('votes2', 'votes2 votes2ed'),
    (repeat('v', 48) || 's', repeat('v', 48) || ' ' || repeat('v', 48) || 'ed')) AS v (t, want);
SELECT is(app.try('likes', 'heart'), 'heart hearted', 'a given verb');
SELECT is(app.try('likes', 'tag', 'tagged'), 'tag tagged', 'a given past form');
SELECT is(app.try('likes', NULL, 'fancied'), 'like fancied', 'a derived verb with a given past form');
SELECT is(app.try('likes', repeat('v', 47) || 'e'), repeat('v', 47) || 'e ' || repeat('v', 47) || 'ed', '48 bytes');
SELECT is(app.try('likes', verb), verb || ' ' || regexp_replace(verb, 'e$', '') || 'ed', format('"%s" is a word of SQL, and fine', verb)) FROM unnest(ARRAY['select', 'user', 'table', 'join', 'sum_']) verb;

-- ill-formed
SELECT is(app.try('likes', verb), format('42602 verb "%s" is not a valid name', verb), format('"%s"', verb))
  FROM unnest(ARRAY['', 'Like', 'l-ike', '1like', 'li ke', 'like"', 'lïke', 'a.b', E'like\n', 'like;drop']) verb;
SELECT is(app.try('likes', 'like', past), format('42602 past form "%s" is not a valid name', past), format('past form "%s"', past)) FROM unnest(ARRAY['', 'Liked', '2d']) past;
SELECT is(app.try('Likes'), '42602 no verb can be derived from the table name "Likes"', 'a table whose name gives no verb');
SELECT is(app.try('my likes'), '42602 no verb can be derived from the table name "my likes"', 'another');
SELECT is(app.try(repeat('v', 49)), format('42602 no verb can be derived from the table name "%s"', repeat('v', 49)), 'a table with a long name');
SELECT is(app.try('likes', repeat('v', 49)), format('42622 verb "%s" is too long', repeat('v', 49)), '49 bytes');
SELECT is(app.try('likes', 'like', repeat('v', 51)), format('42622 past form "%s" is too long', repeat('v', 51)), 'a long past form');

-- reserved: every public name, present and planned
SELECT is(app.try('likes', verb), format('42939 verb "%s" is reserved', verb), format('"%s" is reserved', verb)) FROM unnest(ARRAY[
    'attach', 'detach', 'create_counter', 'flush', 'reconcile', 'reconcile_recent', 'reconcile_all', 'check', 'freeze', 'unfreeze', 'set_mode', 'forget', 'version', 'lag', 'reset_stats',
    'counters', 'counter', 'status', 'pending', 'progress', 'rejected', 'settle', 'mirror', 'bump', 'post_totals', 'abbreviate', 'top', 'count']) verb;
CREATE TEMP TABLE names AS SELECT proname::text AS name FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace
    UNION SELECT relname::text FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relkind IN ('r', 'v', 'S');
SELECT is_empty($$SELECT name FROM names WHERE name !~ '^_' AND app.try('likes', name) NOT LIKE '42939 %'$$, 'every public object of the extension is on the list');
SELECT is_empty($$SELECT name FROM names WHERE name ~ '^_' AND app.try('likes', name) !~ '^(42939|42710) '$$, 'and no name of a private one can be taken');
SELECT is(app.try('counts'), '42939 verb "count" is reserved', 'also when it is derived');
SELECT is(app.try('likes', 'like', 'settle'), '42939 verb "like" with past form "settle" needs the reserved name "settle"', 'a reserved past form');
SELECT is(app.try('likes', 'post', 'posted'), '42939 verb "post" with past form "posted" needs the reserved name "post_counts"', 'a verb whose functions are reserved');
SELECT is(app.try('likes', 'like', 'like'), '42602 verb "like" with past form "like" needs the name "like" twice', 'no overload of its own');
SELECT is(app.try('likes', 'like', 'like_count'), '42602 verb "like" with past form "like_count" needs the name "like_count" twice', 'nor another');

-- in use, or planned, by a counter
CREATE TABLE app.hearts (p bigint, u bigint, PRIMARY KEY (p, u));
SELECT likecount.attach('app.hearts', 'p', verb => 'like', past => 'liked') \g /dev/null
SELECT is(app.try('likes'), '42710 verb "like" is in use', 'a verb in use');
SELECT is(app.try('likes', 'liked'), '42710 verb "liked" cannot be used: name "liked" belongs to counter "like"', 'a verb that is the past form of another, although it does not exist');
SELECT is(app.try('likes', 'unlike'), '42710 verb "unlike" cannot be used: name "unlike" belongs to counter "like"', 'a verb that is the opposite of another');
SELECT is(app.try('likes', 'like_count_now'), '42710 verb "like_count_now" cannot be used: name "like_count_now" belongs to counter "like"', 'a planned name');
SELECT is(app.try('likes', 'vote', 'unlike'), '42710 verb "vote" cannot be used: name "unlike" belongs to counter "like"', 'a past form');
SELECT is(app.try('likes', 'repost', 'reposted'), 'repost reposted', 'others are free');
-- in use by whatever else stands in the schema
CREATE FUNCTION likecount.unvote(text, text, text) RETURNS int LANGUAGE sql RETURN 1;
SELECT is(app.try('votes'), '42710 verb "vote" cannot be used: function likecount.unvote exists already', 'a function, whatever its arguments');
DROP FUNCTION likecount.unvote;
CREATE FUNCTION likecount.vote_count_now() RETURNS int LANGUAGE sql RETURN 1;
SELECT is(app.try('votes'), '42710 verb "vote" cannot be used: function likecount.vote_count_now exists already', 'of a planned name, too');
DROP FUNCTION likecount.vote_count_now;
CREATE VIEW likecount.vote_totals AS SELECT 1;
SELECT is(app.try('votes'), '42710 verb "vote" cannot be used: relation likecount.vote_totals exists already', 'a relation');
DROP VIEW likecount.vote_totals;
CREATE TYPE likecount.vote_rows AS ENUM ();
SELECT is(app.try('votes'), '42710 verb "vote" cannot be used: type likecount.vote_rows exists already', 'a type');
DROP TYPE likecount.vote_rows;
SELECT is(app.try('votes'), 'vote voted', 'and then it is free');
SELECT is((SELECT count(*) FROM likecount._counter), 1::bigint, 'whatever was refused left nothing');

SELECT * FROM finish();
ROLLBACK;
