# The queue stays small: segments are emptied in place, whatever old snapshots stand, and no committed delta is lost.
use strict;
use warnings;
use LikecountTest;
use File::Basename;
use IPC::Run;

my $node = new_node('segments', conf => <<'CONF');
likecount.flush_interval = '10ms'
autovacuum = off
fsync = off
max_wal_size = '4GB'
CONF
$node->safe_psql('postgres', 'CREATE EXTENSION likecount');
$node->safe_psql('postgres', slurp_file(dirname(__FILE__) . '/../oracle.sql'));
# A thousand bytes a post make a segment of 8 MB of few rows.
$node->safe_psql('postgres', q{
	CREATE TABLE likes (post text NOT NULL, fan int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (fan, post));
	CREATE INDEX ON likes (at)});
$node->safe_psql('postgres', q{SELECT likecount.attach('likes', 'post', 'fan', 'at', verb => 'like')});

sub value { return $node->safe_psql('postgres', $_[0]); }

# A session that stays: give it statements, it answers with its pid.
sub open_session
{
	my ($statements) = @_;
	my ($in, $out) = ("$statements\nSELECT 'pid ' || pg_backend_pid();\n", '');
	my $timer = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default);
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>&1', $timer);
	$psql->pump until $out =~ /^pid (\d+)$/m || $timer->is_expired;
	return { psql => $psql, in => \$in, pid => $1 };
}

sub close_session
{
	my ($session) = @_;
	${ $session->{in} } .= "\\q\n";
	return $session->{psql}->finish;
}

sub settle
{
	return $node->poll_query_until('postgres', q{SELECT queue_rows + journal_rows = 0 FROM likecount.status});
}

my $bytes = 'queue_bytes + journal_bytes';
my $mb = 1024 * 1024;

# A round of likes is more than 4 MB of deltas, from which size on a segment is emptied.
my $posts = q{SELECT repeat('a post with a long name ', 40) || n FROM generate_series(1, 4500) n};
sub like_round { return value("INSERT INTO likes SELECT p, $_[0], " . ($_[1] // 'clock_timestamp()') . " FROM ($posts) AS posts (p)"); }
# One more like, so that the worker takes another turn.
my $nudge = "WITH nudge AS (INSERT INTO likes SELECT 'nudge', nextval('fan'))";
value('CREATE SEQUENCE fan START 1000');

# ---- with an old snapshot in another session

my $old = open_session('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM likes;');
# five rounds of likes, that is 22 MB, then three of likes of long ago, which take the journal
my %largest = (queue => 0, journal => 0);
for my $round (1 .. 8)
{
	my $place = $round <= 5 ? 'queue' : 'journal';
	like_round($round, $place eq 'queue' ? 'clock_timestamp()' : "'2001-01-01'");
	settle() or last;
	my $size = value("SELECT ${place}_bytes FROM likecount.status");
	$largest{$place} = $size if $size > $largest{$place};
}
cmp_ok($largest{queue}, '<', 16 * $mb, 'the queue stays small under an old snapshot');
value('DELETE FROM likes');
ok(settle(), 'a DELETE of everything is flushed');
cmp_ok(value('SELECT journal_bytes FROM likecount.status'), '<', 13 * $mb, 'the journal stays small, too');
cmp_ok($largest{journal}, '<', 13 * $mb, 'all the time');
# the next turns empty what is left
ok($node->poll_query_until('postgres', "$nudge SELECT $bytes < 14 * $mb FROM likecount.status"),
	'and they shrink again');
ok(value('SELECT truncations >= 4 FROM likecount.status'), 'by being emptied in place');
close_session($old);
wait_exact($node, 'postgres', 'like');

# ---- who is in the way is shown, and likes do not wait for the emptying

my $blocker = open_session(join(' ', 'BEGIN;', map { "LOCK TABLE likecount._${_}_0 IN ACCESS SHARE MODE;" } qw(queue journal)));
for my $round (101 .. 103)
{
	like_round($round);
	settle() or last;
}
ok($node->poll_query_until('postgres', qq{
	$nudge
	SELECT truncation_blocked_by IS NOT DISTINCT FROM $blocker->{pid} FROM likecount.status}), 'status shows who keeps a segment from being emptied');
close_session($blocker);
ok($node->poll_query_until('postgres', qq{
	$nudge
	SELECT truncation_blocked_by IS NULL AND pg_relation_size('likecount._queue_0') < 4 * 1024 * 1024 FROM likecount.status}), 'it is emptied when he is gone');
wait_exact($node, 'postgres', 'like');

# ---- a prepared transaction holds a segment: it is not emptied under it

value(q{ALTER SYSTEM SET max_prepared_transactions = 5});
$node->restart;
value("BEGIN; INSERT INTO likes SELECT p, 200 FROM ($posts) AS posts (p); PREPARE TRANSACTION 'held'");
for my $round (201 .. 203)
{
	like_round($round);
	settle() or last;
}
value(q{COMMIT PREPARED 'held'});
wait_exact($node, 'postgres', 'like');

# ---- writers race with flushes and emptyings

my $before = value('SELECT truncations FROM likecount.status');
$old = open_session('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM likes;');
$node->pgbench(
	'--no-vacuum --client=6 --jobs=2 --time=5',
	0,
	[qr/number of failed transactions: 0/],
	[],
	'likes of one post and of thousands, under an old snapshot',
	{
		'031_one@6' => "INSERT INTO likes SELECT 'post ' || (random() * 100)::int, nextval('fan')",
		'031_many@3' => "INSERT INTO likes SELECT p, (SELECT nextval('fan')) FROM ($posts LIMIT 500) AS posts (p)",
		'031_gone@1' => q{DELETE FROM likes WHERE fan = (SELECT last_value - 10 FROM fan)},
	});
close_session($old);
wait_exact($node, 'postgres', 'like');
cmp_ok(value('SELECT truncations FROM likecount.status'), '>', $before, 'segments were emptied meanwhile');

# ---- without a worker, flush() empties what earlier flushes have consumed; one that is rolled back has consumed nothing

value(q{ALTER SYSTEM SET likecount.worker = off});
$node->reload;
wait_no_worker($node, 'postgres');
value(q{TRUNCATE likes; SELECT likecount.flush()});
my $largest = 0;
for my $round (1 .. 5)
{
	like_round($round);
	value('BEGIN; SELECT likecount.flush(); ROLLBACK');
	value('SELECT likecount.flush()');
	my $size = value("SELECT $bytes FROM likecount.status");
	$largest = $size if $size > $largest;
}
is(value(q{SELECT drifts('like')}), '', 'flush() without a worker, every other one rolled back, is exact');
cmp_ok($largest, '<', 16 * $mb, 'and keeps the queue small');

done_testing();
