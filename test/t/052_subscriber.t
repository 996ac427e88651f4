# Two servers and real logical replication.  A subscriber counts the rows that arrive, where it was asked to; or it gets the
# publisher's slots, and then leaves the counting to the publisher; whatever is published, nothing is counted twice.
use strict;
use warnings;
use LikecountTest;

my $conf = <<'CONF';
autovacuum = off
max_prepared_transactions = 10
max_worker_processes = 30
max_logical_replication_workers = 12
max_sync_workers_per_subscription = 4
wal_retrieve_retry_interval = '200ms'
logical_decoding_work_mem = '64kB'
CONF
my $publisher = new_node('publisher', init => { allows_streaming => 'logical' }, conf => $conf);
# a worker that is not needed has to go soon, so that one that stays does so for a reason
my $subscriber = new_node('subscriber', conf => "$conf\nlikecount.idle_timeout = '1s'\n");

sub published { return $publisher->safe_psql($_[0], $_[1]); }
sub subscribed { return $subscriber->safe_psql($_[0], $_[1]); }

sub subscribe
{
	my ($database, $with) = @_;
	return subscribed($database, "CREATE SUBSCRIPTION $database CONNECTION '" . $publisher->connstr
		  . " dbname=$database' PUBLICATION published" . ($with ? " WITH ($with)" : ''));
}

sub wait_copied
{
	my ($database) = @_;
	return $subscriber->poll_query_until($database, q{SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel});
}

# Runs statements on the publisher; then the subscriber has their changes.
sub replicate
{
	my ($database, $sql) = @_;
	published($database, $sql);
	$publisher->wait_for_catchup($database);
	return;
}

# The totals of a counter that are not 0, as "post:total ...".
sub totals_query
{
	my ($verb) = @_;
	return qq{SELECT coalesce(string_agg(post_id || ':' || total, ' ' ORDER BY post_id), '') FROM likecount.${verb}_totals WHERE total <> 0};
}

sub totals
{
	my ($node, $database, $verb) = @_;
	return $node->safe_psql($database, totals_query($verb));
}

# What they are when the rows of a table are counted.
sub rows
{
	my ($node, $database, $from) = @_;
	return $node->safe_psql($database, qq{SELECT coalesce(string_agg(post_id || ':' || n, ' ' ORDER BY post_id), '')
		FROM (SELECT post_id, count(*) AS n FROM $from GROUP BY 1) AS counted});
}

# The publisher's totals become exact, and the subscriber gets them: not at once, since flushes commit asynchronously.
sub totals_follow
{
	my ($database, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	wait_exact($publisher, $database, 'like');
	return ok($subscriber->poll_query_until($database, totals_query('like'), totals($publisher, $database, 'like')), $what);
}

my $table = '(post_id bigint, user_id bigint, liked_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (post_id, user_id))';
for my $database (qw(counted mirrored everything))
{
	for my $node ($publisher, $subscriber)
	{
		$node->safe_psql('postgres', "CREATE DATABASE $database");
		$node->safe_psql($database, "CREATE EXTENSION likecount; CREATE TABLE likes $table; CREATE INDEX ON likes USING brin (liked_at)");
	}
	published($database, q{
		SELECT likecount.attach('likes', 'post_id', 'user_id', 'liked_at');
		INSERT INTO likes SELECT n % 10, n FROM generate_series(1, 100) n});
}

# ---- the rows are published, and the subscriber counts them

for my $node ($publisher, $subscriber)
{
	$node->safe_psql('counted', "CREATE TABLE marks $table; CREATE TABLE notes $table");
}
published('counted', q{
	INSERT INTO marks SELECT n % 5, n FROM generate_series(1, 50) n;
	INSERT INTO notes SELECT n % 5, n FROM generate_series(1, 50) n;
	CREATE PUBLICATION published FOR TABLE likes, marks, notes});
subscribed('counted', q{
	SELECT likecount.attach('likes', 'post_id', 'user_id', 'liked_at', count_replicated => true);
	SELECT likecount.attach('notes', 'post_id', 'user_id', 'liked_at')});
subscribe('counted', 'two_phase = true, streaming = on');
wait_copied('counted');
wait_exact($subscriber, 'counted', 'like');
is(totals($subscriber, 'counted', 'like'), join(' ', map { "$_:10" } 0 .. 9), 'the initial copy is counted');
is(subscribed('counted', q{SELECT drift_found, backfill_done FROM likecount.counters WHERE verb = 'like'}), '0|0', 'as it arrives, not afterwards');

subscribed('counted', q{SELECT likecount.attach('marks', 'post_id', 'user_id', 'liked_at', count_replicated => true)});
wait_exact($subscriber, 'counted', 'mark');
is(totals($subscriber, 'counted', 'mark'), join(' ', map { "$_:10" } 0 .. 4), 'attached after the initial copy, what is there is counted');

my @changes = (
	'single transactions' => q{
		INSERT INTO likes SELECT n % 3, 200 + n FROM generate_series(1, 30) n;
		DELETE FROM likes WHERE post_id = 1 AND user_id < 20;
		UPDATE likes SET post_id = 77 WHERE post_id = 2 AND user_id < 30;
		UPDATE likes SET liked_at = liked_at - interval '1 day', user_id = user_id + 1000 WHERE post_id = 3;
		INSERT INTO likes SELECT 5, n, now() - interval '1 year' FROM generate_series(300, 310) n;
		BEGIN; INSERT INTO likes VALUES (6, 400); DELETE FROM likes WHERE user_id = 400; COMMIT},
	# so much that it arrives before it is committed
	'a large transaction' => q{
		BEGIN; INSERT INTO likes SELECT n, 500 FROM generate_series(1, 3000) n;
		SAVEPOINT a; INSERT INTO likes SELECT n, 501 FROM generate_series(1, 3000) n; ROLLBACK TO a;
		DELETE FROM likes WHERE post_id BETWEEN 1000 AND 3000; COMMIT},
	'TRUNCATE' => q{
		BEGIN; TRUNCATE likes; INSERT INTO likes VALUES (1, 600), (8, 600), (8, 601); COMMIT;
		INSERT INTO likes SELECT n, 602 FROM generate_series(1, 5) n});
while (my ($what, $sql) = splice @changes, 0, 2)
{
	replicate('counted', "$sql;" . $sql =~ s/\blikes\b/marks/gr);
	wait_exact($subscriber, 'counted', 'like', 'mark');
	is(totals($subscriber, 'counted', $_), rows($publisher, 'counted', "${_}s"), "the subscriber counts each $_ after $what") for qw(like mark);
}
is(subscribed('counted', q{SELECT string_agg(capture || ' ' || drift_found, ', ' ORDER BY verb) FROM likecount.counters}), 'always 0, always 0, enabled 0',
	'by the triggers alone');

# a post that is frozen here takes what was liked there, and shows it when it is unfrozen
subscribed('counted', q{SELECT likecount.freeze('likes', 8)});
my $here = totals($subscriber, 'counted', 'like');
replicate('counted', 'INSERT INTO likes VALUES (8, 700), (9, 700); UPDATE likes SET post_id = 8 WHERE post_id = 1 AND user_id = 602; DELETE FROM likes WHERE post_id = 8 AND user_id = 600');
ok($subscriber->poll_query_until('counted', q{SELECT likecount.like_count(9) = 1 AND likecount.like_count(1) = 1 AND NOT EXISTS (SELECT FROM likecount.pending)}),
	'likes of a frozen post do not stop the subscription');
is(totals($subscriber, 'counted', 'like'), $here =~ s/^1:2/1:1/r =~ s/ 8:2/ 8:2 9:1/r, 'its total stays');
is(subscribed('counted', q{SELECT likecount.unfreeze('likes', 8)}), 't', 'unfrozen');
wait_exact($subscriber, 'counted', 'like');
is(totals($subscriber, 'counted', 'like'), rows($publisher, 'counted', 'likes'), 'it is exact');

# without count_replicated
replicate('counted', 'INSERT INTO notes VALUES (4, 1000)');
is(totals($subscriber, 'counted', 'note'), '', 'without count_replicated nothing that arrives is counted');
is(subscribed('counted', q{SELECT string_agg(post || ':' || was || ':' || now, ' ' ORDER BY post) FROM likecount.check('notes')}),
	'0:0:10 1:0:10 2:0:10 3:0:10 4:0:11', 'check() tells');
subscribed('counted', q{CALL likecount.reconcile_all('notes')});
wait_exact($subscriber, 'counted', 'note');
is(totals($subscriber, 'counted', 'note'), '0:10 1:10 2:10 3:10 4:11', 'reconcile_all() counts');

# ---- prepared on the publisher, and committed there: nobody on the subscriber calls a command that could wake the worker

$subscriber->poll_query_until('counted', q{SELECT subtwophasestate = 'e' FROM pg_subscription});
my $before = totals($subscriber, 'counted', 'like');
published('counted', q{BEGIN; INSERT INTO likes SELECT 50, n FROM generate_series(1, 5) n; DELETE FROM likes WHERE post_id = 1; PREPARE TRANSACTION 'kept'});
published('counted', q{BEGIN; INSERT INTO likes SELECT 51, n FROM generate_series(1, 5) n; PREPARE TRANSACTION 'dropped'});
ok($subscriber->poll_query_until('counted', 'SELECT count(*) = 2 FROM pg_prepared_xacts'), 'two transactions are prepared on both servers');
is(totals($subscriber, 'counted', 'like'), $before, 'which count for nothing yet');
$subscriber->stop('immediate');
$subscriber->start;
replicate('counted', q{ROLLBACK PREPARED 'dropped'});
ok($subscriber->poll_query_until('counted', q{SELECT clock_timestamp() - backend_start > '2 s' FROM pg_stat_activity
	WHERE backend_type = 'likecount worker' AND datname = 'counted'}), 'after a crash a worker waits for the other one');
replicate('counted', q{COMMIT PREPARED 'kept'});
ok($subscriber->poll_query_until('counted', 'SELECT likecount.like_count(50) = 5'), 'which counts when the publisher has committed it');
wait_exact($subscriber, 'counted', 'like');
is(totals($subscriber, 'counted', 'like'), rows($publisher, 'counted', 'likes'), 'all that is as on the publisher');

# ---- rows and slots are published

published('mirrored', 'CREATE PUBLICATION published FOR TABLE likes, likecount.like_slots');
subscribed('mirrored', q{SELECT likecount.attach('likes', 'post_id', 'user_id', 'liked_at')});
wait_exact($publisher, 'mirrored', 'like');
wait_exact($subscriber, 'mirrored', 'like');

my $log_start = -s $subscriber->logfile;
subscribe('mirrored');
$subscriber->wait_for_log(
	qr/ERROR: .*a row of table likecount\.like_slots arrives by replication for node 0, which is this server's own\n.*HINT: .*Give each server another likecount\.node/, $log_start);
ok(1, 'slots of the node that both servers have are refused, with the reason');
is(totals($subscriber, 'mirrored', 'like'), '', 'the subscriber has no totals then');

$subscriber->append_conf('postgresql.conf', 'likecount.node = 7');
$subscriber->restart;
wait_copied('mirrored');
totals_follow('mirrored', 'with a node of its own the subscriber gets the totals');
published('mirrored', q{
	INSERT INTO likes SELECT n % 3, 200 + n FROM generate_series(1, 30) n;
	UPDATE likes SET post_id = 77 WHERE post_id = 2;
	DELETE FROM likes WHERE post_id = 1});
totals_follow('mirrored', 'they follow, and are counted once');
published('mirrored', 'TRUNCATE likes');
totals_follow('mirrored', 'also after TRUNCATE');
published('mirrored', 'INSERT INTO likes SELECT n % 10, n FROM generate_series(1, 100) n');
totals_follow('mirrored', 'and again');
is(rows($subscriber, 'mirrored', 'likes'), rows($publisher, 'mirrored', 'likes'), 'and so do the rows');

# likes of its own
subscribed('mirrored', q{SELECT likecount.like(1, u) FROM generate_series(1001, 1003) u; INSERT INTO likes VALUES (88, 1001)});
wait_exact($subscriber, 'mirrored', 'like');
is(subscribed('mirrored', q{SELECT string_agg(node || '/' || slot || ':' || value, ' ' ORDER BY node) FROM likecount.like_slots WHERE post = 1}), '0/0:10 7/0:3',
	'likes of its own are in slots of its own, and the total is the sum');
published('mirrored', 'SELECT likecount.like(1, 2001)');
ok($subscriber->poll_query_until('mirrored', 'SELECT likecount.like_count(1) = 14 AND likecount.like_count(88) = 1'), 'also when the publisher counts on');

# A post that is frozen there is frozen here.  What its own slots lose meanwhile this node keeps in a mark of its own, which
# nobody else deletes.
my $session = $subscriber->background_psql('mirrored', on_error_stop => 0);
is($session->query('SELECT likecount.like(3, u) FROM generate_series(1010, 1011) u'), "t\nt", 'likes of another post');
wait_exact($subscriber, 'mirrored', 'like');
published('mirrored', q{SELECT likecount.freeze('likes', 3)});
ok($subscriber->poll_query_until('mirrored', q{SELECT frozen = 1 FROM likecount.counters}), 'the mark arrives');
$session->query('SELECT likecount.like(3, 1012)');
like($session->{stderr}, qr/ERROR:  post 3 is frozen/, 'of which those hear who looked before');
$session->quit;
subscribed('mirrored', 'DELETE FROM likes WHERE post_id = 3 AND user_id = 1010');
ok($subscriber->poll_query_until('mirrored', 'SELECT value = 1 FROM likecount.like_slots WHERE post = 3 AND node = 7 AND slot = -1'), 'a like of its own goes');
published('mirrored', q{SELECT likecount.unfreeze('likes', 3)});
ok($subscriber->poll_query_until('mirrored', 'SELECT NOT EXISTS (SELECT FROM likecount.like_slots WHERE node = 0 AND slot = -1)'), 'the mark that arrived is gone');
is(subscribed('mirrored', q{SELECT likecount.like_count(3), likecount.unfreeze('likes', 3); SELECT likecount.like_count(3)}), "12|t\n11", 'its own goes with unfreeze() here');

# What is pending on the publisher is not known here, so nothing here may correct what arrives.
for my $refused (
	[ 'recount posts', q{SELECT likecount.reconcile('likes', 1)} ],
	[ 'recount posts', q{SELECT likecount.reconcile_recent('likes', '1 day')} ],
	[ 'recount posts', q{CALL likecount.reconcile_all('likes')} ],
	[ 'recount posts', q{SELECT likecount.check('likes')} ],
	[ 'recount posts', q{SELECT likecount.check('likes', 5)} ],
	[ 'freeze a post', q{SELECT likecount.freeze('likes', 1)} ],
	[ 'forget a post', q{SELECT likecount.forget('likes', 4711)} ])
{
	my ($what, $call) = @$refused;
	my ($status, $out, $error) = $subscriber->psql('mirrored', "\\set VERBOSITY verbose\n$call");
	like($error, qr/ERROR:  55000: cannot $what of counter "like": a subscription brings its slots.*HINT:  Do that on the publisher/s, "is refused: $call");
}
$log_start = -s $subscriber->logfile;
subscribed('postgres', q{ALTER SYSTEM SET likecount.worker = off});
$subscriber->reload;
wait_no_worker($subscriber, 'mirrored');
subscribed('mirrored', q{SET session_replication_role = replica; INSERT INTO likes VALUES (1, 5001), (88, 5001)});
subscribed('mirrored', q{SELECT likecount.like(1, 1004), likecount.like(88, 1004);
	INSERT INTO likecount._request (counter, reason) SELECT id, 'a test' FROM likecount._counter});
subscribed('postgres', q{ALTER SYSTEM SET likecount.worker = on});
$subscriber->reload;
ok($subscriber->poll_query_until('mirrored', q{SELECT likecount.like_count(1) = 15 AND likecount.like_count(88) = 2 AND state = 'active'
	AND NOT EXISTS (SELECT FROM likecount._request) FROM likecount.counters}), 'a recount that is asked for is done at once');
wait_no_worker($subscriber, 'mirrored');
unlike(slurp_file($subscriber->logfile, $log_start), qr/was wrong|failed|is exact again/, 'neither that nor the audit counts');
is(subscribed('mirrored', 'SELECT likecount.like_count(1), likecount.like_count(88), drift_posts FROM likecount.status'), '15|2|0', 'all stays as it was');

# A crash: what is lost with the unlogged queue can't be recounted here.
subscribed('postgres', q{ALTER SYSTEM SET likecount.worker = off});
$subscriber->reload;
wait_no_worker($subscriber, 'mirrored');
subscribed('mirrored', 'SELECT likecount.like(1, 1005), likecount.like(88, 1005)');
is(subscribed('mirrored', 'SELECT queue_rows, journal_rows FROM likecount.status'), '0|2', 'where slots arrive, deltas take the journal');
like(subscribed('mirrored', 'SELECT path_reason FROM likecount.counters'), qr/subscription/, 'with the reason');
$subscriber->stop('immediate');
$subscriber->append_conf('postgresql.auto.conf', 'likecount.worker = on');
$subscriber->start;
ok($subscriber->poll_query_until('mirrored', 'SELECT likecount.like_count(1) = 16 AND likecount.like_count(88) = 3'), 'so a crash loses none of its likes');
ok($subscriber->poll_query_until('mirrored', q{SELECT phase = 'idle' AND repair_todo = 0 FROM likecount.progress}), 'and there is nothing to repair');

# The publisher is given up: from now on this server counts, and all that is there.
subscribed('mirrored', 'DROP SUBSCRIPTION mirrored');
is(subscribed('mirrored', q{SELECT string_agg(post || ':' || was || ':' || now, ' ' ORDER BY post) FROM likecount.check('likes')}), '1:16:17 88:3:4',
	'without the subscription the rows that nobody captured are found');
subscribed('mirrored', q{CALL likecount.reconcile_all('likes')});
wait_exact($subscriber, 'mirrored', 'like');

# ---- all tables are published, likecount's own as well

# what a server knows of its own counters, and what waits
sub state_of
{
	my ($node) = @_;
	return $node->safe_psql('everything', q{
		SELECT id, rows_view, verb, state, home_system, last_error FROM likecount._counter;
		SELECT 'request', r::text FROM likecount._request r UNION ALL SELECT 'watermark', r::text FROM likecount._watermark r
		UNION ALL SELECT 'todo', r::text FROM likecount._repair_todo r UNION ALL SELECT 'progress', r::text FROM likecount._progress r
		UNION ALL SELECT 'rejected', r::text FROM likecount._rejected r UNION ALL SELECT 'pending', r::text FROM likecount.pending r;
		SELECT count(*) FROM likecount._journal_0});
}

published('everything', 'CREATE PUBLICATION published FOR ALL TABLES');
subscribed('everything', q{SELECT likecount.attach('likes', 'post_id', 'user_id', 'liked_at')});
wait_exact($publisher, 'everything', 'like');
wait_exact($subscriber, 'everything', 'like');
$before = state_of($subscriber);
subscribe('everything');
wait_copied('everything');
totals_follow('everything', 'of all tables only the slots count');
published('everything', 'INSERT INTO likes SELECT n % 3, 200 + n FROM generate_series(1, 30) n');
published('everything', 'DELETE FROM likes WHERE post_id = 1');
published('everything', q{CALL likecount.reconcile_all('likes')});
totals_follow('everything', 'and the publisher flushes as ever');
# a delta that is rejected, a request, and the repair after a crash
published('everything', q{
	INSERT INTO likecount._rejected (counter, post, delta, reason) SELECT id, '\x01', 1, 'a test' FROM likecount._counter;
	INSERT INTO likecount._request (counter, reason) SELECT id, 'a test' FROM likecount._counter;
	INSERT INTO likes VALUES (1, 999)});
totals_follow('everything', 'a recount there changes nothing here');
$publisher->stop('immediate');
$publisher->start;
published('everything', 'INSERT INTO likes SELECT n % 10, 300 + n FROM generate_series(1, 100) n');
totals_follow('everything', 'nor does a crash there');
is(state_of($subscriber), $before, 'the subscriber has none of the state of the publisher');
is(published('everything', 'SELECT errors FROM likecount.status'), '0', 'no worker of the publisher had an error');
unlike(slurp_file($publisher->logfile), qr/replica identity/, 'nor anybody else');

# the trigger that refuses slots is no use on other tables, and harms nobody there
my ($status, $out, $error) = $subscriber->psql('counted', q{
	BEGIN;
	CREATE TABLE other (node int);
	CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON other FOR EACH ROW EXECUTE FUNCTION likecount._other_node();
	INSERT INTO other VALUES (7);
	UPDATE other SET node = 7;
	CREATE TRIGGER wrong AFTER INSERT ON other FOR EACH ROW EXECUTE FUNCTION likecount._other_node();
	SELECT 'rows: ' || count(*) FROM other;
	INSERT INTO other VALUES (8)});
is($out, 'rows: 1', 'a node of another type is none');
like($error, qr/ERROR:  likecount\._other_node\(\) is not a trigger for this event/, 'and the trigger knows where it stands');

done_testing();
