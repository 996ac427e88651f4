-- only_where: what it may be, and everything that tries to be more.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
BEGIN;
SET LOCAL client_min_messages = warning;
-- what other tests left of counters whose tables are gone
SELECT likecount.flush() \g /dev/null
SET LOCAL datestyle = ISO;
SELECT plan(94);

CREATE ROLE lc_owner;
GRANT USAGE ON SCHEMA likecount TO lc_owner;
CREATE SCHEMA app AUTHORIZATION lc_owner;
GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA pg_temp TO PUBLIC;
SET LOCAL ROLE lc_owner;
SET LOCAL search_path = app, public, pg_temp;
CREATE TABLE secrets (id int);
CREATE TYPE kind AS ENUM ('love', 'laugh', 'angry');
CREATE DOMAIN weight AS int CHECK (VALUE > 0);
CREATE TYPE span AS RANGE (subtype = int4);
CREATE TYPE pair AS (a int, b int);
CREATE TABLE likes (p bigint NOT NULL, u bigint NOT NULL, "select" boolean, deleted_at timestamptz, on_date date, k kind, ks kind[], w weight, n int, t text, j jsonb, s span, pr pair, a int[],
    "we""ird" text, PRIMARY KEY (p, u));
CREATE FUNCTION try(condition text) RETURNS text LANGUAGE plpgsql SET client_min_messages = error AS $$
DECLARE
    state text; message text; detail text;
BEGIN
    PERFORM likecount.attach('app.likes', 'p', verb => 'like', only_where => condition);
    SET LOCAL search_path = pg_catalog;
    RAISE EXCEPTION USING MESSAGE = (SELECT regexp_replace(pg_get_viewdef('likecount.like_rows'), '.* WHERE\s+|;$|\ms\.', '', 'g')), ERRCODE = 'P0002';
EXCEPTION
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
        RETURN CASE state WHEN 'P0002' THEN message ELSE concat_ws(' | ', state, message, nullif(detail, '')) END;
END $$;
SET LOCAL search_path = app, public;
-- the owner needs to see the definition that it gets
SELECT is(app.try(given), got, given) FROM (VALUES
    ('deleted_at IS NULL', '(deleted_at IS NULL)'),
    ('"select"', '"select"'),
    ('not likes."select" and app.likes.n between 1 and 3', '((NOT "select") AND ((n >= 1) AND (n <= 3)))'),
    ('k = ''love''', '(k = ''love''::app.kind)'),
    ('k IN (''love'', ''laugh'')', '(k = ANY (ARRAY[''love''::app.kind, ''laugh''::app.kind]))'),
    ('k > ''love'' or ''angry'' = any (ks)', '((k > ''love''::app.kind) OR (''angry''::app.kind = ANY (ks)))'),
    ('w > 3', '((w)::integer > 3)'),
    ('j ->> ''a'' is distinct from ''b''', '((j ->> ''a''::text) IS DISTINCT FROM ''b''::text)'),
    ('lower(t) like ''a%''', '(lower(t) ~~ ''a%''::text)'),
    ('t collate "C" > ''a''', '((t COLLATE "C") > ''a''::text)'),
    ('case when n > 1 then "select" else coalesce(n, 0) = 0 end', E'CASE\n            WHEN (n > 1) THEN "select"\n            ELSE (COALESCE(n, 0) = 0)\n        END'),
    ('(p, u) < (1, 2)', '(ROW(p, u) < ROW(1, 2))'),
    ('a[1] = 1 and a && ''{1,2}''', '((a[1] = 1) AND (a && ''{1,2}''::integer[]))'),
    ('greatest(n, 1) = 1 and nullif(n, 2) is null', '((GREATEST(n, 1) = 1) AND (NULLIF(n, 2) IS NULL))'),
    ('on_date < ''2020-01-01'' and "select" is not true', '((on_date < ''2020-01-01''::date) AND ("select" IS NOT TRUE))'),
    ('"we""ird" = ''it''''s'' -- a comment', '("we""ird" = ''it''''s''::text)'),
    ('t = $q$; DROP TABLE app.likes; $q$', '(t = ''; DROP TABLE app.likes; ''::text)'),
    ('true', 'true'),
    ('null', 'NULL::boolean')) AS v (given, got);

-- not one expression
SELECT alike(app.try(given), want, format('"%s"', given)) FROM (VALUES
    ('', '42601 | %'), ('   ', '42601 | %'), ('deleted_at IS NULL; DROP TABLE app.likes', '42601 | syntax error%'), ('true) OR (true', '42601 | syntax error%'),
    ('true; ', '42601 | %'), ('n, p', '42601 | only_where must be one expression'), ('true AS x', '42601 | only_where must be one expression, without a name'), ('*', '42601 | only_where must be one expression, not *'),
    ('true FROM app.secrets', '42601 | only_where must be one expression'), ('true WHERE true', '42601 | only_where must be one expression'), ('true GROUP BY n', '42601 | only_where must be one expression'),
    ('true HAVING true', '42601 | only_where must be one expression'), ('DISTINCT true', '42601 | only_where must be one expression'), ('true ORDER BY 1', '42601 | only_where must be one expression'),
    ('true LIMIT 1', '42601 | only_where must be one expression'), ('true OFFSET 1', '42601 | only_where must be one expression'), ('true FOR UPDATE', '42601 | only_where must be one expression'),
    ('true WINDOW w AS ()', '42601 | only_where must be one expression'), ('true UNION SELECT true', '42601 | syntax error%'), ('SELECT true', '42601 | syntax error%'),
    ('/* true', '42601 | unterminated /* comment%'), ('''true', '42601 | unterminated quoted string%')) AS v (given, want);

-- not a condition over the row
SELECT alike(app.try(given), want, format('"%s"', given)) FROM (VALUES
    ('n', '42804 | argument of only_where must be type boolean, not type integer'), ('missing = 1', '42703 | column "missing" does not exist'), ('other.n = 1', '42P01 | missing FROM-clause entry%'),
    ('exists (select from app.secrets)', '0A000 | cannot use subquery%'), ('n = (select 1)', '0A000 | cannot use subquery%'), ('count(*) > 1', '42803 | aggregate functions are not allowed%'),
    ('rank() over () = 1', '42P20 | window functions are not allowed%'), ('generate_series(1, 2) = 1', '0A000 | set-returning functions are not allowed%'),
    ('$1 = 1', '42P02 | there is no parameter $1'), ('ctid = ''(0,1)''', '42P17 | only_where cannot use system columns'), ('tableoid = 1', '42P17 | only_where cannot use system columns'),
    ('likes is null', '42P17 | only_where cannot use a row as a whole'), ('likes.* is null', '42P17 | only_where cannot use a row as a whole')) AS v (given, want);

-- not immutable
SELECT is(app.try(given), '42P17 | functions and operators in only_where must be immutable | Whether a row counts may depend on nothing but the row.', format('"%s"', given)) FROM unnest(ARRAY[
    'deleted_at > now()', 'deleted_at > current_timestamp', 'deleted_at::date = ''2020-01-01''', 'random() < 0.5', 't = current_user', 'deleted_at::text = ''x''', 'on_date = current_date',
    'pg_sleep(1) is null', 'k::text = ''love''', 'nextval(''app.x'') = 1', 'lo_get(1) is null', 'current_setting(''x'') = ''1''', 'pg_try_advisory_lock(1)']) given WHERE given !~ 'nextval';

-- not built in: every road to code of the owner's
CREATE FUNCTION app.f(bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RAISE EXCEPTION ''ran as %'', current_user; END';
CREATE FUNCTION app.f2(bigint, bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RAISE EXCEPTION ''ran as %'', current_user; END';
CREATE FUNCTION app.to_kind(int) RETURNS app.kind LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RAISE EXCEPTION ''ran as %'', current_user; END';
CREATE FUNCTION app.abs(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RAISE EXCEPTION ''ran as %'', current_user; END';
CREATE FUNCTION pg_temp.g(bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE OPERATOR app.=== (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = app.f2);
CREATE OPERATOR app.==== (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = pg_catalog.int8eq);
CREATE CAST (int AS app.kind) WITH FUNCTION app.to_kind(int) AS IMPLICIT;
CREATE TABLE pg_temp.trap (x int);
SELECT alike(app.try(given), '42P17 | only_where may use built-in functions, operators, casts and types only | ' || want, format('"%s"', given)) FROM (VALUES
    ('app.f(p)', 'Function f is not built in.'), ('f(p)', 'Function f is not built in.'), ('pg_temp.g(p)', 'Function g is not built in.'), ('p operator(app.===) u', 'Operator === is not built in.'),
    ('p === u', 'Operator === is not built in.'), ('p ==== u', 'Operator ==== is not built in.'), ('p === any (array[1::bigint])', 'Operator === is not built in.'), ('not (n = 1 and f(p))', 'Function f is not built in.'),
    ('case when f(p) then true end', 'Function f is not built in.'), ('app.abs(p) = 1', 'Function abs is not built in.'), ('n::kind = ''love''', 'Function to_kind is not built in.'),
    ('n::weight > 1', 'Domain %weight is not built in.'), ('w = ''3''::weight', 'Domain %weight is not built in.'),
    ('s = ''[1,2)''', 'Type %span is not built in.'), ('s is null', 'Type %span is not built in.'), ('span(1, 2) is null', 'Function span is not built in.'), ('pr = row(1, 2)::pair', '%'),
    ('pr is null', 'Type %pair is not built in.')) AS v (given, want);
SELECT is(app.try('(pr).a = 1'), '42P17 | only_where contains a kind of expression that is not supported | Columns, constants, operators, functions, casts, CASE, COALESCE, NULLIF, GREATEST, LEAST, arrays and tests such as IS NULL are.', 'a field of a composite');
SELECT is(app.try('t is document') ~ '^42', true, 'XML');
-- a search_path that shadows built-ins does not get into the objects
SET LOCAL search_path = app, pg_catalog, public;
SELECT is(app.try('abs(p) = 1'), '42P17 | only_where may use built-in functions, operators, casts and types only | Function abs is not built in.', 'a shadowed function is seen');
SET LOCAL search_path = public;
SELECT is(app.try('abs(p) = 1'), '(abs(p) = 1)', 'and the built-in one stays built in');

-- constants of the owner's types are read as the owner
RESET ROLE;
SELECT is(app.try('n::app.weight > 1'), '42P17 | only_where may use built-in functions, operators, casts and types only | Domain app.weight is not built in.', 'for a superuser, too');
SELECT is((SELECT count(*) FROM likecount._counter), 0::bigint, 'nothing is left');
-- the position of an error is that in the condition
CREATE FUNCTION app.context(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE context text; BEGIN PERFORM likecount.attach('app.likes', 'p', verb => 'like', only_where => condition); EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT; RETURN context; END $$;
SELECT alike(app.context('n = = 1'), 'argument only_where%', 'an error names its place');

-- changes of the table
SELECT likecount.attach('app.likes', 'p', verb => 'like', only_where => 'n = 1') \g /dev/null
SELECT throws_ok('ALTER TABLE app.likes DROP COLUMN n', '2BP01', NULL, 'a column of the condition is not dropped');
SELECT throws_ok('ALTER TABLE app.likes ALTER COLUMN n TYPE bigint', '0A000', NULL, 'and keeps its type');
ALTER TABLE app.likes RENAME COLUMN n TO m;
INSERT INTO app.likes (p, u, m) VALUES (1, 1, 1), (1, 2, 2);
SELECT likecount.flush() \g /dev/null
SELECT is(likecount.like_count(1), 1::bigint, 'it may be renamed');

SELECT * FROM finish();
ROLLBACK;
