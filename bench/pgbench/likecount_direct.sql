-- likecount in direct mode, by its call.
\set post CASE WHEN :zipf THEN random_zipfian(1, :posts, 1.07) ELSE random(1, :posts) END
\set user random(1, 2000000000)
SELECT likecount.direct_like(:post, :user);
