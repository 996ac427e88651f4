/*
 * freeze.hpp: changing the slots of a post beside the flushes (see freeze.cpp).
 */
#pragma once

#include "slots.hpp"

namespace likecount
{
/* What a user does to a post's slots. */
enum class Change : uint8
{
	kFreeze,
	kUnfreeze,
	kForget,
};

/* Takes the locks of a change of a post's slots, to the end of the transaction, and opens the slots. */
extern void BeginChange(const Counter *counter, SlotWriter *writer, Change change);
} // namespace likecount
