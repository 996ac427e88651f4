/*
 * repair.hpp: what a flush does about a queue that a crash may have emptied (see repair.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* All but AppendRequest run inside SPI_connect, as the extension's owner, under the flush lock. */

/*
 * The check that every flush makes under the flush lock: is each counter's sentinel there?  Counters that lost
 * theirs are set to be recounted.  True when something was written.
 */
extern bool CheckSentinels(List *counters);

/* The stored watermark; false: none, the queue was never used. */
extern bool ReadWatermark(TimestampTz *watermark);
extern void StoreWatermark(TimestampTz watermark);
extern void ForgetWatermark();

/* One chunk of a counter's backfill, or repair, with its progress.  An error of the source stays with it.  True: more to do. */
extern bool BackfillStep(const Counter *counter);
extern bool RepairStep(const Counter *counter);

/* Turns the requests that user transactions appended into states.  True when there was one. */
extern bool TakeRequests();
/* Appends a request, from a user's transaction. */
extern void AppendRequest(int32 counter, const char *reason);

/* Sets a counter's state; backfilling starts its walk anew. */
extern void SetState(int32 counter, State state, const char *reason);
} // namespace likecount
