-- The slotted counter: insert, and if that was new, add to one of eight rows of the post.
\set post CASE WHEN :zipf THEN random_zipfian(1, :posts, 1.07) ELSE random(1, :posts) END
\set user random(1, 2000000000)
\set slot random(0, 7)
BEGIN;
WITH new AS (
    INSERT INTO slotted_likes (post_id, user_id) VALUES (:post, :user) ON CONFLICT (post_id, user_id) DO NOTHING RETURNING 1
) SELECT count(*) AS new FROM new \gset
\if :new > 0
INSERT INTO slotted_slots VALUES (:post, :slot, 1) ON CONFLICT (post_id, slot) DO UPDATE SET value = slotted_slots.value + 1;
\endif
COMMIT;
