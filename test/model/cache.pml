/*
 * cache.pml: does the cache of totals ever give a total that is not the current one?
 *
 * One entry, two posts that hash to it, writers that change their slots, readers that find, or read and store.
 * README.md says which code each step stands for, and what each macro takes away.  Totals only grow, so a reader knows
 * what it may get: not less than what was committed when it began, and not more than what is when it ends.
 */
#ifndef WRITERS
#define WRITERS 1
#endif
#ifndef READERS
#define READERS 2
#endif
#ifndef CHANGES
#define CHANGES 1		/* transactions of each writer */
#endif
#ifndef READS
#define READS 2			/* of each reader */
#endif

byte committed[2];		/* the totals that a snapshot sees */

/* The entry. */
byte under_way, ended;
byte version;
byte key;
byte total;
byte at_ended;

bool filled;			/* for the first time */

#ifdef NO_IDLE
#define IDLE true
#else
#define IDLE (under_way == 0)
#endif

active [WRITERS] proctype Writer()
{
	byte post, left = CHANGES;

	do
	:: left > 0 ->
		left--;
		if
		:: post = 0
		:: post = 1
		fi;
#if !defined(UNDER_WAY_LATE) && !defined(NO_UNDER_WAY)
		under_way++;
#endif
#ifdef ENDED_EARLY
		d_step { under_way--; ended++ }
#endif
		/* leaves the proc array */
		if
		:: committed[post]++
		:: true			/* rolled back */
		fi;
#ifdef UNDER_WAY_LATE
		under_way++;
#endif
#ifdef NO_UNDER_WAY
		ended++
#else
#ifndef ENDED_EARLY
		d_step { under_way--; ended++ }
#endif
#endif
	:: else -> break
	od;
	post = 0
}

active [READERS] proctype Reader()
{
	byte post, least, value, was_version, count, snapshot[2], old_version;
	byte left = READS;
	bool hit, store;

again:
	atomic
	{
		if
		:: post = 0
		:: post = 1
		fi;
		least = committed[post];
		hit = false; store = false
	}
#ifdef STATEMENT_SNAPSHOT
	/* that of the statement, from before the entry was looked at */
	d_step { snapshot[0] = committed[0]; snapshot[1] = committed[1] }
#endif
#ifdef COUNT_LATE
	d_step { snapshot[0] = committed[0]; snapshot[1] = committed[1] }
#endif
	d_step { count = ended; store = IDLE }

	/* finds: each field by itself */
	if
	:: store && filled ->
		was_version = version;
		value = total;
		hit = (at_ended == count && key == post);
#ifndef NO_VERSION
		hit = hit && (was_version % 2 == 0) && (version == was_version)
#endif
	:: else
	fi;
	if
	:: !hit ->
#if !defined(STATEMENT_SNAPSHOT) && !defined(COUNT_LATE)
		d_step { snapshot[0] = committed[0]; snapshot[1] = committed[1] };
#endif
		value = snapshot[post];
		if
		:: store ->
#ifdef NO_LOCK
			version++;
#else
			/* the version is one writer's at a time */
			atomic
			{
				old_version = version;
				if
				:: version % 2 == 0 -> version++
				:: else -> goto done
				fi
			};
#endif
#ifdef COUNT_OF_STORE
			count = ended;
#endif
			total = value;
			d_step { key = post; at_ended = count };
			d_step { filled = true; version++ }
		:: else
		fi
	:: else
	fi;
done:
	skip;
	/* What a statement's own snapshot has is right, even if newer is there; what the cache gives must be of now. */
	d_step
	{
		assert(value >= least);
		assert(value <= committed[post]);
		value = 0; count = 0; was_version = 0; old_version = 0; store = false; hit = false; snapshot[0] = 0; snapshot[1] = 0; least = 0
	}
	left--;
	if
	:: left > 0 -> goto again
	:: else
	fi
}
