# pg_upgrade, with deltas waiting: it carries everything over but the automatic dependencies, which are linked again.  Nothing
# is recounted, and no process of likecount runs while the catalogs are being brought over.
use strict;
use warnings;
use LikecountTest;

chomp(my $bindir = readpipe('pg_config --bindir'));

sub value { return $_[0]->safe_psql('postgres', $_[1]); }

# upgrade($old, $new, @options): both are stopped afterwards.
sub upgrade
{
	my ($old, $new, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$old->stop;
	# it leaves files where it is called
	chdir $new->basedir or die $!;
	command_ok([ 'pg_upgrade', '--no-sync', '--retain', @options, '-b', $bindir, '-B', $bindir, '-d', $old->data_dir, '-D', $new->data_dir,
			'-s', $new->host, '-p', $old->port, '-P', $new->port ], join(' ', 'pg_upgrade', @options));
	my @logs = glob $new->data_dir . '/pg_upgrade_output.d/*/log/pg_upgrade_server.log';
	is(scalar(@logs), 1, 'the servers that it ran have left a log');
	my $log = join '', map { slurp_file($_) } @logs;
	like($log, qr/DEBUG:  /, 'with debug messages');
	unlike($log, qr/background worker.*likecount/, 'no process of likecount was among them');
	return;
}

my $debug = "log_min_messages = debug1\n";
my $old = new_node('old', conf => "${debug}likecount.worker = off\n");

# pg_upgrade does this in the new cluster; from 18 on LOAD may not look where a library of an extension elsewhere is found
plan skip_all => 'LOAD does not find the library away from the system directories'
  if ($old->psql('postgres', q{LOAD '$libdir/likecount'}))[0] != 0;

# posts 1001 to 1100 are too old for the queue, and flushed
value($old, q{
	CREATE EXTENSION likecount;
	SELECT likecount.create_counter('likes');
	CREATE TABLE marks (p text COLLATE "C", u uuid DEFAULT gen_random_uuid(), PRIMARY KEY (p, u)) PARTITION BY HASH (p);
	CREATE TABLE marks_0 PARTITION OF marks FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE marks_1 PARTITION OF marks FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	SELECT likecount.attach('marks', 'p', 'u', verb => 'mark');
	INSERT INTO likes SELECT p, 1, '2020-01-01' FROM generate_series(1001, 1100) p});
value($old, 'SELECT likecount.flush()') for 1 .. 3;
wait_exact($old, 'postgres');

sub leave_deltas
{
	my ($node, $user) = @_;
	value($node, qq{
		SELECT likecount.like(p, $user) FROM generate_series(1, 300) p;
		SELECT likecount.unlike(p, $user) FROM generate_series(1, 10) p;
		DELETE FROM likes WHERE post_id = 1000 + $user;
		INSERT INTO marks SELECT 'post ' || i % 7 FROM generate_series(1, 50) i});
	return;
}

# What a server logged about counters.
sub story { return join '', grep { /counter "|lost/ && !/STATEMENT|statement/ } split /^/m, slurp_file($_[0]->logfile); }

# the dependencies that pg_upgrade loses
my $links = q{
	SELECT string_agg(depends, E'\n' ORDER BY depends)
	  FROM pg_depend,
	       format('%s on %s', pg_describe_object(classid, objid, objsubid), pg_describe_object(refclassid, refobjid, refobjsubid)) depends
	 WHERE deptype = 'a'
	   AND (classid = 'pg_class'::regclass AND objid IN (SELECT oid FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relname ~ '^[a-z].*_')
	        OR classid = 'pg_proc'::regclass AND objid IN (SELECT oid FROM pg_proc WHERE pronamespace = 'likecount'::regnamespace)
	        OR classid = 'pg_trigger'::regclass AND objid IN (SELECT oid FROM pg_trigger WHERE tgfoid = 'likecount._capture()'::regprocedure))};
my $expected_links = value($old, $links);
cmp_ok(($expected_links =~ tr/\n//), '>', 30, 'there are automatic dependencies');

# linked_again($node): they are back.
sub linked_again
{
	my ($node) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$node->poll_query_until('postgres', "SELECT ($links) = \$\$$expected_links\$\$");
	return is(value($node, $links), $expected_links, 'the automatic dependencies are back');
}

my $ids = q{SELECT string_agg(id || verb, ' ' ORDER BY id) FROM likecount._counter};
my $expected_ids = value($old, $ids);

# ---- both preload the library

leave_deltas($old, 1);
my $waiting = value($old, 'SELECT queue_rows, journal_rows FROM likecount.status');
like($waiting, qr/^300\|\d\d$/, 'deltas wait in queue and journal');
my $rows = value($old, 'SELECT count(*), sum(user_id) FROM likes');
my $new = new_node('new', start => 0, conf => "${debug}likecount.worker = off\n");
upgrade($old, $new);
$new->start;
is(value($new, 'SELECT queue_rows, journal_rows FROM likecount.status'), $waiting, 'they are all there');
is(value($new, 'SELECT count(*), sum(user_id) FROM likes'), $rows, 'as are the likes');
is(value($new, $ids), $expected_ids, 'and the registrations');
isnt(value($new, $links), $expected_links, 'automatic dependencies are not');
value($new, 'SELECT likecount.like(5000, 1)');
is(value($new, q{SELECT journal_rows FROM likecount.status}), (split /\|/, $waiting)[1] + 1, 'until a flush has looked, likes go to the journal');
$new->append_conf('postgresql.conf', "likecount.worker = on\n");
$new->reload;
linked_again($new);
wait_exact($new, 'postgres');
is(value($new, 'SELECT likecount.like_count(10), likecount.like_count(11), likecount.like_count(5000)'), '0|1|1', 'what had waited is counted');
is(value($new, $ids), $expected_ids, 'nothing was registered anew');
is(value($new, 'SELECT home_system = system_identifier FROM likecount._counter, pg_control_system()'), "t\nt", 'the counters are at home');
is(story($new), '', 'and nothing recounted');
like(slurp_file($new->logfile), qr/background worker.*likecount/, 'the log would show a worker');

value($new, 'SELECT likecount.like(1, 2); DROP TABLE marks');
is(value($new, q{SELECT count(*) FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relname LIKE 'mark\_%'}), '0',
	'DROP TABLE takes the counter along again');
wait_exact($new, 'postgres', 'like');

# ---- only the new one does; deltas wait in the queue from the time when the old one did

$expected_links = value($new, $links);
$new->append_conf('postgresql.conf', "likecount.worker = off\n");
$new->reload;
wait_no_worker($new, 'postgres');
value($new, q{SELECT likecount.like(p, 3) FROM generate_series(1, 200) p});
$new->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$new->restart;
value($new, q{SELECT likecount.like(p, 4) FROM generate_series(101, 150) p; SELECT likecount.unlike(p, 3) FROM generate_series(1, 10) p});
is(value($new, 'SELECT preloaded, queue_rows, journal_rows FROM likecount.status'), 'f|200|60', 'deltas wait in both');
my $last = new_node('last', start => 0, conf => $debug);
upgrade($new, $last, '--link');
$last->start;
wait_exact($last, 'postgres', 'like');
is(value($last, 'SELECT likecount.like_count(1), likecount.like_count(101), likecount.liked(101, 4)'), '1|3|t', 'what had waited is counted');
linked_again($last);
is(story($last), '', 'nothing was recounted');
value($last, 'SELECT likecount.like(101, 5); DROP TABLE likes');
is(value($last, q{SELECT count(*) FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relname LIKE 'like\_%'}), '0',
	'DROP TABLE takes the counter along');
ok($last->poll_query_until('postgres', 'SELECT count(*) = 0 FROM likecount._counter'), 'its registration is deleted');

done_testing();
