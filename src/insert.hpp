/*
 * insert.hpp: one like into the source, or out of it, without a plan where that is the same (see insert.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* Triggers of ours, each of a counter, on one table. */
constexpr int kMaxCaptures = 4;

struct CapturedList
{
	const Captured *each[kMaxCaptures];
	int count;
};

/* Inserts likes into one source, for the time of one call. */
struct FastInsert
{
	const InsertPlan *plan;
	Relation source;
	EState *estate;
	ResultRelInfo *result;
	TupleTableSlot *row;
	CapturedList captured;
};

static_assert(kPlain<FastInsert>);

/* False: it has to be a statement, and nothing is open.  The source is locked, and the caller may use its schema. */
extern bool FastInsertBegin(FastInsert *insert, const Counter &counter);
/* Records a like as INSERT ... ON CONFLICT (post, user) DO NOTHING would, and says whether it is new. */
extern bool FastInsertRow(FastInsert *insert, Datum post, Datum user);
extern void FastInsertEnd(FastInsert *insert);

/*
 * Removes a like as DELETE would, and says whether there was one.  False: it has to be that statement, and nothing was
 * done.  The source is locked, and the caller may use its schema.
 */
extern bool FastRemove(const Counter &counter, Datum post, Datum user, bool *removed);

/* Why a like of this counter has to be a statement, in the current memory context; nullptr: it has not. */
extern const char *StatementReason(const Counter &counter, Relation source);
} // namespace likecount
