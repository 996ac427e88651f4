# The audit: rows that came or went without the capture triggers are found by the worker, as soon as somebody likes the post, and
# the total is put right, with a warning.  What it can't read or lock it leaves, and counts on.
use strict;
use warnings;
use LikecountTest;

my $node = new_node('audit', conf => "autovacuum = off\nlikecount.worker = off\n");

sub value { return $node->safe_psql('postgres', $_[0]); }

# A worker audits in the turn of its first flush, and then once a minute.  So here each audit has a worker of its own: it comes, does
# what is to be done while the test waits for $condition, and leaves no earlier than after its turn.  Returns what it has logged.
sub audit
{
	my ($condition, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $log_start = -s $node->logfile;
	set('likecount.worker', 'on');
	ok($node->poll_query_until('postgres', "SELECT $condition"), $what);
	set('likecount.worker', 'off');
	wait_no_worker($node, 'postgres');
	return slurp_file($node->logfile, $log_start);
}

sub set
{
	my ($name, $value) = @_;
	value("ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	return;
}

# Runs statements that no trigger of ours sees.
sub unseen { return value("SET session_replication_role = replica; $_[0]"); }

# What the audit has found in a counter: posts, and the sum of the corrections.
sub drift { return value("SELECT drift_posts, drift_found FROM likecount.counters WHERE verb = '$_[0]'"); }

value(q{
	CREATE EXTENSION likecount;
	CREATE ROLE keeper;
	CREATE SCHEMA vault;
	GRANT USAGE ON SCHEMA vault TO keeper;
	CREATE TABLE marks (post text NOT NULL, fan int NOT NULL, PRIMARY KEY (post, fan));
	CREATE TABLE parts (post int NOT NULL, fan int NOT NULL, PRIMARY KEY (post, fan)) PARTITION BY LIST (post);
	CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
	CREATE TABLE vault.stars (post int NOT NULL, fan int NOT NULL, PRIMARY KEY (post, fan));
	ALTER TABLE vault.stars OWNER TO keeper});
value(q{
	SELECT likecount.create_counter();
	SELECT likecount.attach('marks', 'post', 'fan', verb => 'mark');
	SELECT likecount.attach('parts', 'post', 'fan', verb => 'part');
	SELECT likecount.attach('vault.stars', 'post', 'fan', verb => 'star');
	INSERT INTO likes SELECT p, u FROM generate_series(1, 9) p, generate_series(1, 5) u;
	INSERT INTO vault.stars VALUES (1, 1)});
set('likecount.worker', 'on');
wait_exact($node, 'postgres');
set('likecount.worker', 'off');
wait_no_worker($node, 'postgres');

# ---- what it finds

my $long = 'a long name ' x 40;
unseen(q{INSERT INTO likes VALUES (1, 101), (1, 102), (1, 103)});
value(q{
	BEGIN;
	ALTER TABLE likes DISABLE TRIGGER USER;
	DELETE FROM likes WHERE post_id = 2 AND user_id < 3;
	ALTER TABLE likes ENABLE TRIGGER USER;
	COMMIT});
unseen(qq{INSERT INTO marks VALUES ('$long', 101)});
unseen('INSERT INTO parts_1 VALUES (1, 101)');
# counting a post with more than 100,000 likes takes too long for an audit
value(q{
	UPDATE likecount.like_slots SET value = 99999 WHERE post = 3;
	UPDATE likecount.like_slots SET value = 100000 WHERE post = 4});
is(drift('like'), '0|0', 'nobody has found anything yet');

# a post without activity is not looked at: 9, where a row is missing as well
unseen('DELETE FROM likes WHERE post_id = 9 AND user_id = 1');
value("INSERT INTO likes SELECT p, 6 FROM generate_series(1, 4) p; INSERT INTO marks VALUES ('$long', 6); INSERT INTO parts VALUES (1, 6)");
my $log = audit(qq{likecount.like_count(1) = 9 AND likecount.like_count(2) = 4 AND likecount.like_count(3) = 6
	AND likecount.mark_count('$long') = 2 AND likecount.part_count(1) = 2}, 'ordinary likes of posts that have drifted make the totals right');
like($log, qr/WARNING: .*counter "like" was wrong about post 1: 6 instead of 9\n.*DETAIL: .*The audit has corrected it\.\n.*HINT: .*public\.likes/,
	'the log names counter, post and numbers, and the table');
like($log, qr/WARNING: .*counter "like" was wrong about post 2: 6 instead of 4\n/, 'also where rows are missing');
like($log, qr/WARNING: .*counter "mark" was wrong about post \Q$long\E: 1 instead of 2\n/, 'and a long text');
is(drift('like'), '3|' . (3 - 2 - 99994), 'the view counters has posts and corrections');
is(drift('mark') . ' ' . drift('part'), '1|1 1|1', 'of each counter');
is(value('SELECT drift_posts, drift_found FROM likecount.status'), '5|' . (3 - 2 - 99994 + 2), 'the view status has the sums');
is(value('SELECT likecount.like_count(4)'), '100001', 'a very large total is left alone');
is(value(q{SELECT string_agg(post, ' ' ORDER BY post) FROM likecount.check('likes')}), '4 9', 'nothing else is wrong');

# ---- how much it looks at

set('likecount.audit_rate', '3');
unseen('INSERT INTO likes SELECT p, 101 FROM generate_series(11, 40) p');
value('INSERT INTO likes SELECT p, 6 FROM generate_series(11, 40) p');
$log = audit(q{(SELECT count(*) FROM likecount.like_totals WHERE post_id BETWEEN 11 AND 40 AND total = 2) = 3}, 'audit_rate posts are looked at');
is(() = $log =~ /counter "like" was wrong/g, 3, 'and no more');
is(value('SELECT sum(drift_posts) FROM likecount.counters'), '8', 'as the views say');

set('likecount.audit_rate', '0');
unseen('INSERT INTO likes VALUES (7, 101)');
value('INSERT INTO likes VALUES (7, 6)');
$log = audit('likecount.like_count(7) = 6', 'with audit_rate 0 likes are counted');
unlike($log, qr/was wrong/, 'and nothing is audited');
is(value(q{SELECT likecount.like_count(7), drift_posts FROM likecount.status}), '6|8', 'the wrong total stays');
value(q{ALTER SYSTEM RESET likecount.audit_rate});
$node->reload;

# ---- row-level security that its owner is under, too

value(q{
	ALTER TABLE vault.stars ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
	CREATE POLICY nobody ON vault.stars USING (false) WITH CHECK (true);
	GRANT USAGE ON SCHEMA likecount TO keeper});
is(value('SET ROLE keeper; SELECT count(*) FROM vault.stars'), '0', 'the owner of the table sees no row');
value('INSERT INTO vault.stars VALUES (1, 2), (2, 1)');
unseen('INSERT INTO vault.stars VALUES (2, 101)');
$log = audit('likecount.star_count(2) = 2', 'the audit counts rows that forced row-level security hides');
is(drift('star'), '1|1', 'and finds those of which no trigger knew');
unlike($log, qr/wrong about post 1/, 'a total that is right stays');
is(value('SELECT likecount.star_count(1)'), '2', 'as it is');

# ---- sources that it can't read

# Each time a like of post 8, too: it has drifted, so there is an audit to be seen of a counter that comes before.
my $user = 200;
sub likes_go_on
{
	my ($what) = @_;
	unseen('INSERT INTO likes VALUES (8, ' . ++$user . ')');
	value('INSERT INTO likes VALUES (8, ' . ++$user . ')');
	my $likes = value('SELECT count(*) FROM likes WHERE post_id = 8');
	return audit("likecount.like_count(8) = $likes", "another counter is audited while $what");
}

unseen('INSERT INTO vault.stars VALUES (1, 101)');
value('INSERT INTO vault.stars VALUES (1, 3); REVOKE USAGE ON SCHEMA vault FROM keeper; REVOKE SELECT ON vault.stars FROM keeper');
$log = likes_go_on(q{the owner of a source may not read it});
is(value('SELECT likecount.star_count(1)'), '3', 'its own likes are counted as well');
like($log, qr/WARNING: .*audit of counter "star" failed: permission denied for .*\n.*HINT: .*tried again/, 'the log says what is wrong');
like(value(q{SELECT last_error FROM likecount.counters WHERE verb = 'star' AND last_error_at > clock_timestamp() - interval '1 min'}),
	qr/^42501: permission denied/, 'the view counters too');
is(value('SELECT errors FROM likecount.status'), '0', 'no worker has ended by it');

value('GRANT USAGE ON SCHEMA vault TO keeper; GRANT SELECT ON vault.stars TO keeper; INSERT INTO vault.stars VALUES (1, 4)');
audit('likecount.star_count(1) = 5', 'with the right to read, the next audit corrects');
is(value(q{SELECT last_error IS NULL FROM likecount.counters WHERE verb = 'star'}), 't', 'and the error is gone');

# ---- sources that are locked

unseen('INSERT INTO vault.stars VALUES (1, 102)');
value('INSERT INTO vault.stars VALUES (1, 5)');
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE vault.stars IN ACCESS EXCLUSIVE MODE');
$log = likes_go_on('the source of one is locked');
is(value('SELECT likecount.star_count(1)'), '6', 'of the locked one likes are counted');
unlike($log, qr/counter "star"/, 'it is left out');
$locker->query_safe('ROLLBACK');

# Only its index is: the planner asks for that in passing.
value('INSERT INTO vault.stars VALUES (1, 6)');
$locker->query_safe('BEGIN; REINDEX INDEX vault.stars_pkey');
$log = likes_go_on('an index of the source is locked');
is(value('SELECT likecount.star_count(1)'), '7', 'again its likes are counted');
like(value(q{SELECT last_error FROM likecount.counters WHERE verb = 'star'}), qr/^55P03: /, 'nobody waits for the index');
$locker->query_safe('ROLLBACK');
$locker->quit;
value('INSERT INTO vault.stars VALUES (1, 7)');
audit('likecount.star_count(1) = 9', 'without the locks the next audit corrects');

# ---- statistics

is(value('SELECT flushes > 0 AND deltas > 0, drift_posts FROM likecount.status'), 't|' . value('SELECT sum(drift_posts) FROM likecount.counters'), 'there are numbers');
my $found = value('SELECT drift_posts, drift_found FROM likecount.status');
my $since = value('SELECT stats_reset FROM likecount.status');
value('SELECT likecount.reset_stats()');
is(value(qq{SELECT flushes, deltas, posts_written, discarded, rejected, errors, truncations, stats_reset > '$since' FROM likecount.status}),
	'0|0|0|0|0|0|0|t', 'reset_stats() sets those of this server to zero');
is(value('SELECT drift_posts, drift_found FROM likecount.status'), $found, 'but what was wrong stays on record');

done_testing();
