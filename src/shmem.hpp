/*
 * shmem.hpp: everything that processes share in memory (see shmem.cpp).
 */
#pragma once

#include "pg.hpp"

namespace likecount
{
/*
 * Cumulative numbers of a database, each written by the holder of the flush lock or by the worker,
 * read by anyone.
 */
struct StatsShared
{
	pg_atomic_uint64 flushes;
	pg_atomic_uint64 deltas;
	pg_atomic_uint64 posts;
	pg_atomic_uint64 discarded;
	pg_atomic_uint64 rejected;
	pg_atomic_uint64 truncations;	/* segments emptied in place */
	pg_atomic_uint64 errors;		/* workers that ended with an error */
	pg_atomic_uint64 last_flush_at; /* TimestampTz */
	pg_atomic_uint64 last_flush_us;
	pg_atomic_uint64 reset_at; /* TimestampTz */
};

/*
 * One database in which likecount is used, or which the launcher looks at.  Plain fields are read
 * and written under RegistryLock(), also those that a reader could get away without.
 */
struct DatabaseShared
{
	Oid database; /* InvalidOid: the entry is free */
	bool used;	  /* a backend keeps its address: the entry lives as long as the database */

	pid_t worker_pid;		  /* 0: none */
	Latch *worker_latch;	  /* of worker_pid */
	TimestampTz worker_since; /* start of the worker, also of the last one */
	uint32 worker_starts;
	bool starting;	 /* the launcher has registered a worker that has not reported yet */
	bool give_way;	 /* other databases wait for a worker: this one has had its share */
	uint32 failures; /* workers in a row that ended with an error soon after they started */

	TimestampTz wanted_since; /* a worker has been asked for; 0: no */
	TimestampTz not_before;	  /* back-off: start no worker earlier */
	int barred; /* commands under way that need the database alone and keep the worker out */

	/*
	 * OID of the _watermark table for which the queue may be used; 0: journal only.  Set by a flush
	 * after its commit.
	 */
	pg_atomic_uint32 ready;
	/* Highest clock value that a flush of this database has raised; TimestampTz. */
	pg_atomic_uint64 clock_high;
	/*
	 * 1: the worker sleeps, or there is none; whoever commits a delta has to wake it or to ask for
	 * one.
	 */
	pg_atomic_uint32 asleep;
	/* Waiting for the emptying of a segment: pid of a process that blocks it, 0: none. */
	pg_atomic_uint32 blocked_by;

	StatsShared stats;
};

/* True in a worker of ours; a worker sets it first of all. */
extern bool IsWorker();
extern void SetIsWorker();

/* True when the library was preloaded, so that shared memory, launcher and hooks exist. */
extern bool Preloaded();

/* Hooks into shared-memory start-up; called once from _PG_init when preloading. */
extern void ShmemInit();

/*
 * This database's entry; with create, made when missing.  nullptr: not preloaded, none yet, or the
 * registry is full.
 */
extern DatabaseShared *MyDatabase(bool create);

/*
 * The watermark protocol (EXACTNESS A13).  A backend publishes the smallest liked_at that it is
 * about to append to the queue, then reads clock_high; a flush raises clock_high, then reads what
 * is published, then takes its snapshot.  Each function has the full barrier between the two steps.
 */
/* The watermark trails the clock by this much, so that a clock that steps back a little costs nothing. */
constexpr int64 kWatermarkSlack = INT64CONST(60) * USECS_PER_SEC;
constexpr int64 kNothingPublished = PG_INT64_MAX;
/* Publishes, and returns clock_high as read afterwards. */
extern TimestampTz PublishLikedAt(DatabaseShared *database, TimestampTz liked_at);
/* Takes it back; after the transaction has left the proc array. */
extern void UnpublishLikedAt();
/*
 * Raises clock_high to at least now and returns its value; *published is the smallest published
 * afterwards.
 */
extern TimestampTz RaiseClock(DatabaseShared *database, TimestampTz now, TimestampTz *published);

/*
 * Wakes this database's worker if it sleeps; asks the launcher for one if there is none.  Cannot
 * fail; for commit callbacks.
 */
extern void WakeWorker();
/*
 * Makes WakeWorker run when the current transaction has committed, or has been prepared.  Also from
 * PRE_COMMIT callbacks.
 */
extern void WakeWorkerAtCommit();

/*
 * What the launcher, the worker and the utility hook share; the calls that take an Oid want
 * RegistryLock() held.
 */

/* How many databases can be registered at once. */
constexpr int kMaxDatabases = 1024;

/* Protects the registry.  nullptr: not preloaded. */
extern LWLock *RegistryLock();
/* Number i of kMaxDatabases entries, free ones included. */
extern DatabaseShared *DatabaseNumber(int i);
/* The entry of a database; with create, made when missing.  nullptr: none, or the registry is full.
 */
extern DatabaseShared *FindDatabase(Oid database, bool create);
/*
 * Frees an entry: always when the database is gone, else only while nobody keeps its address, wants
 * or bars it.
 */
extern void ReleaseDatabase(DatabaseShared *entry, bool gone);
/* Notes that a worker is wanted and wakes the launcher. */
extern void WantWorker(DatabaseShared *entry);

/* Makes the current process the launcher, or, with false, none. */
extern void SetLauncher(bool here);
extern void WakeLauncher();
/* 0: none runs. */
extern pid_t LauncherPid();
} // namespace likecount
