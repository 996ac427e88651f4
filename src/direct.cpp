/*
 * direct.cpp: deltas that a transaction adds to the totals itself.
 *
 * A counter in direct mode has no worker between a like and its total: at pre-commit each delta is added to one of the
 * post's slots above 0, so that total and rows change in one commit.  A slot row that everybody updated would be the hot
 * row that this extension is to avoid.  So a transaction takes any slot that nobody holds, beginning at one that depends on
 * the backend, and opens another one when all are held.  A row is held from here to the end of the commit, and the number
 * of slots follows from the concurrency that a post really has.
 *
 * Nobody ever waits here, so whatever the order of posts, and however many, there is no deadlock:
 *
 *   - a row is locked only if that is possible at once (SKIP LOCKED), in its newest version, whatever the snapshot saw.
 *     Updating it without that would be one step less, but heap_update() does not support not to wait;
 *   - the table of slots and its indexes are locked before anything is written, as somebody may be moving one of them;
 *   - two who make the same slot would meet in the unique index, and so would who makes it and who has deleted it and
 *     not committed.  So both need the lock on (counter, post, slot), which is tried, and kept to the end of the
 *     transaction.  With the lock, and a snapshot taken after it, one knows whether the row is there;
 *   - what remains when likecount.max_slots are taken, or a lock, or the number of locks that one transaction should
 *     have, goes to the journal, as do deltas of frozen posts: their mark has to change with a slot (slots.cpp).
 *
 * Whoever computes with all slots of a post, to freeze or to forget it, has the slots lock alone.  Here it is taken shared,
 * before the snapshot, and kept to the end of the transaction: so either a freeze sees the slot, or its mark is seen here.
 *
 * The transaction must be READ COMMITTED: a row that was changed since a transaction's snapshot could not be updated.
 * It must not be prepared, or its slots would be held for days.
 *
 * Crash safety is what makes the other mode's rule: nothing is applied here that depends on a delta in the unlogged
 * queue.  An unlike that is added at once, while its like waits there, would after a crash leave -1 for ever: no recent row
 * and nothing in the journal tells of the post.  So a counter becomes direct only when nothing of it can be in the queue:
 *
 *   - set_mode() holds SHARE ROW EXCLUSIVE on the source and its partitions, so no transaction that has captured
 *     anything is under way.  It appends a row to _mode.  Who writes afterwards sees it, and uses the journal only;
 *   - a flush that has seen that row, and took all of the counter's queue in a snapshot taken later, notes the row's number
 *     in _counter.direct_since, in its own transaction.  The counter is direct as long as the two numbers are the same;
 *     with another set_mode() meanwhile they are not;
 *   - who still believes in "journal only" is right, too.  A table that is neither the source nor a partition of it,
 *     but has capture triggers of the same owner, is not stopped by that lock: its deltas always take the journal;
 *   - the other way is open at once: slots above 0 just stay, and are folded (fold.cpp).
 *
 * So a crash loses nothing of a direct counter, and it needs no repair.
 */
#include "direct.hpp"

#include "cache.hpp"
#include "debug.hpp"
#include "init.hpp"
#include "shmem.hpp"

namespace likecount
{
namespace
{
/* A slot row of this node, as the snapshot has it. */
struct Seen
{
	int16 number;
	ItemPointerData tid;
};

/* The slots of a post. */
struct Slots
{
	Seen *seen; /* those above 0 of this node, by number */
	int count;
	int64 sum; /* of all */
	bool frozen;
	bool overflow;
};

static_assert(kPlain<Slots>);

/* Slots that this transaction has opened: each is a lock. */
int opened = 0;

/* A transaction should not have more locks than the lock table was made for. */
int
MostOpened()
{
	return Max(max_locks_per_xact / 2, 1);
}

Slots
ReadSlots(DirectWriter *writer, Datum post)
{
	Slots slots = {};
	int capacity = 0;
	TupleTableSlot *row = writer->old_slot;
	MemoryContext caller = MemoryContextSwitchTo(writer->context);

	RescanPost(writer->scan, &writer->key, post);
	while (index_getnext_slot(writer->scan, ForwardScanDirection, row))
	{
		slot_getallattrs(row);

		int16 number = DatumGetInt16(row->tts_values[kSlotSlot - 1]);
		int64 value = DatumGetInt64(row->tts_values[kSlotValue - 1]);

		slots.overflow |= pg_add_s64_overflow(slots.sum, value, &slots.sum);
		slots.frozen |= number == kFrozenSlot;
		if (number <= 0 || DatumGetInt16(row->tts_values[kSlotNode - 1]) != guc_node)
			continue;
		if (slots.count == capacity)
		{
			capacity = Max(2 * capacity, 8);
			slots.seen = static_cast<Seen *>(
				slots.seen == nullptr ? MemoryContextAlloc(writer->scratch, sizeof(Seen) * capacity)
									  : repalloc(slots.seen, sizeof(Seen) * capacity));
		}
		slots.seen[slots.count++] = {number, row->tts_tid};
	}
	MemoryContextSwitchTo(caller);
	/* Its pin would keep the page from being pruned. */
	ExecClearTuple(row);
	return slots;
}

/* Makes the index entries of a row that was just written. */
void
AddIndexEntries(DirectWriter *writer, bool update, bool only_summarizing)
{
	if (writer->result == nullptr)
	{
		MemoryContext caller = MemoryContextSwitchTo(writer->context);

		writer->estate = CreateExecutorState();
		writer->result = makeNode(ResultRelInfo);
		InitResultRelInfo(writer->result, writer->table, 0, nullptr, 0);
		ExecOpenIndices(writer->result, false);
		MemoryContextSwitchTo(caller);
	}
	InsertIndexEntries(writer->result, writer->new_slot, writer->estate, update, only_summarizing);
	ResetPerTupleExprContext(writer->estate);
}

/* Adds to a slot if nobody holds it. */
bool
TakeSlot(DirectWriter *writer, const Seen &seen, Datum post, int64 delta)
{
	TupleTableSlot *row = writer->old_slot;
	ItemPointerData tid = seen.tid;
	TM_FailureData failure;
	bool entries, only_summarizing, isnull;
	int64 value;
	bool locked = table_tuple_lock(writer->table, &tid, writer->snapshot, row,
								   GetCurrentCommandId(true), LockTupleNoKeyExclusive, LockWaitSkip,
								   TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure) == TM_Ok;
	bool taken = false;

	if (locked &&
		!pg_add_s64_overflow(DatumGetInt64(slot_getattr(row, kSlotValue, &isnull)), delta, &value))
	{
		tid = row->tts_tid;
		CacheChanging(*writer->counter, post);
		FillSlot(writer->new_slot, post, seen.number, value, writer->now);
		taken = UpdateLockedTuple(writer->table, &tid, writer->new_slot, writer->snapshot, &entries,
								  &only_summarizing);
		if (taken && entries)
			AddIndexEntries(writer, true, only_summarizing);
	}
	ExecClearTuple(row);
	return taken;
}

/* Finds one slot of a post with the newest snapshot; false: it is not there. */
bool
FindSlot(DirectWriter *writer, Datum post, Seen *wanted)
{
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	IndexScanDesc scan = BeginIndexScan(writer->table, writer->index, snapshot, 1);
	bool found = false;

	RescanPost(scan, &writer->key, post);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, writer->old_slot))
	{
		slot_getallattrs(writer->old_slot);
		found = DatumGetInt16(writer->old_slot->tts_values[kSlotNode - 1]) == guc_node &&
				DatumGetInt16(writer->old_slot->tts_values[kSlotSlot - 1]) == wanted->number;
		wanted->tid = writer->old_slot->tts_tid;
	}
	ExecClearTuple(writer->old_slot);
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	return found;
}

/* Makes a slot, or takes it if another one made it meanwhile; the caller has its lock. */
bool
MakeSlot(DirectWriter *writer, int16 number, Datum post, int64 delta)
{
	Seen seen = {number, {}};

	if (FindSlot(writer, post, &seen))
		return TakeSlot(writer, seen, post, delta);
	LIKECOUNT_DEBUG_POINT("commit: slot not there");
	CacheChanging(*writer->counter, post);
	FillSlot(writer->new_slot, post, number, delta, writer->now);
	simple_table_tuple_insert(writer->table, writer->new_slot);
	AddIndexEntries(writer, false, false);
	/* It is to be folded some day. */
	WakeWorkerAtCommit();
	return true;
}

bool
AddToPost(DirectWriter *writer, const Key &key, Datum post, int64 delta)
{
	Slots slots = ReadSlots(writer, post);
	int64 sum;
	int next = 0;

	LIKECOUNT_DEBUG_POINT("commit: slots read");
	/* What does not fit the total is set aside by the flush. */
	if (slots.frozen || slots.overflow || pg_add_s64_overflow(slots.sum, delta, &sum))
		return false;

	for (int i = 0; i < slots.count; i++)
	{
		uint32 at = ((uint32) MyBackendIndex() + (uint32) i) % (uint32) slots.count;

		if (TakeSlot(writer, slots.seen[at], post, delta))
			return true;
	}

	for (int number = 1; number <= guc_max_slots && opened < MostOpened(); number++)
	{
		while (next < slots.count && slots.seen[next].number < number)
			next++;
		if (next < slots.count && slots.seen[next].number == number)
			continue;
		if (!LockSlot(*writer->counter, key, (int16) number))
			continue;
		opened++;
		LIKECOUNT_DEBUG_POINT("commit: slot locked");
		if (MakeSlot(writer, (int16) number, post, delta))
			return true;
	}
	return false;
}
} // namespace

bool
DirectOpen(DirectWriter *writer, const Counter *counter)
{
	MemoryContext caller = CurrentMemoryContext;

	*writer = {};
	if (!LockSlots(counter->id, SlotsLock::kShared, false) ||
		!ConditionalLockRelationOid(counter->slots, RowExclusiveLock))
		return false;
	writer->table = try_table_open(counter->slots, NoLock);
	if (writer->table == nullptr)
		return false;

	Oid pk = PrimaryKeyOf(writer->table);

	if (!OidIsValid(pk) || !LockIndexes(writer->table))
	{
		table_close(writer->table, NoLock);
		return false;
	}
	writer->counter = counter;
	writer->index = index_open(pk, NoLock);
	/* A procedure that commits in a loop does so in a context that lives as long as itself. */
	writer->context = AllocSetContextCreate(caller, "likecount direct", ALLOCSET_SMALL_SIZES);
	writer->scratch =
		AllocSetContextCreate(writer->context, "likecount post", ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(writer->context);
	/* After the slots lock: the mark of whoever had it alone is seen. */
	writer->snapshot = RegisterSnapshot(GetLatestSnapshot());
	PushActiveSnapshot(writer->snapshot);
	writer->scan = BeginIndexScan(writer->table, writer->index, writer->snapshot, 1);
	InitPostKey(&writer->key, writer->index);
	writer->old_slot = table_slot_create(writer->table, nullptr);
	writer->new_slot = MakeSingleTupleTableSlot(RelationGetDescr(writer->table), &TTSOpsVirtual);
	writer->now = GetCurrentTimestamp();
	MemoryContextSwitchTo(caller);
	return true;
}

bool
DirectAdd(DirectWriter *writer, const Key &key, int64 delta)
{
	MemoryContext caller = MemoryContextSwitchTo(writer->scratch);
	Datum post;
	bool added = KeyToDatum(writer->counter->post_type, key.Data(), key.len, &post) &&
				 AddToPost(writer, key, post, delta);

	MemoryContextSwitchTo(caller);
	MemoryContextReset(writer->scratch);
	return added;
}

void
DirectClose(DirectWriter *writer)
{
	ExecDropSingleTupleTableSlot(writer->new_slot);
	ExecDropSingleTupleTableSlot(writer->old_slot);
	index_endscan(writer->scan);
	PopActiveSnapshot();
	UnregisterSnapshot(writer->snapshot);
	if (writer->result != nullptr)
	{
		ExecCloseIndices(writer->result);
		FreeExecutorState(writer->estate);
	}
	index_close(writer->index, NoLock);
	table_close(writer->table, NoLock);
	MemoryContextDelete(writer->context);
}

void
DirectReset()
{
	opened = 0;
}
} // namespace likecount
