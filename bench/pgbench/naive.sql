-- The count in the post's row, updated by each like.
\set user random(1, 2000000000)
BEGIN;
INSERT INTO naive_likes (post_id, user_id) VALUES (1, :user) ON CONFLICT (post_id, user_id) DO NOTHING;
UPDATE naive_posts SET like_count = like_count + 1 WHERE id = 1;
COMMIT;
