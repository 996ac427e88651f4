/*
 * launcher.cpp: the process that starts workers.
 *
 * The launcher is registered with the postmaster, starts after recovery and is restarted after 5 s
 * should it ever end.  It is connected to no database; of the shared catalogs it reads pg_database.
 * It alone starts workers, one per database at most and likecount.max_workers in all, and the
 * postmaster never restarts one, so that no twin appears and no dropped database is tried for ever.
 *
 * A database gets a worker when somebody asks: a commit that finds no worker awake (shmem.cpp), or
 * a command that changes what there is to do (ddl.cpp).  Nobody asks after a restart, a failover or
 * the start of likecount itself, so the launcher visits each database once after its own start: it
 * starts a worker, which leaves at once where the extension is not installed.  The visits are
 * wishes like all others, in the order in which they came.
 *
 * States of a database's entry, all under RegistryLock():
 *
 *   wanted_since 0      nothing to do; the next commit asks (asleep is 1)
 *   wanted_since set    waits for its turn, not_before, the end of a bar, or worker = on
 *   starting            registered with the postmaster, has not reported; set by the launcher
 *   worker_pid set      runs; set by the worker, cleared when it has left the proc array
 *   barred > 0          none is started, and the one there leaves
 *
 * A worker that ends with an error stays wanted and waits, 1 s after the first failure and twice as
 * long after each further one, up to 60 s; one that ran well for that long starts anew.  When all
 * workers are taken, the launcher asks those that have run longest to give way to those who wait:
 * an idle one does so at once, a busy one after its share (worker.cpp), and queues again behind the
 * others.  Without a free slot under max_worker_processes the launcher warns once and tries again.
 *
 * With nothing to do the launcher waits on its latch without a time-out.
 */
#include "launcher.hpp"

#include "init.hpp"
#include "worker.hpp"

namespace likecount
{
namespace
{
constexpr int64 kFirstBackoffMs = 1000;
constexpr int64 kLongestBackoffMs = 60 * 1000;
constexpr int64 kLongestRetryMs = 10 * 1000;

/* A worker that must go hears so by its latch, and by SIGTERM when it is still there after this. */
constexpr long kPatienceMs = 500;
/* Then the command itself says who is in its way. */
constexpr long kLongestWaitMs = 10 * 1000;

/* A worker that the postmaster has not reported as stopped yet. */
struct Running
{
	Oid database;
	BackgroundWorkerHandle *handle;
};

Running *running = nullptr;
int running_count = 0;

/* Databases to visit, from the launcher's start. */
Oid *visits = nullptr;
int visit_count = 0;

/* The postmaster had no slot for a worker: when to try again; 0: it had. */
TimestampTz retry_at = 0;
int64 retry_ms = 0;

bool
IsRunning(Oid database)
{
	for (int i = 0; i < running_count; i++)
		if (running[i].database == database)
			return true;
	return false;
}

/* Lists the databases that can be connected to, templates left out, in a transaction of its own. */
void
ListVisits()
{
	HeapTuple tuple;
	int room = 64;

	visits = static_cast<Oid *>(MemoryContextAlloc(TopMemoryContext, room * sizeof(Oid)));

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	Relation relation = table_open(DatabaseRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, nullptr, 0, nullptr);

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		auto form = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));

		/* a limit below -1 marks a database whose DROP was interrupted */
		if (!form->datallowconn || form->datistemplate || form->datconnlimit < -1)
			continue;
		if (visit_count == room)
		{
			room *= 2;
			visits = static_cast<Oid *>(repalloc(visits, room * sizeof(Oid)));
		}
		visits[visit_count++] = form->oid;
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
}

enum class Database
{
	kGone,
	kClosed, /* allows no connections */
	kOpen,
};

/* Looks a database up, in a transaction of its own. */
Database
LookUp(Oid database, NameData *name)
{
	Database found = Database::kGone;
	ScanKeyData key;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	Relation relation = table_open(DatabaseRelationId, AccessShareLock);

	/*
	 * Without a database there may be no index to use: the server reads pg_database itself like
	 * this then.
	 */
	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(database));
	SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, nullptr, 1, &key);
	HeapTuple tuple = systable_getnext(scan);

	if (HeapTupleIsValid(tuple))
	{
		auto form = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));

		found =
			form->datallowconn && form->datconnlimit >= -1 ? Database::kOpen : Database::kClosed;
		*name = form->datname;
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	CommitTransactionCommand();
	return found;
}

/* Forgets the workers that have ended.  One that never reported has failed. */
void
Reap()
{
	for (int i = 0; i < running_count; i++)
	{
		Running &worker = running[i];
		pid_t pid;

		switch (GetBackgroundWorkerPid(worker.handle, &pid))
		{
			case BGWH_STOPPED:
				break;
			case BGWH_POSTMASTER_DIED:
				proc_exit(1);
			default:
				continue;
		}

		LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
		DatabaseShared *entry = FindDatabase(worker.database, false);

		if (entry != nullptr && entry->starting)
		{
			entry->starting = false;
			NoteFailure(entry, 0);
		}
		LWLockRelease(RegistryLock());
		pfree(worker.handle);
		worker = running[--running_count];
		i--;
		/* A slot is free now. */
		retry_at = 0;
	}
}

/* Makes wishes of the visits, as far as there is room in the registry.  RegistryLock() held. */
void
WishVisits()
{
	while (visit_count > 0)
	{
		DatabaseShared *entry = FindDatabase(visits[visit_count - 1], true);

		if (entry == nullptr)
			break;
		if (entry->wanted_since == 0)
			entry->wanted_since = GetCurrentTimestamp();
		visit_count--;
	}
}

/*
 * Asks the workers that have run longest to leave, one for each database that waits. RegistryLock()
 * held.
 */
void
MakeWay(int waiting)
{
	for (int i = 0; i < kMaxDatabases; i++)
		if (DatabaseNumber(i)->worker_pid != 0 && DatabaseNumber(i)->give_way)
			waiting--;

	for (; waiting > 0; waiting--)
	{
		DatabaseShared *longest = nullptr;

		for (int i = 0; i < kMaxDatabases; i++)
		{
			DatabaseShared *entry = DatabaseNumber(i);

			if (entry->worker_pid != 0 && !entry->give_way &&
				(longest == nullptr || entry->worker_since < longest->worker_since))
				longest = entry;
		}
		if (longest == nullptr)
			return;
		longest->give_way = true;
		SetLatch(longest->worker_latch);
	}
}

/*
 * Picks the database whose turn it is and marks it as starting; InvalidOid: none.  *again is then
 * when to look again, 0: when the latch is set.
 */
Oid
PickNext(TimestampTz now, TimestampTz *again)
{
	DatabaseShared *next = nullptr;
	Oid database = InvalidOid;
	int taken = running_count;
	int waiting = 0;

	*again = 0;
	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	WishVisits();
	for (int i = 0; i < kMaxDatabases; i++)
	{
		DatabaseShared *entry = DatabaseNumber(i);

		if (entry->database == InvalidOid || IsRunning(entry->database))
			continue;
		if (entry->worker_pid != 0)
			taken++; /* started by a launcher that is no more */
		else if (entry->wanted_since == 0 || entry->barred > 0)
			continue;
		else if (entry->not_before > now)
			*again = *again == 0 ? entry->not_before : Min(*again, entry->not_before);
		else
		{
			waiting++;
			if (next == nullptr || entry->wanted_since < next->wanted_since)
				next = entry;
		}
	}

	if (next == nullptr)
		;
	else if (taken >= guc_max_workers)
		MakeWay(waiting);
	else if (retry_at > now)
	{
		MakeWay(waiting);
		*again = *again == 0 ? retry_at : Min(*again, retry_at);
	}
	else
	{
		next->starting = true;
		database = next->database;
	}
	LWLockRelease(RegistryLock());
	return database;
}

/* Registers a worker for a database that is marked as starting. */
void
Start(Oid database, const char *name)
{
	BackgroundWorker worker = {};
	BackgroundWorkerHandle *handle;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;
	snprintf(worker.bgw_name, BGW_MAXLEN, "%s for %s", kWorkerType, name);
	snprintf(worker.bgw_type, BGW_MAXLEN, "%s", kWorkerType);
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "%s", kWorkerLibrary);
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "%s", kWorkerEntry);

	bool registered = RegisterDynamicBackgroundWorker(&worker, &handle);

	MemoryContextSwitchTo(old);
	if (registered)
	{
		running[running_count++] = {database, handle};
		retry_at = 0;
		retry_ms = 0;
		return;
	}

	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	DatabaseShared *entry = FindDatabase(database, false);

	if (entry != nullptr)
		entry->starting = false;
	LWLockRelease(RegistryLock());

	if (retry_ms == 0)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no background worker slot is free for a likecount worker"),
				 errdetail("Likes of database \"%s\" are recorded, but not counted until a "
						   "slot is free.",
						   name),
				 errhint("Consider increasing the configuration parameter "
						 "\"max_worker_processes\".")));
	retry_ms = Min(Max(2 * retry_ms, kFirstBackoffMs), kLongestRetryMs);
	retry_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), retry_ms);
}

/*
 * Starts every worker that may be started now.  Returns how long to wait in ms, -1: until the latch
 * is set.
 */
long
StartWorkers()
{
	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz again;
		NameData name;
		Oid database = PickNext(now, &again);

		if (!OidIsValid(database))
			return again == 0 ? -1 : TimestampDifferenceMilliseconds(now, again) + 1;

		Database found = LookUp(database, &name);

		if (found == Database::kOpen)
		{
			Start(database, NameStr(name));
			continue;
		}

		/* Whoever opens it again asks again. */
		LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
		DatabaseShared *entry = FindDatabase(database, false);

		if (entry != nullptr)
		{
			entry->starting = false;
			entry->wanted_since = 0;
			pg_atomic_write_u32(&entry->asleep, 1);
			ReleaseDatabase(entry, found == Database::kGone);
		}
		LWLockRelease(RegistryLock());
	}
}

/* Takes over what an earlier launcher left: nothing is starting any more that will report to us. */
void
TakeOver()
{
	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	for (int i = 0; i < kMaxDatabases; i++)
		DatabaseNumber(i)->starting = false;
	LWLockRelease(RegistryLock());
}
} // namespace
} // namespace likecount

extern "C"
{
static void LikecountLauncherExit(int, Datum);
PGDLLEXPORT void likecount_launcher_main(Datum);
}

static void
LikecountLauncherExit(int, Datum)
{
	likecount::SetLauncher(false);
}

void
likecount_launcher_main(Datum)
{
	using namespace likecount;

	on_shmem_exit(LikecountLauncherExit, 0);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);

	uint32 wait_event = WaitEventExtensionNew("LikecountLauncher");

	running = static_cast<Running *>(
		MemoryContextAlloc(TopMemoryContext, guc_max_workers * sizeof(Running)));
	TakeOver();
	SetLauncher(true);
	ListVisits();

	for (;;)
	{
		Reap();

		long timeout = guc_worker ? StartWorkers() : -1;

		WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout >= 0 ? WL_TIMEOUT : 0),
				  timeout, wait_event);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

namespace likecount
{
void
LauncherRegister()
{
	BackgroundWorker launcher = {};

	launcher.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	launcher.bgw_start_time = BgWorkerStart_RecoveryFinished;
	launcher.bgw_restart_time = 5;
	snprintf(launcher.bgw_name, BGW_MAXLEN, "%s", kLauncherType);
	snprintf(launcher.bgw_type, BGW_MAXLEN, "%s", kLauncherType);
	snprintf(launcher.bgw_library_name, sizeof(launcher.bgw_library_name), "%s", kWorkerLibrary);
	snprintf(launcher.bgw_function_name, BGW_MAXLEN, "likecount_launcher_main");
	RegisterBackgroundWorker(&launcher);
}

void
RequestWorker(Oid database)
{
	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	DatabaseShared *entry = FindDatabase(database, true);

	if (entry != nullptr)
		WantWorker(entry);
	LWLockRelease(RegistryLock());
}

bool
BarWorker(Oid database)
{
	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	DatabaseShared *entry = FindDatabase(database, true);

	if (entry != nullptr)
		entry->barred++;
	LWLockRelease(RegistryLock());
	return entry != nullptr;
}

void
LetWorkerBack(Oid database)
{
	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	DatabaseShared *entry = FindDatabase(database, false);

	if (entry != nullptr && --entry->barred == 0)
	{
		/* The worker that we stopped may have left work behind. */
		if (entry->used || entry->wanted_since != 0)
			WantWorker(entry);
		ReleaseDatabase(entry, false);
	}
	LWLockRelease(RegistryLock());
}

void
ForgetDatabase(Oid database)
{
	LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
	DatabaseShared *entry = FindDatabase(database, false);

	if (entry != nullptr)
		ReleaseDatabase(entry, true);
	LWLockRelease(RegistryLock());
}

void
AwaitNoWorker(Oid database)
{
	TimestampTz start = GetCurrentTimestamp();
	bool told = false;

	for (;;)
	{
		long waited = TimestampDifferenceMilliseconds(start, GetCurrentTimestamp());
		bool there = false;

		LWLockAcquire(RegistryLock(), LW_EXCLUSIVE);
		DatabaseShared *entry = FindDatabase(database, false);

		if (entry != nullptr && entry->worker_pid != 0)
		{
			there = true;
			if (!told)
				SetLatch(entry->worker_latch);
			else if (waited >= kPatienceMs)
				kill(entry->worker_pid, SIGTERM);
			told = true;
		}
		else if (entry != nullptr && entry->starting)
			there = true; /* it will find the bar */
		LWLockRelease(RegistryLock());
		if (!there || waited >= kLongestWaitMs)
			return;

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

void
NoteFailure(DatabaseShared *entry, int64 ran_ms)
{
	if (ran_ms >= kLongestBackoffMs)
		entry->failures = 0;

	int64 backoff_ms = Min(kFirstBackoffMs << Min(entry->failures, 6U), kLongestBackoffMs);

	entry->failures++;
	entry->not_before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), backoff_ms);
	pg_atomic_fetch_add_u64(&entry->stats.errors, 1);
	WantWorker(entry);
}
} // namespace likecount
