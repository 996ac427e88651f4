# What one session does to one counter neither stops the worker for the others nor hides a loss: locks on a source that
# is being recounted, an open detach, unlogged partitions in a crash, sessions in the replica role.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('not_stopped');

$node->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	SELECT likecount.create_counter('likes', verb => 'like');
	SELECT likecount.create_counter('stars', verb => 'star');
	CREATE TABLE marks (post int NOT NULL, fan int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (post, fan)) PARTITION BY LIST (post);
	CREATE INDEX ON marks (at);
	CREATE TABLE marks_1 PARTITION OF marks FOR VALUES IN (1);
	CREATE TABLE marks_2 PARTITION OF marks FOR VALUES IN (2);
	SELECT likecount.attach('marks', 'post', 'fan', 'at', verb => 'mark');
	INSERT INTO marks SELECT p, f FROM generate_series(1, 2) p, generate_series(1, 5) f});
wait_exact($node, 'postgres');

# ---- the worker waits for nobody

# A star and what it takes to see it counted, while another session sits on something of another counter.
my $fan = 0;
sub stars_go_on
{
	my ($what) = @_;
	$node->safe_psql('postgres', 'SELECT likecount.star(1, ' . ++$fan . ')');
	ok($node->poll_query_until('postgres', "SELECT likecount.star_count(1) = $fan"), "stars are counted while $what");
	return;
}

my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE likes IN ACCESS EXCLUSIVE MODE');
$node->safe_psql('postgres', q{INSERT INTO likecount._request (counter, reason) SELECT id, 'a test' FROM likecount._counter WHERE verb = 'like'});
stars_go_on('a counter that is to be recounted has its source locked');
ok($node->poll_query_until('postgres', q{SELECT state = 'backfilling' FROM likecount.counters WHERE verb = 'like'}), 'which waits');
$locker->query_safe('COMMIT');
wait_exact($node, 'postgres');

$node->safe_psql('postgres', 'ALTER TABLE marks DETACH PARTITION marks_2');
$locker->query_safe(q{BEGIN; SELECT likecount.detach('marks')});
stars_go_on('a detach is open');
$locker->query_safe('ROLLBACK');
wait_exact($node, 'postgres');
is($node->safe_psql('postgres', 'SELECT likecount.mark_count(2)'), '0', 'the detached partition does not count');

# ---- sessions in the replica role, where our own triggers discard what replication brings

$node->safe_psql('postgres', q{SET session_replication_role = replica; ALTER TABLE marks ATTACH PARTITION marks_2 FOR VALUES IN (2)});
wait_exact($node, 'postgres');
is($node->safe_psql('postgres', 'SELECT likecount.mark_count(2)'), '5', 'a partition attached in the replica role counts');

$node->append_conf('postgresql.conf', "likecount.worker = off\n");
$node->reload;
wait_no_worker($node, 'postgres');
$node->safe_psql('postgres', 'SELECT likecount.like(1, u) FROM generate_series(1, 7) u');
is($node->safe_psql('postgres', 'SELECT queue_rows > 0 FROM likecount.status'), 't', 'likes are in the queue');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', 'SET session_replication_role = replica; SELECT likecount.flush()');
$node->safe_psql('postgres', 'SELECT likecount.flush() FROM generate_series(1, 3)');
wait_exact($node, 'postgres');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(1)'), '7', 'a crash is repaired, though the first flush was in the replica role');

# ---- an unlogged partition, which a crash empties while the totals stay

$node->safe_psql('postgres', q{
	CREATE UNLOGGED TABLE marks_3 PARTITION OF marks FOR VALUES IN (3);
	-- so old that the repair of a lost queue does not look for them
	INSERT INTO marks VALUES (3, 1, '2020-01-01'), (3, 2, '2020-01-01');
	SELECT likecount.flush()});
is($node->safe_psql('postgres', 'SELECT likecount.mark_count(3)'), '2', 'rows of an unlogged partition count');
like($node->safe_psql('postgres', q{SELECT warnings FROM likecount.counters WHERE verb = 'mark'}), qr/unlogged/, 'with a warning');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', 'SELECT likecount.flush() FROM generate_series(1, 4)');
wait_exact($node, 'postgres');
is($node->safe_psql('postgres', 'SELECT count(*), likecount.mark_count(3) FROM marks WHERE post = 3'), '0|0', 'the crash that empties it is noticed');

done_testing();
