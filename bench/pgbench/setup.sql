-- One table per contender, so that each writes the same row into the same kind of table.
CREATE EXTENSION IF NOT EXISTS likecount;

CREATE TABLE bare_likes (
    post_id  bigint      NOT NULL,
    user_id  bigint      NOT NULL,
    liked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (post_id, user_id)
);
CREATE INDEX ON bare_likes USING brin (liked_at) WITH (autosummarize = on);

CREATE TABLE naive_likes (LIKE bare_likes INCLUDING ALL);
CREATE TABLE naive_posts (id bigint PRIMARY KEY, like_count bigint NOT NULL DEFAULT 0);
INSERT INTO naive_posts VALUES (1);

SELECT likecount.create_counter('likes');
