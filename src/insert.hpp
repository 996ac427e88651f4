/*
 * insert.hpp: one like into the source, without a plan where that is the same (see insert.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
struct InsertPlan;

/* Inserts likes into one source, for the time of one call. */
struct FastInsert
{
	static constexpr int kMaxCaptures = 4; /* triggers of ours, each of a counter, on one table */

	const InsertPlan *plan;
	Relation source;
	EState *estate;
	ResultRelInfo *result;
	TupleTableSlot *row;
	Captured captured[kMaxCaptures];
	int captures;
};

static_assert(kPlain<FastInsert>);

/* False: it has to be a statement, and nothing is open.  The source is locked, and the caller may use its schema. */
extern bool FastInsertBegin(FastInsert *insert, const Counter &counter);
/* Records a like as INSERT ... ON CONFLICT (post, user) DO NOTHING would, and says whether it is new. */
extern bool FastInsertRow(FastInsert *insert, Datum post, Datum user);
extern void FastInsertEnd(FastInsert *insert);

/* Why a like of this counter has to be a statement, in the current memory context; nullptr: it has not. */
extern const char *StatementReason(const Counter &counter, Relation source);
} // namespace likecount
