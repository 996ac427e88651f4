-- Who may like is who may insert: the fast insert asks for the privileges of the statement that it stands for, at each call.
\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
SET client_min_messages = warning;
\getenv test_dir PG_ABS_SRCDIR
\set oracle :test_dir '/oracle.sql'
\set twins :test_dir '/twins.sql'
\i :oracle
\i :twins
BEGIN;
SELECT plan(62);

CREATE ROLE lc_owner;
CREATE ROLE lc_other;
CREATE ROLE lc_group;
CREATE ROLE lc_member IN ROLE lc_group;
CREATE ROLE lc_distant NOINHERIT IN ROLE lc_group;
CREATE ROLE lc_app;
CREATE ROLE lc_super SUPERUSER;
CREATE ROLE lc_bypass BYPASSRLS;
GRANT USAGE ON SCHEMA likecount, fast, plain, inserting, twins TO PUBLIC;
GRANT SELECT ON twins.pair TO PUBLIC;
-- pgTAP's own tables, for all of them
GRANT ALL ON ALL TABLES IN SCHEMA pg_temp TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA pg_temp TO PUBLIC;
SELECT twins.make('priv', 'CREATE TABLE @t (p bigint, u bigint, at timestamptz NOT NULL DEFAULT clock_timestamp(), note text DEFAULT upper(''note''), PRIMARY KEY (p, u)); ALTER TABLE @t OWNER TO lc_owner') \g /dev/null

-- What comes of a like of one more user by a role, after some commands: the same as of the INSERT.
CREATE SEQUENCE twins.users;
CREATE FUNCTION twins.try(role text, step text, expected text, label text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    results text[];
BEGIN
    PERFORM set_config('role', role, true);
    results := ARRAY[twins.run('fast', 'priv', step), twins.run('plain', 'priv', step)];
    PERFORM set_config('role', 'none', true);
    RETURN is(regexp_replace(array_to_string(results, E'\n'), ' \(\) table  column  constraint ', '', 'g'), expected || E'\n' || expected, role || ': ' || label);
END
$$;
CREATE FUNCTION twins.give(VARIADIC commands text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    command text;
BEGIN
    FOREACH command IN ARRAY commands LOOP
        EXECUTE twins.on('fast', 'priv', command);
        EXECUTE twins.on('plain', 'priv', command);
    END LOOP;
END
$$;
CREATE FUNCTION twins.may(role text, expected text, label text, VARIADIC commands text[] DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT twins.give(VARIADIC commands) WHERE commands <> '{}';
    SELECT twins.try(role, format('SELECT concat_ws('' '', @like(1, %s), @many(''{2}'', ''{%1$s}''))', nextval('twins.users')), expected, label)
$$;
CREATE FUNCTION twins.may_undo(role text, expected text, label text, VARIADIC commands text[] DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT twins.give(VARIADIC commands) WHERE commands <> '{}';
    SELECT twins.try(role, format('SELECT @unlike(1, %s)', (SELECT max(u) FROM fast.priv WHERE p = 1)), expected, label)
$$;
\set denied 'ERROR 42501 permission denied for table priv'
-- as warm as a session gets
SELECT twins.may('lc_owner', 't 1', 'the owner');
SELECT twins.may('none', 't 1', 'a superuser');
SELECT twins.may('lc_app', :'denied', 'nothing granted');
SELECT twins.may('lc_app', :'denied', 'INSERT alone', 'GRANT INSERT ON @t TO lc_app');
SELECT twins.may('lc_app', 't 1', 'and SELECT', 'GRANT SELECT ON @t TO lc_app');
SELECT twins.may('lc_app', :'denied', 'SELECT alone', 'REVOKE INSERT ON @t FROM lc_app');
SELECT twins.may('lc_app', 't 1', 'again both', 'GRANT INSERT ON @t TO lc_app');
SELECT twins.may('lc_app', :'denied', 'all revoked', 'REVOKE ALL ON @t FROM lc_app');
SELECT twins.may('lc_app', 't 1', 'on the columns', 'GRANT INSERT (p, u), SELECT (p, u) ON @t TO lc_app');
SELECT twins.may('lc_app', :'denied', 'INSERT on one of them', 'REVOKE INSERT (u) ON @t FROM lc_app');
SELECT twins.may('lc_app', 't 1', 'INSERT on the table instead', 'GRANT INSERT ON @t TO lc_app');
SELECT twins.may('lc_app', :'denied', 'SELECT on one of them', 'REVOKE SELECT (p) ON @t FROM lc_app');
SELECT twins.may('lc_app', :'denied', 'SELECT on the others', 'GRANT SELECT (at, note) ON @t TO lc_app');
SELECT twins.may('lc_app', 't 1', 'SELECT for all', 'GRANT SELECT ON @t TO PUBLIC');
SELECT twins.may('lc_other', :'denied', 'which is not INSERT');
SELECT twins.may('lc_app', :'denied', 'nothing granted', 'REVOKE ALL ON @t FROM PUBLIC, lc_app', 'REVOKE ALL (p, u, at, note) ON @t FROM lc_app');
-- by membership
SELECT twins.may('lc_member', :'denied', 'of a group without privileges');
SELECT twins.may('lc_member', 't 1', 'of a group with privileges', 'GRANT SELECT, INSERT ON @t TO lc_group');
SELECT twins.may('lc_distant', :'denied', 'that are not inherited');
SELECT twins.may('lc_group', 't 1', 'but by SET ROLE');
REVOKE lc_group FROM lc_member;
SELECT twins.may('lc_member', :'denied', 'not any more');
GRANT pg_write_all_data TO lc_other;
SELECT twins.may('lc_other', :'denied', 'writes all, and reads nothing');
GRANT pg_read_all_data TO lc_other;
SELECT twins.may('lc_other', 't 1', 'reads all, too');
REVOKE pg_read_all_data, pg_write_all_data FROM lc_other;
-- the schema
SELECT twins.may('lc_group', 'ERROR 42501 permission denied for schema side', 'the schema revoked', 'REVOKE USAGE ON SCHEMA @side FROM PUBLIC');
SELECT twins.may('lc_group', 't 1', 'and granted', 'GRANT USAGE ON SCHEMA @side TO lc_group');
SELECT twins.may('lc_owner', 'ERROR 42501 permission denied for schema side', 'an owner without the schema');
GRANT USAGE ON SCHEMA fast, plain TO PUBLIC;
-- owners
SELECT twins.may('lc_owner', :'denied', 'an owner who revoked it', 'REVOKE ALL ON @t FROM lc_owner');
SELECT twins.may('lc_super', 't 1', 'a superuser');
SELECT twins.may('lc_owner', 't 1', 'an owner again', 'GRANT ALL ON @t TO lc_owner');
SELECT twins.may('lc_owner', :'denied', 'not any more', 'ALTER TABLE @t OWNER TO lc_other');
SELECT twins.may('lc_other', 't 1', 'the next owner');
ALTER ROLE lc_super NOSUPERUSER;
SELECT twins.may('lc_super', :'denied', 'a superuser no more');
-- functions with the rights of another one
SELECT twins.each('priv', 'CREATE FUNCTION @side.as_definer(u bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS ''BEGIN RETURN @like(3, u); END''') \gexec
ALTER FUNCTION fast.as_definer OWNER TO lc_group;
ALTER FUNCTION plain.as_definer OWNER TO lc_group;
SELECT twins.try('lc_app', 'SELECT @side.as_definer(1)', 'true', 'SECURITY DEFINER of one who may');
ALTER FUNCTION fast.as_definer OWNER TO lc_app;
ALTER FUNCTION plain.as_definer OWNER TO lc_app;
SELECT twins.try('lc_group', 'SELECT @side.as_definer(2)', :'denied', 'of one who may not, called by one who may');
-- to take a like back
SELECT twins.may_undo('lc_app', :'denied', 'DELETE: nothing granted');
SELECT twins.may_undo('lc_app', :'denied', 'DELETE alone', 'GRANT DELETE ON @t TO lc_app');
SELECT twins.may_undo('lc_app', :'denied', 'and SELECT on one key', 'GRANT SELECT (p) ON @t TO lc_app');
SELECT twins.may_undo('lc_app', 'true', 'and on the other', 'GRANT SELECT (u) ON @t TO lc_app');
SELECT twins.may_undo('lc_app', :'denied', 'SELECT without DELETE', 'REVOKE DELETE ON @t FROM lc_app');
SELECT twins.may_undo('lc_group', :'denied', 'one who may like');
SELECT twins.may_undo('lc_other', 'true', 'the owner');
SELECT twins.may_undo('lc_other', :'denied', 'the owner who revoked it', 'REVOKE DELETE ON @t FROM lc_other');
SELECT twins.may_undo('none', 'true', 'a superuser', 'GRANT DELETE ON @t TO lc_other');
-- what a row needs beside the table: the functions in defaults and indexes
REVOKE EXECUTE ON FUNCTION pg_catalog.clock_timestamp() FROM PUBLIC;
SELECT twins.may('lc_group', 'ERROR 42501 permission denied for function clock_timestamp', 'the clock revoked');
SELECT twins.may('none', 't 1', 'a superuser');
GRANT EXECUTE ON FUNCTION pg_catalog.clock_timestamp() TO lc_group;
SELECT twins.may('lc_group', 't 1', 'the clock granted');
SELECT twins.may('lc_other', 'ERROR 42501 permission denied for function clock_timestamp', 'the owner has no clock');
SELECT twins.may_undo('lc_other', 'true', 'and needs none to take a like back');
GRANT EXECUTE ON FUNCTION pg_catalog.clock_timestamp() TO PUBLIC;
SELECT is(twins.path('priv'), 'fast', 'all that was fast');
SELECT twins.may('lc_group', 'ERROR 42501 permission denied for function indexed', 'a function of an index revoked', 'ALTER TABLE @t ALTER at SET DEFAULT now(), ALTER note SET DEFAULT ''note''', 'CREATE FUNCTION @side.indexed(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS ''BEGIN RETURN $1; END''', 'CREATE INDEX ON @t (@side.indexed(u))', 'REVOKE EXECUTE ON FUNCTION @side.indexed FROM PUBLIC');
SELECT twins.may('lc_group', 't 1', 'and granted', 'GRANT EXECUTE ON FUNCTION @side.indexed TO PUBLIC');
SELECT twins.may('lc_group', 'ERROR 42501 permission denied for sequence numbers', 'a sequence', 'CREATE SEQUENCE @side.numbers', 'ALTER TABLE @t ALTER note SET DEFAULT nextval(''@side.numbers'')');
SELECT twins.may('lc_group', 't 1', 'and granted', 'GRANT USAGE ON SEQUENCE @side.numbers TO lc_group', 'ALTER TABLE @t ALTER note DROP DEFAULT');
-- row-level security
SELECT twins.may('lc_group', 'ERROR 42501 new row violates row-level security policy for table "priv"', 'row security without a policy', 'ALTER TABLE @t ENABLE ROW LEVEL SECURITY');
SELECT twins.may('lc_other', 't 1', 'the owner is exempt');
SELECT twins.may('lc_bypass', 't 1', 'BYPASSRLS', 'GRANT SELECT, INSERT ON @t TO lc_bypass');
SELECT twins.may('lc_other', 'ERROR 42501 new row violates row-level security policy for table "priv"', 'the owner by FORCE', 'ALTER TABLE @t FORCE ROW LEVEL SECURITY');
SELECT twins.may('lc_group', 't 1', 'a policy', 'CREATE POLICY p ON @t USING (p < 3)');
SELECT twins.may('lc_group', 'ERROR 42501 new row violates row-level security policy for table "priv"', 'another policy', 'ALTER POLICY p ON @t USING (p < 2)');
SELECT twins.may('lc_group', 't 1', 'row security off', 'ALTER TABLE @t DISABLE ROW LEVEL SECURITY');
SELECT is(twins.path('priv'), 'fast, with a statement', 'this is fast again');
SELECT twins.compare('priv', 'the rows of all that', counts => false);
SELECT * FROM finish();
ROLLBACK;
