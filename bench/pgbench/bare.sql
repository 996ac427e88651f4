-- The row alone, and no count: what storing a like costs without counting it.
\set post CASE WHEN :zipf THEN random_zipfian(1, :posts, 1.07) ELSE random(1, :posts) END
\set user random(1, 2000000000)
INSERT INTO bare_likes (post_id, user_id) VALUES (:post, :user) ON CONFLICT (post_id, user_id) DO NOTHING;
