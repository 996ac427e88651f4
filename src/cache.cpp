/*
 * cache.cpp: totals in shared memory.
 *
 * To read a total from the slots takes two relations opened, locked and closed, and a descent of an index: as much as all
 * the rest of a call that asks for one.  The cache is an array of entries, each for the posts that hash to it, with the
 * total that was read last for one of them.  A reader takes no lock; whoever finds nothing reads the slots, and leaves what
 * it found.  What makes that exact:
 *
 * - An entry counts the changes of the posts that hash to it: those that have ended and those under way.  A transaction
 *   that changes a slot row counts it as under way before it commits, and as ended after the transaction has left the
 *   proc array, whether it was committed or not.
 * - A total is stored with the count that was read before the snapshot in which it was read, and only if nothing was under
 *   way then.  It is believed while the count is the same.  So whatever was committed before the snapshot is in it, and
 *   whatever was committed later has changed the count before it became visible.  A reader that was slow stores a total
 *   with an old count, which nobody believes.  A transaction that changed slots itself finds its changes under way.
 * - The fields of an entry are written by one process at a time and read without a lock: a version that is odd while they
 *   are written, and the same before and after they are read, says that they belong together.
 * - It is of use only to a snapshot that is of now: REPEATABLE READ and above read the slots.
 * - Slot rows that change without us are not counted.  On a standby WAL brings them, and where a subscription does the
 *   apply worker: there nothing is cached.  For what an administrator may do to the slots by hand, or a data-only
 *   restore, or a subscription that is gone again, an entry is believed for a minute at most.  A transaction that has
 *   written something stores nothing.
 *
 * Shared memory begins anew after a crash, and so does the cache.  An entry tells its database and the OID of the slots
 * table, so a counter that was detached leaves nothing that another could find.  A database that is dropped takes its
 * entries along: another one may get its OID, and the OIDs within it.
 */
#include "cache.hpp"

#include "debug.hpp"
#include "init.hpp"

namespace likecount
{
/* A cache line. */
struct CacheEntry
{
	pg_atomic_uint64 changes; /* those under way, and kEnded for each that has ended */
	pg_atomic_uint32 version;
	/* What the version protects. */
	Oid database;
	Oid slots;
	uint32 key_len;
	uint8 key[Key::kInline];
	int64 total;
	uint64 read_at_changes;
	TimestampTz read_at;
};

#ifndef PG_HAVE_ATOMIC_U64_SIMULATION
static_assert(sizeof(CacheEntry) == 64);
#endif

namespace
{
constexpr uint64 kUnderWay = 1;
constexpr uint64 kEnded = UINT64CONST(1) << 24;

/* How long a total is believed at most. */
#ifdef LIKECOUNT_DEBUG
constexpr int64 kLifetime = 2 * USECS_PER_SEC;
#else
constexpr int64 kLifetime = 60 * USECS_PER_SEC;
#endif

/* Entries in a page of memory. */
constexpr uint32 kPerPage = 4096 / sizeof(CacheEntry);

CacheEntry *entries = nullptr;
uint32 page_count = 0;

/* The entries whose changes this transaction has under way, in TopTransactionContext. */
CacheEntry **changing = nullptr;
Size changing_count = 0;
Size changing_capacity = 0;

bool
Idle(uint64 changes)
{
	return changes % kEnded == 0;
}

/*
 * The entry of a post; nullptr: there is none.  Posts with neighbouring numbers, as those of one day have, share a page
 * of memory, which each process has to map once.
 */
CacheEntry *
EntryOf(const Counter &counter, const Key &post)
{
	if (page_count == 0 || post.len > Key::kInline)
		return nullptr;

	Key group = post;
	uint32 place = 0;

	if (KeyKindOf(counter.post_type) == KeyKind::kInteger)
	{
		uint8 *last = &group.bytes[group.len - 1];

		place = *last % kPerPage;
		*last -= place;
	}

	uint32 hash = hash_combine(KeyHash(group), murmurhash32(counter.slots ^ MyDatabaseId));

	if (KeyKindOf(counter.post_type) != KeyKind::kInteger)
		place = hash % kPerPage;
	return &entries[(((uint64) hash * page_count) >> 32) * kPerPage + place];
}

/* Copies an entry; false: somebody is writing it. */
bool
ReadEntry(CacheEntry *entry, CacheEntry *copy)
{
	uint32 version = pg_atomic_read_u32(&entry->version);

	pg_read_barrier();
	memcpy(static_cast<void *>(copy), entry, sizeof(CacheEntry));
	pg_read_barrier();
	return version % 2 == 0 && pg_atomic_read_u32(&entry->version) == version;
}

int
CompareEntries(const void *a, const void *b)
{
	CacheEntry *x = *static_cast<CacheEntry *const *>(a);
	CacheEntry *y = *static_cast<CacheEntry *const *>(b);

	return x < y ? -1 : x > y ? 1 : 0;
}

/* Makes room for one more: an entry that is there more than once counts once. */
void
MakeRoom()
{
	Size kept = 0;

	if (changing_count > 0)
		qsort(changing, changing_count, sizeof(CacheEntry *), CompareEntries);
	for (Size i = 0; i < changing_count; i++)
		if (kept > 0 && changing[kept - 1] == changing[i])
			(void) pg_atomic_fetch_sub_u64(&changing[i]->changes, kUnderWay);
		else
			changing[kept++] = changing[i];
	changing_count = kept;
	if (changing_capacity > 0 && changing_count <= changing_capacity / 2)
		return;

	Size capacity = changing_capacity == 0 ? 64 : changing_capacity * 2;
	Size size = capacity * sizeof(CacheEntry *);

	changing = static_cast<CacheEntry **>(changing == nullptr
											  ? MemoryContextAlloc(TopTransactionContext, size)
											  : repalloc_huge(changing, size));
	changing_capacity = capacity;
}

void
XactCallback(XactEvent event, void *)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			/* The transaction has left the proc array. */
			for (Size i = 0; i < changing_count; i++)
				(void) pg_atomic_fetch_add_u64(&changing[i]->changes, kEnded - kUnderWay);
			break;
		case XACT_EVENT_PREPARE:
			/* Refused where slots were changed; else the changes would be under way for ever, which is safe. */
			break;
		default:
			return;
	}
	changing = nullptr;
	changing_count = changing_capacity = 0;
}
} // namespace

Size
CacheShmemSize()
{
	Size page = kPerPage * sizeof(CacheEntry);

	return mul_size((Size) guc_cache_size, 1024) / page * page;
}

void
CacheShmemStartup()
{
	bool found;
	Size size = CacheShmemSize();

	if (size == 0)
		return;
	entries = static_cast<CacheEntry *>(ShmemInitStruct("likecount totals", size, &found));
	page_count = (uint32) (size / sizeof(CacheEntry) / kPerPage);
	if (found)
		return;
	memset(static_cast<void *>(entries), 0, size);
	for (uint32 i = 0; i < page_count * kPerPage; i++)
	{
		pg_atomic_init_u64(&entries[i].changes, 0);
		pg_atomic_init_u32(&entries[i].version, 0);
	}
}

void
CacheInit()
{
	RegisterXactCallback(XactCallback, nullptr);
}

bool
CacheServes()
{
	return page_count > 0 && !IsolationUsesXactSnapshot() && !RecoveryInProgress();
}

bool
CacheFind(const Counter &counter, const Key &post, int64 *total, CachePlace *place)
{
	CacheEntry *entry = EntryOf(counter, post);
	CacheEntry copy;

	*place = {};
	if (entry == nullptr || counter.replicated || !CacheServes())
		return false;

	uint64 changes = pg_atomic_read_u64(&entry->changes);
	TimestampTz now = GetCurrentTimestamp();

	if (!Idle(changes))
		return false;
	/*
	 * Parallel workers take no snapshot of their own.  And a transaction that writes could see rows of its own, changed by
	 * hand, which nobody has counted.
	 */
	if (!IsInParallelMode() && !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		*place = {entry, changes, now};
	/* The snapshot, or what is copied, comes after. */
	pg_memory_barrier();
	if (!ReadEntry(entry, &copy) || copy.read_at_changes != changes ||
		copy.slots != counter.slots || copy.database != MyDatabaseId || copy.key_len != post.len ||
		memcmp(copy.key, post.bytes, post.len) != 0 || now - copy.read_at > kLifetime ||
		copy.read_at - now > kLifetime)
		return false;
	*total = copy.total;
	return true;
}

void
CacheStore(const CachePlace &place, const Counter &counter, const Key &post, int64 total)
{
	CacheEntry *entry = place.entry;

	if (entry == nullptr)
		return;
	LIKECOUNT_DEBUG_POINT("cache: total read");
	if (pg_atomic_read_u64(&entry->changes) != place.changes)
		return;

	uint32 version = pg_atomic_read_u32(&entry->version);

	/* Who comes second leaves it to the first. */
	if (version % 2 != 0 || !pg_atomic_compare_exchange_u32(&entry->version, &version, version + 1))
		return;
	pg_write_barrier();
	entry->database = MyDatabaseId;
	entry->slots = counter.slots;
	entry->key_len = post.len;
	memcpy(entry->key, post.bytes, post.len);
	entry->total = total;
	entry->read_at_changes = place.changes;
	entry->read_at = place.found_at;
	pg_write_barrier();
	pg_atomic_write_u32(&entry->version, version + 2);
}

void
CacheForget(Oid database)
{
	for (uint32 i = 0; i < page_count * kPerPage; i++)
		if (entries[i].database == database)
			(void) pg_atomic_fetch_add_u64(&entries[i].changes, kEnded);
}

void
CacheChanging(const Counter &counter, Datum post)
{
	CacheEntry *entry = EntryOf(counter, KeyFromDatum(counter.post_type, post));

	if (entry == nullptr)
		return;
	if (changing_count == changing_capacity)
		MakeRoom();
	/* Nothing can fail between the two. */
	changing[changing_count++] = entry;
	(void) pg_atomic_fetch_add_u64(&entry->changes, kUnderWay);
}
} // namespace likecount
