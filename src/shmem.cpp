/*
 * shmem.cpp: everything that processes share in memory.
 *
 * A registry with one entry per database in which likecount is used, one published liked_at per
 * backend, and the cache of totals (cache.cpp).  All of it has a fixed size and exists only when the library was preloaded; without,
 * every function here answers "there is none", deltas go to the journal, and flush() moves them.
 *
 * Locks.  One LWLock, RegistryLock(), protects which entry belongs to which database, and the plain
 * fields of an entry.  It is the only lock of ours of its kind: whoever holds it takes no other
 * lock, allocates nothing, raises nothing, and keeps it for some loads and stores, at most for a
 * walk over the registry, and for setting a latch. So it can be taken in commit callbacks and while
 * a process exits.  A latch is set under it, since the process that owns the latch clears its pid
 * under it before it goes.  The atomics need no lock.
 *
 * Lifetime.  An entry whose address a backend may have kept (used) lives until its database is
 * dropped: no process is connected to it then, so none can look.  The others, made for a database
 * in which the launcher looked for the extension in vain, or which a command barred, are freed when
 * nobody needs them.  An entry starts with ready = 0, whatever it was used for before: nothing may
 * enter the queue until a flush of that very database has checked the sentinel.
 *
 * Waking.  A worker that is about to sleep sets asleep, then (full barrier) looks once more for
 * work; a backend commits its deltas, then (full barrier) reads asleep.  So either the worker sees
 * the deltas or the backend sees that it has to wake it.  asleep stays 1 when the worker leaves:
 * the next commit asks the launcher for a new one.  While the worker is busy, a commit costs a
 * barrier and a load.
 *
 * Watermark.  See shmem.hpp and flush.cpp.  A published value is the backend's own word; any value
 * read too low, such as one of another database, only makes the watermark lower, and every lower
 * watermark is safe.
 */
#include "shmem.hpp"

#include "cache.hpp"
#include "debug.hpp"

namespace likecount
{
namespace
{
/*
 * A backend's word of the watermark protocol, alone in its cache line: it is written by every
 * commit of a like.
 */
struct PublishedShared
{
	pg_atomic_uint64 liked_at;
	char pad[PG_CACHE_LINE_SIZE - sizeof(pg_atomic_uint64)];
};

struct RegistryShared
{
	pid_t launcher_pid;	   /* 0: none runs; under the lock */
	Latch *launcher_latch; /* of launcher_pid; under the lock */
	DatabaseShared databases[kMaxDatabases];
	PublishedShared published[FLEXIBLE_ARRAY_MEMBER]; /* one per backend */
};

constexpr const char *kTranche = "likecount";

RegistryShared *registry = nullptr;
LWLock *registry_lock = nullptr;

/* This database's entry, once it was found. */
DatabaseShared *my_database = nullptr;
bool published = false;
bool wake_at_commit = false;
bool is_worker = false;

shmem_request_hook_type previous_request_hook = nullptr;
shmem_startup_hook_type previous_startup_hook = nullptr;

Size
RegistrySize()
{
	return add_size(offsetof(RegistryShared, published),
					mul_size(MaxBackends, sizeof(PublishedShared)));
}

/* Makes an entry anew, for a database or free.  Nobody reads the atomics of a free one. */
void
ResetEntry(DatabaseShared *entry, Oid database)
{
	StatsShared &stats = entry->stats;
	pg_atomic_uint64 *const zeroes[] = {
		&entry->clock_high,	  &stats.flushes,		&stats.deltas,		&stats.posts,
		&stats.discarded,	  &stats.rejected,		&stats.truncations, &stats.errors,
		&stats.last_flush_at, &stats.last_flush_us,
	};

	*entry = {};
	pg_atomic_init_u32(&entry->ready, 0);
	pg_atomic_init_u32(&entry->asleep, 1);
	pg_atomic_init_u32(&entry->blocked_by, 0);
	for (pg_atomic_uint64 *number : zeroes)
		pg_atomic_init_u64(number, 0);
	pg_atomic_init_u64(&stats.reset_at, static_cast<uint64>(GetCurrentTimestamp()));
	entry->database = database;
}

PublishedShared *
MyPublished()
{
	int index = MyBackendIndex();

	Assert(index >= 0 && index < MaxBackends);
	return &registry->published[index];
}
} // namespace
} // namespace likecount

extern "C"
{
static void LikecountShmemRequest();
static void LikecountShmemStartup();
static void
LikecountWakeCallback(ResourceReleasePhase phase, bool committed, bool top_level, void *);
}

static void
LikecountShmemRequest()
{
	using namespace likecount;

	if (previous_request_hook != nullptr)
		previous_request_hook();
	RequestAddinShmemSpace(add_size(RegistrySize(), CacheShmemSize()));
	RequestNamedLWLockTranche(kTranche, 1);
}

static void
LikecountShmemStartup()
{
	using namespace likecount;
	bool found;

	if (previous_startup_hook != nullptr)
		previous_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	registry = static_cast<RegistryShared *>(ShmemInitStruct("likecount", RegistrySize(), &found));
	if (!found)
	{
		registry->launcher_pid = 0;
		registry->launcher_latch = nullptr;
		for (DatabaseShared &entry : registry->databases)
			ResetEntry(&entry, InvalidOid);
		for (int i = 0; i < MaxBackends; i++)
			pg_atomic_init_u64(&registry->published[i].liked_at,
							   static_cast<uint64>(kNothingPublished));
	}
	CacheShmemStartup();
	registry_lock = &GetNamedLWLockTranche(kTranche)->lock;
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Wakes when the locks are given back.  Not with the callbacks of the commit: invalidation messages are sent after those,
 * and a worker that was faster would look at what it has cached, find nothing to do, and sleep.  A prepared transaction may
 * be committed where no hook sees it: the worker has to know of it, too.
 */
static void
LikecountWakeCallback(ResourceReleasePhase phase, bool committed, bool top_level, void *)
{
	using namespace likecount;

	if (committed && wake_at_commit && phase == RESOURCE_RELEASE_BEFORE_LOCKS)
		LIKECOUNT_DEBUG_POINT("commit: nobody told");
	if (!top_level || phase != RESOURCE_RELEASE_AFTER_LOCKS)
		return;
	if (committed && wake_at_commit)
		WakeWorker();
	wake_at_commit = false;
}

namespace likecount
{
void
ShmemInit()
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = LikecountShmemRequest;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = LikecountShmemStartup;
	RegisterResourceReleaseCallback(LikecountWakeCallback, nullptr);
}

bool
IsWorker()
{
	return is_worker;
}

void
SetIsWorker()
{
	is_worker = true;
}

bool
Preloaded()
{
	return registry != nullptr;
}

LWLock *
RegistryLock()
{
	return registry_lock;
}

DatabaseShared *
DatabaseNumber(int i)
{
	return &registry->databases[i];
}

DatabaseShared *
FindDatabase(Oid database, bool create)
{
	DatabaseShared *free = nullptr;

	for (DatabaseShared &entry : registry->databases)
	{
		if (entry.database == database)
			return &entry;
		if (free == nullptr && entry.database == InvalidOid)
			free = &entry;
	}
	if (!create || free == nullptr)
		return nullptr;
	ResetEntry(free, database);
	return free;
}

void
ReleaseDatabase(DatabaseShared *entry, bool gone)
{
	if (gone || (!entry->used && entry->worker_pid == 0 && !entry->starting &&
				 entry->wanted_since == 0 && entry->barred == 0))
		ResetEntry(entry, InvalidOid);
}

DatabaseShared *
MyDatabase(bool create)
{
	if (my_database != nullptr)
		return my_database;
	if (registry == nullptr || !OidIsValid(MyDatabaseId))
		return nullptr;

	/* Once per session, as a rule. */
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	my_database = FindDatabase(MyDatabaseId, create);
	if (my_database != nullptr)
		my_database->used = true;
	LWLockRelease(registry_lock);
	return my_database;
}

TimestampTz
PublishLikedAt(DatabaseShared *database, TimestampTz liked_at)
{
	PublishedShared *mine = MyPublished();

	if (published)
		liked_at = Min(liked_at, static_cast<TimestampTz>(pg_atomic_read_u64(&mine->liked_at)));
	published = true;
	pg_atomic_write_u64(&mine->liked_at, static_cast<uint64>(liked_at));
	/* Either the flush that raises the clock sees what we published, or we see the raised clock. */
	pg_memory_barrier();
	return static_cast<TimestampTz>(pg_atomic_read_u64(&database->clock_high));
}

void
UnpublishLikedAt()
{
	if (!published)
		return;
	published = false;
	/* Nothing that made the transaction visible may sink below this. */
	pg_memory_barrier();
	pg_atomic_write_u64(&MyPublished()->liked_at, static_cast<uint64>(kNothingPublished));
}

TimestampTz
RaiseClock(DatabaseShared *database, TimestampTz now, TimestampTz *smallest)
{
	uint64 high = pg_atomic_read_u64(&database->clock_high);

	while (static_cast<TimestampTz>(high) < now &&
		   !pg_atomic_compare_exchange_u64(&database->clock_high, &high, static_cast<uint64>(now)))
		;
	/* The other side of the barrier in PublishLikedAt. */
	pg_memory_barrier();

	*smallest = kNothingPublished;
	for (int i = 0; i < MaxBackends; i++)
		*smallest =
			Min(*smallest,
				static_cast<TimestampTz>(pg_atomic_read_u64(&registry->published[i].liked_at)));
	/* The caller's snapshot comes after. */
	pg_memory_barrier();
	return Max(static_cast<TimestampTz>(high), now);
}

void
WakeWorker()
{
	DatabaseShared *database = MyDatabase(false);

	if (database == nullptr)
		return;
	/* What we committed becomes visible before we look whether the worker sleeps. */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&database->asleep) == 0 ||
		pg_atomic_exchange_u32(&database->asleep, 0) == 0)
		return;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (database->worker_pid != 0)
		SetLatch(database->worker_latch);
	else
		WantWorker(database);
	LWLockRelease(registry_lock);
}

void
WakeWorkerAtCommit()
{
	/* Makes the entry here, where the transaction can still wait. */
	if (MyDatabase(true) != nullptr)
		wake_at_commit = true;
}

void
WantWorker(DatabaseShared *entry)
{
	if (entry->wanted_since == 0)
		entry->wanted_since = GetCurrentTimestamp();
	if (registry->launcher_pid != 0)
		SetLatch(registry->launcher_latch);
}

void
SetLauncher(bool here)
{
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	if (here)
	{
		registry->launcher_pid = MyProcPid;
		registry->launcher_latch = MyLatch;
	}
	else if (registry->launcher_pid == MyProcPid)
	{
		registry->launcher_pid = 0;
		registry->launcher_latch = nullptr;
	}
	LWLockRelease(registry_lock);
}

void
WakeLauncher()
{
	if (registry->launcher_pid != 0)
		SetLatch(registry->launcher_latch);
}

pid_t
LauncherPid()
{
	pid_t pid = 0;

	if (registry != nullptr)
	{
		LWLockAcquire(registry_lock, LW_SHARED);
		pid = registry->launcher_pid;
		LWLockRelease(registry_lock);
	}
	return pid;
}
} // namespace likecount
