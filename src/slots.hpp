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

/* True when a post is frozen: now, whatever the transaction's snapshot. */
extern bool IsFrozen(const Counter &counter, Datum post);

/* A counter's slots, open for changing this node's.  Only one writer at a time has them: it holds the slots lock. */
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

/* False when a lock cannot be had at once and wait is false, or the table is gone. */
extern bool SlotWriterOpen(SlotWriter *writer, const Counter *counter, bool wait);
/* Adds to slot 0; the total of a frozen post stays. */
extern Added SlotWriterAdd(SlotWriter *writer, Datum post, int64 delta);
/* Freezes a post at a total.  False: it is frozen already, and *total says at what. */
extern bool SlotWriterFreeze(SlotWriter *writer, Datum post, int64 *total);
/* Deletes a post's mark, or all its slots, of every node.  True: there was one. */
extern bool SlotWriterUnfreeze(SlotWriter *writer, Datum post);
extern bool SlotWriterForget(SlotWriter *writer, Datum post);
extern void SlotWriterClose(SlotWriter *writer);

/* The heavyweight locks that are not on relations.  All are kept to the end of the transaction. */
extern bool LockFlush(bool wait);
extern bool LockCounter(int32 id, bool wait);
/* Slots: exclusively; or in share mode, for a flush, whose slots only the holder of the flush lock changes. */
extern void LockSlots(int32 id);
extern bool LockSlotsForFlush(int32 id, bool wait);
extern void LockSetup();
/* True for a prepared transaction among the holders of a lock. */
extern bool IsPrepared(const VirtualTransactionId &vxid);
/* Pid of a lock's holder; -1: a prepared transaction. */
extern int HolderPid(const VirtualTransactionId &vxid);
/* Pid of who holds the flush lock; or a counter's, or freezes a post of it; 0: nobody. */
extern int FlushLockHolder();
extern int CounterLockHolder(int32 id);
} // namespace likecount
