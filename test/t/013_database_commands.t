# Commands that need a database to which nobody is connected, while a worker is connected to it.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('databases', conf => <<'CONF');
likecount.idle_timeout = '600s'
CONF

# Makes sure that a worker sits in the database, and returns its pid.
sub worker_in
{
	my ($database) = @_;
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'likecount worker' AND datname = '$database'")
	  or die "no worker in $database";
	return (worker_pids($node, $database))[0];
}

sub counts
{
	my ($database, $user) = @_;
	$node->safe_psql($database, "SELECT likecount.like(1, $user)");
	return wait_exact($node, $database);
}

$node->safe_psql('postgres', 'CREATE DATABASE x');
$node->safe_psql('x', q{CREATE EXTENSION likecount; SELECT likecount.create_counter()});
counts('x', 1);
worker_in('x');

# ---- a template

$node->safe_psql('postgres', 'CREATE DATABASE y TEMPLATE x');
pass('a database with a worker can be a template');
is($node->safe_psql('y', 'SELECT likecount.like_count(1)'), '1', 'the copy has the totals');
counts('y', 2);
worker_in('y');
counts('x', 2);
worker_in('x');
is($node->safe_psql('y', 'SELECT likecount.like_count(1)'), '2', 'the two count apart: the copy');
$node->safe_psql('x', 'DELETE FROM likes');
wait_exact($node, 'x');
is($node->safe_psql('x', 'SELECT likecount.like_count(1)'), '0', 'the two count apart: the original');
$node->safe_psql('postgres', q{CREATE DATABASE y2 TEMPLATE x STRATEGY file_copy});
counts('y2', 1);

# ---- rename

worker_in('y');
$node->safe_psql('postgres', 'ALTER DATABASE y RENAME TO z');
counts('z', 3);
my $pid = worker_in('z');

$node->safe_psql('postgres', 'BEGIN; ALTER DATABASE z RENAME TO zz; ROLLBACK');
isnt(worker_in('z'), $pid, 'a rename that is rolled back lets the worker come back');
counts('z', 4);

# ---- tablespace

worker_in('z');
$node->safe_psql('postgres', q{SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''});
$node->safe_psql('postgres', 'ALTER DATABASE z SET TABLESPACE elsewhere');
counts('z', 5);

# ---- who may

$pid = worker_in('z');
$node->safe_psql('postgres', 'CREATE ROLE anybody LOGIN');
for my $command ('DROP DATABASE z', 'DROP DATABASE z WITH (FORCE)', 'ALTER DATABASE z RENAME TO a',
	'ALTER DATABASE z SET TABLESPACE pg_default', 'CREATE DATABASE a TEMPLATE z')
{
	my ($status, $out, $err) = $node->psql('postgres', $command, extra_params => [ '-U', 'anybody' ]);
	like($err, qr/must be owner|permission denied/, "not everybody may: $command");
}
is(worker_in('z'), $pid, 'and their attempts do not stop the worker');

# ---- drop

$node->safe_psql('postgres', 'CREATE ROLE landlord LOGIN CREATEDB');
$node->safe_psql('postgres', 'ALTER DATABASE z OWNER TO landlord');
$node->safe_psql('postgres', 'DROP DATABASE z', extra_params => [ '-U', 'landlord' ]);
pass('an owner drops a database with a worker');

$node->safe_psql('postgres', 'ALTER DATABASE y2 OWNER TO landlord');
worker_in('y2');
$node->safe_psql('postgres', 'DROP DATABASE y2 WITH (FORCE)', extra_params => [ '-U', 'landlord' ]);
pass('an owner drops one by force');

# Another database, and a worker that is busy: a flush of many deltas that has just begun.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('x', 'INSERT INTO likes SELECT p, 1 FROM generate_series(1, 50000) p');
$node->safe_psql('postgres', 'DROP DATABASE other');
pass('another database can be dropped meanwhile');
$node->safe_psql('x', 'INSERT INTO likes SELECT p, 2 FROM generate_series(1, 50000) p');
$node->safe_psql('postgres', 'DROP DATABASE x');
pass('a database with a busy worker can be dropped');

# Again, under the same names: nothing of the old ones is left in the registry.
$node->safe_psql('postgres', 'CREATE DATABASE x');
wait_no_worker($node, 'x');
$node->safe_psql('x', q{CREATE EXTENSION likecount; SELECT likecount.create_counter()});
counts('x', 1);
is($node->safe_psql('x', 'SELECT flushes > 0, errors, worker_starts <= 2 FROM likecount.status'), 't|0|t',
	'a new database starts anew');

# ---- nobody asks, and yet there is work: the extension comes with the template

$node->safe_psql('postgres', q{ALTER DATABASE x IS_TEMPLATE true});
$node->safe_psql('x', q{SELECT likecount.like(2, 2)});
wait_exact($node, 'x');
$node->safe_psql('postgres', q{CREATE DATABASE w TEMPLATE x});
ok(worker_in('w'), 'a worker looks after a new database by itself');

$node->safe_psql('postgres', 'ALTER DATABASE w ALLOW_CONNECTIONS false');
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'w'});
wait_no_worker($node, 'w');
$node->safe_psql('postgres', 'ALTER DATABASE w ALLOW_CONNECTIONS true');
ok(worker_in('w'), 'and after one that is opened again');

my $log = slurp_file($node->logfile);
unlike($log, qr/database ".*" does not exist|database \d+ does not exist/, 'no worker came for a dropped database');
unlike($log, qr/not currently accepting connections/, 'nor for a closed one');

done_testing();
