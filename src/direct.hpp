/*
 * direct.hpp: deltas that a transaction adds to the totals itself (see direct.cpp).
 */
#pragma once

#include "slots.hpp"

namespace likecount
{
/* A counter's slots, open for adding to any that is free. */
struct DirectWriter
{
	const Counter *counter;
	Relation table;
	Relation index;
	IndexScanDesc scan;
	ScanKeyData key;
	Snapshot snapshot;
	TupleTableSlot *old_slot;
	TupleTableSlot *new_slot;
	MemoryContext context; /* of the writer */
	MemoryContext scratch; /* of one post */
	ResultRelInfo *result; /* for index entries; nullptr: none was needed yet */
	EState *estate;
	TimestampTz now;
};

static_assert(kPlain<DirectWriter>);

/* False when a lock cannot be had at once: then the deltas go to the journal.  At pre-commit, in READ COMMITTED. */
extern bool DirectOpen(DirectWriter *writer, const Counter *counter);
/* False when the delta has to go to the journal. */
extern bool DirectAdd(DirectWriter *writer, const Key &key, int64 delta);
extern void DirectClose(DirectWriter *writer);
/* Forgets, at the end of a transaction, how many slots it has opened. */
extern void DirectReset();
} // namespace likecount
