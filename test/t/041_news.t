# A worker that has found nothing to adopt looks again when it was told of a change, and is not woken before that.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('news', debug => 1, conf => "max_prepared_transactions = 2\nautovacuum = off\nlikecount.audit_rate = 0\n");

sub value { return $node->safe_psql('postgres', $_[0]); }

# The worker has had its turn and waits for somebody to wake it.
sub wait_asleep
{
	return $node->poll_query_until('postgres', q{
		SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'likecount worker' AND state = 'idle' AND state_change < clock_timestamp() - interval '1 s')});
}

value(q{CREATE EXTENSION likecount; SELECT likecount.create_counter('likes', verb => 'like'); SELECT likecount.create_counter('stars', verb => 'star')});
wait_exact($node, 'postgres');
value(q{INSERT INTO likes VALUES (1, 1)});
wait_exact($node, 'postgres');

# As in the middle of a restore: all is there but one trigger.
my $trigger = value(q{SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'like_capture_upd'});
value(q{BEGIN; DROP TRIGGER like_capture_upd ON likes; DELETE FROM likecount._counter WHERE verb = 'like'; COMMIT});
value(q{BEGIN; SELECT likecount.star(1, 1); PREPARE TRANSACTION 'star'});
ok(wait_asleep(), 'nothing can be adopted');

my $holder = $node->background_psql('postgres');
my $restore = $node->background_psql('postgres');
$holder->query_safe(q{SELECT pg_advisory_lock(0, hashtext('commit: nobody told'))});
$restore->query_until(qr/begun/, "\\echo begun\n$trigger;\n");
ok($node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)}),
	'the last trigger is committed, and nobody has been told');
value(q{COMMIT PREPARED 'star'});
ok($node->poll_query_until('postgres', 'SELECT likecount.star_count(1) = 1'), 'the worker has a turn meanwhile');
ok(wait_asleep(), 'and finds nothing more');
is(value(q{SELECT count(*) FROM likecount._counter WHERE verb = 'like'}), 0, 'to adopt');
$holder->query_safe('SELECT pg_advisory_unlock_all()');
ok($node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM likecount.counters WHERE verb = 'like' AND state = 'active')}),
	'when it is told it adopts the counter');
$holder->quit;
$restore->quit;
wait_exact($node, 'postgres');
done_testing();
