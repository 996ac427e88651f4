/*
 * fold.hpp: bringing the slots of quiet posts together (see fold.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* True when there may be slots to fold, and it is time to look. */
extern bool FoldDue(List *counters);
/* One chunk, under the flush lock, without waiting for anybody.  True: there is more that can be done at once. */
extern bool Fold(List *counters);
/* How long until slots that were not quiet yet are to be looked at again; 0: there are none. */
extern int64 FoldWaitMs();
} // namespace likecount
