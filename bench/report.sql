-- The report, from the files in the current directory; bench/run runs it there.
\set ON_ERROR_STOP on
CREATE TEMP TABLE runs (part text, clients int, round int, contender text, likes float, per_second float, p50_ms float, p99_ms float,
    wal_bytes float, server_cpu float, worker_cpu float, waiting float);
CREATE TEMP TABLE flush (part text, round int, what text, deltas float, ms float);
CREATE TEMP TABLE copy (part text, round int, contender text, rows float, ms float, copy_cpu float, worker_cpu float);
CREATE TEMP TABLE lag (part text, second float, ms float);
CREATE TEMP TABLE queue (part text, second int, server text, flush_ms float, deltas float, queue_bytes float, slots_bytes float, truncations int);
CREATE TEMP TABLE redis (part text, round int, appendfsync text, clients int, pipeline int, per_second float, bytes_per_like float);
CREATE TEMP TABLE instructions (number serial, what text, per_call float, per_like float);
CREATE TEMP TABLE working_set (number serial, posts float, what text, value float);
\copy runs FROM runs.csv CSV HEADER
\copy flush FROM flush.csv CSV HEADER
\copy copy FROM copy.csv CSV HEADER
\copy lag FROM lag.csv CSV HEADER
\copy queue FROM queue.csv CSV HEADER
\copy redis FROM redis.csv CSV HEADER
\copy instructions (what, per_call, per_like) FROM instructions.csv CSV HEADER
\copy working_set (posts, what, value) FROM working-set.csv CSV HEADER

CREATE FUNCTION pg_temp.median_of(float[]) RETURNS float LANGUAGE sql RETURN
    (SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM unnest($1) v);
CREATE AGGREGATE pg_temp.median(float) (SFUNC = array_append, STYPE = float[], INITCOND = '{}', FINALFUNC = pg_temp.median_of);
CREATE FUNCTION pg_temp.row(VARIADIC text[]) RETURNS text LANGUAGE sql RETURN '| ' || array_to_string($1, ' | ', '') || ' |';
-- 12,345 or 0.98: four digits, or all before the point
CREATE FUNCTION pg_temp.n(v float) RETURNS text LANGUAGE sql RETURN
    CASE WHEN v = 0 THEN '0' WHEN abs(v) >= 100 THEN trim(to_char(v, '999,999,999,999')) WHEN abs(v) >= 10 THEN round(v::numeric, 1)::text ELSE round(v::numeric, 2)::text END;

-- A ratio is the median of the ratios of each round, so that what is slow for a while is in both of its sides.
CREATE TEMP VIEW ratio AS
    SELECT a.part, a.clients, a.contender, b.contender AS base, pg_temp.median(a.per_second / b.per_second) AS rate,
        sum(a.wal_bytes) / sum(a.likes) / (sum(b.wal_bytes) / sum(b.likes)) AS wal
    FROM runs a JOIN runs b USING (part, clients, round) GROUP BY 1, 2, 3, 4;
CREATE TEMP VIEW medians AS
    SELECT part, clients, contender, pg_temp.median(per_second) AS per_second, min(per_second) AS lowest, max(per_second) AS highest,
        pg_temp.median(p50_ms) AS p50_ms, pg_temp.median(p99_ms) AS p99_ms, sum(wal_bytes) / sum(likes) AS wal,
        sum(server_cpu) / sum(likes) * 1e6 AS cpu_us, sum(worker_cpu) / sum(likes) * 1e6 AS worker_us, max(waiting) AS waiting
    FROM runs GROUP BY 1, 2, 3;
CREATE TEMP VIEW redis_medians AS
    SELECT appendfsync, pipeline, clients, pg_temp.median(per_second) AS per_second, min(per_second) AS lowest, max(per_second) AS highest,
        max(bytes_per_like) AS bytes_per_like
    FROM redis GROUP BY 1, 2, 3;

\echo '## The bars'
\echo
\echo '| what | bar | measured | |'
\echo '|---|---|---|---|'
CREATE TEMP TABLE bars (number serial, what text, sense text, bar float, measured float);
INSERT INTO bars (what, sense, bar, measured)
    SELECT format('like() ÷ bare INSERT, one hot post, %s clients', clients), '≥', 1, rate
        FROM ratio WHERE part = 'hot' AND contender = 'likecount' AND base = 'bare' ORDER BY clients;
INSERT INTO bars (what, sense, bar, measured)
    SELECT format('like() ÷ insert and UPDATE, one hot post, %s clients', clients), '≥', 8, rate
        FROM ratio WHERE part = 'hot' AND contender = 'likecount' AND base = 'naive' AND clients = 64;
INSERT INTO bars (what, sense, bar, measured)
    SELECT format('like() hot ÷ spread, %s clients (the bare INSERT: %s)', clients, pg_temp.n(b.rate)), '≥', 0.95, l.rate
        FROM ratio l JOIN ratio b USING (part, clients)
        WHERE part = 'spread' AND l.contender = 'likecount_hot' AND l.base = 'likecount' AND b.contender = 'bare_hot' AND b.base = 'bare' ORDER BY clients;
INSERT INTO bars (what, sense, bar, measured)
    SELECT 'WAL bytes of a like ÷ bare INSERT, ' || CASE contender WHEN 'likecount' THEN 'after a checkpoint' ELSE 'later' END, '≤', 1.02, wal
        FROM ratio WHERE part = 'wal' AND (contender, base) IN (('likecount', 'bare'), ('likecount again', 'bare again'));
INSERT INTO bars (what, sense, bar, measured)
    SELECT format('like_many(100), likes/s, %s clients', clients), '≥', 100000, per_second FROM medians
        WHERE part = 'batch' AND contender = 'likecount' ORDER BY clients;
INSERT INTO bars (what, sense, bar, measured)
    SELECT format('like_many(100) ÷ INSERT of 100 rows, %s clients', clients), '≥', 0.95, rate FROM ratio
        WHERE part = 'batch' AND contender = 'likecount' AND base = 'bare' ORDER BY clients;
INSERT INTO bars (what, sense, bar, measured)
    SELECT format('like_count() ÷ SELECT 1, %s clients', clients), '≥', 0.95, rate FROM ratio
        WHERE part = 'reads' AND contender = 'like_count' AND base = 'select_1' ORDER BY clients;
INSERT INTO bars (what, sense, bar, measured)
    SELECT format('like_counts(%s) ÷ %1$s calls of like_count(), time', substr(contender, 8)), '≤', 0.1, rate FROM ratio
        WHERE part = 'reads' AND contender LIKE 'single%' AND base = replace(contender, 'single', 'page') ORDER BY length(contender);
INSERT INTO bars (what, sense, bar, measured)
    SELECT 'flush, deltas/s: ' || what, '≥', CASE what WHEN 'one-post' THEN 1000000 ELSE 150000 END, pg_temp.median(deltas / ms * 1000)
        FROM flush GROUP BY what ORDER BY what DESC;
INSERT INTO bars (what, sense, bar, measured)
    SELECT 'COPY of a million likes, CPU' || w.what || ' ÷ the same uncounted', '≤', 1.3,
            pg_temp.median((a.copy_cpu + w.weight * a.worker_cpu) / b.copy_cpu)
        FROM copy a JOIN copy b USING (round), (VALUES (0, ''), (1, ' with the worker''s')) w (weight, what)
        WHERE a.contender = 'likecount' AND b.contender = 'bare' GROUP BY weight, w.what ORDER BY weight;
INSERT INTO bars (what, sense, bar, measured)
    SELECT 'total trails a commit, p99, 64 clients, ms', '≤', 1100, percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) FROM lag HAVING count(*) > 0;
SELECT pg_temp.row(what, sense || ' ' || pg_temp.n(bar), pg_temp.n(measured),
    CASE WHEN CASE sense WHEN '≥' THEN measured >= bar ELSE measured <= bar END THEN 'met' ELSE '**missed**' END) FROM bars ORDER BY number;
\echo

SELECT EXISTS (SELECT FROM runs WHERE part <> 'reads') AS there \gset
\if :there
\echo '## Throughput'
\echo
\echo 'Medians of the rounds, with the lowest and the highest; ratios are medians of each round''s ratio. CPU: of all server processes,'
\echo 'per like, until the like is in its total; the worker''s is part of it. WAL with the full pages that follow the checkpoint before each run.'
\echo
\echo '| load | clients | contender | likes/s | from – to | ÷ bare | ÷ naive | p50 ms | p99 ms | WAL bytes | CPU µs | worker µs | waiting at the end |'
\echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|'
SELECT pg_temp.row(part, clients::text, contender, pg_temp.n(per_second), pg_temp.n(lowest) || ' – ' || pg_temp.n(highest),
        pg_temp.n(b.rate), pg_temp.n(n.rate), pg_temp.n(p50_ms), pg_temp.n(p99_ms), pg_temp.n(medians.wal), pg_temp.n(cpu_us),
        CASE WHEN contender LIKE 'likecount%' THEN pg_temp.n(worker_us) END, CASE WHEN contender LIKE 'likecount%' THEN pg_temp.n(waiting) END)
    FROM medians LEFT JOIN ratio b USING (part, clients, contender) LEFT JOIN ratio n USING (part, clients, contender)
    WHERE part <> 'reads' AND b.base = 'bare' AND (n.base = 'naive' OR NOT EXISTS (SELECT FROM runs r WHERE r.part = medians.part AND r.contender = 'naive') AND n.base = 'bare')
    ORDER BY array_position('{hot,zipf,spread,unlike,slow,pooled,pipeline,batch,wal}', part), clients,
        array_position('{bare,fk,naive,trigger,slotted,likecount,likecount_orm,likecount_direct}', contender), contender;
\echo
\endif

SELECT EXISTS (SELECT FROM runs WHERE part = 'reads') AS there \gset
\if :there
\echo '## Reading'
\echo
\echo '| clients | what | posts/s | from – to | p50 ms | p99 ms | CPU µs a post |'
\echo '|---|---|---|---|---|---|---|'
SELECT pg_temp.row(clients::text, contender, pg_temp.n(per_second), pg_temp.n(lowest) || ' – ' || pg_temp.n(highest), pg_temp.n(p50_ms),
        pg_temp.n(p99_ms), pg_temp.n(cpu_us))
    FROM medians WHERE part = 'reads' ORDER BY contender ~ '\d\d', clients, length(contender), contender;
\echo
\endif

SELECT EXISTS (SELECT FROM flush UNION ALL SELECT FROM copy UNION ALL SELECT FROM queue) AS there \gset
\if :there
\echo '## The way into the total'
\echo
\echo '| what | n | median | from – to |'
\echo '|---|---|---|---|'
SELECT pg_temp.row('flush, deltas/s: ' || what, count(*)::text, pg_temp.n(pg_temp.median(deltas / ms * 1000)),
        pg_temp.n(min(deltas / ms * 1000)) || ' – ' || pg_temp.n(max(deltas / ms * 1000))) FROM flush GROUP BY what ORDER BY what DESC;
SELECT pg_temp.row(format('COPY of a million likes, %s: CPU s (worker %s)', contender, pg_temp.n(pg_temp.median(worker_cpu))), count(*)::text,
        pg_temp.n(pg_temp.median(copy_cpu)), pg_temp.n(min(copy_cpu)) || ' – ' || pg_temp.n(max(copy_cpu))) FROM copy GROUP BY contender ORDER BY contender;
SELECT pg_temp.row(format('trails a commit, ms: p99 %s', pg_temp.n(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms))), count(*)::text,
        pg_temp.n(pg_temp.median(ms)), pg_temp.n(min(ms)) || ' – ' || pg_temp.n(max(ms))) FROM lag HAVING count(*) > 0;
SELECT pg_temp.row(format('queue and journal, kB, %s%s', part, ': ' || nullif(server, 'bench')), count(*)::text, pg_temp.n(pg_temp.median(queue_bytes / 1024)),
        pg_temp.n(min(queue_bytes / 1024)) || ' – ' || pg_temp.n(max(queue_bytes / 1024))) FROM queue GROUP BY part, server ORDER BY part DESC, server;
SELECT pg_temp.row(format('last flush, ms, %s%s: p99 %s', part, ': ' || nullif(server, 'bench'), pg_temp.n(percentile_cont(0.99) WITHIN GROUP (ORDER BY flush_ms))),
        count(*)::text, pg_temp.n(pg_temp.median(flush_ms)), pg_temp.n(min(flush_ms)) || ' – ' || pg_temp.n(max(flush_ms)))
    FROM queue GROUP BY part, server ORDER BY part DESC, server;
\echo
\endif

SELECT EXISTS (SELECT FROM redis) AS there \gset
\if :there
\echo '## Redis, SADD'
\echo
\echo '| appendfsync | pipeline | clients | likes/s | from – to | bytes of memory a like |'
\echo '|---|---|---|---|---|---|'
SELECT pg_temp.row(appendfsync, pipeline::text, clients::text, pg_temp.n(per_second), pg_temp.n(lowest) || ' – ' || pg_temp.n(highest), pg_temp.n(bytes_per_like))
    FROM redis_medians ORDER BY 1;
\echo
\endif

SELECT EXISTS (SELECT FROM instructions) AS there \gset
\if :there
\echo '## Instructions'
\echo
\echo '| what | per call | per like |'
\echo '|---|---|---|'
SELECT pg_temp.row(what, pg_temp.n(per_call), pg_temp.n(per_like)) FROM instructions ORDER BY number;
\echo
\endif

SELECT EXISTS (SELECT FROM working_set) AS there \gset
\if :there
SELECT format('## %s posts', pg_temp.n(max(posts))) FROM working_set;
\echo
\echo '| what | |'
\echo '|---|---|'
SELECT pg_temp.row(what, pg_temp.n(value)) FROM working_set ORDER BY number;
\echo
\endif

-- for the plots
\copy (SELECT * FROM (SELECT part, clients, contender, per_second, lowest, highest FROM medians UNION ALL SELECT 'hot', clients, 'redis', per_second, lowest, highest FROM redis_medians WHERE appendfsync = 'always' AND pipeline = 1) m ORDER BY part, array_position('{bare,fk,naive,trigger,slotted,likecount,likecount_orm,likecount_direct}', contender), contender, clients) TO medians.csv CSV HEADER
\copy (SELECT contender, COALESCE(max(per_second) FILTER (WHERE part = 'hot'), 0) AS "one hot post", COALESCE(max(per_second) FILTER (WHERE part = 'zipf'), 0) AS "100,000 posts, zipf", COALESCE(max(per_second) FILTER (WHERE part = 'spread'), 0) AS "1,000,000 posts" FROM medians WHERE clients = 64 AND contender NOT LIKE '%\_hot' AND part IN ('hot', 'zipf', 'spread') GROUP BY contender ORDER BY array_position('{bare,fk,naive,trigger,slotted,likecount,likecount_orm,likecount_direct}', contender)) TO hot-spread.csv CSV HEADER
