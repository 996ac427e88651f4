/*
 * insert.hpp: one like into the source, without a plan where that is the same (see insert.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/*
 * Records a like as INSERT ... ON CONFLICT (post, user) DO NOTHING would, and says whether it is new.
 * False: it has to be that statement.  The source is locked, and the caller may use its schema.
 */
extern bool FastInsert(const Counter &counter, Datum post, Datum user, bool *inserted);

/* Why a like of this counter has to be a statement, in the current memory context; nullptr: it has not. */
extern const char *StatementReason(const Counter &counter, Relation source);
} // namespace likecount
