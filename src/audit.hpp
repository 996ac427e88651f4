/*
 * audit.hpp: the continuous check of a few posts (see audit.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* Tells the audit of a post that a flush of this process has changed. */
extern void NoteFlushed(int32 counter, const Key &post);
/* True when a round of the audit is due. */
extern bool AuditDue();
/* One round, in the caller's transaction, as the extension's owner.  True when something was corrected. */
extern bool Audit();
} // namespace likecount
