# The cache of totals where slots change without it: on a standby, after a promotion, by hand; after a crash; when it is small, or off.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('primary', init => { allows_streaming => 1 }, conf => "autovacuum = off\nlikecount.worker = off\n");
# How many totals are wrong, each read twice: of one counter after another, so that posts of one counter meet in an entry, and
# of all three, so that counters do.  Names are read backwards: "199" after "1999".
my $oracle = q{
	WITH posts AS MATERIALIZED (
		SELECT p, p::text AS word, COALESCE(l.total, 0) AS l, COALESCE(r.total, 0) AS r, COALESCE(w.total, 0) AS w
		  FROM generate_series(1, 2000) p LEFT JOIN likecount.like_totals l ON l.post_id = p LEFT JOIN likecount.repost_totals r ON r.post_id = p
		       LEFT JOIN likecount.word_totals w ON w.post_id = p::text
		 ORDER BY p::text COLLATE "C" DESC)
	SELECT (SELECT count(*) FROM generate_series(1, 2), posts WHERE likecount.like_count(p) <> l)
	     + (SELECT count(*) FROM generate_series(1, 2), posts WHERE likecount.word_count(word) <> w)
	     + (SELECT count(*) FROM generate_series(1, 2), posts WHERE likecount.like_count(p) <> l OR likecount.repost_count(p) <> r OR likecount.word_count(word) <> w)};

sub value { return $node->safe_psql('postgres', $_[0]); }

# like(n) adds a like of post 1 by user n; totals() shows what post 1 has here.
sub like_and_flush { return value("SELECT likecount.like(1, $_[0]); SELECT likecount.flush()"); }
sub total { return ($_[0] // $node)->safe_psql('postgres', 'SELECT likecount.like_count(1)'); }

value('CREATE EXTENSION likecount; SELECT likecount.create_counter()');
like_and_flush(1);
is(total(), 1, 'a total');

# ---- a standby has none, and a promotion does not bring an old one

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is(total($standby), 1, 'on the standby');
like_and_flush(2);
$node->wait_for_catchup($standby);
is(total($standby), 2, 'which follows at once');
is($standby->safe_psql('postgres', 'SELECT total FROM likecount.like_counts(ARRAY[1])'), 2, 'in lists, too');
like_and_flush(3);
$node->wait_for_catchup($standby);
$standby->promote;
is(total($standby), 3, 'and after its promotion');
$standby->safe_psql('postgres', 'SELECT likecount.flush(); SELECT likecount.like(1, 4); SELECT likecount.flush()');
is(total($standby), 4, 'where it counts on');
is(total(), 3, 'unlike the other');
$standby->stop;

# ---- a crash takes back what had not reached the disk: a flush may commit asynchronously

value('UPDATE likecount.like_slots SET value = 30');
is(total(), 3, 'cached');
$node->stop('immediate');
$node->start;
is(total(), 30, 'nothing outlives a crash');
value('UPDATE likecount.like_slots SET value = 3');
is(total(), 30, 'cached again');
$node->restart;
is(total(), 3, 'nor a restart');

# ---- a database that takes the place of another one

value('CREATE DATABASE other TEMPLATE postgres');
$node->safe_psql('other', 'SELECT likecount.flush(); SELECT likecount.like(1, 100); SELECT likecount.flush()');
is($node->safe_psql('other', 'SELECT likecount.like_count(1)'), 4, 'a copy has totals of its own');
is(total(), 3, 'beside those of the first');
value('DROP DATABASE other');
value('CREATE DATABASE other TEMPLATE postgres');
is($node->safe_psql('other', 'SELECT likecount.like_count(1)'), 3, 'and so has the next of its name');
value('DROP DATABASE other');

# ---- without a cache, and with one in which everything meets

value(q{SELECT likecount.create_counter('reposts'); SELECT likecount.create_counter('words', post_type => 'text')});
value(q{INSERT INTO reposts SELECT p, u FROM generate_series(1, 2000) p, generate_series(1, 3) u WHERE u <= p % 4});
value(q{INSERT INTO words SELECT n, u FROM generate_series(1, 2000) n, generate_series(1, 3) u WHERE u <= n % 4});
for my $size ('0', '4kB')
{
	$node->append_conf('postgresql.conf', "likecount.cache_size = $size\n");
	$node->restart;
	value('SELECT likecount.flush(); INSERT INTO likes SELECT p, 1000 FROM generate_series(1, 2000, 3) p ON CONFLICT DO NOTHING; SELECT likecount.flush()');
	is(value($oracle), 0, "with cache_size = $size every total is right");
	value('DELETE FROM likes WHERE user_id = 1000; SELECT likecount.flush()');
	is(value($oracle), 0, 'and after the next flush');
}
value('CREATE DATABASE other TEMPLATE postgres');
$node->safe_psql('other', 'SELECT likecount.flush(); SELECT likecount.like(1, 101); SELECT likecount.flush()');
is(total(), 3, 'two databases meet in an entry');
is($node->safe_psql('other', 'SELECT likecount.like_count(1)'), 4, 'each has its own total');
is(total(), 3, 'whoever was read before');

# ---- what nobody told it of is believed for a minute, in this build for two seconds

my $debug = new_node('debug', debug => 1, conf => "likecount.worker = off\n");
$debug->safe_psql('postgres', 'CREATE EXTENSION likecount; SELECT likecount.create_counter(); SELECT likecount.like(1, 1); SELECT likecount.flush(); SELECT likecount.like_count(1)');
$debug->safe_psql('postgres', 'UPDATE likecount.like_slots SET value = 9');
ok($debug->poll_query_until('postgres', 'SELECT likecount.like_count(1) = 9'), 'a change by hand shows in the end');

done_testing();
