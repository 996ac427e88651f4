/*
 * worker.cpp: the process that flushes one database.
 *
 * A worker is started by the launcher (launcher.cpp) and serves its database until there is nothing
 * to do for likecount.idle_timeout.  It takes turns.  A turn flushes (one transaction), empties
 * segments that have grown (another), and carries out one step of adoption, repair or backfill
 * (another); then the worker waits until likecount.flush_interval has passed since the turn began.
 * A turn that left deltas behind because its batch was full is followed by the next one at once. No
 * transaction is open while it waits.
 *
 * Before every turn the worker sets asleep, and clears it again when the turn found work.  When it
 * found none, whoever commits a delta afterwards sees asleep and wakes it, so it can wait without a
 * time-out, and without a transaction, until it is time to leave (shmem.cpp states the protocol).
 * It waits with a time-out while something is to be done that cannot be done yet: a recount whose
 * locks are taken, an adoption that waits for older writers, or a prepared transaction that holds
 * deltas, since COMMIT PREPARED may come from a process that wakes nobody (logical replication), and while slots of direct
 * mode are not quiet for long enough to be folded.
 *
 * Leaving loses nothing.  asleep tells: if it is 0 when the process has gone, somebody counts on
 * it, and the exit callback asks for another worker.  The callback runs after the process has left
 * the proc array, so that "no worker" means that DROP DATABASE will find none, and all its locks
 * are released.
 *
 * A transaction of the worker first locks the extension, which DROP EXTENSION takes exclusively
 * before it touches any member, and looks whether it is there.  It never waits for that lock, nor
 * for any other that a user's transaction may hold, but for a moment for the slots of a counter
 * (flush.cpp).  So a DROP EXTENSION waits for a turn at most, and no member vanishes under a turn.
 *
 * There is no PG_TRY here: an error ends the process, and the launcher starts another one later.
 * SIGTERM is die, SIGUSR1 is the server's own: every wait and every loop answers interrupts, so
 * that commands that want an answer of every process (DROP DATABASE of any database) get it.
 *
 * The worker depends on no setting that ALTER DATABASE or ALTER ROLE can change: it overrides those
 * that matter, with a source that a reload does not undo.
 */
#include "worker.hpp"

#include "flush.hpp"
#include "fold.hpp"
#include "init.hpp"
#include "launcher.hpp"
#include "queue.hpp"
#include "slots.hpp"

namespace likecount
{
namespace
{
/* How long a busy worker may go on when others wait for one. */
constexpr int64 kShareMs = 2000;
/*
 * Adoption, repair and backfill get a step in every turn without work, and in a busy worker this
 * often.
 */
constexpr int64 kUpkeepMs = 1000;
/*
 * When something cannot be done yet: look again after the first, then twice as long each time, up
 * to the second.
 */
constexpr int64 kFirstPollMs = 100;
constexpr int64 kLongestPollMs = 10 * 1000;
/* A prepared transaction holds deltas. */
constexpr int64 kPreparedPollMs = 1000;

DatabaseShared *my_entry = nullptr;

/* What a turn found. */
struct Turn
{
	bool absent;   /* the extension is not installed */
	bool worked;   /* there was something to do, or what there is could not be seen */
	bool more;	   /* and there is more that can be done at once */
	int64 poll_ms; /* nothing to do now, but look again after this; 0: when woken */
	int64 fold_ms; /* the same, for slots to fold */
};

/* The worker's pace between turns. */
struct Pace
{
	TimestampTz worked_at;
	TimestampTz upkeep_at;
	bool upkeep_more;
	int64 poll_ms;
	int32 passed_over; /* by the last flush: a counter, 0: none */
};

enum class Begun : uint8
{
	kYes,
	kAbsent, /* the extension is not installed */
	kLocked, /* it is being dropped */
};

void
PinSettings()
{
	static constexpr const char *kPinned[][2] = {
		{"role", "none"},
		{"search_path", "pg_catalog, pg_temp"},
		{"session_replication_role", "origin"},
		{"row_security", "off"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"lock_timeout", "0"},
		{"statement_timeout", "0"},
		{"transaction_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		/* A crash that undoes a flush brings back the deltas. */
		{"synchronous_commit", "off"},
		{"default_tablespace", ""},
		{"temp_tablespaces", ""},
		{"default_table_access_method", "heap"},
		{"check_function_bodies", "on"},
		{"transform_null_equals", "off"},
		{"datestyle", "ISO, MDY"},
		{"intervalstyle", "postgres"},
		{"bytea_output", "hex"},
		{"extra_float_digits", "1"},
		/* Short statements all. */
		{"jit", "off"},
	};

	/*
	 * ALTER DATABASE ... SET session_authorization is possible, too.  Role names are looked up in a
	 * transaction.
	 */
	if (GetSessionUserId() != GetAuthenticatedUserId())
	{
		StartTransactionCommand();
		SetConfigOption("session_authorization", GetUserNameFromId(GetAuthenticatedUserId(), false),
						PGC_SUSET, PGC_S_OVERRIDE);
		CommitTransactionCommand();
	}
	for (auto &pinned : kPinned)
		if (GetConfigOption(pinned[0], true, false) != nullptr)
			SetConfigOption(pinned[0], pinned[1], PGC_SUSET, PGC_S_OVERRIDE);
}

/* Reports to the registry; false: this process is not wanted. */
bool
Enter(Oid database)
{
	bool entered = false;

	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	DatabaseShared *entry = FindDatabase(database, false);

	if (entry != nullptr)
	{
		entry->starting = false;
		if (entry->worker_pid == 0 && entry->barred == 0 && guc_worker)
		{
			entry->worker_pid = MyProcPid;
			entry->worker_latch = MyLatch;
			entry->worker_since = GetCurrentTimestamp();
			entry->worker_starts++;
			entry->wanted_since = 0;
			entry->give_way = false;
			pg_atomic_write_u32(&entry->asleep, 0);
			my_entry = entry;
			entered = true;
			/* Others may wait already: only now can it ask us to give way. */
			WakeLauncher();
		}
	}
	LWLockRelease(RegistryLock());
	return entered;
}

/* Ends the step's transaction. */
void
End()
{
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	CommitTransactionCommand();
	debug_query_string = nullptr;
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, nullptr);
}

/*
 * Begins a transaction in which the extension cannot be dropped, with an active snapshot.  Unless
 * the answer is kYes, it has ended again.
 */
Begun
Begin(const char *what)
{
	Begun begun = Begun::kAbsent;
	const Members *m;

	SetCurrentStatementStartTimestamp();
	debug_query_string = what;
	pgstat_report_activity(STATE_RUNNING, what);
	StartTransactionCommand();

	m = FindMembers();
	if (m != nullptr)
	{
		Oid extension = m->extension;
		LOCKTAG tag;

		SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, extension, 0);
		if (LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
			begun = Begun::kLocked;
		else
		{
			/* It may have been dropped, and created anew, before we had the lock. */
			AcceptInvalidationMessages();
			m = FindMembers();
			if (m != nullptr)
				begun = m->extension == extension ? Begun::kYes : Begun::kLocked;
		}
	}

	if (begun == Begun::kYes)
		PushActiveSnapshot(GetTransactionSnapshot());
	else
		End();
	return begun;
}

/*
 * True while a prepared transaction holds deltas: it has written to the journal and so has locked a
 * segment.
 */
bool
PreparedDeltas()
{
	const Members *m = FindMembers();

	if (max_prepared_xacts == 0 || m == nullptr)
		return false;
	for (Oid segment : m->journal)
	{
		LOCKTAG tag;
		int count;

		SET_LOCKTAG_RELATION(tag, MyDatabaseId, segment);
		VirtualTransactionId *holders = GetLockConflicts(&tag, AccessExclusiveLock, &count);

		for (int i = 0; i < count; i++)
			if (IsPrepared(holders[i]))
				return true;
	}
	return false;
}

/* One step of what is not flushing. */
void
UpkeepStep(Turn *turn, Pace *pace)
{
	if (Begin("likecount: upkeep") != Begun::kYes)
		return;
	pace->upkeep_more = Upkeep(false);
	if (pace->upkeep_more)
		turn->worked = turn->more = true;
	else if (!turn->worked)
	{
		if (UpkeepWanted())
			turn->poll_ms = Min(Max(2 * pace->poll_ms, kFirstPollMs), kLongestPollMs);
		else if (PreparedDeltas())
			turn->poll_ms = kPreparedPollMs;
		turn->fold_ms = FoldWaitMs();
	}
	End();
	pace->upkeep_at = GetCurrentTimestamp();
}

Turn
TakeTurn(Pace *pace)
{
	Turn turn = {};
	bool grown = false;

	switch (Begin("likecount: flush"))
	{
		case Begun::kAbsent:
			turn.absent = true;
			return turn;
		case Begun::kLocked:
			turn.worked = true;
			return turn;
		case Begun::kYes:
			break;
	}

	if (pace->passed_over != 0)
		WaitInLine(pace->passed_over);
	FlushResult flushed = Flush(false, false);

	pace->passed_over = flushed.passed_over;
	if (flushed.ran)
		grown = SegmentsWantTruncation();
	End();
	turn.more = flushed.ran && flushed.full;
	turn.worked = !flushed.ran || !flushed.drained || flushed.deltas + flushed.discarded > 0;

	if (grown && Begin("likecount: emptying of segments") == Begun::kYes)
	{
		TruncateConsumedSegments();
		End();
	}
	if (!turn.worked || pace->upkeep_more ||
		GetCurrentTimestamp() >= TimestampTzPlusMilliseconds(pace->upkeep_at, kUpkeepMs))
		UpkeepStep(&turn, pace);
	return turn;
}

/*
 * True when the worker has to leave now.  *share_ms: how long a busy one may go on, -1: as long as
 * it likes.
 */
bool
MustLeave(bool busy, int64 *share_ms)
{
	*share_ms = -1;
	LWLockAcquire(RegistryLock(), LW_SHARED);
	bool leave = my_entry->barred > 0 || !guc_worker;

	if (my_entry->give_way)
	{
		int64 ran_ms = (GetCurrentTimestamp() - my_entry->worker_since) / 1000;

		*share_ms = Max(kShareMs - ran_ms, 0);
		leave |= !busy || *share_ms == 0;
	}
	LWLockRelease(RegistryLock());
	return leave;
}

/* Ends the process.  unfinished: another worker has to take over. */
void
Leave(bool unfinished)
{
	if (unfinished)
		pg_atomic_write_u32(&my_entry->asleep, 0);
	proc_exit(0);
}

/*
 * Waits for the next turn, and answers whatever wants to be answered meanwhile.  A busy worker
 * waits for the end of its interval; an idle one until it is woken, has to poll, or has been idle
 * long enough to leave.
 */
void
Rest(const Turn &turn, const Pace &pace, TimestampTz turn_start, uint32 wait_event)
{
	bool busy = turn.worked;
	/* What can't be done yet is not done: if it has to leave, another worker has to come back for that. */
	int64 poll_ms = turn.fold_ms == 0 || (turn.poll_ms != 0 && turn.poll_ms < turn.fold_ms)
						? turn.poll_ms
						: turn.fold_ms;
	bool unfinished = busy || poll_ms != 0;

	for (;;)
	{
		TimestampTz now;
		TimestampTz until;
		int64 share_ms;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (MustLeave(unfinished, &share_ms))
			Leave(unfinished || !guc_worker);
		if (turn.more || (!busy && pg_atomic_read_u32(&my_entry->asleep) == 0))
			return;

		now = GetCurrentTimestamp();
		if (busy)
			until = TimestampTzPlusMilliseconds(turn_start, guc_flush_interval);
		else if (poll_ms != 0)
			until = TimestampTzPlusMilliseconds(turn_start, poll_ms);
		else
			until =
				TimestampTzPlusMilliseconds(pace.worked_at, guc_idle_timeout * INT64CONST(1000));
		if (now >= until)
		{
			if (!busy && poll_ms == 0)
				Leave(false);
			return;
		}
		if (share_ms >= 0)
			until = Min(until, TimestampTzPlusMilliseconds(now, share_ms));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 TimestampDifferenceMilliseconds(now, until) + 1, wait_event);
	}
}

void
Serve()
{
	uint32 wait_event = WaitEventExtensionNew("LikecountWorker");
	Pace pace = {};

	pace.worked_at = GetCurrentTimestamp();
	for (;;)
	{
		TimestampTz turn_start = GetCurrentTimestamp();

		/* Who commits from now on either is seen by this turn or wakes us. */
		pg_atomic_write_u32(&my_entry->asleep, 1);
		pg_memory_barrier();

		Turn turn = TakeTurn(&pace);

		if (turn.absent)
			Leave(false);
		if (turn.worked)
		{
			pg_atomic_write_u32(&my_entry->asleep, 0);
			pace.worked_at = GetCurrentTimestamp();
		}
		pace.poll_ms = turn.worked ? 0 : turn.poll_ms;
		Rest(turn, pace, turn_start, wait_event);
	}
}
} // namespace
} // namespace likecount

extern "C"
{
static void LikecountWorkerExit(int code, Datum database);
PGDLLEXPORT void likecount_worker_main(Datum main_arg);
}

/* Runs when the process has left the proc array and holds no lock any more. */
static void
LikecountWorkerExit(int code, Datum database)
{
	using namespace likecount;

	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	DatabaseShared *entry = FindDatabase(DatumGetObjectId(database), false);

	if (entry != nullptr && entry->worker_pid == MyProcPid)
	{
		entry->worker_pid = 0;
		entry->worker_latch = nullptr;
		entry->give_way = false;
		if (code != 0 && entry->barred == 0)
			NoteFailure(entry, (GetCurrentTimestamp() - entry->worker_since) / 1000);
		else if (code == 0)
			entry->failures = 0;
		if (code != 0 || pg_atomic_read_u32(&entry->asleep) == 0)
			WantWorker(entry);
		ReleaseDatabase(entry, false);
	}
	WakeLauncher();
	LWLockRelease(RegistryLock());
}

void
likecount_worker_main(Datum main_arg)
{
	using namespace likecount;

	SetIsWorker();
	/*
	 * Before connecting: callbacks run in reverse order, and this one has to come after the
	 * server's own.
	 */
	on_shmem_exit(LikecountWorkerExit, main_arg);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (!Enter(DatumGetObjectId(main_arg)))
		proc_exit(0);
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(main_arg), InvalidOid, 0);
	PinSettings();
	Serve();
}
