# Every kind of dump, restored into an empty database, with a worker and without: counters are adopted, recounted, and end exact.
use strict;
use warnings;
use LikecountTest;

my $source = new_node('source', conf => "max_prepared_transactions = 5\n");
my $without = new_node('without', preload => 0);
my $dumps = $source->basedir . '/dumps';
mkdir $dumps or die "$dumps: $!";

# what an application has: several counters, several key types, partitions, a condition, its own view and privileges over totals
$source->safe_psql('postgres', q{
	CREATE ROLE owner;
	CREATE ROLE reader;
	CREATE EXTENSION likecount;
	GRANT USAGE ON SCHEMA likecount TO owner, reader;
	CREATE SCHEMA app AUTHORIZATION owner;
	SET ROLE owner;
	CREATE TABLE app.likes (gone int, post_id bigint NOT NULL, user_id bigint NOT NULL, liked_at timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (post_id, user_id));
	ALTER TABLE app.likes DROP COLUMN gone;
	CREATE INDEX ON app.likes (liked_at);
	INSERT INTO app.likes (post_id, user_id) SELECT p, u FROM generate_series(1, 50) p, generate_series(1, p) u;
	SELECT likecount.attach('app.likes', 'post_id', 'user_id', 'liked_at');
	CREATE TABLE app.parts (p text COLLATE "C", u uuid DEFAULT gen_random_uuid(), PRIMARY KEY (p, u)) PARTITION BY HASH (p);
	CREATE TABLE app.parts_0 PARTITION OF app.parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
	CREATE TABLE app.parts_1 PARTITION OF app.parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
	SELECT likecount.attach('app.parts', 'p', 'u', verb => 'part', count_replicated => true);
	INSERT INTO app.parts SELECT 'post ' || i % 7 FROM generate_series(1, 100) i;
	CREATE TYPE app.kind AS ENUM ('love', 'angry');
	CREATE TABLE app.reactions (post smallint NOT NULL, kind app.kind NOT NULL, deleted boolean NOT NULL DEFAULT false);
	SELECT likecount.attach('app.reactions', 'post', verb => 'love', only_where => $$kind = 'love' AND NOT deleted$$);
	INSERT INTO app.reactions SELECT i % 5, CASE WHEN i % 3 = 0 THEN 'angry' ELSE 'love' END::app.kind, i % 4 = 0 FROM generate_series(1, 60) i;
	CREATE VIEW app.feed AS SELECT * FROM likecount.like_totals;
	GRANT SELECT ON likecount.like_totals TO reader;
	RESET ROLE});
$without->safe_psql('postgres', 'CREATE ROLE owner; CREATE ROLE reader');
my @verbs = qw(like part love);
wait_exact($source, 'postgres', @verbs);

# Deltas that are pending at dump time stay behind: the restored rows are what counts.
$source->safe_psql('postgres', q{ALTER SYSTEM SET likecount.worker = off});
$source->reload;
wait_no_worker($source, 'postgres');
$source->safe_psql('postgres', q{
	INSERT INTO app.likes (post_id, user_id) SELECT 1000 + i, i FROM generate_series(1, 20) i;
	DELETE FROM app.likes WHERE post_id = 50});

my @from = ('-d', $source->connstr('postgres'));
$source->command_ok([ 'pg_dump', @from, '-f', "$dumps/plain" ], 'plain');
$source->command_ok([ 'pg_dump', @from, '-Fc', '-f', "$dumps/custom" ], 'custom');
$source->command_ok([ 'pg_dump', @from, '-Fd', '-j', '2', '-f', "$dumps/directory" ], 'directory, two jobs');
$source->command_ok([ 'pg_dump', @from, '--schema-only', '-f', "$dumps/schema" ], 'schema only');
$source->command_ok([ 'pg_dump', @from, '-n', 'app', '-n', 'likecount', '-f', "$dumps/schemas" ], 'two schemas');
$source->command_ok([ 'pg_dump', @from, '-t', 'app.likes', '-f', "$dumps/table" ], 'the table alone');
$source->command_ok([ 'pg_dump', @from, '-t', 'app.likes', '-t', 'likecount.like_rows', '-f', "$dumps/definition" ], 'the table and its definition');
unlike(slurp_file("$dumps/plain"), qr/_counter|_queue|_journal|_sentinel|_watermark|_repair_todo|_rejected|_request/,
	'nothing of the run-time tables is in a dump');
$source->safe_psql('postgres', q{ALTER SYSTEM RESET likecount.worker});
$source->reload;

# finish($node, $database) lets adoption and backfill end, by the worker or by hand.
sub finish
{
	my ($node, $database) = @_;
	return if $node == $source;
	# each turn is a transaction, and the last has nothing left to do
	for my $turn (1 .. 30)
	{
		$node->safe_psql($database, 'SELECT likecount.flush()');
		last if $turn > 3 && $node->safe_psql($database, q{SELECT count(*) FROM likecount._counter WHERE state <> 'active'}) eq '0';
	}
	return;
}

# check($node, $database, @verbs): the counters of a restored database are here, exact, and count on.
sub check
{
	my ($node, $database, @verbs) = @_;
	my $expected = join "\n", sort @verbs;
	$node->poll_query_until($database, 'SELECT count(*) = ' . @verbs . ' FROM likecount._counter') if $node == $source;
	finish($node, $database);
	is($node->safe_psql($database, 'SELECT verb FROM likecount._counter ORDER BY verb'), $expected, "$database: adopted");
	wait_exact($node, $database, @verbs);
	is($node->safe_psql($database, 'SELECT unadopted FROM likecount.status'), '0', "$database: status shows no counter without registration");
	$node->safe_psql($database, q{INSERT INTO app.likes (post_id, user_id) VALUES (5, -1), (777, 1); DELETE FROM app.likes WHERE post_id = 7});
	finish($node, $database);
	wait_exact($node, $database, @verbs);
	is($node->safe_psql($database, 'SELECT likecount.like(888, 1), likecount.like(888, 1); SELECT likecount.liked(888, 1)'), "t|f\nt", "$database: functions work");
	$node->safe_psql($database, 'DROP TABLE app.likes' . ($database =~ /view/ ? ' CASCADE' : ''));
	is($node->safe_psql($database, q{SELECT count(*) FROM pg_class WHERE relnamespace = 'likecount'::regnamespace AND relname LIKE 'like\_%'}),
		'0', "$database: DROP TABLE takes the counter along again");
	# its worker, too, so that the next database finds one free
	$node->safe_psql('postgres', "DROP DATABASE $database");
	return;
}

for my $node ($source, $without)
{
	my $kind = $node == $source ? 'worker' : 'flush';
	my $prepare = 'CREATE EXTENSION likecount; GRANT USAGE ON SCHEMA likecount TO owner, reader';
	my @restores = (
		[ 'plain', sub { $node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $_[0], '-f', "$dumps/plain" ], "$kind: plain") } ],
		[ 'single', sub { $node->command_ok([ 'psql', '-X', '-q', '-1', '-v', 'ON_ERROR_STOP=1', '-d', $_[0], '-f', "$dumps/plain" ], "$kind: plain, in one transaction") } ],
		[ 'custom', sub { $node->command_ok([ 'pg_restore', '-e', '-d', $_[0], "$dumps/custom" ], "$kind: custom") } ],
		[ 'directory', sub { $node->command_ok([ 'pg_restore', '-e', '-j', '4', '-d', $_[0], "$dumps/directory" ], "$kind: directory, in parallel") } ],
		[ 'schema', sub {
				$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $_[0], '-f', "$dumps/schema" ], "$kind: schema only") } ],
	);
	for my $restore (@restores)
	{
		my ($name, $how) = @$restore;
		my $database = "view_${kind}_$name";
		$node->safe_psql('postgres', "CREATE DATABASE $database");
		# Parallel jobs restore privileges in any order: what owner granted on totals may come before owner's own USAGE on the schema, and
		# fails then, as for every schema whose objects were granted on by somebody else.  With the extension and USAGE there first it cannot.
		$node->safe_psql($database, $prepare) if $name eq 'directory';
		$how->($node->connstr($database));
		is($node->safe_psql($database, q{SELECT has_table_privilege('reader', 'likecount.like_totals', 'SELECT')}), 't', "$database: privileges");
		is($node->safe_psql($database, q{SELECT count(*) FROM pg_trigger WHERE tgenabled = 'A' AND tgparentid = 0}), '4', "$database: count_replicated");
		check($node, $database, @verbs);
	}

	# Parts of a dump, into a database that has the extension.  They do not carry privileges on its schema, and the source's owner,
	# as whom its rows are counted, must be able to reach the source.
	$node->safe_psql('postgres', "CREATE DATABASE view_${kind}_schemas");
	$node->safe_psql("view_${kind}_schemas", $prepare);
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr("view_${kind}_schemas"), '-f', "$dumps/schemas" ], "$kind: two schemas");
	check($node, "view_${kind}_schemas", @verbs);

	$node->safe_psql('postgres', "CREATE DATABASE ${kind}_definition");
	$node->safe_psql("${kind}_definition", "$prepare; CREATE SCHEMA app AUTHORIZATION owner");
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr("${kind}_definition"), '-f', "$dumps/definition" ],
		"$kind: the table and its definition");
	check($node, "${kind}_definition", 'like');

	# the table alone has triggers that nobody listens to, until it is attached
	$node->safe_psql('postgres', "CREATE DATABASE ${kind}_table");
	$node->safe_psql("${kind}_table", "$prepare; CREATE SCHEMA app AUTHORIZATION owner");
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr("${kind}_table"), '-f', "$dumps/table" ], "$kind: the table alone");
	$node->safe_psql("${kind}_table", 'INSERT INTO app.likes (post_id, user_id) VALUES (1, -5)');
	is($node->safe_psql("${kind}_table", 'SELECT unadopted FROM likecount.status'), '1', "$kind: status shows the triggers of a table alone");
	$node->safe_psql("${kind}_table", q{SELECT likecount.attach('app.likes', 'post_id', 'user_id', 'liked_at')});
	check($node, "${kind}_table", 'like');
}

# A counter restored under a writer that has not seen it: the worker does not wait for a prepared transaction, and flushes others.
$source->safe_psql('postgres', 'CREATE DATABASE prepared');
$source->safe_psql('prepared', q{
	CREATE EXTENSION likecount;
	SELECT likecount.create_counter('votes');
	CREATE TABLE tags (p bigint, u bigint, PRIMARY KEY (p, u))});
my $add = q{SELECT likecount.attach('tags', 'p', 'u')};
$source->safe_psql('prepared', $add);
wait_exact($source, 'prepared', 'vote', 'tag');
$source->safe_psql('prepared', q{
	ALTER TABLE tags DISABLE TRIGGER USER;
	BEGIN;
	INSERT INTO tags VALUES (1, 1);
	PREPARE TRANSACTION 'older'});
$source->safe_psql('prepared', q{
	BEGIN;
	DELETE FROM likecount._counter WHERE verb = 'tag';
	ALTER TABLE likecount._counter SET (fillfactor = 100);
	COMMIT;
	SELECT likecount.vote(1, 1)});
ok($source->poll_query_until('prepared', q{SELECT state = 'adopting' FROM likecount._counter WHERE verb = 'tag'}), 'a lost registration comes back');
$source->safe_psql('prepared', 'SELECT likecount.vote(1, i) FROM generate_series(2, 10) i');
ok($source->poll_query_until('prepared', 'SELECT likecount.vote_count(1) = 10'), 'other counters are flushed while it waits for a prepared transaction');
is($source->safe_psql('prepared', q{SELECT state FROM likecount._counter WHERE verb = 'tag'}), 'adopting', 'which it still does');
$source->safe_psql('prepared', q{COMMIT PREPARED 'older'});
wait_exact($source, 'prepared', 'vote', 'tag');
is($source->safe_psql('prepared', 'SELECT likecount.tag_count(1)'), '1', 'the row of the prepared transaction is counted');

done_testing();
