/*
 * freeze.hpp: changing the slots of a post beside the flushes (see freeze.cpp).
 */
#pragma once

#include "slots.hpp"

namespace likecount
{
/*
 * Takes the locks of a user's change of a post's slots, to the end of the transaction, and opens the slots.  what: the
 * verb and object of "cannot ...".
 */
extern void BeginChange(const Counter *counter, SlotWriter *writer, const char *what);
} // namespace likecount
