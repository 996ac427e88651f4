# Direct mode with a worker, a crash, a standby, a dump: totals are exact with the commit, quiet slots are folded, and
# neither a switch of the mode nor a crash loses or doubles anything.
use strict;
use warnings;
use LikecountTest;
use File::Basename;

my $node = new_node('primary', init => { allows_streaming => 1 }, conf => "max_prepared_transactions = 5\nautovacuum = off\nlikecount.idle_timeout = '1s'\n");

sub value { return $node->safe_psql($_[1] // 'postgres', $_[0]); }
sub drifts { return value(q{SELECT drifts('like')}, @_); }
sub waiting { return value(q{SELECT waiting('like')}); }
sub mode { return value('SELECT mode, state FROM likecount.counters', @_); }
# slots(post): its slots as "number:value ..."
sub slots { return value("SELECT COALESCE(string_agg(slot || ':' || value, ' ' ORDER BY slot), '') FROM likecount.like_slots WHERE post = $_[0]", $_[1]); }

sub setting
{
	my ($name, $value) = @_;
	$node->append_conf('postgresql.conf', "$name = $value\n");
	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('$name') = '$value'");
	wait_no_worker($node, 'postgres') if $value eq 'off';
	return;
}

value('CREATE EXTENSION likecount');
value(slurp_file(dirname(__FILE__) . '/../oracle.sql'));
value(q{SELECT likecount.create_counter(mode => 'direct')});
wait_exact($node, 'postgres', 'like');
is(mode(), 'direct|active', 'a counter in direct mode');

# ---- the worker folds what is quiet, and then leaves

value('SELECT likecount.like(p, u) FROM generate_series(1, 5) p, generate_series(1, 3) u');
is(slots(1), '1:3', 'likes are in slots');
is(drifts(), '', 'and exact, with nothing flushed');
value(q{UPDATE likecount.like_slots SET updated_at = updated_at - interval '1 minute' WHERE post < 5});
ok($node->poll_query_until('postgres', q{SELECT array_agg(DISTINCT post) = '{5}' FROM likecount.like_slots WHERE slot > 0}), 'the worker folds quiet posts');
is(slots(1) . ' ' . slots(5), '0:3 1:3', 'and leaves others alone');
is(drifts(), '', 'which changes no total');
value(q{UPDATE likecount.like_slots SET updated_at = updated_at - interval '1 minute'; UPDATE likecount.like_slots SET value = 9223372036854775807 WHERE post = 4;
	INSERT INTO likecount.like_slots VALUES (4, 0, 1, 1, now() - interval '1 minute')});
ok($node->poll_query_until('postgres', q{SELECT array_agg(DISTINCT post) = '{4}' FROM likecount.like_slots WHERE slot > 0}), 'the last one, too; not a slot that does not fit');
ok(wait_no_worker($node, 'postgres'), 'then there is nothing to stay for');
value('DELETE FROM likecount.like_slots WHERE post = 4');
value(q{SELECT likecount.reconcile('likes', 4)});
wait_exact($node, 'postgres', 'like');

# ---- nobody waits: who finds no slot takes the journal

setting('likecount.worker', 'off');
my $holder = $node->background_psql('postgres');
value('SELECT likecount.like(1, 10)');
$holder->query_safe('BEGIN');
$holder->query_safe('SELECT FROM likecount.like_slots WHERE post = 1 AND slot > 0 FOR UPDATE');
value(q{SET statement_timeout = '5s'; SELECT likecount.like(1, 11)});
is(slots(1), '0:3 1:1 2:1', 'a held slot is passed over, and another one opened');
setting('likecount.max_slots', '1');
value(q{SET statement_timeout = '5s'; SELECT likecount.like(6, 1)});
$holder->query_safe('SELECT FROM likecount.like_slots WHERE post = 6 FOR UPDATE');
value(q{SET statement_timeout = '5s'; SELECT likecount.like(6, 2)});
is(waiting(), 'journal 6:1', 'when all are held the journal takes it');
is(slots(6), '1:1', 'and no slot is opened beyond the setting');
value(q{SET statement_timeout = '5s'; SELECT likecount.like(1, 12)});
is(slots(1), '0:3 1:1 2:2', 'though more that are there are used');
$holder->query_safe('ROLLBACK');
value('SELECT likecount.flush()');
$holder->query_safe('BEGIN; LOCK TABLE likecount.like_slots IN SHARE MODE');
value(q{SET statement_timeout = '5s'; SELECT likecount.like(1, 13)});
is(waiting(), 'journal 1:1', 'neither is the table waited for');
$holder->query_safe('ROLLBACK');
$holder->quit;
is(drifts(), '', 'all is exact');
value('SELECT likecount.flush()');
setting('likecount.max_slots', '64');

# nor does a commit fail for want of locks
my $hoarder = $node->background_psql('postgres');
$hoarder->query_safe('DO $$ BEGIN FOR i IN 1 .. 10000000 LOOP BEGIN PERFORM pg_advisory_lock(i); EXCEPTION WHEN out_of_memory THEN EXIT; END; END LOOP; END $$');
$hoarder->query_safe('SELECT count(pg_advisory_unlock(i)) FROM generate_series(1, 20) i');
is(value('SELECT likecount.like_many(array_agg(p), array_agg(1)) FROM generate_series(1000, 1039) p'), '40', 'likes of new posts while the table of locks is nearly full');
$hoarder->quit;
ok(value('SELECT count(*) FROM likecount.like_slots WHERE post >= 1000') < 32, 'open as many slots as there are locks');
is(drifts(), '', 'and the journal takes the others');
value('DELETE FROM likes WHERE post_id >= 1000; SELECT likecount.flush()');

# ---- a crash loses nothing of a direct counter: there is no repair

value('SELECT likecount.like(p, 100) FROM generate_series(1, 5) p');
value(q{BEGIN; SELECT likecount.like(2, 101); PREPARE TRANSACTION 'kept'});
my $totals = value('SELECT * FROM likecount.like_totals ORDER BY 1');
$node->stop('immediate');
$node->start;
is(value('SELECT * FROM likecount.like_totals ORDER BY 1'), $totals, 'after a crash the totals are what they were');
is(drifts(), '', 'and exact');
value('SELECT likecount.like(2, 102), likecount.unlike(1, 100)');
is(drifts(), '', 'before anybody has flushed, too');
is(waiting(), '', 'and nothing waits');
value('SELECT likecount.flush()');
is(mode() . value('SELECT last_reconcile > pg_postmaster_start_time() FROM likecount.counters'), 'direct|activef', 'nothing is repaired');
value(q{COMMIT PREPARED 'kept'});
is(waiting(), 'journal 2:1', 'what was prepared is in the journal');
value('SELECT likecount.flush()');
is(drifts(), '', 'and counted');

# ---- switched with a like in the queue; its unlike; a crash

my ($status, $out, $err) = $node->psql('postgres', q{BEGIN; SELECT likecount.like(3, 200); PREPARE TRANSACTION 'open'});
($status, $out, $err) = $node->psql('postgres', q{SET lock_timeout = '100ms'; SELECT likecount.set_mode('likes', 'queued')});
like($err, qr/canceling statement due to lock timeout/, 'set_mode() waits for a prepared transaction');
value(q{ROLLBACK PREPARED 'open'});
value(q{SELECT likecount.set_mode('likes', 'queued')});
value('SELECT likecount.like(3, 201), likecount.like(3, 202)');
is(waiting(), 'queue 3:2', 'likes in the queue');
value(q{SELECT likecount.set_mode('likes', 'direct')});
value('SELECT likecount.unlike(3, 201)');
is(waiting(), 'queue 3:2 journal 3:-1', 'an unlike after the switch');
$node->stop('immediate');
$node->start;
is(waiting(), 'journal 3:-1', 'the crash has emptied the queue');
is(mode(), 'switching to direct|active', 'and the switch is not complete');
value('SELECT likecount.flush()') for 1 .. 3;
is(mode(), 'direct|active', 'repaired, the counter is direct');
is(drifts(), '', 'and exact');
value('SELECT likecount.unlike(3, 202)');
is(waiting(), '', 'from now on unlikes are applied at once');
$node->stop('immediate');
$node->start;
is(drifts(), '', 'which another crash does not change');

# the same with a worker, and to and fro
setting('likecount.worker', 'on');
for my $round (1 .. 3)
{
	value(q{SELECT likecount.set_mode('likes', 'queued')});
	value("SELECT likecount.like(p, 300 + $round) FROM generate_series(1, 5) p");
	value(q{SELECT likecount.set_mode('likes', 'direct')});
	value("SELECT likecount.unlike(p, 300 + $round) FROM generate_series(1, 3) p");
	ok($node->poll_query_until('postgres', q{SELECT mode = 'direct' FROM likecount.counters}), 'the worker completes a switch');
	$node->stop('immediate') if $round == 2;
	$node->start if $round == 2;
}
wait_exact($node, 'postgres', 'like');

# ---- a standby

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
configure_node($standby);
$standby->start;
value('SELECT likecount.like(7, 1), likecount.like(7, 2)');
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT likecount.like_count(7), likecount.like_count_now(7)'), '2|2', 'a standby shows the total as soon as it has the likes');
is($standby->safe_psql('postgres', q{SELECT slots, total FROM likecount.hot_posts WHERE post = '7'}), '1|2', 'and hot posts');
$node->stop('immediate');
$standby->promote;
$node = $standby;
is(slots(7), '1:2', 'promoted, it has them');
value('SELECT likecount.like(7, 3)');
is(value('SELECT likecount.like_count(7)'), '3', 'and goes on');
wait_exact($node, 'postgres', 'like');
is(mode(), 'direct|active', 'in direct mode');

# ---- dump and restore

value('CREATE DATABASE copy; CREATE DATABASE empty;');
my $dump = $node->backup_dir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
like(slurp_file($dump), qr/_capture\('like', 'liked', 'direct'\)/, 'has the mode');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('copy') ], 'restore');
ok($node->poll_query_until('copy', q{SELECT EXISTS (SELECT FROM likecount.counters WHERE mode = 'direct' AND state = 'active')}), 'adopted and recounted, it is direct');
is(slots(7, 'copy'), '1:3', 'slots came with the dump');
value('SELECT likecount.like(7, 4)', 'copy');
is(slots(7, 'copy'), '1:4', 'and are used');
is(drifts('copy'), '', 'all is exact');
value(q{SELECT likecount.set_mode('likes', 'queued')}, 'copy');
$node->command_ok([ 'pg_dump', '-s', '-f', $dump, $node->connstr('copy') ], 'pg_dump of the schema');
like(slurp_file($dump), qr/_capture\('like', 'liked', 'queued'\)/, 'has the other mode');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('empty') ], 'restore');
ok($node->poll_query_until('empty', q{SELECT EXISTS (SELECT FROM likecount.counters WHERE mode = 'queued' AND state = 'active')}), 'adopted, it is queued');
$node->stop;

# ---- without preloading

$node = new_node('without', preload => 0);
value('CREATE EXTENSION likecount');
value(slurp_file(dirname(__FILE__) . '/../oracle.sql'));
value(q{SELECT likecount.create_counter(mode => 'direct'); SELECT likecount.flush()});
value('SELECT likecount.like(1, 1), likecount.like(1, 2)');
is(slots(1) . drifts(), '1:2', 'without the library in shared_preload_libraries likes are counted at once');
value(q{UPDATE likecount.like_slots SET updated_at = updated_at - interval '1 minute'});
value('SELECT likecount.flush()');
is(slots(1), '0:2', 'and flush() folds');
value(q{SELECT likecount.set_mode('likes', 'queued'); SELECT likecount.like(1, 3)});
value(q{SELECT likecount.set_mode('likes', 'direct'); SELECT likecount.flush(); SELECT likecount.unlike(1, 3)});
is(mode() . slots(1) . drifts(), 'direct|active' . '0:3 1:-1', 'and completes a switch');

done_testing();
