# On a standby what reads works, and what writes fails with 25006 under the name that the caller knows.
use strict;
use warnings;
use LikecountTest;

my $primary = new_node('primary', init => { allows_streaming => 1 });

$primary->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	SELECT likecount.create_counter('likes');
	SELECT likecount.like(1, 10), likecount.like(1, 11), likecount.like(2, 10);});
wait_exact($primary, 'postgres', 'like');

$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
configure_node($standby);
$standby->start;

# an unlike goes to the journal, which the standby has; the primary's worker must not take it away meanwhile
$primary->append_conf('postgresql.conf', 'likecount.worker = off');
$primary->reload;
wait_no_worker($primary, 'postgres');
$primary->safe_psql('postgres', 'SELECT likecount.unlike(2, 10)');
$primary->wait_for_catchup($standby);

for my $call ('like(1, 12)', 'like(1, 10)', 'unlike(1, 10)', 'like_many(ARRAY[1], ARRAY[12])', q{create_counter('more')}, q{attach('likes', 'post_id')}, q{detach('likes')}, q{set_mode('likes', 'direct')})
{
	my ($name) = $call =~ /^(\w+)/;
	my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT likecount.$call");
	like($err, qr/ERROR:  25006: cannot execute likecount\.$name\(\) in a read-only transaction/, "$call is refused");
}
my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT likecount.flush()");
like($err, qr/ERROR:  25006: /, 'flush() is refused');

is($standby->safe_psql('postgres', 'SELECT likecount.like_count(1), likecount.like_count(99)'), '2|0', 'like_count()');
is($standby->safe_psql('postgres', 'SELECT likecount.like_count_now(1), likecount.like_count_now(2)'), '2|1',
	'like_count_now() is the same, as only a part of what waits is there');
is($standby->safe_psql('postgres', 'SELECT likecount.liked(1, 10), likecount.liked(2, 10)'), 't|f', 'liked()');
is($standby->safe_psql('postgres', 'SELECT * FROM likecount.like_counts(ARRAY[2, 3, 1])'), "2|1\n3|0\n1|2", 'like_counts()');
is($standby->safe_psql('postgres', 'SELECT * FROM likecount.liked_posts(10, ARRAY[2, 1])'), '1', 'liked_posts()');
is($standby->safe_psql('postgres', 'SELECT total FROM likecount.like_totals WHERE post_id = 1'), '2', 'the view of totals');

is($standby->safe_psql('postgres', 'SELECT verb, post, pending FROM likecount.pending'), 'like|2|-1', 'pending shows the journal');
is($standby->safe_psql('postgres', q{SELECT in_recovery, worker_state, queue_rows, journal_rows, lag > '0' FROM likecount.status}),
	't|in recovery|0|1|t', 'status');
is($standby->safe_psql('postgres', 'SELECT verb, capture, state FROM likecount.counters'), 'like|enabled|active', 'counters');
is($standby->safe_psql('postgres', q{SELECT likecount.lag() > '0'}), 't', 'lag()');

done_testing();
