/*
 * repair_set.pml: does repair find every post whose deltas a crash took away?
 *
 * It looks at {posts with liked_at >= watermark} and {posts in the journal}, and keeps what it found in _repair_todo.
 * README.md says which code each step stands for, and what each macro takes away.
 *
 * One post.  A row is fresh when its liked_at is not older than the stored watermark; that a delta in the queue
 * has a fresh row at its commit, and as long as no flush has taken it, is what watermark.pml shows.
 *
 * A crash is no step.  What it would find is checked after every commit, and the model begins after one, with the
 * queue empty and the sentinel gone, in any state of the logged tables that passes this check.  So it covers crashes
 * at any moment, also during a repair.  The number of transactions, flushes and repairs has no bound.
 */
#ifndef PENDING
#define PENDING 2		/* rows that queue, and journal, can have */
#endif

mtype = { none, old, fresh };
mtype row[2] = none;
bool locked[2];			/* by a flush that has deleted the row and has not committed */

/* Rows of queue and journal, counted by their delta; seen: by the snapshot of the flush under way. */
#define MINUS 0
#define ZERO 1
#define PLUS 2
byte queue[3], queue_seen[3];
byte journal[3], journal_seen[3];

short total;
bool todo;				/* the post is in _repair_todo */
bool sentinel;
bool started;
bool seen[2];			/* the row, as it is, by that snapshot */

#define ROWS(a) (a[MINUS] + a[ZERO] + a[PLUS])
#define SUM(a) (a[PLUS] - a[MINUS])
#define QUEUE_ROWS (ROWS(queue) + ROWS(queue_seen))
#define JOURNAL_ROWS (ROWS(journal) + ROWS(journal_seen))
#define QUEUE_SUM (SUM(queue) + SUM(queue_seen))
#define JOURNAL_SUM (SUM(journal) + SUM(journal_seen))
#define COUNT ((row[0] != none) + (row[1] != none))
#define DRIFT (COUNT - total - QUEUE_SUM - JOURNAL_SUM)

#define ANY_FRESH (row[0] == fresh || row[1] == fresh)
#define FOUND (ANY_FRESH || JOURNAL_ROWS > 0 || todo)

inline check()
{
	/* A crash now: without the queue the drift is this. */
	assert(DRIFT + QUEUE_SUM == 0 || FOUND);
	/* Once the sentinel is back nobody looks any more. */
	assert(!sentinel || DRIFT == 0 || todo)
}

/* What a user's transaction does to a row that it may touch. */
#define CHANGE(condition, now) row[i] condition && !locked[i] -> row[i] = now; seen[i] = false
#define TO_QUEUE QUEUE_ROWS < PENDING
#define TO_JOURNAL JOURNAL_ROWS < PENDING

/* Transactions of users.  Each is its commit: what it wrote becomes visible, and durable, together. */
active proctype Users()
{
	byte i;

	started;
	do
	:: i = 1 - i
	/* like */
	:: d_step { TO_QUEUE && CHANGE(== none, fresh); queue[PLUS]++; check() }
	/* a back-dated one, or any that may not take the queue */
#ifdef OLD_TO_QUEUE
	:: d_step { TO_QUEUE && CHANGE(== none, old); queue[PLUS]++; check() }
#endif
	:: d_step { TO_JOURNAL && CHANGE(== none, old); journal[PLUS]++; check() }
	/* unlike */
#ifdef UNLIKE_TO_QUEUE
	:: d_step { TO_QUEUE && CHANGE(!= none, none); queue[MINUS]++; check() }
#else
	:: d_step { TO_JOURNAL && CHANGE(!= none, none); journal[MINUS]++; check() }
#endif
	/* liked_at is changed */
#ifdef NO_MARK_MOVED
	:: d_step { CHANGE(!= none, old); check() }
#else
	:: d_step { TO_JOURNAL && CHANGE(!= none, old); journal[ZERO]++; check() }
#endif
	/* deleted, and another one inserted: net 0 */
#ifdef NO_MARK_SWAPPED
	:: d_step { CHANGE(!= none, old); check() }
#else
	:: d_step { TO_JOURNAL && CHANGE(!= none, old); journal[ZERO]++; check() }
#endif
	od
}

/* What a snapshot sees; and what a flush has left is put back. */
#define MOVE_ONE(n, from, to) to[n] = to[n] + from[n]; from[n] = 0
#define MOVE(from, to) MOVE_ONE(MINUS, from, to); MOVE_ONE(ZERO, from, to); MOVE_ONE(PLUS, from, to)

/* Takes all of the rows, or some. */
#define DRAIN(rows) \
	do \
	:: rows[MINUS] > 0 -> rows[MINUS]--; total-- \
	:: rows[ZERO] > 0 -> rows[ZERO]-- \
	:: rows[PLUS] > 0 -> rows[PLUS]--; total++ \
	:: break \
	od

/* The watermark passes a row, perhaps. */
inline age(n)
{
	if
	:: seen[n] && row[n] == fresh -> row[n] = old
	:: true
	fi
}

/* Whoever holds the flush lock. */
active proctype Flusher()
{
	bool checked, found, own, own_row, all;
	short drift, count;

	started;
begin:
	if
	:: sentinel && todo -> goto repair
	:: true				/* a flush */
	/* flush() in a transaction that has an unlike of its own */
	:: atomic { TO_JOURNAL && row[0] != none -> own_row = 0; own = true; locked[0] = true }
	:: atomic { TO_JOURNAL && row[1] != none -> own_row = 1; own = true; locked[1] = true }
	fi;

#ifdef SENTINEL_FIRST
	d_step { sentinel = true; check() }
#endif
	/* The sentinel is looked for, and what a crash can have taken is collected in one snapshot. */
	if
	:: sentinel
#ifdef DRAIN_FIRST
	:: !sentinel
#endif
	:: !sentinel ->
#ifdef TWO_SNAPSHOTS_COLLECT
		found = JOURNAL_ROWS > 0;
#define IN_JOURNAL false
#else
#define IN_JOURNAL JOURNAL_ROWS > 0
#endif
		d_step { found = found || IN_JOURNAL || ANY_FRESH; checked = true }
	fi;

	/* The snapshot. */
#ifdef TWO_SNAPSHOTS_FLUSH
	d_step { MOVE(queue, queue_seen) }
#endif
	d_step
	{
#ifndef TWO_SNAPSHOTS_FLUSH
		MOVE(queue, queue_seen);
#endif
		MOVE(journal, journal_seen);
		seen[0] = (row[0] != none);
		seen[1] = (row[1] != none)
	}

	atomic
	{
		if
		:: true ->			/* commit */
			DRAIN(queue_seen);
			all = (ROWS(queue_seen) == 0);
			if
			:: all -> DRAIN(journal_seen); all = (ROWS(journal_seen) == 0)
#ifdef JOURNAL_FIRST
			:: !all -> DRAIN(journal_seen)
#endif
			:: else
			fi;
			if
			:: own ->
				row[own_row] = none;
				if
#ifdef OWN_FIRST
				:: total--
#else
				:: all -> total--
#endif
				:: journal[MINUS]++		/* not taken: appended at pre-commit */
				fi
			:: else
			fi;
			if
#ifndef ADVANCE_UNDRAINED
			:: all ->
#else
			:: true ->
#endif
				age(0); age(1)
			:: else
			fi;
			if
			:: checked -> sentinel = true; todo = todo || found
			:: else
			fi
		:: true				/* rollback */
		fi;
		MOVE(queue_seen, queue);
		MOVE(journal_seen, journal);
		seen[0] = false; seen[1] = false; locked[0] = false; locked[1] = false;
		all = false; own = false; own_row = false; checked = false; found = false;
		check()
	}
	goto begin;

repair:
#ifdef STRIKE_EARLY
	atomic { todo = false; check() }
#endif
	/* The snapshot of the recount. */
	atomic { drift = DRIFT; count = COUNT }
	atomic
	{
		if
		:: true ->			/* commit */
			todo = false;
#ifdef RECOUNT_SETS
			total = count;
#else
			do
			:: drift > 0 -> journal[PLUS]++; drift--
			:: drift < 0 -> journal[MINUS]++; drift++
			:: else -> break
			od;
#endif
			check()
		:: true				/* rollback */
		fi;
		drift = 0; count = 0;
		goto begin
	}
}

/* A crash has been: any logged state that passes check(). */
init
{
	short drift;

	atomic
	{
		if
		:: true
		:: row[0] = old
		:: row[0] = fresh
		fi;
		if
		:: true
		:: row[1] = old
		:: row[1] = fresh
		fi;
		if
		:: true
		:: journal[MINUS] = 1
		:: journal[ZERO] = 1
		:: journal[PLUS] = 1
		fi;
		if
		:: todo = false
		:: todo = true
		fi;
		if
		:: true
		:: FOUND -> drift = 1
		:: FOUND -> drift = -1
		fi;
		total = COUNT - JOURNAL_SUM - drift;
		drift = 0;
		started = true
	}
}
