# One turn after the other: the bounded batch, and the watermark while a commit is under way.
use strict;
use warnings;
use LikecountTest;
use File::Basename;
use IPC::Run;

# synchronous replication is possible: it holds up a commit
my $node = new_node('turns', init => { allows_streaming => 1 }, conf => "likecount.worker = off\nlikecount.flush_batch = 100\nautovacuum = off\n");
$node->safe_psql('postgres', 'CREATE EXTENSION likecount; CREATE EXTENSION pageinspect');
$node->safe_psql('postgres', slurp_file(dirname(__FILE__) . '/../oracle.sql'));
$node->safe_psql('postgres', q{SELECT likecount.create_counter(); SELECT likecount.create_counter('stars')});
$node->safe_psql('postgres', 'SELECT likecount.flush()');

sub value { return $node->safe_psql('postgres', $_[0]); }

# ---- likecount.flush_batch

# In the journal are deltas of likes that wait in the queue: were they applied first, totals would be negative meanwhile.
value('INSERT INTO likes SELECT n, 1 FROM generate_series(1, 250) n');
value('DELETE FROM likes WHERE post_id % 2 = 0');
is(value('SELECT queue_rows, journal_rows FROM likecount.status'), '250|125', 'deltas wait in queue and journal');
# t_field3 of a row that this transaction has deleted is the number of the deleting command: each turn has its own.
my $order = value(q{
	BEGIN;
	SELECT 'moved ' || likecount.flush();
	SELECT format('last of the queue before the journal: %s, turns: %s', max(c) FILTER (WHERE place = 'queue') <= min(c) FILTER (WHERE place = 'journal'), count(DISTINCT c))
	  FROM (VALUES ('queue', 'likecount._queue_0'), ('journal', 'likecount._journal_0')) AS tables (place, name),
	       generate_series(0, pg_relation_size(name) / 8192 - 1) AS block,
	       LATERAL (SELECT t_field3, t_xmax::text FROM heap_page_items(get_raw_page(name, block::int))) AS items (c, x)
	 WHERE x = pg_current_xact_id()::xid::text;
	ROLLBACK});
is($order, "moved 375\nlast of the queue before the journal: t, turns: 4", 'flush() moves everything, in batches, the queue before the journal');
is(value(q{SELECT drifts('like')}), '', 'rolled back, all is as before');

# The worker takes the next batch at once, it does not wait for the next interval.
value(q{ALTER SYSTEM SET likecount.flush_interval = '1h'});
value(q{ALTER SYSTEM SET likecount.worker = on});
$node->reload;
wait_exact($node, 'postgres', 'like');
is(value('SELECT count(*) FROM likecount.like_totals WHERE total <> 0'), '125', 'the worker drains one batch after the other');
is(value('SELECT deltas >= 375 FROM likecount.status'), 't', 'and says how many');
value(q{ALTER SYSTEM SET likecount.worker = off});
$node->reload;
wait_no_worker($node, 'postgres');

# But it does wait with what it cannot take, as somebody has locked the slots.
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE likecount.like_slots IN SHARE MODE');
value('SELECT likecount.like(600, 1), likecount.star(600, 1)');
my $flushes = value('SELECT flushes FROM likecount.status');
value(q{ALTER SYSTEM SET likecount.worker = on});
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT likecount.star_count(600) = 1 AND EXISTS (
	SELECT FROM pg_stat_activity WHERE backend_type = 'likecount worker' AND state = 'idle' AND wait_event_type = 'Extension')}), 'one counter is flushed while the slots of another are locked');
is(value("SELECT flushes - $flushes, likecount.like_count(600) FROM likecount.status"), '1|0', 'and the rest waits for the next interval');
$locker->query_safe('ROLLBACK');
$locker->quit;
value(q{ALTER SYSTEM SET likecount.worker = off});
value(q{ALTER SYSTEM RESET likecount.flush_interval});
$node->reload;
wait_no_worker($node, 'postgres');

# ---- the watermark and a commit under way

# A commit that waits for a standby is in WAL, but no snapshot sees it yet, nor its delta in the queue.  Its other like is too
# old for the queue, so it must not hold the watermark back.
value(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
$node->reload;
my ($commit, $liked_at, $out);
for my $user (1000 .. 1020)
{
	# until the checkpointer has told everybody of the new setting
	$liked_at = value(q{SELECT clock_timestamp() - interval '50 s'});
	$commit = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "INSERT INTO likes VALUES (500, $user, '$liked_at'), (502, $user, '2001-01-01')" ],
		'>', \$out, '2>&1');
	last if $node->poll_query_until('postgres', qq{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')
		OR EXISTS (SELECT FROM likes WHERE user_id = $user)})
	  && value(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) eq '1';
	$commit->finish;
}
is(value(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}), '1', 'a like of 50 seconds ago is being committed');
$node->safe_psql('postgres', q{
	SET synchronous_commit = off;
	UPDATE likecount._watermark SET liked_at = clock_timestamp() - interval '1 hour';
	INSERT INTO likes VALUES (501, 1);
	SELECT likecount.flush()});
is(value(qq{SELECT liked_at > '$liked_at'::timestamptz - interval '70 s' AND liked_at <= '$liked_at'::timestamptz - interval '60 s' FROM likecount._watermark}), 't',
	'the flush stores a watermark that does not leave it behind');
is(value(q{SELECT likecount.like_count(500)}), '0', 'nor has it counted it');

# So a crash now, which loses its delta, does not lose its like.
$node->stop('immediate');
$commit->finish;
$node->append_conf('postgresql.auto.conf', "synchronous_standby_names = ''\nlikecount.worker = on\n");
$node->start;
is(value(qq{SELECT count(*) FROM likes WHERE liked_at = '$liked_at'}), '1', 'the like has survived the crash');
wait_exact($node, 'postgres', 'like');

done_testing();
