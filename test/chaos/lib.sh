# shellcheck shell=bash
# What the scripts that run chaos share; sourced after scripts/lib.sh.

# build_chaos BUILD compiles the program in the copy of the tree $work/BUILD.
build_chaos() {
	local tree=$work/$1
	run_as_user "${CXX:-g++}" -std=c++17 -O2 -Wall -Wextra -pthread "-I$("$PG_CONFIG" --includedir)" \
		"$tree"/test/chaos/*.cpp -o "$tree/chaos" "-L$("$PG_CONFIG" --libdir)" -lpq || fail "could not build chaos"
}

# run_chaos NAME PROGRAM BUILD [OPTION...] runs a program that build_chaos made on servers that find the extension
# below $work/BUILD.  What it prints is kept in $work/NAME.log, what it leaves in $work/NAME.
run_chaos() {
	local directory=$work/$1
	run_as_user mkdir "$directory"
	run chaos_logged "$directory.log" "$2" --bindir "$bindir" --work "$directory" \
		--conf "$work/$3/stage/reach.conf" --conf "$work/$3/stage/preload.conf" "${@:4}"
}
chaos_logged() {
	local status=0
	(as_user "${@:2}") 2>&1 | tee "$1" || status=$?
	return "$status"
}

# shorten_watermark BUILD makes, in that copy of the tree, the watermark trail the clock by 100 ms instead of a minute, and
# slots quiet after 100 ms instead of ten seconds.
# Only files that change become newer, so a make that follows compiles little.
shorten_watermark() {
	local source
	for source in "$work/$1/src/"*.[ch]pp; do
		grep -q '^constexpr int64 kWatermarkS' "$source" || continue
		run_as_user sed -i 's/^\(constexpr int64 kWatermarkSlack = \).*/\1INT64CONST(100) * 1000;/
			s/^\(constexpr int64 kWatermarkStep = \).*/\1INT64CONST(50) * 1000;/' "$source"
	done
	run_as_user sed -i 's/^\(constexpr int64 k\(Quiet\|LookAgain\) = \).*/\1INT64CONST(100) * 1000;/' "$work/$1/src/fold.cpp"
	[ "$(grep -c '= INT64CONST(100) \* 1000;$' "$work/$1/src/fold.cpp")" -eq 2 ] || fail "there is no quiet slot any more"
	grep -q 'kWatermarkSlack = INT64CONST(100) ' "$work/$1/src/"*.[ch]pp \
		&& grep -q 'kWatermarkStep = INT64CONST(50) ' "$work/$1/src/"*.[ch]pp || fail "there is no watermark any more"
}

# rebuild BUILD compiles and installs what has changed in it.
rebuild() {
	local tree=$work/$1
	run_as_user make -s -j"$(nproc)" -C "$tree" with_llvm=no "PG_CONFIG=$PG_CONFIG" all install "DESTDIR=$tree/stage" \
		>"$work/$1.log" 2>&1 || { cat "$work/$1.log" >&2; fail "$1 does not compile"; }
}
