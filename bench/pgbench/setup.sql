-- The tables of the contenders.  psql -v posts=1 -v rows=100000 -v naive=on …: how many posts there are, how many likes each
-- contender starts with, so that nobody is measured on an empty index, and which contenders there are.
--
-- Each likes table is NAME_likes, of the same shape; each count is NAME_totals (post_id, total), which the benchmark
-- compares with the rows.
CREATE EXTENSION likecount;

-- bare: who liked what, and no count
CREATE TABLE bare_likes (
    post_id  bigint      NOT NULL,
    user_id  bigint      NOT NULL,
    liked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (post_id, user_id)
);
CREATE INDEX ON bare_likes USING brin (liked_at) WITH (autosummarize = on);
-- users in no order, and never the ones that the load makes
INSERT INTO bare_likes (post_id, user_id)
    SELECT 1 + g % :posts, -1 - (hashint8extended(g, 0) & 2147483647) FROM generate_series(1, :rows) g ORDER BY 1, 2
    ON CONFLICT DO NOTHING;
CREATE TABLE seed AS SELECT post_id, count(*) AS total FROM bare_likes GROUP BY post_id;

\if :{?naive}
-- naive: the count in the post's row, changed by the application
CREATE TABLE naive_likes (LIKE bare_likes INCLUDING ALL);
INSERT INTO naive_likes SELECT * FROM bare_likes;
CREATE TABLE naive_posts (id bigint PRIMARY KEY, like_count bigint NOT NULL DEFAULT 0) WITH (fillfactor = 90);
INSERT INTO naive_posts SELECT * FROM seed ORDER BY post_id;
CREATE VIEW naive_totals AS SELECT id AS post_id, like_count AS total FROM naive_posts;
\endif

\if :{?trigger}
-- trigger: the same, changed by a trigger
CREATE TABLE trigger_likes (LIKE bare_likes INCLUDING ALL);
INSERT INTO trigger_likes SELECT * FROM bare_likes;
CREATE TABLE trigger_posts (id bigint PRIMARY KEY, like_count bigint NOT NULL DEFAULT 0) WITH (fillfactor = 90);
INSERT INTO trigger_posts SELECT * FROM seed ORDER BY post_id;
CREATE FUNCTION count_like() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE trigger_posts SET like_count = like_count + 1 WHERE id = NEW.post_id;
    ELSE
        UPDATE trigger_posts SET like_count = like_count - 1 WHERE id = OLD.post_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER count_like AFTER INSERT OR DELETE ON trigger_likes FOR EACH ROW EXECUTE FUNCTION count_like();
CREATE VIEW trigger_totals AS SELECT id AS post_id, like_count AS total FROM trigger_posts;
\endif

\if :{?slotted}
-- slotted: the count spread over eight rows of each post, summed up by who reads it
CREATE TABLE slotted_likes (LIKE bare_likes INCLUDING ALL);
INSERT INTO slotted_likes SELECT * FROM bare_likes;
CREATE TABLE slotted_slots (
    post_id bigint,
    slot    integer,
    value   bigint NOT NULL,
    PRIMARY KEY (post_id, slot)
) WITH (fillfactor = 90);
INSERT INTO slotted_slots SELECT post_id, 0, total FROM seed ORDER BY post_id;
CREATE VIEW slotted_totals AS SELECT post_id, sum(value) AS total FROM slotted_slots GROUP BY post_id;
\endif

\if :{?fk}
-- fk: bare, with a foreign key to the post
CREATE TABLE fk_posts (id bigint PRIMARY KEY);
INSERT INTO fk_posts SELECT post_id FROM seed ORDER BY post_id;
CREATE TABLE fk_likes (LIKE bare_likes INCLUDING ALL);
INSERT INTO fk_likes SELECT * FROM bare_likes;
ALTER TABLE fk_likes ADD FOREIGN KEY (post_id) REFERENCES fk_posts;
\endif

\if :{?likecount}
-- likecount: by its call
CREATE TABLE likecount_likes (LIKE bare_likes INCLUDING ALL);
INSERT INTO likecount_likes SELECT * FROM bare_likes;
ANALYZE likecount_likes;
SELECT likecount.attach('likecount_likes', 'post_id', 'user_id', 'liked_at', verb => 'like');
CREATE VIEW likecount_totals AS SELECT * FROM likecount.like_totals;
\endif

\if :{?likecount_orm}
-- likecount_orm: by a plain INSERT
CREATE TABLE likecount_orm_likes (LIKE bare_likes INCLUDING ALL);
INSERT INTO likecount_orm_likes SELECT * FROM bare_likes;
ANALYZE likecount_orm_likes;
SELECT likecount.attach('likecount_orm_likes', 'post_id', 'user_id', 'liked_at', verb => 'orm_like');
CREATE VIEW likecount_orm_totals AS SELECT * FROM likecount.orm_like_totals;
\endif

\if :{?likecount_direct}
-- likecount_direct: by its call, in direct mode
CREATE TABLE likecount_direct_likes (LIKE bare_likes INCLUDING ALL);
INSERT INTO likecount_direct_likes SELECT * FROM bare_likes;
ANALYZE likecount_direct_likes;
SELECT likecount.attach('likecount_direct_likes', 'post_id', 'user_id', 'liked_at', verb => 'direct_like', mode => 'direct');
CREATE VIEW likecount_direct_totals AS SELECT * FROM likecount.direct_like_totals;
\endif
