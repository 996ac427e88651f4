-- The count in the post's row, kept by a trigger: one round trip, so the row is locked for the commit only.
\set post CASE WHEN :zipf THEN random_zipfian(1, :posts, 1.07) ELSE random(1, :posts) END
\set user random(1, 2000000000)
INSERT INTO trigger_likes (post_id, user_id) VALUES (:post, :user) ON CONFLICT (post_id, user_id) DO NOTHING;
