-- The count in the post's row, as an application keeps it: insert, and if that was new, UPDATE posts.
\set post CASE WHEN :zipf THEN random_zipfian(1, :posts, 1.07) ELSE random(1, :posts) END
\set user random(1, 2000000000)
BEGIN;
WITH new AS (
    INSERT INTO naive_likes (post_id, user_id) VALUES (:post, :user) ON CONFLICT (post_id, user_id) DO NOTHING RETURNING 1
) SELECT count(*) AS new FROM new \gset
\if :new > 0
UPDATE naive_posts SET like_count = like_count + 1 WHERE id = :post;
\endif
COMMIT;
