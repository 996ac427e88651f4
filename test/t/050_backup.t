# Base backups, of a primary and of a standby, and recovery to a point in time: each is a server of its own with an empty
# queue, and finds out by itself which posts that makes wrong.
use strict;
use warnings;
use LikecountTest;
use IPC::Run;

my $primary = new_node('primary', init => { allows_streaming => 1, has_archiving => 1, extra => ['--wal-segsize=1'] });

# posts 1 to 40 are hot; 1001 to 3000 have a like each, too old for the queue
$primary->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	SELECT likecount.create_counter('likes');
	INSERT INTO likes SELECT p, 1, '2020-01-01' FROM generate_series(1001, 3000) p});
wait_exact($primary, 'postgres', 'like');

my %script = (
	like => "\\set post random(1, 40)\n\\set user random(1, 300)\nSELECT likecount.like(:post, :user);\n",
	# of a like that may be in the queue, and of an old one
	unlike => "\\set post random(1, 40)\n\\set user random(1, 300)\n\\set old random(1, 900)\nSELECT likecount.unlike(:post, :user), likecount.unlike(:base + :old, 1);\n");
append_to_file($primary->basedir . "/$_", $script{$_}) for keys %script;

my $old_total = 'SELECT sum(total) FROM likecount.like_totals WHERE post_id > 1000';

sub value { return $_[0]->safe_psql('postgres', $_[1]); }

sub set_worker
{
	my ($onoff) = @_;
	$primary->append_conf('postgresql.conf', "likecount.worker = $onoff\n");
	$primary->reload;
	wait_no_worker($primary, 'postgres') if $onoff eq 'off';
	return;
}

# under_load($base, $do) runs it while likes and unlikes come in, also unlikes of the 900 posts after $base.  Some were flushed
# before, and now no worker runs.  Returns how many old likes are in the totals.
sub under_load
{
	my ($base, $do) = @_;
	my @script = map { $primary->basedir . "/$_" } qw(like unlike);
	my ($in, $out) = ('', '');

	my $flushed = value($primary, 'SELECT flushes FROM likecount.status');
	my $load = IPC::Run::start(
		[ 'pgbench', '-n', '-h', $primary->host, '-p', $primary->port, '-c', 2, '-T', 120, '-D', "base=$base", '-f', "$script[0]\@3", '-f', "$script[1]\@1", 'postgres' ],
		'<', \$in, '>', \$out, '2>', \$out);
	ok($primary->poll_query_until('postgres', "SELECT flushes > $flushed + 3 FROM likecount.status"), 'likes are flushed under load');
	set_worker('off');
	ok($primary->poll_query_until('postgres', q{SELECT queue_rows > 500 AND journal_rows > 100 FROM likecount.status}), 'then they wait');
	$do->();
	my $old = value($primary, $old_total);
	$load->signal('TERM');
	$load->finish;
	set_worker('on');
	return $old;
}

# repairs_itself($node, $old): the server becomes exact, by a repair of the hot posts and of those old ones that have lost their
# like since $old of them were in the totals, and counts on.
sub repairs_itself
{
	my ($node, $old) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $name = $node->name;

	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	wait_exact($node, 'postgres', 'like');

	my $log = slurp_file($node->logfile);
	my @lost = $log =~ /the queue of counter "like" of database "postgres" was lost in a crash or a failover\n.*DETAIL:  (Posts with likes since|Every post)/g;
	is("@lost", 'Posts with likes since', "$name: the log tells once that the queue was lost");
	my @done = $log =~ /counter "like" of database "postgres" is exact again after its (\w+)\n.*DETAIL:  Posts checked: (\d+), drift removed: (-?\d+)/g;
	my $affected = 40 + $old - value($node, 'SELECT count(*) FROM likes WHERE post_id > 1000');
	cmp_ok($affected, '>', 40, "$name: old posts are affected, too");
	is("@done[0, 1]", "repair $affected", "$name: and once that a repair of the affected posts is done");
	is(scalar(@done), 3, "$name: there was no second recount");
	cmp_ok($done[2], '>', 0, "$name: without it the totals would be short");
	is(value($node, q{SELECT phase, posts_done, drift_found, repair_todo FROM likecount.progress}), "idle|$affected|$done[2]|0", "$name: progress agrees");

	$node->safe_psql('postgres', 'SELECT likecount.like(7, -1); DELETE FROM likes WHERE post_id = 3000');
	wait_exact($node, 'postgres', 'like');
	$node->stop;
	return;
}

# the backups bring along the primary's configuration
my $own = "archive_mode = off\nlikecount.worker = on\n";

# ---- a clone of the primary

my $old = under_load(1000, sub {
	my $rows = value($primary, 'SELECT count(*) FROM likes');
	$primary->backup('of_primary');
	isnt(value($primary, 'SELECT count(*) FROM likes'), $rows, 'the load went on during the backup') });

my $clone = PostgreSQL::Test::Cluster->new('clone');
$clone->init_from_backup($primary, 'of_primary');
configure_node($clone, conf => $own);
$clone->start;
repairs_itself($clone, $old);

# ---- a clone of a standby

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'of_primary', has_streaming => 1);
configure_node($standby, conf => $own);
$standby->start;
$old = under_load(1900, sub {
	$primary->wait_for_catchup($standby);
	$standby->backup('of_standby') });
$standby->stop;

my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($standby, 'of_standby');
configure_node($second, conf => $own);
unlink $second->data_dir . '/standby.signal' or die "standby.signal: $!";
$second->start;
repairs_itself($second, $old);

# ---- a point in time, between two flushes that the archive has

wait_exact($primary, 'postgres', 'like');
set_worker('off');
$old = value($primary, $old_total);
value($primary, q{
	SELECT likecount.like(p, -2) FROM generate_series(1, 40) p;
	SELECT likecount.unlike(p, -2) FROM generate_series(1, 10) p;
	SELECT likecount.unlike(p, 1) FROM generate_series(2901, 2910) p});
my $rows = q{SELECT sum(post_id), sum(user_id), count(*) FROM likes};
my $then = value($primary, $rows);
value($primary, q{SELECT pg_create_restore_point('here')});
value($primary, q{
	SELECT likecount.like(p, -3) FROM generate_series(30, 60) p;
	DELETE FROM likes WHERE post_id IN (20, 2950);
	SELECT likecount.flush()});
isnt(value($primary, $rows), $then, 'more likes came after the restore point');
my $segment = value($primary, 'SELECT pg_walfile_name(pg_current_wal_lsn())');
value($primary, 'SELECT pg_switch_wal()');
ok($primary->poll_query_until('postgres', "SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver"), 'the WAL is archived');
$primary->stop;

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'of_primary', has_restoring => 1, standby => 0);
configure_node($restored, conf => "${own}recovery_target_name = 'here'\nrecovery_target_action = 'promote'\n");
$restored->start;
$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
is(value($restored, $rows), $then, 'the restored server has the rows of the restore point');
repairs_itself($restored, $old);

done_testing();
