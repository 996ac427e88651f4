/*
 * capture.hpp: the capture trigger and this transaction's deltas (see capture.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* Registers the transaction callbacks; called once from _PG_init. */
extern void CaptureInit();

/* The caller's own deltas of a post that are not appended yet, over all live subtransaction levels. */
extern int64 OwnDelta(int32 counter, const Key &post);

/* What the capture triggers do about a row that an INSERT stored, a DELETE removed; not for a counter with a condition. */
extern void CaptureInsert(const Captured &captured, TupleTableSlot *row);
extern void CaptureDelete(const Captured &captured, TupleTableSlot *row);

/* An error when a post is frozen, unless this transaction has looked before. */
extern void DemandUnfrozen(const Counter &counter, Datum post);
/* Makes it look again: this transaction freezes the post. */
extern void ForgetUnfrozen(int32 counter, const Key &post);

/* Adds to the current level; for code that knows a delta without a trigger (TRUNCATE). */
extern void AddDelta(int32 counter, const Key &post, int64 delta);

/* A delta of the accumulator, for whoever walks it. */
struct OwnEntry
{
	int32 counter;
	Key post;
	int64 delta;
};

/* Calls visit for each entry: of the current level only, or of all levels. */
extern void
VisitOwn(bool current_level_only, void (*visit)(const OwnEntry &entry, void *arg), void *arg);
/* Forgets one counter's entries of the current level: a flush has applied them. */
extern void ForgetOwnOfLevel(int32 counter);
} // namespace likecount
