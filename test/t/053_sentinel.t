# What hides from likecount what a crash did: a sentinel that somebody made a logged table, tables that must be logged and are not,
# and pg_resetwal.
use strict;
use warnings;
use LikecountTest;
use File::Basename;

my $node = new_node('sentinel', conf => "likecount.worker = off\nautovacuum = off\n");
sub value { return $node->safe_psql('postgres', $_[0]); }
sub drifts { return value(q{SELECT drifts('like')}); }

value('CREATE EXTENSION likecount');
value(slurp_file(dirname(__FILE__) . '/../oracle.sql'));
value(q{SELECT likecount.create_counter()});
# posts 201 to 220 have likes that no repair looks for
value(q{INSERT INTO likes SELECT p, 1, '2020-01-01' FROM generate_series(201, 220) p});
value('SELECT likecount.flush()') for 1 .. 2;

# settle($what): some flushes later all is exact.
sub settle
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	value('SELECT likecount.flush()') for 1 .. 4;
	is(drifts(), '', $what);
	return is(value('SELECT state FROM likecount.counters'), 'active', 'the counter is active');
}

# ---- a logged sentinel

value('ALTER TABLE likecount._sentinel SET LOGGED');
value('SELECT likecount.like(p, 1) FROM generate_series(1, 50) p; SELECT likecount.unlike(1, 1)');
settle('a logged sentinel does no harm without a crash');
value('SELECT likecount.like(p, 2) FROM generate_series(1, 50) p; SELECT likecount.unlike(1, 2)');
$node->stop('immediate');
$node->start;
is(value('SELECT count(*) FROM likecount._sentinel'), '1', 'the sentinel is still there after a crash');
isnt(drifts(), '', 'the queue is not');
settle('what was lost is repaired');
value('SELECT likecount.like(p, 3) FROM generate_series(1, 50) p');
$node->stop('immediate');
$node->start;
settle('and after another crash again');

value('ALTER TABLE likecount._sentinel SET UNLOGGED');

# ---- unlogged tables, each of which would be missed in another way

for my $table (qw(like_slots _journal_0 _watermark))
{
	value("ALTER TABLE likecount.$table SET UNLOGGED");
	value('SELECT likecount.like(100, (SELECT count(*) FROM likes)); DELETE FROM likes WHERE post_id = (SELECT max(post_id) FROM likes WHERE post_id <= 50)');
	$node->stop('immediate');
	$node->start;
	isnt(drifts(), '', "a crash empties $table");
	settle('all posts are recounted');
	value("ALTER TABLE likecount.$table SET LOGGED");
}

# ---- pg_resetwal

# a clean stop writes the sentinel, a checkpoint the likes but not what waits in the queue
$node->restart;
value('SELECT likecount.flush()');
value('SELECT likecount.like(p, 4) FROM generate_series(1, 50) p; SELECT likecount.unlike(1, 4)');
value('CHECKPOINT');
$node->stop('immediate');
command_ok([ 'pg_resetwal', '-f', '-D', $node->data_dir ], 'pg_resetwal');
$node->start;
value('SELECT likecount.flush()');
isnt(drifts(), '', 'nobody notices what was lost');
value(q{CALL likecount.reconcile_all('likes')});
settle('but reconcile_all() puts it right');

done_testing();
