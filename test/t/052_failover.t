# Failover to a standby, twice, each time with deltas waiting and transactions prepared: the promoted server repairs by itself and
# goes on, also when it crashes in the middle of that.
use strict;
use warnings;
use LikecountTest;
use IPC::Run;
use Time::HiRes qw(time);

my $primary = new_node('primary', conf => "max_prepared_transactions = 10\n", init => { allows_streaming => 1, extra => ['--wal-segsize=1'] });

$primary->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	SELECT likecount.create_counter('likes');
	INSERT INTO likes SELECT p, 1, '2020-01-01' FROM generate_series(10001, 12000) p});
wait_exact($primary, 'postgres', 'like');

# a standby, and a standby of that
$primary->backup('backup');
my @standby;
for my $name ('one', 'two')
{
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, 'backup');
	$standby->enable_streaming(@standby ? $standby[0] : $primary);
	# the first is promoted with a worker, the second without
	configure_node($standby, conf => 'likecount.worker = ' . (@standby ? 'off' : 'on') . "\n");
	$standby->start;
	push @standby, $standby;
}
my ($one, $two) = @standby;

sub value { return $_[0]->safe_psql('postgres', $_[1]); }

# leave_deltas($node, $user, @prepared): no worker runs any more, and deltas of every kind wait: in the queue, in the journal, of
# a like that is in the queue and gone again, and in prepared transactions.
my $old_post = 10100;
sub leave_deltas
{
	my ($node, $user, @prepared) = @_;

	$node->append_conf('postgresql.conf', "likecount.worker = off\n");
	$node->reload;
	wait_no_worker($node, 'postgres');
	value($node, qq{
		SELECT likecount.like(p, $user) FROM generate_series(1, 3000) p;
		INSERT INTO likes SELECT 1, $user + i FROM generate_series(1, 20) i;
		SELECT likecount.unlike(p, $user) FROM generate_series(1, 20) p;
		SELECT likecount.like(90000, $user);
		SELECT likecount.unlike(90000, $user);
		DELETE FROM likes WHERE post_id = (SELECT max(post_id) FROM likes)});
	for my $prepare (@prepared)
	{
		value($node, qq{
			BEGIN;
			INSERT INTO likes SELECT p, hashtext('$prepare') FROM generate_series(15, 4000, 15) p;
			DELETE FROM likes WHERE post_id = ${\ $old_post++};
			PREPARE TRANSACTION '$prepare'});
	}
	cmp_ok(value($node, 'SELECT queue_rows FROM likecount.status'), '>=', 3000, 'the queue is not empty');
	return;
}

# What a server logged about the counter since an offset, in short.
sub story
{
	my ($node, $offset) = @_;
	return join ', ', map { s/.*the queue of .* was lost.*/lost/r =~ s/.* is exact again after its (\w+).*/$1/r }
	  grep { /: +(the queue of )?counter "like"/ } split /\n/, slurp_file($node->logfile, $offset // 0);
}

# ---- reads on a standby, of what is not in unlogged tables

leave_deltas($primary, 1, 'first yes', 'first no');
$primary->wait_for_catchup($one);
like(($one->psql('postgres', 'TABLE likecount._sentinel'))[2], qr/cannot access temporary or unlogged relations during recovery/, 'a standby has no unlogged tables');
my $log = -s $one->logfile;
is(value($one, 'SELECT likecount.like_count(10001), likecount.liked(3000, 1)'), '1|t', 'totals and likes can be read');
is(value($one, 'SELECT count(*), sum(total) FROM likecount.like_totals'), '2000|2000', 'all totals, too');
is(value($one, 'SELECT sum(pending) FROM likecount.pending'), '-22', 'pending is the journal');
is(value($one, q{SELECT verb, capture, state, path, path_reason FROM likecount.counters}),
	value($primary, q{SELECT verb, capture, state, 'journal', 'no flush has checked the queue since the server started' FROM likecount.counters}), 'counters');
is(value($one, 'SELECT phase, repair_todo FROM likecount.progress'), 'idle|0', 'progress');
is(value($one, 'SELECT in_recovery, ready, launcher_pid, worker_pid, worker_starts, queue_rows, journal_rows, unadopted FROM likecount.status'), 't|f|||0|0|22|0', 'status');
is(value($one, 'SELECT library = sql FROM likecount.version()'), 't', 'version()');
is(value($one, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'likecount%'}), '0', 'a standby has no process of likecount');
unlike(slurp_file($one->logfile, $log), qr/(WARNING|ERROR|FATAL|PANIC):/, 'nothing is complained about');
for my $call ('check(\'likes\')', 'reconcile(\'likes\', 1)', 'reconcile_recent(\'likes\', \'1 day\')')
{
	like(($one->psql('postgres', "\\set VERBOSITY verbose\nSELECT likecount.$call"))[2], qr/ERROR:  25006: /, "$call fails with 25006");
}

# ---- the primary dies under load

my $out = '';
append_to_file($primary->basedir . '/load', "\\set post random(1, 40)\n\\set user random(200, 100000)\nSELECT likecount.like(:post, :user), likecount.unlike(:post, :user - 1);\n");
my $load = IPC::Run::start([ 'pgbench', '-n', '-h', $primary->host, '-p', $primary->port, '-c', 2, '-T', 120, '-f', $primary->basedir . '/load', 'postgres' ],
	'<', \undef, '>', \$out, '2>', \$out);
ok($one->poll_query_until('postgres', 'SELECT count(*) > 300 FROM likes WHERE user_id >= 200'), 'the standby gets the load');
$primary->kill9;
$load->finish;

$log = -s $one->logfile;
my $promoted = time;
$one->promote;
$one->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
value($one, 'SELECT likecount.like(50000, 1)');
wait_exact($one, 'postgres', 'like');
is(value($one, 'SELECT likecount.like_count(50000), likecount.like_count(3000)'), '1|1', 'the promoted server has flushed and repaired');
cmp_ok(time - $promoted, '<', 30, 'within seconds');
value($one, q{COMMIT PREPARED 'first yes'; ROLLBACK PREPARED 'first no'});
ok($one->poll_query_until('postgres', 'SELECT likecount.like_count(4000 - 4000 % 15) = 1'), 'COMMIT PREPARED brings its deltas');
wait_exact($one, 'postgres', 'like');
is(story($one, $log), 'lost, repair', 'there was one repair, and no other recount');
unlike(slurp_file($one->logfile, $log), qr/(WARNING|ERROR|PANIC):/, 'and nothing is complained about');

# ---- the promoted one dies as well, and its standby crashes twice while it repairs

leave_deltas($one, 101, 'second yes', 'late yes', 'second no', 'late no');
$one->wait_for_catchup($two);
$one->kill9;
$two->promote;
$two->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
value($two, q{COMMIT PREPARED 'second yes'; ROLLBACK PREPARED 'second no'});
my $halfway = q{SELECT likecount.flush(); SELECT phase, posts_done > 0, repair_todo > 0 FROM likecount.progress};
for my $crash (1, 2)
{
	value($two, "SELECT likecount.like($crash, 5), likecount.like(60000, $crash), likecount.unlike($crash + 100, 1)");
	like(value($two, $halfway), qr/^\d+\nrepairing\|t\|t$/, "a flush begins to repair, crash $crash comes");
	value($two, "SELECT likecount.like($crash, 6), likecount.like(70000, $crash), likecount.unlike($crash + 200, 1)");
	$two->stop('immediate');
	$two->append_conf('postgresql.conf', "likecount.worker = on\n") if $crash == 2;
	$two->start;
}
wait_exact($two, 'postgres', 'like');
is(value($two, 'SELECT likecount.like_count(60000), likecount.like_count(70000)'), '2|2', 'the repair ends');
value($two, q{COMMIT PREPARED 'late yes'; ROLLBACK PREPARED 'late no'; SELECT likecount.like(80000, 1)});
wait_exact($two, 'postgres', 'like');
is(story($two), 'lost, lost, lost, repair', 'each crash was noticed');

done_testing();
