-- Takes back what this client liked last; pgbench keeps its variables from one script to the next.
BEGIN;
WITH gone AS (
    DELETE FROM naive_likes WHERE post_id = :post AND user_id = :user RETURNING 1
) SELECT count(*) AS gone FROM gone \gset
\if :gone > 0
UPDATE naive_posts SET like_count = like_count - 1 WHERE id = :post;
\endif
COMMIT;
