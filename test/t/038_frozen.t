# Frozen posts through a crash, a promotion, a dump: each keeps its total, refuses likes, and is exact when it is unfrozen.
use strict;
use warnings;
use LikecountTest;
use IPC::Run;

my $node = new_node('primary', init => { allows_streaming => 1 }, conf => "max_prepared_transactions = 5\nautovacuum = off\n");

sub value { return $node->safe_psql($_[1] // 'postgres', $_[0]); }

# settled() polls until nothing waits and nothing is being recounted, then lets the recount compare rows and slots.
sub settled
{
	my ($what, $database) = @_;
	$database //= 'postgres';
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->poll_query_until($database, q{
		SELECT NOT EXISTS (SELECT FROM likecount.pending) AND NOT EXISTS (SELECT FROM likecount._repair_todo)
		   AND NOT EXISTS (SELECT FROM likecount.counters WHERE state <> 'active')
		   AND EXISTS (SELECT FROM likecount.counters)});
	return is(value(q{SELECT * FROM likecount.check('likes')}, $database), '', $what);
}

# state(post...): displayed|rows|mark of each
sub state
{
	my ($posts, $database) = @_;
	return value(qq{
		SELECT string_agg(concat_ws('|', likecount.like_count(p), (SELECT count(*) FROM likes WHERE post_id = p),
			COALESCE((SELECT value::text FROM likecount.like_slots WHERE post = p AND slot = -1), '-')), ' ' ORDER BY p)
		FROM unnest(ARRAY[$posts]) p}, $database);
}

sub refused
{
	my ($post, $what, $database) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, $out, $err) = $node->psql($database // 'postgres', "\\set VERBOSITY verbose\nSELECT likecount.like($post, 999)");
	return like($err, qr/ERROR:  55000: post $post is frozen/, $what);
}

sub worker
{
	$node->append_conf('postgresql.conf', "likecount.worker = $_[0]\n");
	$node->reload;
	wait_no_worker($node, 'postgres') if $_[0] eq 'off';
	return;
}

value(q{CREATE EXTENSION likecount; SELECT likecount.create_counter()});
value('INSERT INTO likes SELECT p, u FROM generate_series(1, 10) p, generate_series(1, 5) u');
settled('ten posts with five likes each');

# ---- the worker flushes below a frozen total

value(q{BEGIN; SELECT likecount.like(3, 100); PREPARE TRANSACTION 'in flight'});
is(value(q{SELECT likecount.freeze('likes', p) FROM generate_series(1, 3) p}), "5\n5\n5", 'three are frozen');
value('DELETE FROM likes WHERE post_id IN (1, 4) AND user_id = 1');
settled('the worker has flushed');
is(state('1, 3, 4'), '5|4|1 5|5|0 4|4|-', 'a frozen total stays, another one follows');

# an open transaction that freezes holds up this counter, and shows; others go on
value(q{SELECT likecount.create_counter('stars')});
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN');
$session->query_safe(q{SELECT likecount.freeze('likes', 10)});
value('SELECT likecount.like(4, 50), likecount.star(1, 1)');
ok($node->poll_query_until('postgres', 'SELECT likecount.star_count(1) = 1'), 'while a post is being frozen other counters are flushed');
is(value('SELECT verb, locked_by IS NOT NULL FROM likecount.counters ORDER BY 1'), "like|t\nstar|f", 'the view counters shows who holds this one');
$session->query_safe('ROLLBACK');
$session->quit;
ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(4) = 5'), 'then it is flushed as well');
value('DELETE FROM likes WHERE post_id = 4 AND user_id = 50');
settled('exact');

# one transaction after the other that freezes: the worker gets its turn between two of them
value('CREATE TABLE over ()');
my $freezing = IPC::Run::start([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', q{DO $$ BEGIN
	WHILE NOT EXISTS (SELECT FROM over) LOOP
		PERFORM likecount.freeze('likes', p), likecount.unfreeze('likes', p) FROM generate_series(1001, 1100) p;
		COMMIT;
	END LOOP; END $$} ]);
$node->poll_query_until('postgres', q{SELECT locked_by IS NOT NULL FROM likecount.counters WHERE verb = 'like'});
value('SELECT likecount.like(4, 51)');
{
	local $PostgreSQL::Test::Utils::timeout_default = 20;
	ok($node->poll_query_until('postgres', 'SELECT likecount.like_count(4) = 5'), 'while posts are being frozen, their counter is flushed');
}
is(value(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO%' AND state = 'active'}), '1', 'between two transactions');
value('INSERT INTO over DEFAULT VALUES');
ok($freezing->finish, 'none of them has failed');
value('DELETE FROM likes WHERE post_id = 4 AND user_id = 51');
settled('exact');

# ---- a crash that loses deltas of frozen posts, of others, and of one that is frozen before anybody has looked

worker('off');
value('INSERT INTO likes VALUES (5, 60), (6, 60)');
value(q{SELECT likecount.freeze('likes', 5)});
value('DELETE FROM likes WHERE post_id = 2 AND user_id IN (1, 2)');
is(value('SELECT queue_rows FROM likecount.status'), '2', 'likes wait in the queue');
$node->stop('immediate');
$node->start;
is(value('SELECT queue_rows FROM likecount.status'), '0', 'which the crash has emptied');
is(value(q{SELECT likecount.like_count(6), likecount.freeze('likes', 6)}), '5|6', 'freeze() stores the count of the rows, not a total that lacks what the queue had');
refused(1, 'a frozen post is frozen after a crash');
is(state('1, 2, 3, 5, 6'), '5|4|1 5|3|0 5|5|0 6|6|1 6|6|1', 'and shows what it showed');
worker('on');
value(q{COMMIT PREPARED 'in flight'});
settled('repaired');
is(state('1, 2, 3, 5, 6'), '5|4|1 5|3|2 5|6|-1 6|6|0 6|6|0', 'below the totals everything is counted, the like in flight, too');

# ---- a standby, and its promotion

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
configure_node($standby);
$standby->start;
value(q{SELECT likecount.freeze('likes', 7)});
value('DELETE FROM likes WHERE post_id = 7');
settled('and the worker has flushed');
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT likecount.like_count(7), likecount.like_count_now(7), frozen FROM likecount.counters WHERE verb = $$like$$'), '5|5|6',
	'a standby shows frozen totals');
my ($status, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT likecount.freeze('likes', 8)");
like($err, qr/ERROR:  25006: cannot execute likecount\.freeze\(\)/, 'freeze() is refused there');

worker('off');
value('INSERT INTO likes VALUES (9, 70)');
value('DELETE FROM likes WHERE post_id = 1 AND user_id = 2');
$node->wait_for_catchup($standby);
$node->stop('immediate');
$standby->promote;
$node = $standby;
worker('on');
refused(1, 'after a promotion a frozen post is frozen');
settled('repaired');
is(state('1, 7, 9'), '5|3|2 5|0|5 6|6|-', 'and shows what it showed');

# ---- dump and restore

my $dump = $node->backup_dir . '/dump.sql';
value('CREATE DATABASE copy');
value('CREATE DATABASE empty');
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('copy') ], 'restore');
settled('recounted after a restore', 'copy');
is(state('1, 2, 3, 5, 6, 7, 8', 'copy'), '5|3|2 5|3|2 5|6|-1 6|6|0 6|6|0 5|0|5 5|5|-', 'frozen posts came with the dump');
refused(7, 'and refuse likes', 'copy');
is(value(q{SELECT likecount.unfreeze('likes', p) FROM unnest(ARRAY[1, 2, 3, 5, 6, 7]) p}, 'copy'), join("\n", ('t') x 6), 'unfrozen');
is(state('1, 2, 3, 5, 6, 7, 8', 'copy'), '3|3|- 3|3|- 6|6|- 6|6|- 6|6|- 0|0|- 5|5|-', 'each is exact');
is(value('SELECT likecount.like(7, 1)', 'copy'), 't', 'and can be liked');

$node->command_ok([ 'pg_dump', '-s', '-f', $dump, $node->connstr('postgres') ], 'pg_dump of the schema');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('empty') ], 'restore');
settled('adopted', 'empty');
is(value('SELECT frozen, likecount.like(1, 1) FROM likecount.counters WHERE verb = $$like$$', 'empty'), '0|t', 'without data nothing is frozen');
# the data alone, later
value('TRUNCATE likes', 'empty');
$node->command_ok([ 'pg_dump', '-a', '--disable-triggers', '-f', $dump, $node->connstr('postgres') ], 'pg_dump of the data');
value('DELETE FROM likecount.like_slots', 'empty');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('empty') ], 'restore');
value(q{CALL likecount.reconcile_all('likes')}, 'empty');
settled('recounted', 'empty');
is(state('1, 7, 8', 'empty'), '5|3|2 5|0|5 5|5|-', 'frozen posts came with the data');

# ---- detach forgets

value(q{SELECT likecount.detach('likes'); SELECT likecount.attach('likes', 'post_id', 'user_id', 'liked_at')});
settled('attached anew');
is(state('1, 7'), '3|3|- 0|0|-', 'nothing is frozen any more');

done_testing();
