-- likecount: the like and its part of the count.
\set user random(1, 2000000000)
SELECT likecount.like(1, :user);
