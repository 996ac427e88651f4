# Two-phase commit: nothing in a session tells the worker of a COMMIT PREPARED but the utility hook, and of one that
# logical replication carries out nothing at all.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('prepared', conf => <<'CONF');
max_prepared_transactions = 10
likecount.idle_timeout = '1s'
CONF

$node->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	SELECT likecount.create_counter();
	CREATE TABLE other (x int)});
wait_exact($node, 'postgres');
wait_no_worker($node, 'postgres');

$node->safe_psql('postgres', q{BEGIN; SELECT likecount.like(1, u) FROM generate_series(1, 3) u; PREPARE TRANSACTION 'p'});
ok($node->poll_query_until('postgres', q{
	SELECT clock_timestamp() - backend_start > '3 s' FROM pg_stat_activity WHERE backend_type = 'likecount worker'}),
	'the worker stays while a prepared transaction holds deltas');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(1)'), '0', 'which do not count yet');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(1) = 3'), 'COMMIT PREPARED makes them count');
wait_no_worker($node, 'postgres');
is(scalar(worker_pids($node)), 0, 'then the worker leaves');

# over a restart, and rolled back
$node->safe_psql('postgres', q{BEGIN; SELECT likecount.like(2, 1); PREPARE TRANSACTION 'q'});
$node->safe_psql('postgres', q{BEGIN; SELECT likecount.unlike(1, 1); PREPARE TRANSACTION 'r'});
$node->restart;
ok($node->poll_query_until('postgres', q{
	SELECT clock_timestamp() - backend_start > '3 s' FROM pg_stat_activity WHERE backend_type = 'likecount worker'}),
	'after a restart the worker finds the prepared transactions');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'q'});
$node->safe_psql('postgres', q{COMMIT PREPARED 'r'});
ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(1) = 2'), 'one unlike was committed');
wait_no_worker($node, 'postgres');
wait_exact($node, 'postgres');

# a crash between the phases
$node->safe_psql('postgres', q{BEGIN; SELECT likecount.like(2, 1); PREPARE TRANSACTION 'q'});
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', q{COMMIT PREPARED 'q'});
ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(2) = 1'), 'a crash loses no prepared like');
wait_exact($node, 'postgres');

# somebody else's prepared transaction is none of the worker's business
$node->safe_psql('postgres', q{BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'foreign'});
wait_no_worker($node, 'postgres');
is(scalar(worker_pids($node)), 0, 'no worker waits for a prepared transaction without deltas');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'foreign'});

done_testing();
