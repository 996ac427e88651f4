/*
 * slots.cpp: the slot rows, whose sum is the total.
 *
 * A slot row has one writing node for ever, and on its node slot 0 has one writer: the holder of the flush lock.  So
 * a row is read and written back without a race, and no user transaction ever holds a slot row.  Rows are written
 * through the table access method: index look-up, update in place (HOT, only value and updated_at change) or insert.
 *
 * The order of heavyweight locks, everywhere:
 *
 *     flush lock -> source (with partitions) -> counter lock -> slots -> queue and journal segments -> internal tables
 *
 * Locks first, snapshot second.  The flush lock comes first, and its holder takes the locks on sources, counters and
 * slots only if it gets them at once (a counter whose lock is taken is left for the next flush), so a transaction that
 * likes or truncates and then calls flush() closes no circle.  The counter lock keeps two recounts of one counter
 * apart; both are kept to the end of the transaction.  They are object locks of the class _counter, where nobody
 * gets by accident or with an advisory-lock call: object 0 with a number for the flush and the set-up lock, object id
 * for a counter's.
 */
#include "slots.hpp"

#include "init.hpp"

namespace likecount
{
namespace
{
enum LockNumber : uint16
{
	kFlushLock = 1,
	kSetupLock = 2,
};

constexpr int16 kSlotZero = 0;

LOCKTAG
ObjectTag(int32 id, uint16 number)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, GetMembers()->counter, (Oid) id, number);
	return tag;
}

bool
Acquire(const LOCKTAG &tag, bool wait)
{
	return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

int
Holder(const LOCKTAG &tag)
{
	int conflicts;
	VirtualTransactionId *holders = GetLockConflicts(&tag, ExclusiveLock, &conflicts);

	return conflicts == 0 ? 0 : HolderPid(holders[0]);
}

/* Prepares the condition post = ... on the primary key, whose columns are the slots table's first three. */
void
InitPostKey(ScanKey key, Relation index)
{
	Oid equal = get_opfamily_member(index->rd_opfamily[0], index->rd_opcintype[0],
									index->rd_opcintype[0], BTEqualStrategyNumber);

	ScanKeyEntryInitialize(key, 0, kSlotPost, BTEqualStrategyNumber, index->rd_opcintype[0],
						   index->rd_indcollation[0], get_opcode(equal), (Datum) 0);
}

/* Starts the scan for one post, all nodes and slots. */
void
RescanPost(IndexScanDesc scan, ScanKey key, Datum post)
{
	key->sk_argument = post;
	index_rescan(scan, key, 1, nullptr, 0);
}
} // namespace

/*
 * A prepared transaction keeps the virtual id of the session that prepared it, unless the server
 * was restarted since.
 */
bool
IsPrepared(const VirtualTransactionId &vxid)
{
	bool have_more;

	return VirtualTransactionIdIsRecoveredPreparedXact(vxid) ||
		   TransactionIdIsValid(TwoPhaseGetXidByVirtualXID(vxid, &have_more));
}

int
HolderPid(const VirtualTransactionId &vxid)
{
	return IsPrepared(vxid) ? -1 : VirtualTransactionPid(vxid);
}

Oid
SlotsKey(Relation slots)
{
	Oid pk = PrimaryKeyOf(slots);

	if (!OidIsValid(pk))
		ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("table %s has no primary key", QualifiedName(RelationGetRelid(slots))),
				errhint("A restore that is still running creates it at its end."));
	return pk;
}

void
SlotReaderOpen(SlotReader *reader, const Counter *counter, Snapshot snapshot)
{
	reader->table = try_table_open(counter->slots, AccessShareLock);
	if (reader->table == nullptr)
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("counter \"%s\" was detached meanwhile", NameStr(counter->verb)));

	reader->index = index_open(SlotsKey(reader->table), AccessShareLock);
	reader->scan = BeginIndexScan(reader->table, reader->index, snapshot, 1);
	reader->context = CurrentMemoryContext;
	InitPostKey(&reader->key, reader->index);
	reader->slot = table_slot_create(reader->table, nullptr);
}

int64
SlotReaderTotal(SlotReader *reader, Datum post)
{
	int64 total = 0;
	MemoryContext caller = MemoryContextSwitchTo(reader->context);

	RescanPost(reader->scan, &reader->key, post);
	while (index_getnext_slot(reader->scan, ForwardScanDirection, reader->slot))
	{
		bool isnull;
		int64 value = DatumGetInt64(slot_getattr(reader->slot, kSlotValue, &isnull));

		if (pg_add_s64_overflow(total, value, &total))
			ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					errmsg("total of a post in %s does not fit a bigint",
						   RelationGetRelationName(reader->table)));
	}
	MemoryContextSwitchTo(caller);
	return total;
}

void
SlotReaderClose(SlotReader *reader)
{
	ExecDropSingleTupleTableSlot(reader->slot);
	index_endscan(reader->scan);
	index_close(reader->index, AccessShareLock);
	table_close(reader->table, AccessShareLock);
}

bool
SlotWriterOpen(SlotWriter *writer, const Counter *counter)
{
	if (!ConditionalLockRelationOid(counter->slots, RowExclusiveLock))
		return false;
	writer->table = try_table_open(counter->slots, NoLock);
	if (writer->table == nullptr)
		return false;

	Oid pk = PrimaryKeyOf(writer->table);

	if (!OidIsValid(pk))
	{
		/* A restore has not built the key yet. */
		table_close(writer->table, RowExclusiveLock);
		return false;
	}
	writer->counter = counter;
	writer->estate = CreateExecutorState();
	writer->result = makeNode(ResultRelInfo);
	InitResultRelInfo(writer->result, writer->table, 0, nullptr, 0);
	ExecOpenIndices(writer->result, false);
	writer->index = index_open(pk, RowExclusiveLock);

	/*
	 * The newest committed state of slot 0, not the flush's snapshot: under the flush lock nobody else writes it, and what an
	 * earlier flush of this transaction wrote has to be seen.
	 */
	writer->snapshot = RegisterSnapshot(GetLatestSnapshot());
	writer->scan = BeginIndexScan(writer->table, writer->index, writer->snapshot, 1);
	writer->context = CurrentMemoryContext;
	InitPostKey(&writer->key, writer->index);
	writer->old_slot = table_slot_create(writer->table, nullptr);
	writer->new_slot = MakeSingleTupleTableSlot(RelationGetDescr(writer->table), &TTSOpsVirtual);
	writer->now = GetCurrentTimestamp();
	return true;
}

Added
SlotWriterAdd(SlotWriter *writer, Datum post, int64 delta)
{
	TupleTableSlot *row = writer->new_slot;
	bool found = false;
	int64 value = 0;
	MemoryContext caller = MemoryContextSwitchTo(writer->context);

	RescanPost(writer->scan, &writer->key, post);
	while (!found && index_getnext_slot(writer->scan, ForwardScanDirection, writer->old_slot))
	{
		slot_getallattrs(writer->old_slot);
		found = DatumGetInt16(writer->old_slot->tts_values[kSlotNode - 1]) == guc_node &&
				DatumGetInt16(writer->old_slot->tts_values[kSlotSlot - 1]) == kSlotZero;
		if (found)
			value = DatumGetInt64(writer->old_slot->tts_values[kSlotValue - 1]);
	}
	MemoryContextSwitchTo(caller);
	if (pg_add_s64_overflow(value, delta, &value))
		return Added::kOverflow;

	ExecClearTuple(row);
	memset(row->tts_isnull, 0, sizeof(bool) * kSlotColumns);
	row->tts_values[kSlotPost - 1] = post;
	row->tts_values[kSlotNode - 1] = Int16GetDatum((int16) guc_node);
	row->tts_values[kSlotSlot - 1] = Int16GetDatum(kSlotZero);
	row->tts_values[kSlotValue - 1] = Int64GetDatum(value);
	row->tts_values[kSlotUpdatedAt - 1] = TimestampTzGetDatum(writer->now);
	ExecStoreVirtualTuple(row);

	MemoryContextSwitchTo(GetPerTupleMemoryContext(writer->estate));

	bool only_summarizing = false;
	bool entries = true;

	if (found)
		entries = UpdateTableTuple(writer->table, &writer->old_slot->tts_tid, row, writer->snapshot,
								   &only_summarizing);
	else
		simple_table_tuple_insert(writer->table, row);
	if (entries)
		InsertIndexEntries(writer->result, row, writer->estate, found, only_summarizing);
	MemoryContextSwitchTo(caller);
	ResetPerTupleExprContext(writer->estate);
	/* Its pin would keep the next look at this page from pruning the versions that pile up. */
	ExecClearTuple(writer->old_slot);
	return Added::kDone;
}

void
SlotWriterClose(SlotWriter *writer)
{
	ExecDropSingleTupleTableSlot(writer->new_slot);
	ExecDropSingleTupleTableSlot(writer->old_slot);
	index_endscan(writer->scan);
	UnregisterSnapshot(writer->snapshot);
	index_close(writer->index, NoLock);
	ExecCloseIndices(writer->result);
	FreeExecutorState(writer->estate);
	table_close(writer->table, NoLock);
	CommandCounterIncrement();
}

bool
LockFlush(bool wait)
{
	return Acquire(ObjectTag(0, kFlushLock), wait);
}

bool
LockCounter(int32 id, bool wait)
{
	return Acquire(ObjectTag(id, 0), wait);
}

void
LockSetup()
{
	(void) Acquire(ObjectTag(0, kSetupLock), true);
}

int
FlushLockHolder()
{
	return Holder(ObjectTag(0, kFlushLock));
}

int
CounterLockHolder(int32 id)
{
	return Holder(ObjectTag(id, 0));
}
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_other_node);
PGDLLEXPORT Datum likecount_other_node(PG_FUNCTION_ARGS);
}

/* Refuses a replicated slot of this server's own node: both servers would write that row. */
Datum
likecount_other_node(PG_FUNCTION_ARGS)
{
	using namespace likecount;
	auto *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("likecount._other_node() is not a trigger for this event"));

	HeapTuple row =
		TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	int node = SPI_fnumber(RelationGetDescr(trigger->tg_relation), "node");
	bool isnull = true;
	Datum value = node <= 0
					  ? (Datum) 0
					  : heap_getattr(row, node, RelationGetDescr(trigger->tg_relation), &isnull);

	if (!isnull && get_atttype(RelationGetRelid(trigger->tg_relation), node) == INT2OID &&
		DatumGetInt16(value) == guc_node)
		ereport(
			ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg(
				"a row of table %s arrives by replication for node %d, which is this server's own",
				QualifiedName(RelationGetRelid(trigger->tg_relation)), guc_node),
			errhint("Give each server another likecount.node before its slots are replicated."));
	return PointerGetDatum(row);
}
