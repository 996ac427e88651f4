/*
 * flush.hpp: moving deltas from queue and journal into slots (see flush.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* Registers the transaction callback; called once from _PG_init. */
extern void FlushInit();

struct FlushResult
{
	bool ran;	  /* false: somebody else holds the flush lock, see FlushLockHolder() */
	bool drained; /* everything that its snapshot saw is in the slots now */
	bool full;	  /* it took a whole batch, so there may be more that can be taken at once */
	int64 deltas; /* rows of queue and journal, and entries of the caller's own, that were taken */
	int64 posts;  /* slot rows written */
	int64 discarded; /* deltas of counters that are not registered any more */
	int64 rejected;
	int32 passed_over; /* a counter whose deltas it had to leave; 0: none */
};

/*
 * One flush, as part of the caller's transaction, which must be READ COMMITTED.  wait: for the flush lock.
 * own: the caller's own deltas of the current level too.
 */
extern FlushResult Flush(bool wait, bool own);
/* Waits a moment for the slots of a counter, for a flush that follows in this transaction.  For the worker, which holds no lock yet. */
extern void WaitInLine(int32 counter);

/*
 * The rest of a worker's turn, in the caller's transaction: one chunk each of adoption, backfill and folding.  True when a
 * flush and another step should follow.  own_only: nothing but counters that this transaction made.  Waits for nobody.
 */
extern bool Upkeep(bool own_only);
/* True while a counter is being adopted or backfilled, or capture triggers stand without a state row. */
extern bool UpkeepWanted();

/* Makes PREPARE of this transaction an error: it has flushed, recounted or frozen a post. */
extern void ForbidPrepare();
} // namespace likecount
