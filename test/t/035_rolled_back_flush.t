# A flush allows the queue only when the watermark and the sentinels that it wrote are committed.  One that a savepoint's
# rollback took back must not, or a crash would lose deltas of which nothing tells.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('rolled_back', conf => "likecount.worker = off\n");

$node->safe_psql('postgres', q{CREATE EXTENSION likecount; SELECT likecount.create_counter()});
is($node->safe_psql('postgres', 'SELECT ready FROM likecount.status'), 'f', 'before the first flush the queue is not allowed');

$node->safe_psql('postgres', q{
	BEGIN;
	SAVEPOINT a; SELECT likecount.flush(); ROLLBACK TO a;
	SELECT likecount.flush(); ROLLBACK TO a;
	COMMIT;
	SELECT likecount.like(1, 10)});
is($node->safe_psql('postgres', 'SELECT ready FROM likecount.status'), 'f', 'nor by flushes that were rolled back');
is($node->safe_psql('postgres', 'SELECT queue_rows, journal_rows FROM likecount.status'), '0|1', 'so a like takes the journal');

$node->safe_psql('postgres', q{BEGIN; SAVEPOINT a; SELECT likecount.flush(); RELEASE a; COMMIT; SELECT likecount.like(1, 11)});
is($node->safe_psql('postgres', 'SELECT queue_rows, journal_rows FROM likecount.status'), '1|0', 'a released one allows it');

$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', 'SELECT likecount.flush() FROM generate_series(1, 3)');
wait_exact($node, 'postgres', 'like');
is($node->safe_psql('postgres', 'SELECT likecount.like_count(1)'), '2', 'and the crash that loses the queue is repaired');

done_testing();
