-- likecount: the install script.
--
-- Three kinds of objects exist.  The members created here: the schema, C functions, this database's run-time tables, views.  None is
-- given to pg_extension_config_dump, they are state of this database and no part of a dump.  The objects of a counter, made by
-- attach(): ordinary objects that pg_dump carries.  And the source with its capture triggers, which belong to the user.

-- complain if the script is sourced in psql rather than run by CREATE EXTENSION
\echo Use "CREATE EXTENSION likecount" to load this file. \quit

CREATE SCHEMA likecount;

COMMENT ON SCHEMA likecount IS 'counts likes, and anything like them, without a hot row; USAGE on this schema is the gate';

-- ------------------------------------------------------------------------------------------------------------------------------
-- Run-time tables.  Private, read through the views below.

CREATE SEQUENCE likecount._counter_id AS integer;

CREATE TABLE likecount._counter (
    id             integer     PRIMARY KEY,
    rows_view      regclass    NOT NULL,
    verb           name        NOT NULL,
    past           name        NOT NULL,
    direct_since   bigint,
    state          text        NOT NULL CHECK (state IN ('adopting', 'backfilling', 'repairing', 'active')),
    reason         text        NOT NULL,
    home_system    bigint,
    home_database  oid,
    walk_after     text,
    walk_done      bigint      NOT NULL DEFAULT 0,
    walk_total     bigint,
    walk_drift     bigint      NOT NULL DEFAULT 0,
    drift_posts    bigint      NOT NULL DEFAULT 0,
    drift_found    bigint      NOT NULL DEFAULT 0,
    last_reconcile timestamptz,
    last_error     text,
    last_error_at  timestamptz,
    version        text        NOT NULL
);

COMMENT ON TABLE likecount._counter IS 'state of this database''s counters; a row is valid while the view rows_view exists, the worker deletes the others';
COMMENT ON COLUMN likecount._counter.id IS 'number of this registration, never reused';
COMMENT ON COLUMN likecount._counter.rows_view IS 'the view <verb>_rows, the definition of the counter';
COMMENT ON COLUMN likecount._counter.direct_since IS 'row of _mode that made the counter direct, and since which a flush has found nothing of it in the queue';
COMMENT ON COLUMN likecount._counter.state IS 'adopting: registered, older writers still run; backfilling: every post is being recounted; repairing: the posts in _repair_todo are; active';
COMMENT ON COLUMN likecount._counter.reason IS 'why the counter is in this state';
COMMENT ON COLUMN likecount._counter.home_system IS 'system identifier of the cluster in which a flush last saw this counter''s sentinel';
COMMENT ON COLUMN likecount._counter.home_database IS 'OID of the database in which a flush last saw this counter''s sentinel';
COMMENT ON COLUMN likecount._counter.walk_after IS 'the last post that backfill has finished, NULL before the first';
COMMENT ON COLUMN likecount._counter.walk_drift IS 'sum of the corrections of the current backfill or repair';
COMMENT ON COLUMN likecount._counter.version IS 'version of likecount that generated the counter''s objects';

-- The mode of a counter is what its newest row says.  set_mode() appends, as user transactions never update what the worker updates.
CREATE TABLE likecount._mode (
    id      bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    counter integer NOT NULL,
    mode    text    NOT NULL CHECK (mode IN ('queued', 'direct'))
);

COMMENT ON TABLE likecount._mode IS 'how deltas of a counter reach the totals: its newest row counts, without one it is queued; flushes delete the others';

-- What user transactions want the worker to do to a state row, which they never update themselves.
CREATE TABLE likecount._request (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    counter  integer     NOT NULL,
    reason   text        NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE likecount._request IS 'counters that a DDL command made unsure; the next flush sets them to backfilling';

-- Queue (unlogged) and journal (logged) of committed deltas, three segments each, so that one can be emptied in place while another
-- is written.  Written by heap calls only (src/queue.cpp); vacuum's own truncation would take the lock that likers wait for, and there
-- is nothing else for autovacuum to do there.  The post is a binary key without a TOAST table: that takes PLAIN storage in the command
-- that adds the column.
DO $$
DECLARE
    tab text;
BEGIN
    FOREACH tab IN ARRAY ARRAY['_queue_0', '_queue_1', '_queue_2', '_journal_0', '_journal_1', '_journal_2'] LOOP
        EXECUTE pg_catalog.format('CREATE %s TABLE likecount.%I (delta bigint NOT NULL, at timestamptz NOT NULL, counter integer NOT NULL)'
            ' USING heap WITH (autovacuum_enabled = off, vacuum_truncate = off)', CASE WHEN tab ~ 'queue' THEN 'UNLOGGED' ELSE '' END, tab);
        EXECUTE pg_catalog.format('ALTER TABLE likecount.%I ADD COLUMN post bytea NOT NULL, ALTER COLUMN post SET STORAGE PLAIN', tab);
    END LOOP;
END
$$;

-- A crash empties unlogged tables; a counter without its row here lost its queue.
CREATE UNLOGGED TABLE likecount._sentinel (counter integer PRIMARY KEY);

COMMENT ON TABLE likecount._sentinel IS 'one row per counter; the rows vanish when, and only when, the queue''s do';

CREATE TABLE likecount._watermark (
    one      boolean     PRIMARY KEY DEFAULT true CHECK (one),
    liked_at timestamptz NOT NULL
);

COMMENT ON TABLE likecount._watermark IS 'no like older than this was in the queue and not yet flushed; no row: the queue was never used';

CREATE TABLE likecount._repair_todo (
    counter integer NOT NULL,
    post    bytea   NOT NULL,
    PRIMARY KEY (counter, post)
);

COMMENT ON TABLE likecount._repair_todo IS 'posts that a crash may have left wrong, deleted by the transaction that recounts them';

CREATE TABLE likecount._progress (
    counter     integer     PRIMARY KEY,
    after       text,
    done        bigint      NOT NULL,
    total       bigint,
    drift_posts bigint      NOT NULL,
    drift_found bigint      NOT NULL,
    started_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL
);

COMMENT ON TABLE likecount._progress IS 'where reconcile_all stands, written by its own transactions; after is the last post done, NULL when it is complete';

CREATE TABLE likecount._rejected (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    counter integer     NOT NULL,
    post    bytea       NOT NULL,
    delta   bigint      NOT NULL,
    reason  text        NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE likecount._rejected IS 'deltas that could not be added to a total; reconcile counts them anew, they are never applied again';

-- Rows of these tables that arrive by logical replication are another server's state: discard them.
CREATE FUNCTION likecount._discard() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', $$likecount_discard$$;

COMMENT ON FUNCTION likecount._discard() IS 'trigger: keeps rows that logical replication applies out of this database''s run-time tables';

-- The same for a slots table, which is no run-time table and may be replicated: only rows of other nodes may arrive.
CREATE FUNCTION likecount._other_node() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', $$likecount_other_node$$;

COMMENT ON FUNCTION likecount._other_node() IS 'trigger: refuses slots of this server''s own node that logical replication applies';

DO $$
DECLARE
    tab text;
BEGIN
    FOREACH tab IN ARRAY ARRAY['_counter', '_mode', '_request', '_journal_0', '_journal_1', '_journal_2', '_watermark', '_repair_todo', '_progress', '_rejected'] LOOP
        EXECUTE pg_catalog.format('CREATE TRIGGER discard_replicated BEFORE INSERT OR UPDATE OR DELETE ON likecount.%I FOR EACH ROW EXECUTE FUNCTION likecount._discard()', tab);
        EXECUTE pg_catalog.format('ALTER TABLE likecount.%I ENABLE REPLICA TRIGGER discard_replicated', tab);
    END LOOP;
END
$$;

-- ------------------------------------------------------------------------------------------------------------------------------
-- Set-up

CREATE FUNCTION likecount.create_counter(
        source text DEFAULT 'likes', verb text DEFAULT NULL, past text DEFAULT NULL,
        post_type regtype DEFAULT 'bigint', user_type regtype DEFAULT 'bigint',
        mode text DEFAULT 'queued', if_not_exists boolean DEFAULT false) RETURNS regclass
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_create_counter$$;

COMMENT ON FUNCTION likecount.create_counter(text, text, text, regtype, regtype, text, boolean) IS
    'creates a table of likes (post_id, user_id, liked_at) owned by the caller and attaches it; returns the table';

CREATE FUNCTION likecount.attach(
        source regclass, post_column name, user_column name DEFAULT NULL, time_column name DEFAULT NULL,
        verb text DEFAULT NULL, past text DEFAULT NULL, only_where text DEFAULT NULL,
        mode text DEFAULT 'queued', count_replicated boolean DEFAULT false, if_not_exists boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_attach$$;

COMMENT ON FUNCTION likecount.attach(regclass, name, name, name, text, text, text, text, boolean, boolean) IS
    'starts counting the rows of an existing table; rows already there are counted after the transaction commits';

CREATE FUNCTION likecount.set_mode(source regclass, mode text, verb text DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_set_mode$$;

COMMENT ON FUNCTION likecount.set_mode(regclass, text, text) IS
    'switches a counter to mode queued, in which the worker moves likes into the totals, or direct, in which each transaction does';

CREATE FUNCTION likecount.detach(
        source regclass, verb text DEFAULT NULL, if_exists boolean DEFAULT false, cascade boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_detach$$;

COMMENT ON FUNCTION likecount.detach(regclass, text, boolean, boolean) IS
    'stops counting a table and drops what was generated for it; the table and its rows stay';

-- ------------------------------------------------------------------------------------------------------------------------------
-- Behind the generated functions.  They carry the verb, check the argument types against the counter's, and act with the
-- caller's own rights on the source.  ROWS, COST and PARALLEL stand here: after inlining only the inner function's count.

CREATE FUNCTION likecount._capture() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', $$likecount_capture$$;

COMMENT ON FUNCTION likecount._capture() IS 'trigger: captures the rows that a source gains and loses';

CREATE FUNCTION likecount._add(verb text, post "any", actor "any") RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_add$$;
CREATE FUNCTION likecount._remove(verb text, post "any", actor "any") RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_remove$$;
CREATE FUNCTION likecount._has(verb text, post "any", actor "any") RETURNS boolean
    LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', $$likecount_has$$;
CREATE FUNCTION likecount._add_many(verb text, posts "any", actors "any") RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 AS 'MODULE_PATHNAME', $$likecount_add_many$$;
CREATE FUNCTION likecount._total(verb text, post "any") RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE COST 10 AS 'MODULE_PATHNAME', $$likecount_total$$;
CREATE FUNCTION likecount._total_now(verb text, post "any") RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL RESTRICTED COST 1000 AS 'MODULE_PATHNAME', $$likecount_total_now$$;
CREATE FUNCTION likecount._totals(verb text, posts anyarray) RETURNS TABLE (post_id anyelement, total bigint)
    LANGUAGE c STABLE PARALLEL SAFE COST 100 ROWS 50 AS 'MODULE_PATHNAME', $$likecount_totals$$;
CREATE FUNCTION likecount._posts_of(verb text, actor "any", posts anyarray) RETURNS SETOF anyelement
    LANGUAGE c STABLE PARALLEL RESTRICTED COST 100 ROWS 50 AS 'MODULE_PATHNAME', $$likecount_posts_of$$;

COMMENT ON FUNCTION likecount._add(text, "any", "any") IS 'behind <verb>(post_id, user_id)';
COMMENT ON FUNCTION likecount._remove(text, "any", "any") IS 'behind un<verb>(post_id, user_id)';
COMMENT ON FUNCTION likecount._has(text, "any", "any") IS 'behind <past>(post_id, user_id)';
COMMENT ON FUNCTION likecount._add_many(text, "any", "any") IS 'behind <verb>_many(post_ids, user_ids)';
COMMENT ON FUNCTION likecount._total(text, "any") IS 'behind <verb>_count(post_id)';
COMMENT ON FUNCTION likecount._total_now(text, "any") IS 'behind <verb>_count_now(post_id)';
COMMENT ON FUNCTION likecount._totals(text, anyarray) IS 'behind <verb>_counts(post_ids)';
COMMENT ON FUNCTION likecount._posts_of(text, "any", anyarray) IS 'behind <past>_posts(user_id, post_ids)';

-- ------------------------------------------------------------------------------------------------------------------------------
-- Upkeep

CREATE FUNCTION likecount.flush() RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', $$likecount_flush$$;

COMMENT ON FUNCTION likecount.flush() IS
    'moves every delta that a fresh snapshot sees into the totals, the caller''s own included, and returns how many; does a share of what the worker would do where none runs';

CREATE FUNCTION likecount.reconcile(source regclass, post anyelement, verb text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_reconcile$$;
CREATE FUNCTION likecount.reconcile(source regclass, post text, verb text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_reconcile$$;

COMMENT ON FUNCTION likecount.reconcile(regclass, anyelement, text) IS
    'recounts one post and returns its drift, which the next flush adds to the total';
COMMENT ON FUNCTION likecount.reconcile(regclass, text, text) IS
    'the same for a post given as text or without a type';

CREATE FUNCTION likecount.reconcile_recent(source regclass, since interval, verb text DEFAULT NULL)
    RETURNS TABLE (post text, was bigint, now bigint)
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_reconcile_recent$$;

COMMENT ON FUNCTION likecount.reconcile_recent(regclass, interval, text) IS
    'recounts the posts with activity in the given time; returns those that were wrong';

CREATE FUNCTION likecount._reconcile_chunk(source regclass, chunk integer, verb text) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_reconcile_chunk$$;

COMMENT ON FUNCTION likecount._reconcile_chunk(regclass, integer, text) IS 'behind reconcile_all: one chunk; whether there is more';

-- No SET clause: a procedure with one cannot commit.
CREATE PROCEDURE likecount.reconcile_all(source regclass, chunk integer DEFAULT 10000, verb text DEFAULT NULL)
    LANGUAGE plpgsql AS $$
BEGIN
    WHILE likecount._reconcile_chunk(source, chunk, verb) LOOP
        COMMIT;
    END LOOP;
    COMMIT;
END
$$;

COMMENT ON PROCEDURE likecount.reconcile_all(regclass, integer, text) IS
    'recounts every post, committing after each chunk of that many; after a cancel or a crash the next call goes on where it stopped';

CREATE FUNCTION likecount."check"(source regclass, sample bigint DEFAULT NULL, verb text DEFAULT NULL)
    RETURNS TABLE (post text, was bigint, now bigint)
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_check$$;

COMMENT ON FUNCTION likecount."check"(regclass, bigint, text) IS
    'compares that many random posts, or all, with the source and returns those that are wrong; changes nothing';

CREATE FUNCTION likecount.freeze(source regclass, post anyelement, verb text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_freeze$$;
CREATE FUNCTION likecount.freeze(source regclass, post text, verb text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_freeze$$;

COMMENT ON FUNCTION likecount.freeze(regclass, anyelement, text) IS
    'keeps the total of a post at the exact count of its likes, which it returns, and refuses new ones';
COMMENT ON FUNCTION likecount.freeze(regclass, text, text) IS
    'the same for a post given as text or without a type';

CREATE FUNCTION likecount.unfreeze(source regclass, post anyelement, verb text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_unfreeze$$;
CREATE FUNCTION likecount.unfreeze(source regclass, post text, verb text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_unfreeze$$;

COMMENT ON FUNCTION likecount.unfreeze(regclass, anyelement, text) IS
    'lets the total of a frozen post follow its likes again; true: it was frozen';
COMMENT ON FUNCTION likecount.unfreeze(regclass, text, text) IS
    'the same for a post given as text or without a type';

CREATE FUNCTION likecount.frozen(source regclass, verb text DEFAULT NULL) RETURNS TABLE (post text, total bigint)
    LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_frozen$$;

COMMENT ON FUNCTION likecount.frozen(regclass, text) IS 'the frozen posts of a counter, with the totals they are kept at';

CREATE FUNCTION likecount.forget(source regclass, post anyelement, with_likes boolean DEFAULT false,
        batch integer DEFAULT 10000, verb text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_forget$$;
CREATE FUNCTION likecount.forget(source regclass, post text, with_likes boolean DEFAULT false,
        batch integer DEFAULT 10000, verb text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', $$likecount_forget$$;

COMMENT ON FUNCTION likecount.forget(regclass, anyelement, boolean, integer, text) IS
    'removes what is kept about a post, and on demand up to that many of its likes; false: there are more, call again';
COMMENT ON FUNCTION likecount.forget(regclass, text, boolean, integer, text) IS
    'the same for a post given as text or without a type';

CREATE FUNCTION likecount.lag() RETURNS interval
    LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', $$likecount_lag$$;

COMMENT ON FUNCTION likecount.lag() IS 'age of the oldest delta that is not yet part of a total; zero when nothing waits';

CREATE FUNCTION likecount.version(OUT library text, OUT sql text) RETURNS record
    LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', $$likecount_version$$;

COMMENT ON FUNCTION likecount.version() IS 'version of the loaded library and of the installed SQL objects; they differ between a package upgrade and ALTER EXTENSION likecount UPDATE';

CREATE FUNCTION likecount.reset_stats() RETURNS void
    LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', $$likecount_reset_stats$$;

COMMENT ON FUNCTION likecount.reset_stats() IS 'sets the cumulative numbers of the view status to zero';

-- ------------------------------------------------------------------------------------------------------------------------------
-- Views

CREATE FUNCTION likecount._counter_facts(counter integer,
        OUT source regclass, OUT slots regclass, OUT mode text, OUT path text, OUT path_reason text, OUT insert_path text, OUT insert_reason text,
        OUT locked_by integer) RETURNS record
    LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', $$likecount_counter_facts$$;

COMMENT ON FUNCTION likecount._counter_facts(integer) IS 'behind the view counters: what the catalogs alone do not tell; nulls for a counter that is gone';

-- STABLE, so that it is not called where nobody asks for the column.
CREATE FUNCTION likecount._frozen_posts(counter integer) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', $$likecount_frozen_posts$$;

COMMENT ON FUNCTION likecount._frozen_posts(integer) IS 'behind the view counters: how many posts are frozen';

CREATE FUNCTION likecount._open_slots(counter integer) RETURNS bigint
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', $$likecount_open_slots$$;

COMMENT ON FUNCTION likecount._open_slots(integer) IS 'behind the view counters: how many slots above 0 there are';

CREATE VIEW likecount.counters AS
SELECT c.id,
       c.verb,
       c.past,
       f.source,
       s.relowner::regrole AS owner,
       capture.state AS capture,
       f.path,
       f.path_reason,
       f.insert_path,
       f.insert_reason,
       f.mode,
       c.state,
       c.reason,
       c.walk_done AS backfill_done,
       c.walk_total AS backfill_total,
       c.drift_posts,
       c.drift_found,
       c.last_reconcile,
       c.last_error,
       c.last_error_at,
       (SELECT pg_catalog.count(*) FROM likecount._rejected r WHERE r.counter = c.id) AS rejected,
       likecount._frozen_posts(c.id) AS frozen,
       likecount._open_slots(c.id) AS open_slots,
       pg_catalog.pg_total_relation_size(f.slots) AS slots_bytes,
       c.version,
       pg_catalog.array_remove(ARRAY[
           CASE WHEN capture.unlogged THEN 'unlogged: a crash empties the table, or a partition of it' END,
           CASE WHEN s.relforcerowsecurity THEN 'row-level security is forced: even the owner''s own count of rows may be smaller than the total' END,
           CASE WHEN s.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = f.source)
               THEN 'inheritance children: their rows are not counted' END,
           CASE WHEN s.relnamespace = 'likecount'::pg_catalog.regnamespace
               THEN 'the source is in schema likecount: DROP EXTENSION likecount CASCADE would drop it' END,
           CASE WHEN strangers.tables > 0
               THEN pg_catalog.format('%s triggers on tables of other owners name this verb, and are ignored', strangers.tables) END,
           CASE WHEN c.version <> v.library
               THEN pg_catalog.format('generated by version %s, the library is %s', c.version, v.library) END
       ], NULL) AS warnings,
       f.locked_by
  FROM likecount._counter c
       CROSS JOIN likecount.version() v
       CROSS JOIN LATERAL likecount._counter_facts(c.id) f
       JOIN pg_catalog.pg_class s ON s.oid = f.source
       CROSS JOIN LATERAL (
           WITH RECURSIVE tree AS (
               SELECT s.oid AS relation
               UNION ALL
               SELECT i.inhrelid
                 FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.relation
                WHERE s.relkind = 'p'
           )
           SELECT CASE
                      -- INSERT, DELETE, UPDATE, TRUNCATE: the bits of pg_trigger.tgtype
                      WHEN COALESCE(pg_catalog.bit_or(t.tgtype & 60) FILTER (WHERE t.tgrelid = s.oid), 0) <> 60 THEN 'missing'
                      WHEN pg_catalog.bool_or(t.tgenabled = 'D') THEN 'disabled'
                      WHEN pg_catalog.bool_or(t.tgenabled = 'R') THEN 'replica'
                      WHEN pg_catalog.bool_and(t.tgenabled = 'A') THEN 'always'
                      WHEN pg_catalog.bool_or(t.tgenabled = 'A') THEN 'mixed'
                      ELSE 'enabled'
                  END AS state,
                  pg_catalog.bool_or(r.relpersistence = 'u') AS unlogged
             FROM tree
                  JOIN pg_catalog.pg_class r ON r.oid = tree.relation
                  LEFT JOIN pg_catalog.pg_trigger t
                         ON t.tgrelid = r.oid
                        AND t.tgfoid = 'likecount._capture()'::pg_catalog.regprocedure
                        AND pg_catalog.starts_with(pg_catalog.encode(t.tgargs, 'escape'), c.verb || '\000')
       ) capture
       CROSS JOIN LATERAL (
           SELECT pg_catalog.count(*) AS tables
             FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class r ON r.oid = t.tgrelid
            WHERE t.tgfoid = 'likecount._capture()'::pg_catalog.regprocedure
              AND pg_catalog.starts_with(pg_catalog.encode(t.tgargs, 'escape'), c.verb || '\000')
              AND r.relowner <> s.relowner
              AND NOT r.relispartition
       ) strangers;

COMMENT ON VIEW likecount.counters IS 'the counters of this database, how each is doing, and what is wrong with it';
COMMENT ON COLUMN likecount.counters.id IS 'number of this registration, never reused';
COMMENT ON COLUMN likecount.counters.verb IS 'name of the counter and of its functions';
COMMENT ON COLUMN likecount.counters.past IS 'past form of the verb, in the names <past>() and <past>_posts()';
COMMENT ON COLUMN likecount.counters.source IS 'the table whose rows are counted';
COMMENT ON COLUMN likecount.counters.owner IS 'owner of the source';
COMMENT ON COLUMN likecount.counters.capture IS 'the capture triggers: enabled; always (also rows that logical replication applies); mixed, or replica: not all of them fire in both cases; disabled, or missing: changes are not counted';
COMMENT ON COLUMN likecount.counters.path IS 'where deltas of plain inserts go: queue (unlogged), journal (logged, costs more WAL), or slots (direct mode: into the totals)';
COMMENT ON COLUMN likecount.counters.path_reason IS 'why the deltas go to the journal; NULL: they need not';
COMMENT ON COLUMN likecount.counters.insert_path IS 'how likes are inserted by the counter''s function: fast, or executor (an INSERT statement); NULL: it has none';
COMMENT ON COLUMN likecount.counters.insert_reason IS 'why it has to be a statement; NULL: it has not';
COMMENT ON COLUMN likecount.counters.mode IS 'how deltas reach the totals; queued: the worker moves them; direct: each transaction adds its own; switching to direct: they take the journal until the queue is empty';
COMMENT ON COLUMN likecount.counters.state IS 'adopting: registered, older writers still run; backfilling: every post is being recounted; repairing: those that a crash may have left wrong are; active';
COMMENT ON COLUMN likecount.counters.reason IS 'why the counter is in this state';
COMMENT ON COLUMN likecount.counters.backfill_done IS 'posts that the last or current backfill has recounted';
COMMENT ON COLUMN likecount.counters.backfill_total IS 'estimate of how many posts it has to recount; NULL: not known yet';
COMMENT ON COLUMN likecount.counters.drift_posts IS 'posts that the audit found wrong and put right, since the counter is registered here';
COMMENT ON COLUMN likecount.counters.drift_found IS 'sum of the corrections';
COMMENT ON COLUMN likecount.counters.last_reconcile IS 'when posts were last recounted';
COMMENT ON COLUMN likecount.counters.last_error IS 'last error of work on the source, such as a recount';
COMMENT ON COLUMN likecount.counters.last_error_at IS 'when that was';
COMMENT ON COLUMN likecount.counters.rejected IS 'deltas that did not fit into a total and were set aside';
COMMENT ON COLUMN likecount.counters.frozen IS 'posts whose total is frozen; they are counted when this column is read';
COMMENT ON COLUMN likecount.counters.open_slots IS 'slots above 0, which direct mode opens and the worker folds when they are quiet; they are counted when this column is read';
COMMENT ON COLUMN likecount.counters.slots_bytes IS 'size of the totals on disk, with indexes';
COMMENT ON COLUMN likecount.counters.version IS 'version of likecount that generated the counter''s objects';
COMMENT ON COLUMN likecount.counters.warnings IS 'what about the source or the counter deserves a look; empty: nothing';
COMMENT ON COLUMN likecount.counters.locked_by IS 'process that recounts posts of the counter, freezes, unfreezes or forgets one, and has not committed; NULL: none';

CREATE VIEW likecount.progress AS
SELECT c.verb,
       f.source,
       CASE WHEN c.state <> 'active' THEN c.state WHEN p.after IS NOT NULL THEN 'reconcile_all' ELSE 'idle' END AS phase,
       CASE WHEN c.state <> 'active' OR p.counter IS NULL THEN c.walk_done ELSE p.done END AS posts_done,
       CASE WHEN c.state <> 'active' OR p.counter IS NULL THEN c.walk_total ELSE p.total END AS posts_total,
       CASE WHEN c.state <> 'active' OR p.counter IS NULL THEN c.walk_drift ELSE p.drift_found END AS drift_found,
       (SELECT pg_catalog.count(*) FROM likecount._repair_todo t WHERE t.counter = c.id) AS repair_todo,
       p.started_at,
       p.updated_at
  FROM likecount._counter c
       CROSS JOIN LATERAL likecount._counter_facts(c.id) f
       LEFT JOIN likecount._progress p ON p.counter = c.id
 WHERE f.source IS NOT NULL;

COMMENT ON VIEW likecount.progress IS 'how far the recounts of each counter are: its own after attach, restore or crash, and reconcile_all';
COMMENT ON COLUMN likecount.progress.verb IS 'the counter';
COMMENT ON COLUMN likecount.progress.source IS 'the table whose rows are counted';
COMMENT ON COLUMN likecount.progress.phase IS 'adopting, backfilling, repairing: by itself; reconcile_all: called, and not complete; idle';
COMMENT ON COLUMN likecount.progress.posts_done IS 'posts recounted in this phase; idle: in the last one';
COMMENT ON COLUMN likecount.progress.posts_total IS 'estimate of how many there are; NULL: not known';
COMMENT ON COLUMN likecount.progress.drift_found IS 'sum of the corrections in this phase';
COMMENT ON COLUMN likecount.progress.repair_todo IS 'posts that a crash may have left wrong and that are still to be recounted';
COMMENT ON COLUMN likecount.progress.started_at IS 'when the last reconcile_all began; NULL: never called';
COMMENT ON COLUMN likecount.progress.updated_at IS 'when it last committed a chunk';

CREATE FUNCTION likecount._status(
        OUT library_version text, OUT sql_version text, OUT preloaded boolean, OUT in_recovery boolean, OUT ready boolean,
        OUT launcher_pid integer, OUT worker_state text, OUT worker_pid integer, OUT worker_since timestamptz,
        OUT worker_starts bigint, OUT worker_not_before timestamptz,
        OUT last_flush_at timestamptz, OUT last_flush_ms double precision, OUT flushes bigint, OUT deltas bigint,
        OUT posts_written bigint, OUT discarded bigint, OUT rejected bigint, OUT errors bigint, OUT truncations bigint,
        OUT stats_reset timestamptz, OUT truncation_blocked_by integer, OUT flush_locked_by integer,
        OUT lag interval, OUT oldest_delta timestamptz, OUT queue_rows bigint, OUT queue_bytes bigint,
        OUT journal_rows bigint, OUT journal_bytes bigint,
        OUT horizon_age integer, OUT unadopted integer) RETURNS record
    LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', $$likecount_status$$;

COMMENT ON FUNCTION likecount._status() IS 'behind the view status';

CREATE VIEW likecount.status AS
SELECT s.library_version,
       s.sql_version,
       s.preloaded,
       s.in_recovery,
       s.ready,
       s.launcher_pid,
       s.worker_state,
       s.worker_pid,
       s.worker_since,
       s.worker_starts,
       s.worker_not_before,
       s.lag,
       s.oldest_delta,
       s.queue_rows,
       s.queue_bytes,
       s.journal_rows,
       s.journal_bytes,
       s.last_flush_at,
       s.last_flush_ms,
       s.flush_locked_by,
       s.flushes,
       s.deltas,
       s.posts_written,
       s.discarded,
       s.rejected,
       (SELECT pg_catalog.sum(c.drift_posts)::bigint FROM likecount._counter c) AS drift_posts,
       (SELECT pg_catalog.sum(c.drift_found)::bigint FROM likecount._counter c) AS drift_found,
       s.errors,
       s.truncations,
       s.truncation_blocked_by,
       s.stats_reset,
       s.horizon_age,
       (SELECT pg_catalog.clock_timestamp() - w.liked_at FROM likecount._watermark w) AS watermark_age,
       s.unadopted
  FROM likecount._status() s;

COMMENT ON VIEW likecount.status IS 'likecount in this database, in one row; the numbers from flushes to truncations, but drift_posts and drift_found, are cumulative since stats_reset, and NULL without preloading';
COMMENT ON COLUMN likecount.status.library_version IS 'version of the loaded library';
COMMENT ON COLUMN likecount.status.sql_version IS 'version of the installed SQL objects';
COMMENT ON COLUMN likecount.status.preloaded IS 'whether the library is in shared_preload_libraries; if not there is no worker, and flush() has to be called';
COMMENT ON COLUMN likecount.status.in_recovery IS 'whether this server is a standby, where nothing is flushed';
COMMENT ON COLUMN likecount.status.ready IS 'whether the unlogged queue may be used: a flush has checked it since the server started';
COMMENT ON COLUMN likecount.status.launcher_pid IS 'process that starts the workers; NULL: there is none';
COMMENT ON COLUMN likecount.status.worker_state IS 'running, asleep (nothing to do), not needed (left after idle_timeout), starting, backing off (after errors), barred (by a command that needs the database alone), off (likecount.worker), in recovery, not preloaded';
COMMENT ON COLUMN likecount.status.worker_pid IS 'this database''s worker; NULL: none runs';
COMMENT ON COLUMN likecount.status.worker_since IS 'when the worker started';
COMMENT ON COLUMN likecount.status.worker_starts IS 'workers started in this database since the server''s start';
COMMENT ON COLUMN likecount.status.worker_not_before IS 'backing off: when the next worker may start';
COMMENT ON COLUMN likecount.status.lag IS 'age of the oldest delta that is not yet part of a total; zero when nothing waits';
COMMENT ON COLUMN likecount.status.oldest_delta IS 'when that delta was committed, or nearly; NULL: nothing waits';
COMMENT ON COLUMN likecount.status.queue_rows IS 'deltas waiting in the unlogged queue';
COMMENT ON COLUMN likecount.status.queue_bytes IS 'size of the queue on disk';
COMMENT ON COLUMN likecount.status.journal_rows IS 'deltas waiting in the logged journal';
COMMENT ON COLUMN likecount.status.journal_bytes IS 'size of the journal on disk';
COMMENT ON COLUMN likecount.status.last_flush_at IS 'when the last flush ended';
COMMENT ON COLUMN likecount.status.last_flush_ms IS 'how long it took, in milliseconds';
COMMENT ON COLUMN likecount.status.flush_locked_by IS 'process that is flushing, or has called flush() and not committed; NULL: none';
COMMENT ON COLUMN likecount.status.flushes IS 'flushes done';
COMMENT ON COLUMN likecount.status.deltas IS 'deltas moved into totals';
COMMENT ON COLUMN likecount.status.posts_written IS 'totals written; deltas per post written is what a flush saves';
COMMENT ON COLUMN likecount.status.discarded IS 'deltas of counters that do not exist any more';
COMMENT ON COLUMN likecount.status.rejected IS 'deltas set aside because a total would not fit a bigint';
COMMENT ON COLUMN likecount.status.drift_posts IS 'posts that the audit found wrong and put right, since their counters are registered here';
COMMENT ON COLUMN likecount.status.drift_found IS 'sum of those corrections';
COMMENT ON COLUMN likecount.status.errors IS 'workers that ended with an error';
COMMENT ON COLUMN likecount.status.truncations IS 'segments of queue and journal emptied in place';
COMMENT ON COLUMN likecount.status.truncation_blocked_by IS 'process whose lock keeps a segment from being emptied; -1: a prepared transaction; NULL: none';
COMMENT ON COLUMN likecount.status.stats_reset IS 'since when the cumulative numbers add up: the server''s start, or the last reset_stats()';
COMMENT ON COLUMN likecount.status.horizon_age IS 'transactions since the oldest snapshot that keeps dead rows of this database from being removed';
COMMENT ON COLUMN likecount.status.watermark_age IS 'a crash now would have posts with likes younger than this recounted; NULL: the queue is not in use';
COMMENT ON COLUMN likecount.status.unadopted IS 'counters found in the catalogs, as after a restore, that are not registered yet';

CREATE FUNCTION likecount._pending() RETURNS TABLE (verb name, post text, pending bigint)
    LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 1000 AS 'MODULE_PATHNAME', $$likecount_pending$$;

COMMENT ON FUNCTION likecount._pending() IS 'behind the view pending';

CREATE VIEW likecount.pending AS
SELECT p.verb, p.post, p.pending FROM likecount._pending() p;

COMMENT ON VIEW likecount.pending IS 'what committed likes have yet to change in the totals, by post; seen with the reading statement''s snapshot';
COMMENT ON COLUMN likecount.pending.verb IS 'the counter';
COMMENT ON COLUMN likecount.pending.post IS 'the post, as text';
COMMENT ON COLUMN likecount.pending.pending IS 'sum of the deltas that wait; 0 when they cancel out';

CREATE FUNCTION likecount._hot_posts() RETURNS TABLE (verb name, post text, slots integer, total bigint)
    LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 100 AS 'MODULE_PATHNAME', $$likecount_hot_posts$$;

COMMENT ON FUNCTION likecount._hot_posts() IS 'behind the view hot_posts';

CREATE VIEW likecount.hot_posts AS
SELECT h.verb, h.post, h.slots, h.total FROM likecount._hot_posts() h;

COMMENT ON VIEW likecount.hot_posts IS 'posts of counters in direct mode that are liked now, and by how many at the same time: those with slots above 0';
COMMENT ON COLUMN likecount.hot_posts.verb IS 'the counter';
COMMENT ON COLUMN likecount.hot_posts.post IS 'the post, as text';
COMMENT ON COLUMN likecount.hot_posts.slots IS 'its slots above 0: the most transactions that have lately committed a like of it at the same time';
COMMENT ON COLUMN likecount.hot_posts.total IS 'its total';

-- ------------------------------------------------------------------------------------------------------------------------------
-- Grants
--
-- USAGE on the schema is the gate, and PUBLIC does not have it.  Behind it everybody may execute what acts with the caller's own
-- rights or checks ownership.  Default privileges of whoever runs this script, in either direction, must not count: what they gave
-- is taken back first, and what is needed is granted.

DO $$
DECLARE
    object record;
BEGIN
    FOR object IN
        SELECT DISTINCT 'TABLE' AS kind, c.oid::regclass::text AS name, a.grantee
          FROM pg_class c, aclexplode(c.relacl) a
         WHERE c.relnamespace = 'likecount'::regnamespace AND a.grantee <> c.relowner
        UNION
        SELECT 'ROUTINE', p.oid::regprocedure::text, a.grantee
          FROM pg_proc p, aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
         WHERE p.pronamespace = 'likecount'::regnamespace AND a.grantee <> p.proowner
        UNION
        SELECT 'SCHEMA', n.oid::regnamespace::text, a.grantee
          FROM pg_namespace n, aclexplode(n.nspacl) a
         WHERE n.nspname = 'likecount' AND a.grantee <> n.nspowner
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s', object.kind, object.name,
                       CASE object.grantee WHEN 0 THEN 'PUBLIC' ELSE object.grantee::regrole::text END);
    END LOOP;
END
$$;

GRANT EXECUTE ON FUNCTION
    likecount.create_counter(text, text, text, regtype, regtype, text, boolean),
    likecount.attach(regclass, name, name, name, text, text, text, text, boolean, boolean),
    likecount.set_mode(regclass, text, text),
    likecount.detach(regclass, text, boolean, boolean),
    likecount._capture(),
    likecount._other_node(),
    likecount._add(text, "any", "any"),
    likecount._remove(text, "any", "any"),
    likecount._has(text, "any", "any"),
    likecount._add_many(text, "any", "any"),
    likecount._total(text, "any"),
    likecount._total_now(text, "any"),
    likecount._totals(text, anyarray),
    likecount._posts_of(text, "any", anyarray),
    likecount.reconcile(regclass, anyelement, text),
    likecount.reconcile(regclass, text, text),
    likecount.reconcile_recent(regclass, interval, text),
    likecount._reconcile_chunk(regclass, integer, text),
    likecount."check"(regclass, bigint, text),
    likecount.freeze(regclass, anyelement, text),
    likecount.freeze(regclass, text, text),
    likecount.unfreeze(regclass, anyelement, text),
    likecount.unfreeze(regclass, text, text),
    likecount.frozen(regclass, text),
    likecount.forget(regclass, anyelement, boolean, integer, text),
    likecount.forget(regclass, text, boolean, integer, text),
    likecount.lag(),
    likecount.version()
TO PUBLIC;

GRANT EXECUTE ON PROCEDURE likecount.reconcile_all(regclass, integer, text) TO PUBLIC;

GRANT USAGE ON SCHEMA likecount TO pg_monitor;
GRANT SELECT ON likecount.counters, likecount.status, likecount.pending, likecount.progress, likecount.hot_posts TO pg_monitor;
GRANT EXECUTE ON FUNCTION likecount._counter_facts(integer), likecount._frozen_posts(integer), likecount._open_slots(integer), likecount._status(), likecount._pending(), likecount._hot_posts() TO pg_monitor;
