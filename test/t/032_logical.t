# Logical replication: a publication FOR ALL TABLES does not stop the flush, and carries nothing of queue and journal; what
# arrives of another server's run-time tables is discarded.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('logical', init => { allows_streaming => 'logical' }, conf => "autovacuum = off\n");
$node->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	CREATE TABLE marks (post text NOT NULL, fan int NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (post, fan));
	CREATE INDEX ON marks (at)});
$node->safe_psql('postgres', q{SELECT likecount.create_counter(); SELECT likecount.attach('marks', 'post', 'fan', 'at')});
wait_exact($node, 'postgres');
$node->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
$node->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('pgoutput', 'pgoutput')});

$node->safe_psql('postgres', q{INSERT INTO likes SELECT n % 10, n FROM generate_series(1, 100) n});
$node->safe_psql('postgres', q{INSERT INTO marks SELECT repeat('a long name ', 50) || n, n FROM generate_series(1, 10) n});
wait_exact($node, 'postgres');
$node->safe_psql('postgres', q{DELETE FROM likes WHERE post_id = 1; UPDATE marks SET post = 'short' WHERE fan < 4});
wait_exact($node, 'postgres');
# an early spill, and a marker whose net is 0
$node->safe_psql('postgres', q{INSERT INTO likes SELECT n, 1 FROM generate_series(1000, 67000) n});
$node->safe_psql('postgres', q{BEGIN; INSERT INTO likes VALUES (5, 500); DELETE FROM likes WHERE user_id = 500; COMMIT});
wait_exact($node, 'postgres');
$node->safe_psql('postgres', 'TRUNCATE likes');
wait_exact($node, 'postgres');
$node->safe_psql('postgres', q{SELECT likecount.detach('marks')});
is($node->safe_psql('postgres', 'SELECT errors FROM likecount.status'), '0', 'the worker had no error');

my %seen = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', q{
	SELECT DISTINCT encode(substring(data, 6, 60), 'escape')
	  FROM pg_logical_slot_get_binary_changes('pgoutput', NULL, NULL, 'proto_version', '1', 'publication_names', 'everything')
	 WHERE get_byte(data, 0) = ascii('R')});
my $names = join ' ', sort keys %seen;
like($names, qr/public\\000likes\\000/, 'the source is published');
like($names, qr/like_slots/, 'the slots too');
unlike($names, qr/_journal_|_queue_/, 'nothing of queue and journal is');

# ---- what an apply process would do

my $before = $node->safe_psql('postgres', 'TABLE likecount._counter');
for my $insert (
	q{_counter (id, rows_view, verb, past, state, reason, version) SELECT id + 1000, rows_view, verb, past, state, reason, version FROM likecount._counter},
	q{_mode (counter, mode) SELECT id, 'direct' FROM likecount._counter},
	q{_request (counter, reason) SELECT id, 'another server''s' FROM likecount._counter},
	q{_watermark (one, liked_at) VALUES (true, '2100-01-01')},
	q{_repair_todo VALUES (1, '\x01')},
	q{_rejected (counter, post, delta, reason) VALUES (1, '\x01', 1, 'another server''s')},
	(map { qq{_journal_$_ (delta, at, counter, post) SELECT 1, now(), id, '\\x8000000000000001' FROM likecount._counter} } 0 .. 2))
{
	my ($table) = $insert =~ /^(\w+)/;
	is($node->safe_psql('postgres', qq{
		SET session_replication_role = replica;
		WITH applied AS (INSERT INTO likecount.$insert RETURNING 1) SELECT count(*) FROM applied}), '0', "rows of $table that are applied are discarded");
}
is($node->safe_psql('postgres', q{
	SET session_replication_role = replica;
	WITH u AS (UPDATE likecount._counter SET state = 'backfilling' RETURNING 1), d AS (DELETE FROM likecount._watermark RETURNING 1)
	SELECT (SELECT count(*) FROM u) + (SELECT count(*) FROM d)}), '0', 'changes and deletes as well');
is($node->safe_psql('postgres', 'TABLE likecount._counter'), $before, 'nothing has changed');
wait_exact($node, 'postgres');

done_testing();
