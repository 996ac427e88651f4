# Without shared_preload_libraries there is no worker: deltas wait in the journal, and flush() does everything.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('late', preload => 0, conf => "max_prepared_transactions = 5\n");

$node->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	CREATE TABLE old (post_id bigint NOT NULL, user_id bigint NOT NULL, UNIQUE (post_id, user_id));
	INSERT INTO old SELECT p, u FROM generate_series(1, 20) p, generate_series(1, 5) u;
	SELECT likecount.create_counter();
	SELECT likecount.attach('old', 'post_id', 'user_id')});
is($node->safe_psql('postgres', 'SELECT preloaded, launcher_pid IS NULL, worker_pid IS NULL FROM likecount.status'),
	'f|t|t', 'the library is not preloaded, and status says so');

$node->safe_psql('postgres', 'SELECT likecount.like(1, u) FROM generate_series(1, 10) u');
is($node->safe_psql('postgres', 'SELECT queue_rows, journal_rows > 0 FROM likecount.status'), '0|t',
	'deltas go to the journal');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(1)'), '0', 'and wait');

# as pg_cron would, until there is nothing left
for (1 .. 20)
{
	$node->safe_psql('postgres', 'SELECT likecount.flush()');
	last if $node->safe_psql('postgres',
		q{SELECT bool_and(state = 'active') FROM likecount.counters}) eq 't';
}
is($node->safe_psql('postgres', 'SELECT likecount.like_count(1), likecount.old_count(1)'), '10|5',
	'flush() counts them, and the rows that an attached table had');
wait_exact($node, 'postgres');

$node->safe_psql('postgres', q{BEGIN; SELECT likecount.unlike(1, 1); PREPARE TRANSACTION 'p'});
$node->safe_psql('postgres', 'SELECT likecount.flush()');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(1)'), '10', 'a prepared unlike does not count');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
$node->safe_psql('postgres', 'SELECT likecount.flush()');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(1)'), '9', 'a committed one does');
wait_exact($node, 'postgres');

# ---- settings without preload: sessions see the server's, and cannot change them

for my $name (qw(flush_interval flush_batch max_workers idle_timeout worker node))
{
	my ($status, $out, $err) = $node->psql('postgres', "SELECT likecount.version(); SET likecount.$name = 1");
	like($err, qr/parameter "likecount.$name" cannot be changed now/, "no session can set likecount.$name");
}
my ($status, $out, $err) = $node->psql('postgres', "SELECT likecount.version(); SET likecount.nonsense = 1");
like($err, qr/invalid configuration parameter name "likecount.nonsense"/, 'the prefix is reserved');

$node->append_conf('postgresql.conf', "likecount.node = 7\n");
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT library <> '' AND current_setting('likecount.node') = '7' FROM likecount.version()}),
	'the node comes from the configuration');
$node->safe_psql('postgres', 'SELECT likecount.like(2, 1); SELECT likecount.flush()');
is($node->safe_psql('postgres', 'SELECT DISTINCT node FROM likecount.like_slots ORDER BY 1'), "0\n7",
	'and is in the slots');

done_testing();
