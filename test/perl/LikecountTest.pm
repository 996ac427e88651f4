# Helpers of the TAP tests, on top of PostgreSQL::Test.
#
#   use strict; use warnings;
#   use LikecountTest;            # also brings Test::More and PostgreSQL::Test::Utils
#
#   my $node = new_node('main');  # a running server with the library preloaded
#   $node->safe_psql('postgres', q{CREATE EXTENSION likecount; SELECT likecount.create_counter()});
#   $node->safe_psql('postgres', q{SELECT likecount.like(1, 10)});
#   wait_exact($node, 'postgres', 'like');
#   done_testing();
#
# A test never sleeps to wait for something: it polls, by the functions here or $node->poll_query_until.
package LikecountTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = (
	qw(new_node configure_node wait_exact wrong_totals worker_pids wait_no_worker),
	@Test::More::EXPORT,
	@PostgreSQL::Test::Utils::EXPORT);

# PostgreSQL::Test stops what still runs at the end without letting the processes exit, and gcov's counters are written at
# exit.  This runs before its own END block.
my @nodes;
END
{
	my $status = $?;
	if ($ENV{COVERAGE})
	{
		$_->stop('fast', fail_ok => 1) for grep { defined $_->{_pid} } @nodes;
	}
	$? = $status;
}

# new_node($name, %options) makes a cluster with the extension in reach, and starts it.
#   preload => 0       the library is not in shared_preload_libraries: no launcher, no worker
#   debug => 1         the build with assertions and debug points
#   conf => "a = 1\n"  more configuration, the last word
#   start => 0         leaves starting to the caller
#   init => { ... }    arguments for PostgreSQL::Test::Cluster's init, such as allows_streaming => 1
sub new_node
{
	my ($name, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my %init = %{ $options{init} || {} };

	# not the locale of whoever runs the test
	$init{extra} = [ '--encoding=UTF8', '--locale=C.UTF-8', @{ $init{extra} || [] } ];
	$node->init(%init);
	configure_node($node, %options);
	$node->start if $options{start} // 1;
	return $node;
}

# configure_node($node, %options) is for a cluster that was made in another way, such as init_from_backup or a restore.
# A standby inherits the configuration with the backup.
sub configure_node
{
	my ($node, %options) = @_;
	push @nodes, $node;
	my $stage = $ENV{ $options{debug} ? 'LIKECOUNT_STAGE_DEBUG' : 'LIKECOUNT_STAGE' }
	  or die 'run this by make test';

	$node->append_conf('postgresql.conf', slurp_file("$stage/reach.conf"));
	$node->append_conf('postgresql.conf', slurp_file("$stage/preload.conf")) if $options{preload} // 1;
	# short turns keep the tests short
	$node->append_conf('postgresql.conf', "likecount.flush_interval = '50ms'\n");
	$node->append_conf('postgresql.conf', $options{conf}) if defined $options{conf};
	return;
}

# wait_exact($node, $database, @verbs) polls until no delta is pending and none of these counters (all, without @verbs) is
# being adopted, recounted or repaired, then checks that each post's total is the count of its rows.  Returns whether.
sub wait_exact
{
	my ($node, $database, @verbs) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $of_verbs = @verbs ? 'verb IN (' . join(', ', map { "'$_'" } @verbs) . ')' : 'true';
	my $settled = $node->poll_query_until($database, qq{
		SELECT NOT EXISTS (SELECT FROM likecount.pending)
		   AND NOT EXISTS (SELECT FROM likecount._repair_todo)
		   AND NOT EXISTS (SELECT FROM likecount._request)
		   AND NOT EXISTS (SELECT FROM likecount.counters WHERE state <> 'active' AND $of_verbs)});
	if (!$settled)
	{
		diag $node->safe_psql($database, q{TABLE likecount.counters});
		diag $node->safe_psql($database, q{TABLE likecount.status});
		return ok(0, "the counters of $database settle");
	}

	@verbs = split /\n/, $node->safe_psql($database, 'SELECT verb FROM likecount.counters ORDER BY verb') unless @verbs;
	my $wrong = join('', map { wrong_totals($node, $database, $_) } @verbs);
	return is($wrong, '', "totals of @verbs are exact");
}

# wrong_totals($node, $database, $verb) lists, in one snapshot, the posts whose total is not the count of their rows, as
# lines "verb: post|rows|total"; '' when there is none.  Only meaningful while nothing is pending.
sub wrong_totals
{
	my ($node, $database, $verb) = @_;
	my $lines = $node->safe_psql($database, qq{
		SELECT '$verb: ' || post::text, rows, total
		FROM (SELECT post, count(*) AS rows FROM likecount.${verb}_rows AS r (post) GROUP BY post) AS source
		FULL JOIN (SELECT t.post_id AS post, t.total FROM likecount.${verb}_totals AS t) AS totals USING (post)
		WHERE coalesce(rows, 0) <> coalesce(total, 0)
		ORDER BY 1});
	return $lines eq '' ? '' : "$lines\n";
}

# worker_pids($node, $database) returns the pids of likecount's workers, in $database or all.
sub worker_pids
{
	my ($node, $database) = @_;
	my $where = defined $database ? "AND datname = '$database'" : '';
	return split /\n/, $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'likecount worker' $where ORDER BY pid");
}

# wait_no_worker($node, $database) polls until no worker is connected to $database.
sub wait_no_worker
{
	my ($node, $database) = @_;
	return $node->poll_query_until('postgres',
		"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'likecount worker' AND datname = '$database')");
}

1;
