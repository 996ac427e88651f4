# shellcheck shell=bash
# What test/run, demo/run and scripts/lint share: missing packages, a copy of the tree, builds staged away from the
# system directories, throw-away servers on unix sockets.  Sourced by bash scripts that sit one directory below the root.
#
# Everything these scripts make lives below one directory, $work, and every server they start has its data directory
# there.  So leaving is simple, however it happens: end the running command, stop the servers found below $work, remove it.

set -euo pipefail
# Each background command gets a process group of its own, so that it can be ended with all its children.
set -m

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The caller's connection settings, locale and make flags must not reach our servers and builds.
for name in $(compgen -e); do
	case $name in
		PG_CONFIG | PGVER | PG_TEST_*) ;;
		PG* | LC_* | LANGUAGE | MAKEFLAGS | MFLAGS | MAKELEVEL | MAKEOVERRIDES) unset "$name" ;;
	esac
done
export LANG=C.UTF-8
umask 022

say()  { printf '%s\n' "== $*"; }
fail() { printf '%s\n' "$(basename "$root"): $*" >&2; exit 1; }

# ---------------------------------------------------------------------------------------------------------------------
# Which PostgreSQL, and as whom

# PGVER=17 asks for a version in Debian's place; PG_CONFIG=... for exactly that server, which then is not installed.
if [ -n "${PG_CONFIG:-}" ]; then
	PG_CONFIG=$(command -v "$PG_CONFIG") || fail "PG_CONFIG is not a program"
	PGVER=$("$PG_CONFIG" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
	server_packages=()
else
	PGVER=${PGVER:-15}
	PG_CONFIG=/usr/lib/postgresql/$PGVER/bin/pg_config
	server_packages=("postgresql-$PGVER" "postgresql-server-dev-$PGVER")
fi

# PostgreSQL refuses to run as root: root's servers, and the builds they load, belong to the user that the server
# package made.  setpriv, not runuser: it stays one process, so that a signal reaches the command itself.
as_user() {
	if [ "$(id -u)" -eq 0 ]; then
		HOME=$work exec setpriv --reuid=postgres --regid=postgres --init-groups "$@"
	else
		exec "$@"
	fi
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# ---------------------------------------------------------------------------------------------------------------------
# Packages

# need_packages PACKAGE... installs those that are missing, and asks for no rights when none is.
need_packages() {
	local missing=() package
	for package in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null)" = 'ii ' ] || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || fail "not root and no sudo; please install: ${missing[*]}"

	say "installing ${missing[*]}"
	# The server's package would create a cluster, and start it on port 5432.  Nobody asked for one.
	if [[ " ${missing[*]} " == *" postgresql-$PGVER "* ]]; then
		until_installed /etc/postgresql-common/createcluster.d/likecount-test.conf 'create_main_cluster = false'
	fi
	# Nor for a service.
	if [[ " ${missing[*]} " == *" pgbouncer "* ]] && [ ! -e /usr/sbin/policy-rc.d ]; then
		until_installed /usr/sbin/policy-rc.d '#!/bin/sh' 'exit 101'
		as_root chmod +x /usr/sbin/policy-rc.d
	fi
	local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
	as_root "${apt[@]}" update </dev/null >"$work/apt.log" 2>&1 \
		|| say "the package lists could not be refreshed, trying with the old ones"
	as_root "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >>"$work/apt.log" 2>&1 \
		|| { tail -n 40 "$work/apt.log" >&2; fail "could not install ${missing[*]}"; }
	[[ " ${missing[*]} " != *" pgbouncer "* ]] || as_root update-rc.d pgbouncer disable >>"$work/apt.log" 2>&1
	remove_temporary
}

# until_installed FILE LINE... makes a file that tells packages what not to do.
temporary=()
until_installed() {
	temporary+=("$1")
	as_root mkdir -p "$(dirname "$1")"
	printf '%s\n' "${@:2}" | as_root tee "$1" >/dev/null
}
remove_temporary() {
	[ ${#temporary[@]} -eq 0 ] || as_root rm -f "${temporary[@]}"
	temporary=()
}

# ---------------------------------------------------------------------------------------------------------------------
# The work directory, and leaving

# Short, since a socket's path below it must stay under 107 bytes.  Everybody may enter it, as the user that runs the
# servers is not always the one that runs the script.
work=$(mktemp -d /tmp/likecount.XXXXXX)
chmod 755 "$work"
mkdir -m 1777 "$work/tmp"
export TMPDIR=$work/tmp

job=
# run COMMAND... runs it in a process group of its own and returns its status.  Not in the foreground, where bash would
# answer a signal only after the command has ended.
run() {
	local status=0
	"$@" </dev/null &
	job=$!
	wait "$job" || status=$?
	# what the command left running; servers are in groups of their own
	kill -TERM -- "-$job" 2>/dev/null || true
	job=
	return "$status"
}

# run_as_user COMMAND... does so as the user of the servers.
run_as_user() { run as_user "$@"; }

end_job() {
	[ -n "$1" ] || return 0
	kill -TERM -- "-$1" 2>/dev/null || return 0
	wait "$1" 2>/dev/null || true
}

stop_servers() {
	local pidfile
	[ -x "$bindir/pg_ctl" ] || return 0
	while IFS= read -r pidfile; do
		(as_user "$bindir/pg_ctl" stop -s -m immediate -D "$(dirname "$pidfile")") </dev/null >/dev/null 2>&1 || true
	done < <(find "$work" -name postmaster.pid 2>/dev/null)
}

leave() {
	local status=$?
	trap '' INT TERM HUP
	trap - EXIT
	set +e
	end_job "$job"
	end_job "${load:-}"
	stop_servers
	remove_temporary
	if [ -n "${KEEP:-}" ]; then
		say "kept: $work"
	else
		# A server that was just told to stop may still write its last file.
		rm -rf "$work" 2>/dev/null || rm -rf "$work"
	fi
	exit "$status"
}
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ---------------------------------------------------------------------------------------------------------------------
# Building

# prepare PACKAGE... installs what building and running needs, and these, and opens the work directory.
prepare() {
	local compiler=(g++)
	[ "${CXX:-}" != clang++ ] || compiler+=(clang)
	need_packages "${server_packages[@]}" "${compiler[@]}" make "$@"
	[ -x "$PG_CONFIG" ] || fail "there is no $PG_CONFIG"
	bindir=$("$PG_CONFIG" --bindir)
	pgxsdir=$(dirname "$(dirname "$(dirname "$("$PG_CONFIG" --pgxs)")")")
	export PG_CONFIG PATH=$bindir:$PATH
	[ "$(id -u)" -ne 0 ] || chown -R postgres: "$work"
	# the user of the servers may be unable to enter the directory that the script was started in
	cd "$work"
}
bindir=/nonexistent

# copy_tree DIRECTORY copies the tree there, without what git or an earlier build put into it.
copy_tree() {
	mkdir "$1"
	tar -C "$root" -cf - --exclude=./.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' --exclude='*.gcda' \
		--exclude='*.gcno' --exclude=./results --exclude=./bench/results --exclude=./output_iso . | tar -C "$1" -xf -
	[ "$(id -u)" -ne 0 ] || chown -R postgres: "$1"
}

# build NAME [VARIABLE=VALUE...] copies the tree to $work/NAME, builds it there and installs it below $work/NAME/stage.
# Without bitcode, which only a server with JIT reads and which takes longer than the rest.
build() {
	local tree=$work/$1 args=(with_llvm=no "PG_CONFIG=$PG_CONFIG" "${@:2}") targets=(all check-symbols install)
	# gcov adds to what the library exports
	[ -z "${COVERAGE:-}" ] || targets=(all install)
	[ -z "${CC:-}" ] || args+=("CC=$CC")
	[ -z "${CXX:-}" ] || args+=("CXX=$CXX")
	say "building: $1"
	copy_tree "$tree"
	run_as_user make -s -j"$(nproc)" -C "$tree" "${args[@]}" "${targets[@]}" "DESTDIR=$tree/stage" \
		>"$work/$1.log" 2>&1 || { cat "$work/$1.log" >&2; fail "the build failed"; }
	# warnings, if any
	cat "$work/$1.log"

	# What a server's configuration needs to find the stage: from 18 on by PostgreSQL's own settings, before by Debian's.
	# In two files, as a test may want the extension in reach but not preloaded.
	local stage=$tree/stage settings
	settings=$("$bindir/postgres" --describe-config)
	if [[ $settings == *extension_control_path* ]]; then
		echo "extension_control_path = '$stage$("$PG_CONFIG" --sharedir):\$system'"
		echo "dynamic_library_path = '$stage$("$PG_CONFIG" --pkglibdir):\$libdir'"
		echo "shared_preload_libraries = 'likecount'" >"$stage/preload.conf"
	else
		echo "extension_destdir = '$stage'"
		echo "shared_preload_libraries = '\$libdir/likecount'" >"$stage/preload.conf"
	fi >"$stage/reach.conf"
}

# ---------------------------------------------------------------------------------------------------------------------
# Servers

# start_server NAME BUILD [CONFIGURATION LINE...] makes a cluster that finds the extension in $work/BUILD/stage before the
# system's, and starts it on a unix socket in $work/NAME.sock.  Its locale does not depend on the caller's.
start_server() {
	local data=$work/$1.data socket=$work/$1.sock stage=$work/$2/stage
	run_as_user mkdir "$socket"
	run_as_user "$bindir/initdb" -D "$data" -U postgres -A trust -N -E UTF8 --locale=C.UTF-8 >"$work/tmp/$1.initdb" 2>&1 \
		|| { cat "$work/tmp/$1.initdb" >&2; fail "initdb failed"; }
	{
		cat "$stage/reach.conf" "$stage/preload.conf"
		printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$socket'"
		[ $# -lt 3 ] || printf '%s\n' "${@:3}"
	} >>"$data/postgresql.conf"
	run_as_user "$bindir/pg_ctl" start -s -w -D "$data" -l "$work/$1.serverlog" \
		|| { cat "$work/$1.serverlog" >&2; fail "the server $1 did not start"; }
}

# use_server NAME makes psql, pgbench and pg_regress talk to it.
use_server() {
	export PGHOST=$work/$1.sock PGUSER=postgres PGDATABASE=postgres
}

# sql COMMAND prints the bare result.
sql() {
	run "$bindir/psql" -XAtq -v ON_ERROR_STOP=1 -c "$1"
}
