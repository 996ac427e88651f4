-- Takes back what this client liked last; pgbench keeps its variables from one script to the next.
SELECT likecount.undirect_like(:post, :user);
