-- The invariant I1 of DESIGN.md as a function, for whatever test wants it: SQL files by \i, TAP files by its text.

-- drift(verb) lists, in the one snapshot of the calling statement, the posts of a counter whose rows are not total + pending.
-- Inside a transaction that has changed likes since its last flush() these are exactly its own deltas.
CREATE OR REPLACE FUNCTION drift(verb text)
    RETURNS TABLE (post text, source bigint, total bigint, pending bigint, drift bigint)
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY EXECUTE format('
        SELECT p, sum(s)::bigint, sum(t)::bigint, sum(w)::bigint, (sum(s) - sum(t) - sum(w))::bigint
          FROM (SELECT post_id::text, count(*), 0, 0 FROM likecount.%I WHERE post_id IS NOT NULL GROUP BY 1
                UNION ALL
                SELECT post_id::text, 0, total, 0 FROM likecount.%I
                UNION ALL
                SELECT post, 0, 0, pending FROM likecount.pending WHERE verb = %L) AS all_of_them (p, s, t, w)
         GROUP BY p
        HAVING sum(s) - sum(t) - sum(w) <> 0', verb || '_rows', verb || '_totals', verb);
END
$$;

-- drifts(verb) is the same in one line, "post:drift ..."; '' when nothing is wrong.
CREATE OR REPLACE FUNCTION drifts(verb text) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT COALESCE(string_agg(format('%s:%s', d.post, d.drift), ' ' ORDER BY length(d.post), d.post), '') FROM drift($1) d
$$;

-- settle(verb) flushes and returns the totals that are not 0 as "post:total ...", followed by what is still wrong, if anything.
CREATE OR REPLACE FUNCTION settle(verb text) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    totals text;
    wrong  text := '';
BEGIN
    PERFORM likecount.flush();
    EXECUTE format('SELECT COALESCE(string_agg(format(''%%s:%%s'', post_id, total), '' '' ORDER BY post_id), '''')
                      FROM likecount.%I WHERE total <> 0', verb || '_totals') INTO totals;
    wrong := drifts(verb);
    RETURN totals || CASE WHEN wrong = '' THEN '' ELSE ' but wrong by ' || wrong END;
END
$$;

-- What is in the segments: committed deltas that wait, and this transaction's own that were spilled.  For counters with a post of type bigint.
CREATE OR REPLACE VIEW segments AS
SELECT place, c.verb, ('x' || right(encode(post, 'hex'), 15))::bit(60)::bigint AS post, delta
  FROM (SELECT 'queue' AS place, counter, post, delta FROM likecount._queue_0
        UNION ALL SELECT 'queue', counter, post, delta FROM likecount._queue_1
        UNION ALL SELECT 'queue', counter, post, delta FROM likecount._queue_2
        UNION ALL SELECT 'journal', counter, post, delta FROM likecount._journal_0
        UNION ALL SELECT 'journal', counter, post, delta FROM likecount._journal_1
        UNION ALL SELECT 'journal', counter, post, delta FROM likecount._journal_2) AS rows
       JOIN likecount._counter c ON c.id = rows.counter;

-- waiting(verb) is the same in one line: "queue post:delta ... journal post:delta ...".
CREATE OR REPLACE FUNCTION waiting(verb text) RETURNS text
    LANGUAGE sql AS $$
    SELECT COALESCE(string_agg(format('%s %s:%s', place, post, delta), ' ' ORDER BY place DESC, post, delta), '') FROM segments WHERE verb = $1
$$;
