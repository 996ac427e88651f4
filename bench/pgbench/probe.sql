-- How far the total trails a commit: likes a post that nobody else likes, commits, and looks at the count until it shows.
-- Reports each time as "seconds since the start,milliseconds from commit to count".
CREATE PROCEDURE probe(post bigint, duration interval) LANGUAGE plpgsql AS $$
DECLARE
    began     timestamptz := clock_timestamp();
    committed timestamptz;
    likes     bigint := likecount.like_count(post);
BEGIN
    WHILE clock_timestamp() < began + duration LOOP
        -- at a moment that has nothing to do with the flush that it waited for
        PERFORM pg_sleep(random());
        likes := likes + 1;
        PERFORM likecount.like(post, likes);
        COMMIT;
        committed := clock_timestamp();
        WHILE likecount.like_count(post) < likes LOOP
            COMMIT;
            PERFORM pg_sleep(0.002);
        END LOOP;
        RAISE INFO '%,%', round(extract(epoch FROM committed - began), 3),
            round(extract(epoch FROM clock_timestamp() - committed) * 1000, 1);
    END LOOP;
END $$;
