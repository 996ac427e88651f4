# What goes wrong in one place stays there: recounts that fail or take too long, deltas that nobody can apply, a full disk, workers
# that are killed in the middle.  Everything else is counted meanwhile, and when the cause is gone the rest is, too.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('failing', conf => <<'CONF');
autovacuum = off
restart_after_crash = on
likecount.worker = off
CONF

sub value { return $node->safe_psql('postgres', $_[0]); }
sub slow { return $node->safe_psql('slow', $_[0]); }

sub set_worker
{
	my ($of, $value) = @_;
	$of->safe_psql('postgres', "ALTER SYSTEM SET likecount.worker = $value");
	$of->reload;
	wait_no_worker($of, 'postgres') if $value eq 'off';
	return;
}

sub worker_pid
{
	my ($database, $old) = @_;
	$old //= 0;
	$node->poll_query_until('postgres', qq{SELECT count(*) = 1 FROM pg_stat_activity
		WHERE backend_type = 'likecount worker' AND datname = '$database' AND pid <> $old})
	  or die "no worker came to $database";
	return (worker_pids($node, $database))[0];
}

# Polls until the worker of the slow database has been in a step for a while.
sub in_a_step
{
	return $node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'likecount worker' AND datname = 'slow'
		AND query = 'likecount: upkeep' AND state = 'active' AND clock_timestamp() - xact_start > '300 ms'});
}

# ---- a source that takes too long to read: what a row weighs is the time that it takes

# In a database of its own: its worker is busy with that for ten seconds, at whose end we look again.
value('CREATE DATABASE slow');
slow(q{
	CREATE EXTENSION likecount;
	CREATE TABLE replies (post int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), weight int NOT NULL);
	CREATE INDEX ON replies (post);
	CREATE INDEX ON replies (at);
	INSERT INTO replies SELECT 1, now(), 20000000 FROM generate_series(1, 5000);
	SELECT likecount.attach('replies', 'post', time_column => 'at', verb => 'reply', only_where => $$length(repeat('x', weight)) >= 0$$)});

# Rows become light and heavy unseen: their triggers would weigh them.
sub weigh
{
	my ($weight, $where) = @_;
	return slow("SET session_replication_role = replica; UPDATE replies SET weight = $weight WHERE $where");
}

# whoever calls flush() has the time limit that is theirs, and cancels what is theirs
my ($status, $out, $error) = $node->psql('slow', q{SET statement_timeout = '500ms'; SELECT likecount.flush()});
like($error, qr/canceling statement due to statement timeout/, 'a flush() that recounts ends by the time limit of its caller');
is(slow('SELECT state, last_error IS NULL FROM likecount.counters'), 'backfilling|t', 'of which there is no trace');

# ---- a source that its owner can't read

value(q{
	CREATE EXTENSION likecount;
	CREATE ROLE keeper;
	SELECT likecount.create_counter();
	CREATE TABLE stars (post int NOT NULL, fan int NOT NULL, PRIMARY KEY (post, fan));
	INSERT INTO stars SELECT p, f FROM generate_series(1, 5) p, generate_series(1, 2) f;
	ALTER TABLE stars OWNER TO keeper;
	REVOKE ALL ON stars FROM keeper;
	SELECT likecount.attach('stars', 'post', 'fan')});
value('SELECT likecount.like(1, 1)');
($status, $out, $error) = $node->psql('postgres', 'SELECT likecount.flush()');
is($status, 0, 'flush() without a worker does not fail');
like($error, qr/WARNING:  backfill of counter "star" failed: permission denied for table stars\n.*HINT:  It is tried again/s, 'it warns its caller');
is(value('SELECT likecount.like_count(1)'), '1', 'others are counted');
is(value(q{SELECT state, last_error FROM likecount.counters WHERE verb = 'star'}), 'backfilling|42501: permission denied for table stars', 'the error is shown');
($status, $out, $error) = $node->psql('postgres', 'SELECT likecount.flush()');
like($error, qr/WARNING:  backfill/, 'and each call tries again');

set_worker($node, 'on');
my $log_start = -s $node->logfile;

# it leaves at once when it is told to, whatever it does
my $pid = worker_pid('slow');
ok(in_a_step(), 'a worker is in a long step');
value("SELECT pg_terminate_backend($pid)");
isnt(worker_pid('slow', $pid), $pid, 'terminated, it is replaced');

# the worker has patience, and ever more of it
my @errors = value('SELECT clock_timestamp()');
for (1 .. 3)
{
	$node->poll_query_until('postgres', qq{SELECT last_error_at > '$errors[-1]' FROM likecount.counters WHERE verb = 'star'});
	push @errors, value(q{SELECT last_error_at FROM likecount.counters WHERE verb = 'star'});
	value('SELECT likecount.like(1, ' . (10 + @errors) . ')');
}
# by 1 s and 2 s, which begin a little before the time that is shown
is(value("SELECT '$errors[2]'::timestamptz - '$errors[1]' > '900 ms', '$errors[3]'::timestamptz - '$errors[2]' > '1900 ms'"), 't|t',
	'a backfill that fails is tried again at growing distances');
ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(1) = 4'), 'others are counted all the while');
value('INSERT INTO stars VALUES (6, 1)');
ok($node->poll_query_until('postgres', 'SELECT likecount.star_count(6) = 1'), 'and what is added to it');
value('GRANT SELECT ON stars TO keeper');
wait_exact($node, 'postgres');
is(value(q{SELECT likecount.star_count(1), last_error IS NULL AND last_error_at IS NULL FROM likecount.counters WHERE verb = 'star'}), '2|t',
	'with the right to read, the backfill goes on by itself');

# ---- workers that are terminated

$pid = worker_pid('postgres');
my $ended = value('SELECT errors FROM likecount.status');
for my $round (1 .. 2)
{
	# in one session, which looks often enough to see it
	is(value(qq{
		DO \$\$
		BEGIN
			PERFORM pg_terminate_backend($pid);
			FOR n IN 1 .. 3000 LOOP
				EXIT WHEN (SELECT worker_state = 'backing off' AND worker_not_before > clock_timestamp() AND worker_pid IS NULL FROM likecount.status);
				PERFORM pg_sleep(0.01);
			END LOOP;
		END
		\$\$;
		SELECT worker_state FROM likecount.status}), 'backing off', "a terminated worker does not come back at once, round $round");
	value("SELECT likecount.like(2, $round)");
	$pid = worker_pid('postgres', $pid);
	ok($node->poll_query_until('postgres', "SELECT likecount.like_count(2) = $round"), "but it does come, and counts, round $round");
}
is(value('SELECT errors FROM likecount.status') - $ended, 2, 'both ends are noted');

# ---- deltas that nobody can apply

set_worker($node, 'off');
value(q{
	INSERT INTO likecount._queue_0 (delta, at, counter, post)
	SELECT delta, now(), id, post
	  FROM likecount._counter,
	       (VALUES ('like', 1, '\x01'::bytea), ('star', 1, '\x8000000100000000'), ('star', 1, ''),
	               ('like', 9223372036854775807, '\x8000000000000009'), ('like', 9223372036854775807, '\x8000000000000009'),
	               ('like', 9223372036854775807, '\x8000000000000002')) AS bad (of, delta, post)
	 WHERE verb = of;
	INSERT INTO likecount._queue_0 (delta, at, counter, post) VALUES (1, now(), 1000, '\x8000000000000001')});
value('INSERT INTO likes SELECT 3, u FROM generate_series(1, 3) u');
is(value(q{SELECT string_agg(post, ' ' ORDER BY post) FROM likecount.pending WHERE pending = 1}), ' 01 8000000100000000', 'the view pending shows what is no post');
my ($discarded, $rejected) = split /\|/, value('SELECT discarded, rejected FROM likecount.status');
$log_start = -s $node->logfile;
set_worker($node, 'on');
ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(3) = 3 AND NOT EXISTS (SELECT FROM likecount.pending)'), 'deltas that make no sense do not stop the others');
is(value(q{SELECT string_agg(c.verb || ' ' || encode(post, 'hex') || ' ' || delta || ' ' || r.reason, E'\n' ORDER BY r.reason, r.post)
	FROM likecount._rejected r JOIN likecount._counter c ON c.id = r.counter}), <<'ROWS' =~ s/\n\z//r, 'each is set aside with the reason');
star  1 the post is no value of the counter's type
like 01 1 the post is no value of the counter's type
star 8000000100000000 1 the post is no value of the counter's type
like 8000000000000002 9223372036854775807 the total would not fit a bigint
like 8000000000000009 9223372036854775807 with other deltas of the post it does not fit a bigint
ROWS
is(value("SELECT discarded - $discarded, rejected - $rejected FROM likecount.status"), '1|5', 'the view status counts them');
is(value(q{SELECT string_agg(verb || ' ' || rejected, ' ' ORDER BY verb) FROM likecount.counters}), 'like 3 star 2', 'the view counters too');
# 9 has a delta that did fit
is(value(q{SELECT string_agg(post || ':' || was || ':' || now, ' ') FROM likecount.check('likes')}), '9:9223372036854775807:0', 'totals are wrong where a delta was believed');
value(q{SELECT likecount.reconcile('likes', 9), likecount.like(3, 100)});
wait_exact($node, 'postgres');
is(value('SELECT count(*) FROM likecount._rejected'), '5', 'none is tried again');
unlike(slurp_file($node->logfile, $log_start), qr/(WARNING|ERROR|FATAL):/, 'nor written to the log each second');

# slots that somebody wrote by hand, whose sum does not fit
value(q{INSERT INTO likecount.like_slots VALUES (10, 0, 0, 9223372036854775807, now()), (10, 1, 0, 1, now())});
($status, $out, $error) = $node->psql('postgres', 'SELECT likecount.like_count(10)');
like($error, qr/ERROR:  total of a post in like_slots does not fit a bigint/, 'a total that does not fit is an error for who reads it');
is(value('SELECT array_agg(total) FROM likecount.like_counts(ARRAY[3, 4]::bigint[])'), '{4,0}', 'and for nobody else');
value('DELETE FROM likecount.like_slots WHERE post = 10');

# ---- sessions of the database are read-only, as providers do when the disk is nearly full

set_worker($node, 'off');
value('SELECT likecount.like(4, 1)');
value('ALTER DATABASE postgres SET default_transaction_read_only = on');
($status, $out, $error) = $node->psql('postgres', 'SELECT likecount.flush()');
like($error, qr/cannot execute likecount\.flush\(\) in a read-only transaction/, 'flush() obeys');
$node->safe_psql('template1', 'ALTER SYSTEM SET likecount.worker = on');
$node->reload;
ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(4) = 1'), 'the worker counts what was pending');
$node->safe_psql('template1', 'ALTER DATABASE postgres RESET default_transaction_read_only');

# ---- back to the slow source

ok($node->poll_query_until('slow', q{SELECT last_error LIKE '57014: %' FROM likecount.counters}), 'a backfill that takes too long is given up');
slow('INSERT INTO replies (post, weight) VALUES (2, 0)');
ok($node->poll_query_until('slow', 'SELECT likecount.reply_count(2) = 1'), 'what is added is counted between two tries');
is(slow('SELECT state FROM likecount.counters'), 'backfilling', 'of which none has succeeded');
weigh(0, 'true');
wait_exact($node, 'slow');
is(slow('SELECT likecount.reply_count(1), last_error IS NULL FROM likecount.counters'), '5000|t', 'the next one does when rows are light');

# ---- a worker that is killed in the middle of a repair, and all that it has done in its current step is lost

set_worker($node, 'off');
wait_no_worker($node, 'slow');
slow('INSERT INTO replies (post, weight) SELECT p, 0 FROM generate_series(1001, 4000) p');
is(slow('SELECT queue_rows FROM likecount.status'), '3000', 'deltas wait in the queue');
# in the first step are a thousand light posts, in the next one heavy ones
weigh(20000000, 'post > 2000');
$node->stop('immediate');
$node->append_conf('postgresql.auto.conf', 'likecount.worker = on');
$node->start;
ok($node->poll_query_until('slow', q{SELECT phase = 'repairing' AND posts_done > 0 AND repair_todo > 1000 FROM likecount.progress}), 'a crash is being repaired');
ok(in_a_step(), 'the worker is in the next step');
$pid = worker_pid('slow');
kill 'KILL', $pid;
isnt(worker_pid('slow', $pid), $pid, 'killed, it comes back with the server');
ok($node->poll_query_until('slow', q{SELECT phase = 'repairing' FROM likecount.progress}), 'and repairs on');
weigh(0, 'weight > 0');
wait_exact($node, 'slow');
wait_exact($node, 'postgres');
$node->stop;

# ---- a full disk

# For the processes of this server a file of more than 1 MB does not fit on the disk, which is enough for all that likes need but
# for the totals.
$node = new_node('full', init => { extra => ['--wal-segsize=1'] }, conf => "autovacuum = off\n");
value('CREATE EXTENSION likecount');
value('SELECT likecount.create_counter()');
wait_exact($node, 'postgres');
set_worker($node, 'off');

sub limit_files
{
	my ($limit) = @_;
	my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	# the limit that processes to come inherit; the colon leaves the one by which it can be raised again
	system_or_bail('prlimit', '--pid', $postmaster, "--fsize=$limit:");
	return;
}

limit_files(1024 * 1024);
value('INSERT INTO likes SELECT n, 1 FROM generate_series(1, 15000) n');
$log_start = -s $node->logfile;
set_worker($node, 'on');
ok($node->poll_query_until('postgres', q{SELECT errors > 0 AND worker_state IN ('backing off', 'starting') FROM likecount.status}), 'the worker ends when the disk is full');
like(slurp_file($node->logfile, $log_start), qr/ERROR: .*could not extend file .*\n(.*DETAIL:.*\n)?.*HINT: .*disk space/, 'and says why');
is(value('SELECT sum(pending) FROM likecount.pending'), '15000', 'nothing of what it did remains');
value('SELECT likecount.like(1, 2)');
is(value('SELECT sum(pending), likecount.like_count(1) FROM likecount.pending'), '15001|0', 'likes are recorded');
limit_files('unlimited');
wait_exact($node, 'postgres');
is(value('SELECT likecount.like_count(1)'), '2', 'when there is room again, all are counted');

# and one that has no room for the deltas
value('INSERT INTO likes SELECT n, 3 FROM generate_series(1, 30000) n');
wait_exact($node, 'postgres');
limit_files(1024 * 1024);
($status, $out, $error) = $node->psql('postgres', 'DELETE FROM likes WHERE user_id = 3');
like($error, qr/could not extend file/, 'a change whose deltas have no room fails');
is(value('SELECT count(*) FROM likes'), '45001', 'as a whole');
limit_files('unlimited');
value('DELETE FROM likes WHERE user_id = 3');
wait_exact($node, 'postgres');
is(value('SELECT sum(total) FROM likecount.like_totals'), '15001', 'it is carried out when there is room');

done_testing();
