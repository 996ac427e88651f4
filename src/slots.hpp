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
/* The total of a post under the reader's snapshot; 0 when it has no slots. */
extern int64 SlotReaderTotal(SlotReader *reader, Datum post);
extern void SlotReaderClose(SlotReader *reader);

/* A counter's slots, open for adding to slot 0 of this node.  Only the holder of the flush lock does that. */
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
};

enum class Added : uint8
{
	kDone,
	kOverflow, /* the sum does not fit: nothing was written */
};

/* False when the lock on the table cannot be had at once, or the table is gone. */
extern bool SlotWriterOpen(SlotWriter *writer, const Counter *counter);
extern Added SlotWriterAdd(SlotWriter *writer, Datum post, int64 delta);
extern void SlotWriterClose(SlotWriter *writer);

/* The heavyweight locks that are not on relations.  All are kept to the end of the transaction. */
extern bool LockFlush(bool wait);
extern bool LockCounter(int32 id, bool wait);
extern void LockSetup();
/* True for a prepared transaction among the holders of a lock. */
extern bool IsPrepared(const VirtualTransactionId &vxid);
/* Pid of a lock's holder; -1: a prepared transaction. */
extern int HolderPid(const VirtualTransactionId &vxid);
/* Pid of who holds the flush lock, or a counter's; 0: nobody. */
extern int FlushLockHolder();
extern int CounterLockHolder(int32 id);
} // namespace likecount
