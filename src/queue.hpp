/*
 * queue.hpp: committed deltas on their way into the slots: queue and journal (see queue.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* Columns of a segment of queue or journal. */
enum SegmentColumn : AttrNumber
{
	kSegmentDelta = 1,
	kSegmentAt,
	kSegmentCounter,
	kSegmentPost,
};

/* One row of a segment, decoded; post points into the page or a copy of it that lives until the next row. */
struct Pending
{
	int32 counter;
	int64 delta;
	TimestampTz at;
	const uint8 *post;
	uint32 post_len;
	ItemPointerData tid;
};

enum class Where : uint8
{
	kQueue,
	kJournal,
};

/* An open place to append deltas to.  Locks are kept to the end of the transaction. */
struct Appender
{
	Where where;
	Relation relation;
};

extern void AppendOpen(Appender *appender, Where where);
extern void Append(Appender *appender, int32 counter, const Key &post, int64 delta, TimestampTz at);
extern void AppendClose(Appender *appender);

/*
 * A scan of what a snapshot sees in queue or journal.  The caller has locked the segments.  With deleting
 * set, the current row can be deleted; only the holder of the flush lock does that.
 */
struct SegmentScan
{
	Where where;
	int segment;
	Snapshot snapshot;
	Relation relation;
	TableScanDesc scan;
	bool deleting;
};

extern void SegmentScanBegin(SegmentScan *scan, Where where, Snapshot snapshot, bool deleting);
extern bool SegmentScanNext(SegmentScan *scan, Pending *row);
extern void SegmentScanDelete(SegmentScan *scan, const Pending *row);
extern void SegmentScanEnd(SegmentScan *scan);

/* Locks every segment of queue and journal (the queue only where it can be read), before a snapshot is taken. */
extern void LockSegments(LOCKMODE mode);
extern void UnlockSegments(LOCKMODE mode);

/*
 * Sums what a snapshot sees, for one counter or (id 0) for all, into a hash of PendingSum in the context; with no
 * context, counts only.  totals is about all counters and may be nullptr.  The caller has locked the segments.
 */
struct PendingSum
{
	CounterKey key;
	int64 delta;
};

struct PendingTotals
{
	int64 queue_rows, journal_rows;
	int64 queue_bytes, journal_bytes;
	TimestampTz oldest; /* 0: nothing waits */
};

/* Adds to the sum of a post in such a hash. */
extern void AddSum(HTAB *sums, MemoryContext context, const CounterKey &key, int64 delta);
extern HTAB *
ReadPending(int32 counter, Snapshot snapshot, MemoryContext context, PendingTotals *totals);

/* The sum of one post's deltas that a snapshot sees.  The caller has locked the segments. */
extern int64 ReadPendingOf(int32 counter, const Key &post, Snapshot snapshot);

/* Empties, in place and in a transaction of its own, each segment above the size whose rows are all consumed. */
extern void TruncateConsumedSegments();
/* True when a segment has grown past the size from which emptying it pays. */
extern bool SegmentsWantTruncation();
} // namespace likecount
