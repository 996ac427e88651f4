-- Takes back what this client liked last; pgbench keeps its variables from one script to the next.
DELETE FROM trigger_likes WHERE post_id = :post AND user_id = :user;
