/*
 * slots.hpp: the slot rows, whose sum is the total (see slots.cpp, which also states the lock order).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* Columns of <verb>_slots. */
enum SlotColumn : AttrNumber
{
	kSlotPost = 1,
	kSlotNode,
	kSlotSlot,
	kSlotValue,
	kSlotUpdatedAt,
	kSlotColumns = kSlotUpdatedAt,
};

/* The slot number of a frozen post's mark: what the post's other slots lack to the total that is to be displayed. */
constexpr int16 kFrozenSlot = -1;

/* A counter's slots, open for reading. */
struct SlotReader
{
	Relation table;
	Relation index;
	IndexScanDesc scan;
	ScanKeyData key;	   /* post = ... */
	MemoryContext context; /* in which the reader was opened: a scan keeps memory of its own */
	TupleTableSlot *slot;
};

/* The primary key of a slots table, or an error when it is not there yet. */
extern Oid SlotsKey(Relation slots);
extern void SlotReaderOpen(SlotReader *reader, const Counter *counter, Snapshot snapshot);
/* The total of a post under the reader's snapshot; 0 when it has no slots.  frozen may be nullptr. */
extern int64 SlotReaderTotal(SlotReader *reader, Datum post, bool *frozen);
extern void SlotReaderClose(SlotReader *reader);

/* Prepares the condition post = ... on the primary key, whose columns are a slots table's first three. */
extern void InitPostKey(ScanKey key, Relation index);
/* Starts the scan for one post, all nodes and slots. */
extern void RescanPost(IndexScanDesc scan, ScanKey key, Datum post);
/* Makes a slot of this node out of its values. */
extern void FillSlot(TupleTableSlot *row, Datum post, int16 number, int64 value, TimestampTz at);

/* True when a post is frozen: now, whatever the transaction's snapshot. */
extern bool IsFrozen(const Counter &counter, Datum post);

/* Locks the indexes of an open slots table, for writing, if all of them are free. */
extern bool LockIndexes(Relation table);

/* The two ways of holding a counter's slots lock. */
enum class SlotsLock : uint8
{
	kShared, /* to change slots: flushes, and transactions of a direct counter */
	kAlone,	 /* to make marks, or to delete slots by the post */
};

/* A counter's slots, open for changing this node's slot 0 and mark: under the flush lock, or alone. */
struct SlotWriter
{
	const Counter *counter;
	Relation table;
	Relation index;
	ResultRelInfo *result;
	EState *estate;
	IndexScanDesc scan;
	ScanKeyData key;
	MemoryContext context;
	TupleTableSlot *old_slot;
	TupleTableSlot *new_slot;
	Snapshot snapshot;
	TimestampTz now;
	bool may_be_frozen;
};

static_assert(kPlain<SlotWriter>);

enum class Added : uint8
{
	kDone,
	kOverflow, /* the sum does not fit: nothing was written */
};

/*
 * Shared: takes its locks only if they are free.  Alone: waits for them.  False when a lock can't be had, or the table is
 * gone.
 */
extern bool SlotWriterOpen(SlotWriter *writer, const Counter *counter, SlotsLock mode);
/* Adds to slot 0; the total of a frozen post stays. */
extern Added SlotWriterAdd(SlotWriter *writer, Datum post, int64 delta);
/* Freezes a post at a total.  False: it is frozen already, and *total says at what. */
extern bool SlotWriterFreeze(SlotWriter *writer, Datum post, int64 *total);
/* Deletes a post's mark, or all its slots, of every node.  True: there was one. */
extern bool SlotWriterUnfreeze(SlotWriter *writer, Datum post);
extern bool SlotWriterForget(SlotWriter *writer, Datum post);
/* A slot above 0 of this node. */
struct OpenSlot
{
	int16 number;
	ItemPointerData tid;
};

/* Which slots are quiet. */
struct Quiet
{
	TimestampTz before; /* those that were written before this */
	TimestampTz after;	/* and, by a clock that was set back since, after this */

	bool Includes(TimestampTz written) const
	{
		return written < before || written > after;
	}
};

/*
 * Adds those of a post's slots to slot 0, and deletes them, that nobody holds and that are quiet; returns how many.
 * *busy: others may be folded later.
 */
extern int SlotWriterFold(SlotWriter *writer, Datum post, const OpenSlot *open, int count,
						  const Quiet &quiet, bool *busy);
extern void SlotWriterClose(SlotWriter *writer);

/* The heavyweight locks that are not on relations.  All are kept to the end of the transaction. */
extern bool LockFlush(bool wait);
extern bool LockCounter(int32 id, bool wait);
extern bool LockSlots(int32 id, SlotsLock mode, bool wait);
/* The right to make or delete one slot above 0, for who gets it at once. */
extern bool LockSlot(const Counter &counter, const Key &post, int16 number);
extern void LockSetup();
/* True for a prepared transaction among the holders of a lock. */
extern bool IsPrepared(const VirtualTransactionId &vxid);
/* Pid of a lock's holder; -1: a prepared transaction. */
extern int HolderPid(const VirtualTransactionId &vxid);
/* Pid of who holds the flush lock; or a counter's, or freezes a post of it; 0: nobody. */
extern int FlushLockHolder();
extern int CounterLockHolder(int32 id);
} // namespace likecount
