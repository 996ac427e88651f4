# The life of one worker: it comes with the first like, costs nothing while there is nothing to do, goes, comes back
# after whatever ended it, and obeys its settings at a reload.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('lifecycle', conf => <<'CONF');
restart_after_crash = on
autovacuum = off
likecount.idle_timeout = '10s'
CONF

# The worker's process, once there is one that is not $old.
sub worker_pid
{
	my ($old) = @_;
	$old //= 0;
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'likecount worker' AND pid <> $old")
	  or die 'no worker came';
	return (worker_pids($node, 'postgres'))[0];
}

sub reload_with
{
	my ($name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	return;
}

sub count_is
{
	my ($post, $count, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT likecount.like_count($post) = $count"), $what);
}

# ---- start

# the launcher has visited the database, in vain, when its worker has come and gone
wait_no_worker($node, 'postgres');
is(scalar(worker_pids($node)), 0, 'no worker where the extension is not installed');

$node->safe_psql('postgres', q{CREATE EXTENSION likecount; SELECT likecount.create_counter()});
wait_exact($node, 'postgres');
wait_no_worker($node, 'postgres');
is(scalar(worker_pids($node)), 0, 'a worker with nothing to do leaves');

$node->safe_psql('postgres', 'SELECT likecount.like(1, 1)');
count_is(1, 1, 'a like on an idle database starts a worker, which counts it');
my $pid = worker_pid();

# ---- idle

# How often a process has slept, from the kernel.
sub naps
{
	my ($of) = @_;
	my ($naps) = slurp_file("/proc/$of/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return $naps;
}

sub wait_idle_for
{
	my ($duration) = @_;
	return $node->poll_query_until('postgres', qq{
		SELECT clock_timestamp() - state_change > '$duration' AND state = 'idle'
		FROM pg_stat_activity WHERE backend_type = 'likecount worker'});
}

sub footprint
{
	return $node->safe_psql('postgres', q{
		SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot()), flushes FROM likecount.status});
}

my $launcher = $node->safe_psql('postgres', 'SELECT launcher_pid FROM likecount.status');
wait_idle_for('500 ms');
my ($worker_naps, $launcher_naps, $before) = (naps($pid), naps($launcher), footprint());
# dozens of turns, if there were any
wait_idle_for('2500 ms');
is(naps($pid), $worker_naps, 'an idle worker does not wake up');
is(naps($launcher), $launcher_naps, 'an idle launcher does not wake up');
is(footprint(), $before, 'an idle worker writes no WAL, takes no transaction id and does not flush');

wait_no_worker($node, 'postgres');
$before = footprint();
is($node->safe_psql('postgres', 'SELECT worker_state, worker_pid IS NULL FROM likecount.status'),
	'not needed|t', 'the idle worker has left');
is(footprint(), $before, 'nobody wants it back');

# ---- ends

$node->safe_psql('postgres', 'SELECT likecount.like(2, 1)');
$pid = worker_pid();
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
my $next = worker_pid($pid);
isnt($next, $pid, 'a terminated worker is replaced');
$node->safe_psql('postgres', 'SELECT likecount.like(2, 2)');
count_is(2, 2, 'and the new one counts');
is($node->safe_psql('postgres', 'SELECT errors FROM likecount.status'), '1', 'the end is noted');

$pid = worker_pid();
$node->safe_psql('postgres', 'SELECT likecount.like(3, u) FROM generate_series(1, 100) u');
kill 'KILL', $pid;
$node->poll_query_until('postgres', qq{
	SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'likecount launcher' AND pid <> $launcher});
wait_exact($node, 'postgres');
count_is(3, 100, 'after a kill -9 of the worker the totals become exact by themselves');

# ---- reload

reload_with('likecount.idle_timeout', '60s');
reload_with('likecount.flush_interval', '1h');
# whatever the interval was when the worker began to wait, now it sleeps or takes an hour: a new one sleeps
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(worker_pid) FROM likecount.status WHERE worker_pid IS NOT NULL');
$pid = worker_pid();
wait_idle_for('200 ms');
$node->safe_psql('postgres', 'SELECT likecount.like(4, 1)');
count_is(4, 1, 'a sleeping worker counts a like at once, whatever the interval');
$node->safe_psql('postgres', 'SELECT likecount.like(4, 2)');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(4)'), '1', 'and the next one an interval later');
reload_with('likecount.flush_interval', '50ms');
count_is(4, 2, 'a shorter interval ends the wait');

reload_with('likecount.worker', 'off');
wait_no_worker($node, 'postgres');
$node->safe_psql('postgres', 'SELECT likecount.like(5, 1)');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(5)'), '0', 'without a worker a like waits');
is($node->safe_psql('postgres', 'SELECT likecount.flush() >= 1'), 't', 'until flush()');
count_is(5, 1, 'counts it');
$node->safe_psql('postgres', 'SELECT likecount.like(5, 2)');
is(scalar(worker_pids($node)), 0, 'likecount.worker = off starts none');
reload_with('likecount.worker', 'on');
count_is(5, 2, 'likecount.worker = on starts it again');

# ---- the launcher

$launcher = $node->safe_psql('postgres', 'SELECT launcher_pid FROM likecount.status');
$pid = worker_pid();
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
$node->poll_query_until('postgres', "SELECT launcher_pid <> $launcher FROM likecount.status");
is(worker_pid(), $pid, 'a new launcher finds the worker that is there');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
isnt(worker_pid($pid), $pid, 'and replaces it when it ends');

wait_exact($node, 'postgres');
done_testing();
