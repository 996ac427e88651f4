# DROP EXTENSION and CREATE EXTENSION, committed and rolled back, while writers write and the worker works.
use strict;
use warnings;
use IPC::Run;
use LikecountTest;

my $node = new_node('loop', conf => <<'CONF');
likecount.flush_interval = '10ms'
deadlock_timeout = '200ms'
CONF

$node->safe_psql('postgres', q{
	CREATE TABLE likes (post_id bigint NOT NULL, user_id bigint NOT NULL,
		liked_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (post_id, user_id));
	CREATE TABLE hearts (LIKE likes INCLUDING ALL);
	CREATE INDEX ON likes USING brin (liked_at)});

# Writers that do not care whether somebody counts.  Each transaction touches the tables in one order.
my $script = $node->basedir . '/write.sql';
append_to_file($script, <<'PGBENCH');
\set p random(1, 20)
\set u random(1, 300)
BEGIN;
INSERT INTO likes VALUES (:p, :u) ON CONFLICT DO NOTHING;
INSERT INTO hearts VALUES (:p, :u) ON CONFLICT DO NOTHING;
DELETE FROM hearts WHERE post_id = :p AND user_id = :u + 1;
COMMIT;
PGBENCH
my $load = IPC::Run::start([ 'pgbench', '-n', '-c2', '-T120', '-f', $script, $node->connstr('postgres') ],
	'>', \my $out, '2>', \my $err);

my $install = q{
	CREATE EXTENSION likecount;
	SELECT likecount.attach('likes', 'post_id', 'user_id', 'liked_at');
	SELECT likecount.attach('hearts', 'post_id', 'user_id');};
my $drop = 'DROP EXTENSION likecount CASCADE';

for my $round (1 .. 8)
{
	$node->safe_psql('postgres', "BEGIN; $install ROLLBACK") if $round % 3 == 0;
	$node->safe_psql('postgres', $install);
	# now and then the worker gets far, now and then it is caught early
	$node->poll_query_until('postgres', 'SELECT deltas > 0 FROM likecount.status') if $round % 2 == 0;
	$node->safe_psql('postgres', "BEGIN; $drop; ROLLBACK") if $round % 4 == 0;
	$node->safe_psql('postgres', $drop);
}
$node->safe_psql('postgres', $install);
$node->poll_query_until('postgres', 'SELECT deltas > 100 FROM likecount.status');

# The count of a source that survives its counter's rollback must not have lost anything.
$node->safe_psql('postgres', "BEGIN; $drop; ROLLBACK");
ok($load->pumpable, 'the writers wrote all the time') or diag $err;
$load->signal('INT');
$load->finish;
unlike($err, qr/ERROR|aborted/, 'and none met an error');

wait_exact($node, 'postgres', 'like', 'heart');
$node->safe_psql('postgres', $drop);
ok($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM likes') eq 't', 'the rows are left alone');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%\_capture\_%'}), '0',
	'and nothing else is left');
wait_no_worker($node, 'postgres');
is(scalar(worker_pids($node)), 0, 'the worker leaves when the extension is gone');

my $log = slurp_file($node->logfile);
unlike($log, qr/deadlock detected/, 'no deadlock');
unlike($log, qr/likecount worker.*exited with exit code/, 'no worker ended with an error');

# ---- DROP OWNED takes the extension as well

$node->safe_psql('postgres', q{CREATE ROLE boss SUPERUSER LOGIN});
$node->safe_psql('postgres', $install, extra_params => [ '-U', 'boss' ]);
wait_exact($node, 'postgres');
$node->safe_psql('postgres', 'DROP OWNED BY boss CASCADE');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_extension WHERE extname = 'likecount'}), '0',
	'DROP OWNED drops the extension');
wait_no_worker($node, 'postgres');

done_testing();
