/*
 * attach.hpp: adoption, as the worker's turn and flush() call it (see adopt.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/*
 * Adoption, for the worker's turn and flush(): registers complete sets of capture triggers, rows view and slots
 * that have no state row (a restored dump) as 'adopting', puts back lost dependencies (pg_upgrade), and deletes
 * state rows whose rows view is gone.  In the caller's transaction.  True when something was written.
 */
extern bool AdoptCounters();
/* True when there is something that AdoptCounters would register or relink. */
extern bool AdoptionWanted();
/*
 * Moves counters from 'adopting' to 'backfilling' once every writer that was under way when the registration
 * committed has ended.  In a session, which may not come back, it watches them for up to a second.  True when a
 * counter moved.
 */
extern bool SettleAdopted();

/* Capture triggers whose counter is not registered here, for status; number found. */
extern int UnadoptedCounters();
} // namespace likecount
