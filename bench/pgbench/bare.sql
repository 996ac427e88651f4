-- Who liked what, and no count: the ceiling.
\set user random(1, 2000000000)
INSERT INTO bare_likes (post_id, user_id) VALUES (1, :user) ON CONFLICT (post_id, user_id) DO NOTHING;
