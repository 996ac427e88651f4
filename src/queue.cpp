/*
 * queue.cpp: committed deltas on their way into the slots.
 *
 * Queue (unlogged) and journal (logged) have the same rows: delta, when, counter, post.  Writers append with
 * heap_insert, the holder of the flush lock deletes with heap_delete, and nothing else touches them: no SQL, so that
 * a publication FOR ALL TABLES neither refuses the deletes nor carries the rows (HEAP_INSERT_NO_LOGICAL).
 *
 * A table that is only emptied by DELETE grows without end while any old snapshot stands.  So both have three
 * segments.  A writer appends to the first one that is below a size, and keeps its lock (ROW EXCLUSIVE) to the end
 * of its transaction; no state is shared, the size is the file's.  Whoever drains, drains all.  A segment past the
 * limit gets no new writers, but those that still have room in the page they wrote last, so as soon as the last writer
 * has ended and a flush that took its rows has committed, it can be emptied in place, whatever snapshots exist.
 *
 * Emptying cannot be rolled back, so it must not depend on anything that can.  It runs in a transaction of its own
 * that has flushed nothing: get ACCESS EXCLUSIVE without waiting (no writer is under way any more, prepared ones
 * included), look with a snapshot taken after that (deltas of a writer that committed a moment ago are seen, deletes
 * of a flush that has not committed are not believed), and only when no row is visible truncate, and release at
 * once.  The deletes of the journal are then on disk before its rows are gone: XLogFlush first, since the flush that
 * made them may have committed asynchronously.
 *
 * A snapshot that is older than an emptying sees too few pending deltas, as it does after any TRUNCATE.
 */
#include "queue.hpp"

#include "debug.hpp"
#include "shmem.hpp"
#include "slots.hpp"

namespace likecount
{
namespace
{
/* A segment takes new rows below this size (8 MB): it bounds what one flush has to scan. */
constexpr BlockNumber kFullBlocks = 1024;
/* Emptying pays from this size on. */
constexpr BlockNumber kTruncateBlocks = kFullBlocks / 2;

constexpr Where kBoth[] = {Where::kQueue, Where::kJournal};

const Oid *
Segments(Where where)
{
	const Members *m = GetMembers();

	return where == Where::kQueue ? m->queue : m->journal;
}

/* True when this kind of segment can be read here: unlogged tables do not exist on a standby. */
bool
Readable(Where where)
{
	return where == Where::kJournal || !RecoveryInProgress();
}

/* The end of the last WAL record: what XLogFlush can be asked for. */
XLogRecPtr
EndOfWal()
{
	XLogRecPtr next = GetXLogInsertRecPtr();

	/* Right behind a page's header there is nothing in that page yet. */
	if (next % (XLogRecPtr) wal_segment_size == SizeOfXLogLongPHD)
		next -= SizeOfXLogLongPHD;
	else if (next % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		next -= SizeOfXLogShortPHD;
	return next;
}

bool
TruncateIfConsumed(Oid segment, Where where)
{
	LOCKTAG tag;
	int conflicts;
	DatabaseShared *database = MyDatabase(false);
	Relation rel;
	bool empty;

	/* A failed attempt for this lock assigns a transaction id and writes WAL: look before asking. */
	SET_LOCKTAG_RELATION(tag, MyDatabaseId, segment);
	VirtualTransactionId *holders = GetLockConflicts(&tag, AccessExclusiveLock, &conflicts);

	LIKECOUNT_DEBUG_POINT("emptying: holders read");
	if (conflicts > 0 || !ConditionalLockRelationOid(segment, AccessExclusiveLock))
	{
		if (database != nullptr && conflicts > 0)
			pg_atomic_write_u32(&database->blocked_by, (uint32) HolderPid(holders[0]));
		return false;
	}

	rel = table_open(segment, NoLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan_strat(rel, snapshot, 0, nullptr, false, false);

	empty = heap_getnext(scan, ForwardScanDirection) == nullptr;
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	LIKECOUNT_DEBUG_POINT("emptying: looked");
	if (empty)
	{
		if (where == Where::kJournal)
			XLogFlush(EndOfWal());
		heap_truncate_one_rel(rel);
		if (database != nullptr)
			pg_atomic_fetch_add_u64(&database->stats.truncations, 1);
	}
	table_close(rel, NoLock);
	UnlockRelationOid(segment, AccessExclusiveLock);
	return empty;
}

/*
 * True for a segment below the size limit.  The block that this backend appended to last tells as much as the size, and
 * asks the kernel for nothing; it is forgotten when the segment is emptied.
 */
bool
HasRoom(Relation segment)
{
	BlockNumber last = RelationGetTargetBlock(segment);

	return (last != InvalidBlockNumber ? last : RelationGetNumberOfBlocks(segment)) < kFullBlocks;
}

BlockNumber
SegmentBlocks(Oid segment)
{
	Relation rel = table_open(segment, AccessShareLock);
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);

	table_close(rel, AccessShareLock);
	return blocks;
}

/* Never an error here: a sum that does not fit is set aside by the flush, not by readers. */
void
AddTo(int64 *sum, int64 delta)
{
	if (pg_add_s64_overflow(*sum, delta, sum))
		*sum = delta > 0 ? PG_INT64_MAX : PG_INT64_MIN;
}
} // namespace

void
AppendOpen(Appender *appender, Where where)
{
	const Oid *segments = Segments(where);

	appender->where = where;
	for (int i = 0;; i++)
	{
		bool last = i == Members::kSegments - 1;

		/* One that is being emptied right now is not waited for, unless it is the last. */
		if (!last && !ConditionalLockRelationOid(segments[i], RowExclusiveLock))
			continue;
		appender->relation = table_open(segments[i], last ? RowExclusiveLock : NoLock);
		if (last || HasRoom(appender->relation))
			return;
		table_close(appender->relation, RowExclusiveLock);
	}
}

void
Append(Appender *appender, int32 counter, const Key &post, int64 delta, TimestampTz at)
{
	union
	{
		char bytes[VARHDRSZ + kMaxTextKey];
		int32 align;
	} buffer;
	auto *packed = reinterpret_cast<bytea *>(buffer.bytes);
	Datum values[kSegmentPost];
	bool nulls[kSegmentPost] = {};

	SET_VARSIZE(packed, VARHDRSZ + post.len);
	memcpy(VARDATA(packed), post.Data(), post.len);
	values[kSegmentDelta - 1] = Int64GetDatum(delta);
	values[kSegmentAt - 1] = TimestampTzGetDatum(at);
	values[kSegmentCounter - 1] = Int32GetDatum(counter);
	values[kSegmentPost - 1] = PointerGetDatum(packed);

	HeapTuple tuple = heap_form_tuple(RelationGetDescr(appender->relation), values, nulls);

	heap_insert(appender->relation, tuple, GetCurrentCommandId(true),
				appender->where == Where::kJournal ? HEAP_INSERT_NO_LOGICAL : 0, nullptr);
	heap_freetuple(tuple);
}

void
AppendClose(Appender *appender)
{
	/* The lock stays: it tells the emptying of segments that this row is not committed yet. */
	table_close(appender->relation, NoLock);
}

void
SegmentScanBegin(SegmentScan *scan, Where where, Snapshot snapshot, bool deleting)
{
	scan->where = where;
	scan->segment = -1;
	scan->snapshot = snapshot;
	scan->relation = nullptr;
	scan->scan = nullptr;
	scan->deleting = deleting;
}

bool
SegmentScanNext(SegmentScan *scan, Pending *row)
{
	HeapTuple tuple;

	if (!Readable(scan->where))
		return false;
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (scan->scan == nullptr)
		{
			if (++scan->segment == Members::kSegments)
				return false;
			scan->relation = table_open(Segments(scan->where)[scan->segment],
										scan->deleting ? RowExclusiveLock : AccessShareLock);
			scan->scan =
				table_beginscan_strat(scan->relation, scan->snapshot, 0, nullptr, false, false);
		}
		tuple = heap_getnext(scan->scan, ForwardScanDirection);
		if (tuple != nullptr)
			break;
		SegmentScanEnd(scan);
	}

	Datum values[kSegmentPost];
	bool nulls[kSegmentPost];
	bytea *post;

	heap_deform_tuple(tuple, RelationGetDescr(scan->relation), values, nulls);
	post = DatumGetByteaPP(values[kSegmentPost - 1]);
	row->delta = DatumGetInt64(values[kSegmentDelta - 1]);
	row->at = DatumGetTimestampTz(values[kSegmentAt - 1]);
	row->counter = DatumGetInt32(values[kSegmentCounter - 1]);
	row->post = reinterpret_cast<const uint8 *>(VARDATA_ANY(post));
	row->post_len = VARSIZE_ANY_EXHDR(post);
	row->tid = tuple->t_self;
	return true;
}

void
SegmentScanDelete(SegmentScan *scan, const Pending *row)
{
	ItemPointerData tid = row->tid;

	Assert(scan->deleting);
	simple_heap_delete(scan->relation, &tid);
}

void
SegmentScanEnd(SegmentScan *scan)
{
	if (scan->scan == nullptr)
		return;
	table_endscan(scan->scan);
	/* Of a read the lock is given back by UnlockSegments; of a drain it stays, the deletes are not committed. */
	table_close(scan->relation, scan->deleting ? NoLock : AccessShareLock);
	scan->scan = nullptr;
	scan->relation = nullptr;
}

void
LockSegments(LOCKMODE mode)
{
	for (int i = 0; i < Members::kSegments; i++)
	{
		if (Readable(Where::kQueue))
			LockRelationOid(GetMembers()->queue[i], mode);
		LockRelationOid(GetMembers()->journal[i], mode);
	}
}

void
UnlockSegments(LOCKMODE mode)
{
	const Members *m = GetMembers();

	for (int i = 0; i < Members::kSegments; i++)
	{
		if (Readable(Where::kQueue))
			UnlockRelationOid(m->queue[i], mode);
		UnlockRelationOid(m->journal[i], mode);
	}
}

void
AddSum(HTAB *sums, MemoryContext context, const CounterKey &key, int64 delta)
{
	bool found;
	auto *sum = static_cast<PendingSum *>(hash_search(sums, &key, HASH_ENTER, &found));

	if (!found)
	{
		sum->key.key = KeyCopy(context, key.key);
		sum->delta = 0;
	}
	AddTo(&sum->delta, delta);
}

HTAB *
ReadPending(int32 counter, Snapshot snapshot, MemoryContext context, PendingTotals *totals)
{
	PendingTotals sums = {};
	HTAB *hash = nullptr;

	if (context != nullptr)
		hash = CounterKeyHash("likecount pending", 256, sizeof(PendingSum), context);

	for (Where where : kBoth)
	{
		bool queue = where == Where::kQueue;
		SegmentScan scan;
		Pending row;

		SegmentScanBegin(&scan, where, snapshot, false);
		while (SegmentScanNext(&scan, &row))
		{
			(queue ? sums.queue_rows : sums.journal_rows)++;
			if (sums.oldest == 0 || row.at < sums.oldest)
				sums.oldest = row.at;
			if (hash == nullptr || (counter != 0 && row.counter != counter))
				continue;

			AddSum(hash, context, {row.counter, KeyFromBytes(row.post, row.post_len)}, row.delta);
		}
		if (totals != nullptr && Readable(where))
			for (int i = 0; i < Members::kSegments; i++)
				(queue ? sums.queue_bytes : sums.journal_bytes) +=
					(int64) SegmentBlocks(Segments(where)[i]) * BLCKSZ;
	}
	if (totals != nullptr)
		*totals = sums;
	return hash;
}

int64
ReadPendingOf(int32 counter, const Key &post, Snapshot snapshot)
{
	int64 sum = 0;

	for (Where where : kBoth)
	{
		SegmentScan scan;
		Pending row;

		SegmentScanBegin(&scan, where, snapshot, false);
		while (SegmentScanNext(&scan, &row))
			if (row.counter == counter && row.post_len == post.len &&
				memcmp(row.post, post.Data(), post.len) == 0)
				AddTo(&sum, row.delta);
	}
	return sum;
}

bool
SegmentsWantTruncation()
{
	for (Where where : kBoth)
		for (int i = 0; i < Members::kSegments; i++)
			if (SegmentBlocks(Segments(where)[i]) >= kTruncateBlocks)
				return true;
	return false;
}

void
TruncateConsumedSegments()
{
	DatabaseShared *database = MyDatabase(false);

	if (database != nullptr)
		pg_atomic_write_u32(&database->blocked_by, 0);
	for (Where where : kBoth)
		for (int i = 0; i < Members::kSegments; i++)
		{
			Oid segment = Segments(where)[i];

			if (SegmentBlocks(segment) >= kTruncateBlocks)
				(void) TruncateIfConsumed(segment, where);
		}
}
} // namespace likecount
