# Whatever ALTER DATABASE and ALTER ROLE set, the worker works: it sets what it depends on itself.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('hostile');
my @settings = (
	q{default_transaction_read_only = on},
	q{default_transaction_isolation = 'serializable'},
	q{default_transaction_deferrable = on},
	q{lock_timeout = '1ms'},
	q{statement_timeout = '1ms'},
	q{idle_in_transaction_session_timeout = '1ms'},
	q{search_path = 'evil'},
	q{session_replication_role = 'replica'},
	q{row_security = off},
	q{role = 'evil'},
	q{session_authorization = 'evil'},
	q{default_table_access_method = 'heap'},
	q{transform_null_equals = on},
	q{check_function_bodies = off},
	q{quote_all_identifiers = on},
	q{datestyle = 'SQL, DMY'},
	q{bytea_output = 'escape'},
	q{synchronous_commit = on},
	q{work_mem = '64kB'},
	q{enable_indexscan = off},
	q{jit_above_cost = 0});
push @settings, q{transaction_timeout = '1ms'}
  if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'});

# A table with the operators and functions that a careless search_path would find.
$node->safe_psql('postgres', q{CREATE ROLE evil; CREATE DATABASE hostile});
$node->safe_psql('hostile', q{
	CREATE SCHEMA evil;
	CREATE FUNCTION evil.never(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
	CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never);
	CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
	CREATE EXTENSION likecount;
	CREATE TABLE old (post_id bigint NOT NULL, user_id bigint NOT NULL, UNIQUE (post_id, user_id));
	INSERT INTO old SELECT p, u FROM generate_series(1, 3000) p, generate_series(1, 3) u;
	SELECT likecount.create_counter()});
wait_exact($node, 'hostile');

for my $setting (@settings)
{
	$node->safe_psql('postgres', "ALTER DATABASE hostile SET $setting");
	$node->safe_psql('postgres', "ALTER ROLE CURRENT_USER IN DATABASE hostile SET $setting") if $setting !~ /role|authorization/;
}

# Sessions of this test are spared.
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
local $ENV{PGOPTIONS} = join ' ', map { "-c $_" }
  'default_transaction_read_only=off', 'default_transaction_isolation=read\ committed', 'default_transaction_deferrable=off',
  'lock_timeout=0', 'statement_timeout=0', 'idle_in_transaction_session_timeout=0', 'search_path=public',
  'session_replication_role=origin', 'row_security=on', 'role=none', "session_authorization=$superuser",
  'client_min_messages=warning', grep { $_ } map { /(transaction_timeout)/ ? "$1=0" : '' } @settings;

# a worker that starts under them, and its own settings survive a reload
my $pid = (worker_pids($node, 'hostile'))[0] // 0;
$node->safe_psql('hostile', 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ' . $pid);
$node->poll_query_until('postgres', qq{SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'likecount worker' AND datname = 'hostile' AND pid <> $pid}) if $pid;
my $log_start = -s $node->logfile;
$node->append_conf('postgresql.conf', "work_mem = '5MB'\n");
$node->reload;

$node->safe_psql('hostile', 'SELECT likecount.like(p, u) FROM generate_series(1, 10) p, generate_series(1, 10) u');
wait_exact($node, 'hostile', 'like');
$node->safe_psql('hostile', q{SELECT likecount.attach('old', 'post_id', 'user_id', verb => 'heart')});
wait_exact($node, 'hostile', 'like', 'heart');
is($node->safe_psql('hostile', 'SELECT likecount.like_count(10), likecount.heart_count(3000)'), '10|3', 'flush and backfill');

# a queue that has to be emptied under a lock
$node->safe_psql('hostile', 'INSERT INTO likes SELECT p, 99 FROM generate_series(1, 30000) p');
wait_exact($node, 'hostile', 'like');
my $log = slurp_file($node->logfile, $log_start);
unlike($log, qr/likecount worker.*exited with exit code/, 'the worker met no error');
unlike($log, qr/evil(?!")/, 'and ran nothing of others');

# the server's own read-only switch
$node->safe_psql('postgres', 'ALTER SYSTEM SET default_transaction_read_only = on');
$node->reload;
$node->safe_psql('hostile', 'SELECT likecount.like(1, 11)');
ok($node->poll_query_until('hostile', 'SELECT likecount.like_count(1) = 12'), 'it flushes where sessions are read-only by default');

done_testing();
