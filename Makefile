# likecount: build, install, test.
#
# make, make install     need PostgreSQL's server headers and pg_config (PG_CONFIG=... picks another server)
# make test, make demo   set the machine up themselves and write nothing into system directories
#
# CONTRIBUTING.md lists every target and variable.

EXTENSION  = likecount
MODULE_big = likecount

# The control file's default_version is the one source of the version.
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" $(EXTENSION).control)

PG_CONFIG ?= pg_config

# The scripted targets stand before PGXS's own.
.DEFAULT_GOAL := all

# These run scripts that install what is missing, so they must work before there is a pg_config.
SCRIPTED = test chaos demo bench instructions matrix coverage lint format
.PHONY: $(SCRIPTED) check-symbols dist

test:
	@test/run

# crashes servers under load for as long as you like; make test has a short run: test/chaos/README.md
chaos:
	@test/chaos/run

# the same tests with a build that counts executed lines; prints the coverage of src/
coverage:
	@COVERAGE=1 test/run

# the same tests on the PostgreSQL of newer Debian releases, in chroots (root only)
matrix:
	@test/matrix

demo:
	@demo/run

# against other ways to count likes, and against not counting: bench/README.md; FULL=1 takes hours
bench:
	@bench/run

# instructions per call, which repeat where times do not
instructions:
	@bench/instructions

lint:
	@scripts/lint

format:
	clang-format -i src/*.cpp src/*.hpp

ifneq (,$(filter-out $(SCRIPTED),$(or $(MAKECMDGOALS),all)))

PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq (,$(PGXS))
$(error no $(PG_CONFIG): install the server headers (Debian: postgresql-server-dev-15) or set PG_CONFIG)
endif

OBJS       = $(patsubst %.cpp,%.o,$(sort $(wildcard src/*.cpp)))
DATA_built = sql/$(EXTENSION)--$(EXTVERSION).sql
DATA       = $(wildcard sql/$(EXTENSION)--*--*.sql)

# PostgreSQL's headers as system headers: -Wextra is for our code, not for theirs.  Before 16 they leave PGDLLEXPORT
# empty, which -fvisibility=hidden would turn into a library without entry points.
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server) \
	-DLIKECOUNT_VERSION='"$(EXTVERSION)"' \
	-DPGDLLEXPORT='__attribute__((visibility("default")))'

# No exceptions, no RTTI, no guards around statics: ereport(ERROR) jumps over frames, and nothing of libstdc++ is linked.
# The headers of PostgreSQL 15 say `register`, which C++17 dropped.
PG_CXXFLAGS = -std=c++17 -fno-exceptions -fno-rtti -fno-threadsafe-statics -fvisibility=hidden \
	-Wall -Wextra -Wno-register

# PostgreSQL was configured with gcc; clang does not know all of its options.
ifneq (,$(findstring clang,$(CC) $(CXX)))
PG_CFLAGS   += -Wno-unknown-warning-option -Wno-ignored-optimization-argument
PG_CXXFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument
endif

# DEBUG=1: assertions (a server without them supports that) and LIKECOUNT_DEBUG_POINT, where isolation specs hold a backend
ifdef DEBUG
PG_CPPFLAGS += -DLIKECOUNT_DEBUG -DUSE_ASSERT_CHECKING
PG_CXXFLAGS += -O0 -g
endif

# WERROR=1: for make lint; users have compilers that we have not seen
ifdef WERROR
PG_CXXFLAGS += -Werror
endif

# COVERAGE=1: gcov's counters, written beside the objects when a server process exits
ifdef COVERAGE
PG_CXXFLAGS += --coverage -O0
SHLIB_LINK  += --coverage
endif

REGRESS        = $(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql)))
REGRESS_OPTS   = --inputdir=test --load-extension=likecount --load-extension=pgtap
ISOLATION      = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --load-extension=likecount

EXTRA_CLEAN = src/*.gcno src/*.gcda $(EXTENSION)-$(EXTVERSION).zip

include $(PGXS)

# The rule for bitcode ignores PG_CXXFLAGS.
COMPILE.cxx.bc += $(PG_CXXFLAGS)

# Few and small sources: rebuilding all of them when a header changes is simpler than tracking who includes it.
$(OBJS) $(OBJS:.o=.bc): $(wildcard src/*.hpp) Makefile $(EXTENSION).control

$(DATA_built): sql/$(EXTENSION).sql $(EXTENSION).control
	cp $< $@

# The library exports what PostgreSQL looks up by name, and needs nothing of the C++ run-time library.
check-symbols: all
	@nm -D --defined-only $(shlib) | awk '{ print $$NF }' \
	  | grep -Ev '^(likecount_.*|pg_finfo_likecount_.*|_PG_init|Pg_magic_func|_init|_fini)$$' \
	  | { ! grep . ; } || { echo '$(shlib) exports the symbols above, it must not' >&2; exit 1; }
	@nm -D --undefined-only $(shlib) | awk '{ print $$NF }' | grep -E '^(_Z|__cxa_|__gxx_)' \
	  | { ! grep -v '^__cxa_finalize' ; } || { echo '$(shlib) needs the C++ run-time symbols above, it must not' >&2; exit 1; }
	@nm -D --defined-only $(shlib) | grep -q ' Pg_magic_func$$' || { echo '$(shlib) does not export Pg_magic_func' >&2; exit 1; }

# the archive that PGXN takes
dist:
	git archive --format=zip --prefix=$(EXTENSION)-$(EXTVERSION)/ -o $(EXTENSION)-$(EXTVERSION).zip HEAD

endif
