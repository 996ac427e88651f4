-- Takes back what this client liked last; pgbench keeps its variables from one script to the next.
\set slot random(0, 7)
BEGIN;
WITH gone AS (
    DELETE FROM slotted_likes WHERE post_id = :post AND user_id = :user RETURNING 1
) SELECT count(*) AS gone FROM gone \gset
\if :gone > 0
INSERT INTO slotted_slots VALUES (:post, :slot, -1) ON CONFLICT (post_id, slot) DO UPDATE SET value = slotted_slots.value - 1;
\endif
COMMIT;
