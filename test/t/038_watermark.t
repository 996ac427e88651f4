# How far back a crash looks, when clocks are not what they were: the server's clock steps, or the server before this one
# was ahead.  A like may wait in the unlogged queue only if a crash would look back as far as its liked_at.
use strict;
use warnings;
use LikecountTest;
use File::Basename;

# A clock that the test sets: what PostgreSQL takes for the time is off by the seconds in a file that all processes map.
my $dir = PostgreSQL::Test::Utils::tempdir();
chmod 0755, $dir;
append_to_file("$dir/clock.cpp", <<'CODE');
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static timespec
now()
{
	static const volatile long *offset;
	timespec now;

	if (offset == nullptr)
		offset = static_cast<const long *>(
			mmap(nullptr, sizeof(long), PROT_READ, MAP_SHARED, open(getenv("CLOCK_OFFSET"), O_RDONLY), 0));
	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += *offset;
	return now;
}

extern "C" int
gettimeofday(struct timeval *tv, void *) noexcept
{
	timespec t = now();

	*tv = {t.tv_sec, t.tv_nsec / 1000};
	return 0;
}

extern "C" time_t
time(time_t *t) noexcept
{
	time_t seconds = now().tv_sec;

	if (t != nullptr)
		*t = seconds;
	return seconds;
}
CODE
system_or_bail($ENV{CXX} || 'g++', '-shared', '-fPIC', '-o', "$dir/clock.so", "$dir/clock.cpp");

sub set_clock
{
	my ($seconds) = @_;
	# in place, for those who have it mapped
	open my $file, (-e "$dir/offset" ? '+<' : '>'), "$dir/offset" or die "$dir/offset: $!";
	print $file pack('l!', $seconds);
	close $file or die "$dir/offset: $!";
	return;
}
set_clock(0);

my $node = new_node('watermark', start => 0, conf => "likecount.worker = off\nautovacuum = off\n");

sub start
{
	local $ENV{LD_PRELOAD} = "$dir/clock.so";
	local $ENV{CLOCK_OFFSET} = "$dir/offset";
	return $node->start;
}
start();
$node->safe_psql('postgres', 'CREATE EXTENSION likecount');
$node->safe_psql('postgres', slurp_file(dirname(__FILE__) . '/../oracle.sql'));
$node->safe_psql('postgres', q{SELECT likecount.create_counter()});

sub value { return $node->safe_psql('postgres', $_[0]); }

# Likes a post that nobody has liked, some time ago, and returns where the delta is.
my $user = 0;
sub like_of_age
{
	my ($post, $age) = @_;
	$user++;
	value("INSERT INTO likes VALUES ($post, $user, clock_timestamp() - interval '$age')");
	return value(qq{SELECT place FROM segments WHERE post = $post});
}

sub watermark_age { return value(q{SELECT extract(epoch FROM clock_timestamp() - liked_at) FROM likecount._watermark}); }

# The queue is lost, and everything is exact again.
sub crash
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->stop('immediate');
	start();
	for (1 .. 10)
	{
		value('SELECT likecount.flush()');
		last if value(q{SELECT bool_and(state = 'active') FROM likecount.counters}) eq 't';
	}
	value('SELECT likecount.flush()');
	return is(value(q{SELECT drifts('like')}), '', $what);
}

value('SELECT likecount.flush()');
is(like_of_age(1, '0 s'), 'queue', 'a like takes the queue');
is(like_of_age(2, '30 s'), 'queue', 'one of half a minute ago as well');
is(like_of_age(3, '70 s'), 'journal', 'an older one the journal');
value('SELECT likecount.flush()');

# ---- the clock is set back under a running server

set_clock(-600);
is(like_of_age(11, '0 s'), 'journal', 'after the clock was set back a like takes the journal: a crash would not look back as far');
is(like_of_age(12, '-601 s'), 'queue', 'unless its time is as late as the clock was');
my $flusher = $node->background_psql('postgres');
$flusher->query_safe('BEGIN; SELECT likecount.flush()');
is(like_of_age(13, '0 s'), 'journal', 'still so while the flush that lowers the watermark is not committed');
$flusher->query_safe('ROLLBACK');
is(like_of_age(14, '0 s'), 'journal', 'and when it was rolled back');
$flusher->query_safe('BEGIN; SAVEPOINT a; SELECT likecount.flush(); ROLLBACK TO a; COMMIT');
is(like_of_age(15, '0 s'), 'journal', 'or taken back by a savepoint');
cmp_ok(watermark_age(), '<', -500, 'the watermark is where the clock was');
$flusher->query_safe('SELECT likecount.flush()');
$flusher->quit;
cmp_ok(watermark_age(), '>=', 60, 'a committed flush lowers it');
is(like_of_age(16, '0 s'), 'queue', 'and from then on likes take the queue again');
is(like_of_age(17, '30 s'), 'queue', 'of this time');
crash('which a crash repairs');

# ---- and forward again, by a year

set_clock(365 * 86400);
is(like_of_age(21, '0 s'), 'queue', 'a like at a clock that is a year ahead');
value('SELECT likecount.flush()');
is(like_of_age(22, '0 s'), 'queue', 'and after a flush');
cmp_ok(watermark_age(), '<', 100, 'the watermark follows');
set_clock(0);
is(like_of_age(23, '0 s'), 'journal', 'back from there likes take the journal');
value('SELECT likecount.flush()');
is(like_of_age(24, '0 s'), 'queue', 'but not for a year');
crash('a crash after that');

# ---- a server that was ahead before this one took over, by less than the watermark trails the clock

value(q{UPDATE likecount._watermark SET liked_at = clock_timestamp() - interval '10 s'});
$node->stop('fast');
start();
value('SELECT likecount.flush()');
is(like_of_age(31, '30 s'), 'journal', 'a like that is older than the watermark that was found takes the journal');
is(like_of_age(32, '0 s'), 'queue', 'a younger one the queue');
crash('a crash after that, too');

# ---- and by more

value(q{UPDATE likecount._watermark SET liked_at = clock_timestamp() + interval '1 hour'});
$node->stop('immediate');
start();
is(like_of_age(41, '0 s'), 'journal', 'a watermark in the future');
value('SELECT likecount.flush()');
is(like_of_age(42, '0 s'), 'queue', 'is lowered by the first flush');
cmp_ok(watermark_age(), '>=', 60, 'to where it should be');
crash('and nothing is lost');

# ---- without the library in shared_preload_libraries nobody takes the queue, and no watermark is kept

is(like_of_age(51, '0 s'), 'queue', 'a like in the queue');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->stop('fast');
start();
is(like_of_age(52, '0 s'), 'journal', 'without preloading likes take the journal');
value('SELECT likecount.flush()');
is(value('SELECT count(*) FROM likecount._watermark'), '0', 'and a flush that leaves nothing in the queue removes the watermark');
is(value(q{SELECT drifts('like')}), '', 'what was in the queue is counted');

done_testing();
