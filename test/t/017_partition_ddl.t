# Commands that change the rows of a source without firing its row triggers make its counter recount.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('partitions', conf => "likecount.idle_timeout = '2s'\n");

$node->safe_psql('postgres', q{
	CREATE EXTENSION likecount;
	CREATE TABLE likes (post_id bigint NOT NULL, user_id bigint NOT NULL, PRIMARY KEY (post_id, user_id))
		PARTITION BY RANGE (post_id);
	CREATE SCHEMA annex;
	CREATE TABLE p1 PARTITION OF likes FOR VALUES FROM (0) TO (10);
	CREATE TABLE p2 PARTITION OF likes FOR VALUES FROM (10) TO (20);
	CREATE TABLE p3 PARTITION OF likes FOR VALUES FROM (20) TO (40) PARTITION BY RANGE (post_id);
	CREATE TABLE p31 PARTITION OF p3 FOR VALUES FROM (20) TO (30);
	CREATE TABLE p32 PARTITION OF p3 FOR VALUES FROM (30) TO (40);
	CREATE TABLE annex.p4 PARTITION OF likes FOR VALUES FROM (40) TO (50);
	CREATE TABLE p5 PARTITION OF likes FOR VALUES FROM (50) TO (60);
	CREATE TABLE bystander (post_id bigint);
	SELECT likecount.attach('likes', 'post_id', 'user_id');
	INSERT INTO likes SELECT p, u FROM generate_series(0, 59) p, generate_series(1, 4) u});
wait_exact($node, 'postgres');

# How many requests there have been.
sub requests
{
	return $node->safe_psql('postgres', q{SELECT last_value FROM pg_sequences
		WHERE schemaname = 'likecount' AND sequencename = '_request_id_seq'}) || 0;
}

# Runs a command and waits until the worker has done what it asked for.
sub recounts
{
	my ($command, $posts) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = requests();
	$node->safe_psql('postgres', $command);
	cmp_ok(requests(), '>', $before, "asks for a recount: $command");
	$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM likecount._request)');
	wait_exact($node, 'postgres', 'like');
	is($node->safe_psql('postgres', 'SELECT sum(total) FROM likecount.like_totals'), 4 * $posts, "the sum is right: $command");
	return;
}

sub recounts_not
{
	my ($command) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM likecount._request');
	$node->safe_psql('postgres', $command);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM likecount._request'), $before, "asks for nothing: $command");
	return;
}

is(requests(), 0, 'nothing has asked for a recount yet');
recounts('TRUNCATE p1', 50);
recounts('DROP TABLE p2', 40);
recounts('TRUNCATE p31', 30);
recounts('DROP TABLE p32', 20);
recounts('ALTER TABLE likes DETACH PARTITION p5', 10);
recounts('ALTER TABLE likes ATTACH PARTITION p5 FOR VALUES FROM (50) TO (60)', 20);
recounts('ALTER TABLE likes DETACH PARTITION p5 CONCURRENTLY', 10);
$node->safe_psql('postgres', q{
	CREATE TABLE p6 (LIKE likes INCLUDING ALL);
	INSERT INTO p6 SELECT p, u FROM generate_series(60, 79) p, generate_series(1, 4) u});
recounts('ALTER TABLE likes ATTACH PARTITION p6 FOR VALUES FROM (60) TO (80)', 30);
recounts('DROP SCHEMA annex CASCADE', 20);
recounts('ALTER TABLE p6 SET UNLOGGED', 20);
recounts('ALTER TABLE p6 SET LOGGED', 20);
recounts('BEGIN; SAVEPOINT s; TRUNCATE p6; ROLLBACK TO s; DROP TABLE p6; COMMIT', 0);

# on an idle database the request itself starts a worker
$node->safe_psql('postgres', 'INSERT INTO likes SELECT p, u FROM generate_series(0, 9) p, generate_series(1, 4) u');
wait_exact($node, 'postgres');
wait_no_worker($node, 'postgres');
recounts('TRUNCATE p1', 0);

$node->safe_psql('postgres', "ALTER SYSTEM SET likecount.worker = off");
$node->reload;
wait_no_worker($node, 'postgres');
recounts_not('BEGIN; TRUNCATE p1; DROP TABLE p3; ROLLBACK');
recounts_not('TRUNCATE bystander');
recounts_not('ALTER TABLE likes ADD COLUMN note text');
recounts_not('CREATE TABLE p7 PARTITION OF likes FOR VALUES FROM (100) TO (110)');
recounts_not('DROP TABLE bystander');
recounts_not('DROP TABLE likes');

done_testing();
