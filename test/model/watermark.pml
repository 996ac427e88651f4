/*
 * watermark.pml: can a delta in the unlogged queue be older than the stored watermark?
 *
 * It must not: a crash empties the queue, and repair looks for its posts among the rows with liked_at >= watermark.
 * README.md says which code each step stands for, and what each macro takes away.
 *
 * A crash is no step.  What it would find is checked whenever something becomes durable, and the model begins
 * where a server starts, in any durable state that passes this check.  Whoever reads a clock gets any value.  The
 * number of transactions and flushes has no bound.
 */
#define SLACK 1			/* kWatermarkSlack */
#ifdef SEED_LOW
#define SEED 0
#else
#define SEED SLACK
#endif
#define NOTHING 15		/* kNothingPublished: later than everything */

#ifndef BACKENDS
#define BACKENDS 2
#endif
#ifndef FLUSHERS
#define FLUSHERS 1		/* more than one share flush_lock */
#endif
#define LEFT BACKENDS	/* the row that the queue had when the server started */
#define ROWS (BACKENDS + 1)

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* The queue: a row of each backend, and the one that was left.  durable: a crash would keep the like. */
mtype = { none, durable, visible };
mtype row[ROWS] = none;
byte liked_at[ROWS];

/* Table _watermark. */
bool stored;
byte watermark;

/* Shared memory. */
bool ready;
byte clock_high;
byte published[BACKENDS] = NOTHING;

/* Held until init has chosen the state to start in. */
bool flush_lock = true;

#define FOUND(i) (row[i] == none || (stored && liked_at[i] >= watermark))

/* What clocks and liked_at can be. */
inline any_time(x)
{
	if
	:: x = 1
	:: x = 2
	:: x = 3
#ifdef FOUR_TIMES
	:: x = 4
#endif
	fi
}

inline check()
{
	assert(FOUND(0) && FOUND(BACKENDS - 1) && FOUND(LEFT))
}

/* The end of a transaction that likes.  What goes to the journal instead needs no watching. */
active [BACKENDS] proctype Backend()
{
	byte now, clock;

transaction:
	atomic
	{
		ready && row[_pid] == none;
		any_time(now);
		liked_at[_pid] = now;
		now = 0
	}
#ifdef READ_BEFORE_PUBLISH
	clock = clock_high;
#endif
#ifndef NO_PUBLISH
	published[_pid] = liked_at[_pid];
#endif
#if !defined READ_BEFORE_PUBLISH && !defined NO_CLOCK_HIGH
	clock = clock_high;
#endif
	atomic
	{
		any_time(now);
		if
		:: liked_at[_pid] + SLACK < MAX(now, clock) -> now = 0; clock = 0; goto end	/* the journal */
		:: else -> now = 0; clock = 0
		fi
	}
	if
	:: d_step { row[_pid] = durable; check() }
	:: goto end		/* an error */
	fi;
#ifdef CLEAR_EARLY
	published[_pid] = NOTHING;
#endif
	row[_pid] = visible;
end:
	atomic
	{
		published[_pid] = NOTHING;
		if
		:: row[_pid] == none -> liked_at[_pid] = 0
		:: else
		fi;
		goto transaction
	}
}

inline raise()
{
	d_step
	{
		clock_high = MAX(clock_high, now);
		clock = clock_high;
		lowering = clock > now + SLACK;
		if
		:: lowering -> clock = now
		:: else
		fi
	}
}

inline read_published()
{
	smallest = MIN(smallest, published[0]);
#if BACKENDS > 1
	smallest = MIN(smallest, published[1])
#endif
}

/* Takes what is visible: all of it or, with a full batch or a locked counter, some. */
inline drain()
{
	atomic
	{
		drained = true;
		i = 0;
		do
		:: i == ROWS -> break
		:: i < ROWS && row[i] == visible -> taken[i] = true; i++
		:: i < ROWS && row[i] == visible && !taken[i] -> drained = false; i++
		:: i < ROWS && row[i] != visible -> i++
		od;
		i = 0
	}
}

/* A transaction that flushes, once or several times. */
active [FLUSHERS] proctype Flusher()
{
	bool taken[ROWS];
	bool has, lowering, drained, allow;
	byte new, now, clock, smallest, lower, i;

transaction:
	atomic
	{
		!flush_lock -> flush_lock = true;
		has = stored;
		new = watermark
	}

flush:
	smallest = NOTHING;
#ifdef SLOTS_BEFORE_RAISE
	read_published();
#endif
	atomic
	{
		any_time(now);
		if
#ifndef NO_SEED
		:: !ready && has -> clock_high = MAX(clock_high, new + SEED)
#endif
		:: else
		fi;
		raise();
		now = 0
	}
#ifdef LOWER_EARLY
	if
	:: lowering -> clock_high = clock
	:: else
	fi;
#endif
#ifdef SNAPSHOT_BEFORE_SLOTS
	drain();
#endif
#ifndef SLOTS_BEFORE_RAISE
	read_published();
#endif
#ifndef SNAPSHOT_BEFORE_SLOTS
	drain();
#endif

	atomic
	{
#ifdef NO_PUBLISHED
		smallest = NOTHING;
#endif
#ifdef ADVANCE_UNDRAINED
		drained = true;
#endif
		smallest = MIN(smallest, clock) - SLACK;
#ifndef STALE_LOWER
		lower = 0;
#endif
		if
		:: lowering ->
			lower = clock;
			if
#ifndef LOWER_ONLY_CLOCK
			:: !has || smallest < new -> has = true; new = smallest
#endif
			:: else
			fi
		:: !lowering && (!has || (drained && smallest > new)) -> has = true; new = smallest
		:: !lowering && has		/* not worth a write */
		fi;
		smallest = 0; clock = 0; lowering = false; drained = false;
		allow = true
	}
#ifdef READY_EARLY
	ready = true;
#endif

next:
	if
	:: goto flush
	:: atomic		/* ROLLBACK TO, or of all, which is the same with an empty commit after it */
		{
			taken[0] = false; taken[BACKENDS - 1] = false; taken[LEFT] = false;
			has = stored; new = watermark;
#ifndef ROLLBACK_LOWERS
			lower = 0;
#endif
#ifndef ROLLBACK_ALLOWS
			allow = false;
#endif
			goto next
		}
	:: atomic		/* commit */
		{
			stored = has;
			watermark = new;
			i = 0;
			do
			:: i < ROWS ->
				if
				:: taken[i] -> row[i] = none; liked_at[i] = 0; taken[i] = false
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0; has = false; new = 0;
			check()
		}
#ifdef UNLOCK_EARLY
		flush_lock = false;
#endif
		if
		:: allow -> ready = true; allow = false
		:: else
		fi;
		if
		:: lower > 0 -> clock_high = lower; lower = 0
		:: else
		fi
	fi;
	atomic
	{
		flush_lock = false;
		goto transaction
	}
}

#ifdef SHARED_CLOCK
/* A flush of another database, with a watermark of its own. */
active proctype OtherDatabase()
{
	byte now;

	do
	:: atomic { any_time(now); clock_high = now; now = 0 }
	od
}
#endif

init
{
	byte any;

	atomic
	{
		if
		:: stored = true;
			any_time(any);
			watermark = any - SLACK;
			if
			:: skip
			:: row[LEFT] = visible;
				any_time(any);
				any = MAX(any, watermark);
				liked_at[LEFT] = any
			fi
		:: skip			/* the queue was never used */
		fi;
#ifdef NO_READY
		ready = true;
#endif
		any = 0;
		flush_lock = false
	}
}
