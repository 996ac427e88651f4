# Everything at once over twenty posts: likes and unlikes by every door, rollbacks, flushes by hand and by a worker at 10 ms.
# Meanwhile and afterwards each total and what waits for it are the count of its rows.
use strict;
use warnings;
use LikecountTest;
use File::Basename;

my $node = new_node('load', conf => <<'CONF');
likecount.flush_interval = '10ms'
fsync = off
max_prepared_transactions = 20
CONF
$node->safe_psql('postgres', 'CREATE EXTENSION likecount');
$node->safe_psql('postgres', slurp_file(dirname(__FILE__) . '/../oracle.sql'));
$node->safe_psql('postgres', q{SELECT likecount.create_counter()});
$node->safe_psql('postgres', q{CREATE PROCEDURE one_by_one(fan bigint) LANGUAGE plpgsql AS $$
	BEGIN
		FOR post IN 1 .. 5 LOOP
			PERFORM likecount.like(post, fan);
			IF post = 3 THEN ROLLBACK; ELSE COMMIT; END IF;
		END LOOP;
	END $$});

# A fan belongs to one client where a transaction touches several rows: with plain SQL, too, two transactions that write the
# same pairs in different order deadlock.
my $mine = '\set fan :client_id * 1000 + random(1, 200)' . "\n" . '\set post random(1, 20)' . "\n" . '\set other random(1, 20)' . "\n";
my $anyone = '\set fan random(100001, 100300)' . "\n" . '\set post random(1, 20)' . "\n";
# The locks keep segments from being emptied between the statement's snapshot and its reading of what is pending.
my $check = join('', map { "LOCK TABLE likecount._queue_$_, likecount._journal_$_ IN ACCESS SHARE MODE;\n" } 0 .. 2);

$node->pgbench(
	'--no-vacuum --client=8 --jobs=2 --time=12',
	0,
	[qr/number of failed transactions: 0/],
	[qr/^(?!.*ERROR)/s],
	'mixed load',
	{
		'034_like@8' => "${anyone}SELECT likecount.like(:post, :fan);\n",
		'034_unlike@6' => "${anyone}SELECT likecount.unlike(:post, :fan);\n",
		'034_insert@4' => "${anyone}INSERT INTO likes VALUES (:post, :fan) ON CONFLICT DO NOTHING;\n",
		'034_delete@3' => "${anyone}DELETE FROM likes WHERE post_id = :post AND user_id = :fan;\n",
		'034_old@1' => "${mine}INSERT INTO likes VALUES (:post, :fan, clock_timestamp() - random() * interval '2 min') ON CONFLICT DO NOTHING;\n",
		'034_move@2' => "${mine}UPDATE likes SET post_id = :other WHERE post_id = :post AND user_id = :fan AND NOT EXISTS (SELECT FROM likes WHERE post_id = :other AND user_id = :fan);\n",
		'034_time@1' => "${mine}UPDATE likes SET liked_at = clock_timestamp() WHERE post_id = :post AND user_id = :fan;\n",
		'034_many@2' => "${mine}SELECT likecount.like_many(ARRAY[:post, :other, 1], ARRAY[:fan, :fan, :fan]);\n",
		'034_savepoints@3' => "${mine}BEGIN;\nSELECT likecount.like(:post, :fan);\nSAVEPOINT a;\nSELECT likecount.unlike(:other, :fan);\nSELECT likecount.like(1, :fan);\n"
		  . "SAVEPOINT b;\nSELECT likecount.like(2, :fan);\nROLLBACK TO a;\nSELECT likecount.unlike(:other, :fan);\nCOMMIT;\n",
		'034_rollback@1' => "${mine}BEGIN;\nSELECT likecount.like(:post, :fan);\nSELECT likecount.unlike(:other, :fan);\nROLLBACK;\n",
		'034_serializable@1' => "${mine}BEGIN ISOLATION LEVEL SERIALIZABLE;\nSELECT likecount.like(:post, :fan);\nCOMMIT;\n",
		'034_procedure@1' => "${mine}CALL one_by_one(:fan);\n",
		'034_prepared@1' => "${mine}BEGIN;\nSELECT likecount.like(:post, :fan);\nPREPARE TRANSACTION 'p:client_id';\nCOMMIT PREPARED 'p:client_id';\n",
		'034_flush@1' => "SELECT likecount.flush();\n",
		'034_flush_rollback@1' => "${mine}BEGIN;\nSELECT likecount.like(:post, :fan);\nSELECT likecount.flush();\nROLLBACK;\n",
		'034_check@1' => "BEGIN;\n${check}DO \$\$ BEGIN\nIF drifts('like') <> '' THEN RAISE EXCEPTION 'drift: %', (SELECT string_agg(d::text, ' ') FROM drift('like') d); END IF;\n"
		  . "IF EXISTS (SELECT FROM likecount.like_totals WHERE total < 0) THEN RAISE EXCEPTION 'a total is negative'; END IF;\nEND \$\$;\nCOMMIT;\n",
	});
wait_exact($node, 'postgres', 'like');
is($node->safe_psql('postgres', q{SELECT count(*) FROM likecount.like_slots WHERE value < 0 OR slot <> 0}), '0', 'no total is negative');
is($node->safe_psql('postgres', q{SELECT drift_found, state, rejected FROM likecount.counters}), '0|active|0', 'and none had to be corrected');
is($node->safe_psql('postgres', q{SELECT errors FROM likecount.status}), '0', 'the worker had no error');

# flush() moves what was committed before it, also when it had to wait for another one
$node->append_conf('postgresql.conf', "likecount.worker = off\n");
$node->reload;
wait_no_worker($node, 'postgres');
$node->pgbench(
	'--no-vacuum --client=8 --jobs=2 --time=5',
	0,
	[qr/number of failed transactions: 0/],
	[qr/^(?!.*ERROR)/s],
	'flushes that follow each other',
	{
		'034_handoff' => '\set fan random(1, 2000000000)' . "\n"
		  . "SELECT likecount.like(100 + :client_id, :fan);\nSELECT likecount.flush();\n"
		  . "SELECT 1 / (likecount.like_count(100 + :client_id) = (SELECT count(*) FROM likes WHERE post_id = 100 + :client_id))::int;\n",
	});

done_testing();
