# What a crash and a clean restart leave of the deltas that wait: the queue is unlogged, the journal is not.
use strict;
use warnings;
use LikecountTest;
use File::Basename;

my $node = new_node('crash', conf => "likecount.worker = off\nmax_prepared_transactions = 5\nautovacuum = off\n");
$node->safe_psql('postgres', 'CREATE EXTENSION likecount');
$node->safe_psql('postgres', slurp_file(dirname(__FILE__) . '/../oracle.sql'));
$node->safe_psql('postgres', q{SELECT likecount.create_counter()});

sub value { return $node->safe_psql('postgres', $_[0]); }
sub drifts { return value(q{SELECT drifts('like')}); }
sub waiting { return value(q{SELECT waiting('like')}); }

# ---- nothing enters the queue until a flush has looked for the sentinel

value('INSERT INTO likes VALUES (1, 1)');
is(waiting(), 'journal 1:1', 'before the first flush deltas go to the journal');
value('SELECT likecount.flush()');
value('INSERT INTO likes VALUES (1, 2)');
is(waiting(), 'queue 1:1', 'after it to the queue');

# ---- a clean restart keeps the queue

$node->restart;
is(waiting(), 'queue 1:1', 'a clean restart keeps the queue');
value('INSERT INTO likes VALUES (1, 3), (2, 1)');
is(waiting(), 'queue 1:1 journal 1:1 journal 2:1', 'after it deltas go to the journal');
is(value('SELECT path_reason IS NOT NULL FROM likecount.counters'), 't', 'as the view counters says');
is(value('SELECT likecount.flush()'), '3', 'until a flush has looked');
is(drifts(), '', 'all is exact');
is(value('SELECT drift_found, state FROM likecount.counters'), '0|active', 'without a recount');

# ---- a crash

value('INSERT INTO likes SELECT p, u FROM generate_series(1, 50) p, generate_series(100, 102) u');
value('DELETE FROM likes WHERE post_id = 2 AND user_id = 1');
value(q{BEGIN; INSERT INTO likes VALUES (3, 1), (51, 1); DELETE FROM likes WHERE post_id = 4; PREPARE TRANSACTION 'kept'});
value(q{BEGIN; INSERT INTO likes VALUES (3, 2), (52, 1); PREPARE TRANSACTION 'dropped'});
# the journal row of an asynchronous commit that is not on disk is gone with its like
value(q{SET synchronous_commit = off; INSERT INTO likes VALUES (53, 1)});
is(drifts(), '', 'before the crash all is exact');
is(value('SELECT queue_rows, journal_rows FROM likecount.status'), '51|1', 'most deltas wait in the queue');
$node->stop('immediate');
$node->start;
is(value('SELECT queue_rows, journal_rows FROM likecount.status'), '0|1', 'the crash has emptied the queue, the journal is still there');
isnt(drifts(), '', 'so the totals are short');
value('INSERT INTO likes VALUES (54, 1)');
like(waiting(), qr/journal 54:1$/, 'nothing enters the queue before a flush has looked');

# one flush after the other, as pg_cron would
for (1 .. 50)
{
	value('SELECT likecount.flush()');
	last if drifts() eq '' && value(q{SELECT state FROM likecount.counters}) eq 'active';
}
is(drifts(), '', 'flush() finds out and recounts what was lost');
is(value(q{SELECT likecount.like_count(1), likecount.like_count(4)}), '6|3', 'the totals have it');
value(q{COMMIT PREPARED 'kept'});
is(drifts(), '', 'a transaction that was prepared before the crash brings its deltas');
value(q{ROLLBACK PREPARED 'dropped'});
value('SELECT likecount.flush()');
is(drifts(), '', 'one that is rolled back none');
is(value(q{SELECT likecount.like_count(3), likecount.like_count(4), likecount.like_count(51), likecount.like_count(52)}),
	'4|0|1|0', 'and the totals are right');

# ---- the same by the worker, with nothing but a restart

value('INSERT INTO likes SELECT p, 200 FROM generate_series(1, 50) p');
value('DELETE FROM likes WHERE user_id = 100');
ok(value('SELECT queue_rows FROM likecount.status') > 0, 'deltas wait in the queue');
$node->stop('immediate');
$node->append_conf('postgresql.conf', "likecount.worker = on\n");
$node->start;
wait_exact($node, 'postgres', 'like');
is(value('SELECT queue_rows + journal_rows FROM likecount.status'), '0', 'nothing waits');

# ---- a crash while it recounts, and one right after another

value('INSERT INTO likes SELECT p, 300 FROM generate_series(1, 30000) p');
$node->stop('immediate');
$node->start;
$node->stop('immediate');
$node->start;
$node->poll_query_until('postgres', q{SELECT drift_found > 0 OR state = 'active' FROM likecount.counters});
$node->stop('immediate');
$node->start;
value('DELETE FROM likes WHERE user_id = 200');
wait_exact($node, 'postgres', 'like');

done_testing();
