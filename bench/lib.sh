# shellcheck shell=bash disable=SC2034,SC2154
# What the benchmarks share.  Sourced after scripts/lib.sh.

results=$root/bench/results
scripts=$work/release/bench/pgbench # once it is built
mapfile -t bench_config < <(grep -v '^#' "$root/bench/postgresql.conf")
mkdir -p "$results"
export PGOPTIONS='-c client_min_messages=warning'

# fresh POSTS ROWS CONTENDER... makes the database bench anew, with their tables and those of bare: that many posts, and that
# many likes to begin with.  Returns when likecount has counted those.
fresh() {
	local variables=("${@:3}")
	variables=("${variables[@]/%/=on}")
	use_server bench
	sql 'DROP DATABASE IF EXISTS bench WITH (FORCE)'
	sql 'CREATE DATABASE bench'
	export PGDATABASE=bench
	run "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -v posts="$1" -v rows="$2" "${variables[@]/#/--variable=}" -o /dev/null -f "$scripts/setup.sql"
	until [ "$(sql "SELECT likecount.flush() = 0 AND NOT EXISTS (SELECT FROM likecount.counters WHERE state <> 'active')")" = t ]; do
		sleep 0.1
	done
	sql 'VACUUM (ANALYZE)'
}

# settle SECONDS waits until every like is in its total, and looks every so many seconds: on one connection, so that looking
# costs next to nothing while little waits.
settle() {
	sql "DO \$\$ BEGIN WHILE EXISTS (SELECT FROM likecount.pending) LOOP PERFORM pg_sleep($1); END LOOP; END \$\$"
}

# verify CONTENDER... demands that their totals are what count(*) says, for every post.
verify() {
	local contender
	settle 0.02
	for contender; do
		[ "$(sql "SELECT to_regclass('${contender}_totals') IS NULL")" = f ] || continue # it counts nothing
		[ "$(sql "SELECT count(*) FROM (SELECT post_id, count(*) AS n FROM ${contender}_likes GROUP BY post_id) l
			FULL JOIN ${contender}_totals t USING (post_id) WHERE COALESCE(n, 0) <> COALESCE(total, 0)")" = 0 ] \
			|| fail "$contender: a total is not the number of likes"
		echo "    every total of $contender is its count(*): $(sql "SELECT count(*) FROM ${contender}_likes") likes"
	done
}

# pick N prints the lines with which a script picks its Nth post and user.
pick() {
	sed -n "s/^\\\\set \(post\|user\) /\\\\set \1$1 /p" "$scripts/bare.sql"
}

# batch_scripts SIZE writes bare_batch.sql and likecount_batch.sql, which record SIZE likes in one statement.
batch_scripts() {
	local i rows='' posts='' users=''
	for i in $(seq "$1"); do
		pick "$i"
		rows+=", (:post$i, :user$i)" posts+=", :post$i" users+=", :user$i"
	done >"$work/tmp/picks"
	{
		cat "$work/tmp/picks"
		echo "INSERT INTO bare_likes (post_id, user_id) VALUES ${rows:2} ON CONFLICT (post_id, user_id) DO NOTHING;"
	} >"$work/tmp/bare_batch.sql"
	{
		cat "$work/tmp/picks"
		echo "SELECT likecount.like_many(ARRAY[${posts:2}]::bigint[], ARRAY[${users:2}]::bigint[]);"
	} >"$work/tmp/likecount_batch.sql"
}

# page SIZE POSTS prints that many different posts.
page() { shuf -i "1-$2" -n "$1" | paste -sd,; }
