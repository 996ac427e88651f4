-- Twins: for tests that compare like() with the INSERT that it stands for.  Two tables from one CREATE, fast.<name> and plain.<name>, both
-- counted, by the verbs <name> and <name>_plain.  A script runs once on each of them.  In it, @t is the table, @like(post, user) is
-- likecount.<name>() on one side and on the other a function that runs INSERT INTO ... ON CONFLICT (post, user) DO NOTHING and says whether
-- it inserted, @many(posts, users) the same for lists, @unlike(post, user) is un<name>() and DELETE, @p() and @u() make a post and a user from a number.  Afterwards the two are compared in
-- all that can be seen.

CREATE EXTENSION IF NOT EXISTS amcheck;
CREATE EXTENSION IF NOT EXISTS pageinspect;
CREATE SCHEMA fast;
CREATE SCHEMA plain;
CREATE SCHEMA inserting;
CREATE SCHEMA twins;

CREATE TABLE twins.pair (name text PRIMARY KEY, post_key text, user_key text, plain oid, post_att smallint, user_att smallint);

CREATE FUNCTION twins.bigint(n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT n';
CREATE FUNCTION twins.text(n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''key '' || n';
CREATE FUNCTION twins.long(n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT n || repeat('' key'', 240)';
CREATE FUNCTION twins.uuid(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid$$;

-- A script's text for one side.
CREATE FUNCTION twins.on(side text, name text, script text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    pair twins.pair := (SELECT p FROM twins.pair p WHERE p.name = "on".name);
    home text := CASE side WHEN 'fast' THEN 'likecount' ELSE 'inserting' END;
BEGIN
    script := replace(script, '@like(', format('%s.%s(', home, name));
    script := replace(script, '@unlike(', format('%s.un%s(', home, name));
    script := replace(script, '@many(', format('%s.%s_many(', home, name));
    script := replace(script, '@p(', format('twins.%s(', pair.post_key));
    script := replace(script, '@u(', format('twins.%s(', pair.user_key));
    script := replace(script, '@side', side);
    script := replace(script, '@verb', CASE side WHEN 'fast' THEN '' ELSE '_plain' END);
    RETURN replace(script, '@t', format('%s.%s', side, name));
END
$$;

-- The statement that stands for a like, by the names of the moment.
CREATE FUNCTION twins.insert(name text, rows text) RETURNS text LANGUAGE sql AS $$
    SELECT format('INSERT INTO %s (%I, %I) %s ON CONFLICT (%2$I, %3$I) DO NOTHING', p.plain::regclass, post.attname, actor.attname, rows)
      FROM twins.pair p JOIN pg_attribute post ON post.attrelid = p.plain AND post.attnum = p.post_att JOIN pg_attribute actor ON actor.attrelid = p.plain AND actor.attnum = p.user_att
     WHERE p.name = insert.name
$$;

CREATE FUNCTION twins.delete(name text) RETURNS text LANGUAGE sql AS $$
    SELECT format('DELETE FROM %s %s WHERE %I = $1 AND %I = $2', CASE c.relkind WHEN 'r' THEN 'ONLY' END, c.oid::regclass, post.attname, actor.attname)
      FROM twins.pair p JOIN pg_class c ON c.oid = p.plain
           JOIN pg_attribute post ON post.attrelid = p.plain AND post.attnum = p.post_att JOIN pg_attribute actor ON actor.attrelid = p.plain AND actor.attnum = p.user_att
     WHERE p.name = delete.name
$$;

-- Makes the tables, attaches them and lets their backfill pass, which would correct what a like fails to count.
CREATE FUNCTION twins.make(name text, ddl text, post text DEFAULT 'p', actor text DEFAULT 'u', at text DEFAULT NULL,
    post_key text DEFAULT 'bigint', user_key text DEFAULT 'bigint') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    side   text;
    insert text;
BEGIN
    INSERT INTO twins.pair VALUES (name, post_key, user_key);
    SET LOCAL check_function_bodies = off;
    FOREACH side IN ARRAY ARRAY['fast', 'plain'] LOOP
        EXECUTE twins.on(side, name, ddl);
        PERFORM likecount.attach(format('%s.%s', side, name)::regclass, post, actor, at, verb => name || CASE side WHEN 'fast' THEN '' ELSE '_plain' END);
    END LOOP;
    UPDATE twins.pair p SET plain = format('plain.%s', p.name)::regclass,
           post_att = (SELECT attnum FROM pg_attribute WHERE attrelid = format('plain.%s', p.name)::regclass AND attname = post),
           user_att = (SELECT attnum FROM pg_attribute WHERE attrelid = format('plain.%s', p.name)::regclass AND attname = actor)
     WHERE p.name = make.name;
    insert := 'CREATE FUNCTION inserting.%1$s(%2$s) RETURNS bigint LANGUAGE plpgsql AS $b$
        DECLARE n bigint; BEGIN EXECUTE twins.insert(%3$L, %4$L) USING $1, $2; GET DIAGNOSTICS n = ROW_COUNT; RETURN %5$s; END $b$';
    EXECUTE format(replace(insert, 'RETURNS bigint', 'RETURNS boolean'), name, (SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE oid = to_regproc('likecount.' || name)),
        name, 'VALUES ($1, $2)', 'n = 1');
    EXECUTE format(insert, name || '_many', (SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE oid = to_regproc('likecount.' || name || '_many')),
        name, 'SELECT * FROM unnest($1, $2) ORDER BY 1, 2', 'n');
    EXECUTE format('CREATE FUNCTION inserting.un%1$s(%2$s) RETURNS boolean LANGUAGE plpgsql AS $b$
        DECLARE n bigint; BEGIN EXECUTE twins.delete(%1$L) USING $1, $2; GET DIAGNOSTICS n = ROW_COUNT; RETURN n = 1; END $b$',
        name, (SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE oid = to_regproc('likecount.un' || name)));
    PERFORM likecount.flush();
END
$$;

-- Runs one statement of a script and returns what came of it.  '=statement' is not caught when it fails, '!statement' is rolled back.
CREATE FUNCTION twins.run(side text, name text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    sql        text := twins.on(side, name, ltrim(statement, '=!'));
    result     text;
    state      text;
    message    text;
    detail     text;
    relation   text;
    col        text;
    restraint  text;
BEGIN
    IF statement LIKE '=%' THEN
        EXECUTE sql INTO result;
        RETURN result;
    END IF;
    BEGIN
        IF sql ~* '^(SELECT|WITH) ' THEN
            EXECUTE sql INTO result;
        ELSE
            EXECUTE sql;
            GET DIAGNOSTICS result = ROW_COUNT;
        END IF;
        IF statement LIKE '!%' THEN
            RAISE SQLSTATE 'RB000';
        END IF;
    EXCEPTION WHEN SQLSTATE 'RB000' THEN
        NULL;
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
            relation = TABLE_NAME, col = COLUMN_NAME, restraint = CONSTRAINT_NAME;
        -- the time is in the details of errors that show the row
        result := format('ERROR %s %s (%s) table %s column %s constraint %s', state, regexp_replace(replace(message, side || '.', ''), '\y' || side || '\y', 'side'),
            regexp_replace(replace(detail, side || '.', ''), '\d{4}-\d\d-\d\d [0-9:.+]+', '<time>', 'g'), relation, col, restraint);
    END;
    RETURN result;
END
$$;

-- A statement for each side, for \gexec.
CREATE FUNCTION twins.each(name text, statement text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT twins.on(side, name, statement) FROM unnest(ARRAY['fast', 'plain']) side
$$;

-- How a value of a column came about, for what differs from twin to twin; else the value.
CREATE FUNCTION twins.shown(att pg_attribute) RETURNS text LANGUAGE sql AS $$
    SELECT CASE
        WHEN att.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype) THEN format($s$
            CASE WHEN %1$I IS NULL THEN 'NULL'
                 WHEN %1$I = transaction_timestamp()::%2$s THEN 'transaction'
                 WHEN %1$I = current_timestamp(2)::%2$s THEN 'rounded'
                 WHEN %1$I = statement_timestamp()::%2$s THEN 'statement'
                 WHEN %1$I > statement_timestamp()::%2$s AND %1$I <= clock_timestamp()::%2$s THEN 'clock'
                 WHEN %1$I BETWEEN (clock_timestamp() - interval '1 hour')::%2$s AND clock_timestamp()::%2$s THEN 'earlier'
                 ELSE %1$I::text END$s$, att.attname, format_type(att.atttypid, att.atttypmod))
        WHEN att.atttypid = 'uuid'::regtype AND att.atthasdef THEN format($s$CASE WHEN %I IS NULL THEN 'NULL' ELSE 'an uuid' END$s$, att.attname)
        ELSE format($s$CASE WHEN length(%1$I::text) > 60 THEN md5(%1$I::text) ELSE coalesce(quote_literal(%1$I::text), 'NULL') END$s$, att.attname)
    END
$$;

-- All that can be seen of one twin: rows with their place, the bytes of their headers, what was counted since statistics were last reported
-- (which may happen after each transaction), totals.  An error: a broken index.
CREATE FUNCTION twins.report(side text, name text, counts boolean DEFAULT true) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    tab   regclass := format('%s.%s', side, name);
    stats text := (SELECT format('%s inserted, %s updated, %s deleted, %s scans', n_tup_ins, n_tup_upd, n_tup_del, seq_scan + idx_scan) FROM pg_stat_xact_all_tables WHERE relid = tab AND counts);
    rows  text;
    heads text;
    totals text;
    total text;
    verb  text;
    index oid;
BEGIN
    PERFORM likecount.flush();
    -- xmin by its rank: which rows came with which transaction
    EXECUTE format($f$SELECT string_agg(format('%%s %%s: %%s', place, dense_rank, line), E'\n' ORDER BY place) FROM (
            SELECT ctid AS place, dense_rank() OVER (ORDER BY xmin::text::bigint), concat_ws(', ', %s) AS line FROM ONLY %s) AS s$f$,
        (SELECT string_agg(twins.shown(a), ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = tab AND a.attnum > 0 AND NOT a.attisdropped), tab)
        INTO rows;
    -- without the hint bits, which depend on who looked
    IF (SELECT relkind FROM pg_class WHERE oid = tab) = 'r' THEN
        heads := (SELECT string_agg(format('%s %s %s %s %s %s', i.lp, i.lp_flags, i.lp_len, i.t_infomask & ~3840, i.t_infomask2, i.t_bits), '; ' ORDER BY b, i.lp)
                    FROM generate_series(0, pg_relation_size(tab) / current_setting('block_size')::bigint - 1) b,
                         heap_page_items(get_raw_page(tab::text, b::int)) i);
    END IF;
    FOR verb IN SELECT c.verb FROM likecount.counters c WHERE c.source = tab ORDER BY c.id LOOP
        EXECUTE format($f$SELECT string_agg(format('%%s:%%s', post_id, total), ' ' ORDER BY post_id::text) FROM likecount.%s_totals WHERE total <> 0$f$, verb) INTO total;
        totals := concat_ws(E'\n', totals, 'totals ' || coalesce(total, 'of nothing') || CASE WHEN drifts(verb) <> '' THEN ' wrong by ' || drifts(verb) ELSE '' END);
    END LOOP;
    FOR index IN SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
                  WHERE i.indrelid = tab AND a.amname = 'btree' AND c.relkind = 'i' AND i.indisvalid LOOP
        PERFORM bt_index_check(index, true);
    END LOOP;
    RETURN concat_ws(E'\n', rows, heads, stats, totals);
END
$$;

-- How likes of the first twin are inserted, as the view counters says and as it is: a statement leaves a kept plan.  And whether they were deleted by one.
CREATE FUNCTION twins.path(name text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(': ', insert_path, regexp_replace(insert_reason, '_\d+', '_<n>', 'g'))
           || CASE WHEN (insert_path = 'executor') = EXISTS (SELECT FROM pg_backend_memory_contexts m WHERE starts_with(m.ident, format('INSERT INTO fast.%s (', path.name)))
                   THEN '' ELSE CASE insert_path WHEN 'fast' THEN ', with a statement' ELSE ', without a statement' END END
           || CASE WHEN EXISTS (SELECT FROM pg_backend_memory_contexts m WHERE m.ident ~ format('^DELETE FROM (ONLY )?fast.%s ', path.name)) THEN ', and DELETE' ELSE '' END
      FROM likecount.counters WHERE verb = path.name
$$;

CREATE FUNCTION twins.drop(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TABLE fast.%1$s, plain.%1$s CASCADE', name);
    EXECUTE format('DROP ROUTINE inserting.%1$s, inserting.%1$s_many, inserting.un%1$s', name);
    DELETE FROM twins.pair p WHERE p.name = "drop".name;
END
$$;

-- What a script that names nothing else does.
CREATE FUNCTION twins.script() RETURNS text[] LANGUAGE sql AS $$
    SELECT ARRAY[
        'SELECT @like(@p(1), @u(1))',
        'SELECT @like(@p(1), @u(2))',
        'SELECT @like(@p(1), @u(1))',
        'SELECT concat_ws('' '', @like(@p(2), @u(1)), @like(@p(2), @u(1)), @like(@p(2), @u(2)))',
        'SELECT string_agg(@like(@p(n / 2), @u(3))::text, '' '') FROM generate_series(6, 11) n',
        '!SELECT @like(@p(1), @u(9))',
        'SELECT @like(@p(1), @u(9))',
        'DELETE FROM @t WHERE ctid = (SELECT max(ctid) FROM @t)',
        'SELECT @like(@p(1), @u(9))',
        'SELECT @many(ARRAY[@p(7), @p(1), @p(7), @p(8)], ARRAY[@u(1), @u(1), @u(3), @u(2)])',
        'SELECT concat_ws('' '', @unlike(@p(1), @u(2)), @unlike(@p(1), @u(2)), @unlike(@p(1), @u(1)), @like(@p(1), @u(1)))'
    ]
$$;

-- The lines in which two texts differ.
CREATE FUNCTION twins.difference(fast text, plain text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format(E'fast:  %s\nplain: %s', f.line, p.line), E'\n' ORDER BY n), '')
      FROM regexp_split_to_table(fast, '\n') WITH ORDINALITY AS f (line, n)
           FULL JOIN regexp_split_to_table(plain, '\n') WITH ORDINALITY AS p (line, n) USING (n)
     WHERE f.line IS DISTINCT FROM p.line
$$;

CREATE FUNCTION twins.compare(name text, label text, counts boolean DEFAULT true) RETURNS text LANGUAGE sql AS $$
    SELECT is(twins.difference(twins.report('fast', name, counts), twins.report('plain', name, counts)), '', label)
$$;

-- One shape of table, in one transaction: the script on both sides; which way likes went in, and the errors that this is about.
CREATE FUNCTION twins.shape(name text, ddl text, path text, script text[] DEFAULT NULL, post text DEFAULT 'p', actor text DEFAULT 'u', at text DEFAULT NULL,
    post_key text DEFAULT 'bigint', user_key text DEFAULT 'bigint') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    results text[] := '{"", ""}';
    step    text;
BEGIN
    PERFORM twins.make(name, ddl, post, actor, at, post_key, user_key);
    FOREACH step IN ARRAY coalesce(script, twins.script()) LOOP
        results[1] := results[1] || E'\n' || coalesce(twins.run('fast', name, step), '-');
        results[2] := results[2] || E'\n' || coalesce(twins.run('plain', name, step), '-');
    END LOOP;
    RETURN NEXT is(twins.difference(results[1] || E'\n' || twins.report('fast', name), results[2] || E'\n' || twins.report('plain', name)), '', replace(name, '_', ' '));
    RETURN NEXT is(concat_ws('; ', twins.path(name), (SELECT string_agg(DISTINCT e[1], ' ' ORDER BY e[1]) FROM regexp_matches(results[1], 'ERROR (\w{5})', 'g') e)), path,
                   format('%s: %s', replace(name, '_', ' '), path));
    PERFORM twins.drop(name);
END
$$;
