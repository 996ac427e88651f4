# More databases than workers, and no free slot for a worker at all.
use strict;
use warnings;
use IPC::Run;
use LikecountTest;

# ---- likecount.max_workers

my $node = new_node('limits', conf => <<'CONF');
likecount.max_workers = 1
max_worker_processes = 8
CONF

my @databases = map { "d$_" } 1 .. 3;
for my $database (@databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, q{
		CREATE EXTENSION likecount;
		SELECT likecount.create_counter();
		SELECT likecount.like(1, u) FROM generate_series(1, 10) u});
}
for my $database (@databases)
{
	ok($node->poll_query_until($database, 'SELECT likecount.like_count(1) = 10'),
		"one worker serves them all: $database");
}
cmp_ok(scalar(worker_pids($node)), '<=', 1, 'never more workers than likecount.max_workers');

# A database that is never idle gives way.
my $script = $node->basedir . '/busy.sql';
append_to_file($script, "\\set u random(1, 1000000000)\nSELECT likecount.like(2, :u);\n");
my $busy = IPC::Run::start([ 'pgbench', '-n', '-c1', '-T60', '-f', $script, $node->connstr('d1') ],
	'>', \my $out, '2>', \my $err);
$node->poll_query_until('d1', 'SELECT likecount.like_count(2) > 0');
for my $round (1 .. 2)
{
	$node->safe_psql($_, "SELECT likecount.like(3, $round)") for qw(d2 d3);
	ok($node->poll_query_until($_, "SELECT likecount.like_count(3) = $round"),
		"a busy database gives way, round $round: $_")
	  for qw(d2 d3);
	my $total = $node->safe_psql('d1', 'SELECT likecount.like_count(2)');
	ok($node->poll_query_until('d1', "SELECT likecount.like_count(2) > $total"),
		"and gets its turn again, round $round");
}
ok($busy->pumpable, 'all that while it was busy');
$busy->signal('INT');
$busy->finish;
wait_exact($node, $_) for @databases;

# One that waits for a lock gives way, too, and comes back for what it could not do: nobody tells it that the lock is gone.
$node->safe_psql('d1', q{SELECT likecount.create_counter('stars')});
wait_exact($node, 'd1');
my $locker = $node->background_psql('d1');
$locker->query_safe('BEGIN; LOCK TABLE likes IN ACCESS EXCLUSIVE MODE');
$node->safe_psql('d1', q{
	INSERT INTO likecount._request (counter, reason) SELECT id, 'a test' FROM likecount._counter WHERE verb = 'like';
	SELECT likecount.star(1, 1)});
ok($node->poll_query_until('d1', q{SELECT state = 'backfilling' FROM likecount.counters WHERE verb = 'like'}), 'a recount waits for a lock');
$node->safe_psql('d2', 'SELECT likecount.like(4, 1)');
ok($node->poll_query_until('d2', 'SELECT likecount.like_count(4) = 1'), 'which keeps no other database waiting');
$locker->query_safe('ROLLBACK');
$locker->quit;
wait_exact($node, 'd1');
unlike(slurp_file($node->logfile), qr/likecount worker.*exited with exit code/, 'no worker ended with an error');
$node->stop;

# ---- max_worker_processes

# The launcher takes one slot, and somebody's parallel query the other.
$node = new_node('exhausted', conf => <<'CONF');
max_worker_processes = 2
max_parallel_workers = 8
max_logical_replication_workers = 0
CONF
wait_no_worker($node, 'postgres');

my $query = IPC::Run::start(
	[
		'psql', '-XAtq', '-d', $node->connstr('postgres'),
		'-c', q{SELECT set_config(name, 'on', false) FROM pg_settings
			WHERE name IN ('force_parallel_mode', 'debug_parallel_query')},
		'-c', 'SELECT pg_sleep(600)'
	], '>', \$out, '2>', \$err);
ok($node->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'parallel worker'}), 'the last slot is taken');

my $log_start = -s $node->logfile;
$node->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	SELECT likecount.create_counter();
	SELECT likecount.like(1, 1)});
ok($node->poll_query_until('postgres', q{SELECT worker_state = 'starting' AND worker_pid IS NULL FROM likecount.status}),
	'a worker is wanted');
$node->wait_for_log(qr/no background worker slot is free for a likecount worker/, $log_start);
$node->safe_psql('postgres', 'SELECT likecount.like(1, 2)');
$node->safe_psql('postgres', 'SELECT likecount.flush()');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(1)'), '2', 'likes are recorded, and flush() counts them');
$node->safe_psql('postgres', 'SELECT likecount.like(1, 3)');

$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'
	AND backend_type = 'client backend'});
$query->finish;
ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(1) = 3'), 'the worker starts when the slot is free');
wait_exact($node, 'postgres');
my @warnings = slurp_file($node->logfile) =~ /no background worker slot is free/g;
is(scalar(@warnings), 1, 'the lack of slots was said once');

done_testing();
