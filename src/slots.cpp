/*
 * slots.cpp: the slot rows, whose sum is the total.
 *
 * A slot row has one writing node for ever.  On its node slot 0 is written by the holder of the flush lock, marks by who
 * has the counter's slots lock alone, which freezes, unfreezes or forgets a post (freeze.cpp), or by a flush, which has
 * that lock shared.  So these rows are read and written back without a race, and a flush never waits for one.  Slots above 0
 * are those of direct mode (direct.cpp), where many transactions write at the same time, each a row that it locks if that
 * is free.  Rows are written through the table access method: index look-up, update in place (HOT, only value and
 * updated_at change) or insert.
 *
 * A frozen post has one slot row more, slot -1, its value the total to be displayed minus all other slots.  Whoever adds
 * to slot 0 takes the same from slot -1 of the same node (made when it is another node that has the mark), so readers
 * sum up as ever, and what the post's other slots add up to stays what is compared with the rows.  The index
 * <verb>_slots_frozen holds the marks alone: as long as its file has no more than the metapage, nothing was ever
 * frozen, and nobody looks for marks.
 *
 * The order of heavyweight locks, everywhere:
 *
 *     flush lock -> source (with partitions) -> counter lock -> slots lock, slots -> queue and journal segments
 *         -> internal tables
 *
 * Locks first, snapshot second.  The flush lock comes first, and its holder takes the locks on sources, counters and
 * slots only if it gets them at once (a counter whose lock is taken is left for the next flush), so a transaction that
 * likes or truncates and then calls flush() closes no circle.  Nor does one of a direct counter, which at its commit takes
 * the slots lock, the table's and slots only if it gets them at once.  The worker may wait for one slots lock before it
 * tries the flush lock, a moment, while it holds nothing but the extension, which only a DROP waits for.  The counter
 * lock keeps two recounts of one counter apart, the slots lock those who compute with all slots of a post from those who
 * change one; all are kept to the end of the transaction.  They are object locks of the class _counter, where nobody gets
 * by accident or with an advisory-lock call: object 0 with a number for the flush and the set-up lock, object id for a
 * counter's two.  A single slot is locked as an object of its table: the hash of the post, with the slot's number.
 *
 * All are exclusive, but whoever changes slots that nobody else changes takes the slots lock in share mode: transactions
 * of a direct counter, and flushes.  The flush lock keeps flushes apart already, and a flush that waited for it is woken
 * while the one before is still giving back its other locks, one after the other: it must not take those for somebody's
 * who freezes, and leave the counter.
 */
#include "slots.hpp"

#include "cache.hpp"
#include "debug.hpp"
#include "init.hpp"

namespace likecount
{
namespace
{
enum LockNumber : uint16
{
	kFlushLock = 1,
	kSetupLock = 2,
	kSlotsLock = 3,
};

constexpr int16 kSlotZero = 0;
/* So many entries of the index of marks are looked at for one that counts. */
constexpr int kMostEntries = 1000;

LOCKTAG
ObjectTag(int32 id, uint16 number)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, GetMembers()->counter, (Oid) id, number);
	return tag;
}

bool
Acquire(const LOCKTAG &tag, LOCKMODE mode, bool wait)
{
	/* Where the server's table of locks is full a commit of likes must not fail: there is another way for them. */
	if (!wait)
		return LockIfFree(tag, mode);
	(void) LockAcquire(&tag, mode, false, false);
	return true;
}

int
Holder(const LOCKTAG &tag, LOCKMODE mode)
{
	int conflicts;
	VirtualTransactionId *holders = GetLockConflicts(&tag, mode, &conflicts);

	return conflicts == 0 ? 0 : HolderPid(holders[0]);
}

/* Locks a relation for reading, if need be only when that is possible at once, and opens it; nullptr: neither. */
Relation
OpenToRead(Oid relation, bool wait)
{
	if (!OidIsValid(relation) || (!wait && !ConditionalLockRelationOid(relation, AccessShareLock)))
		return nullptr;
	return try_relation_open(relation, wait ? AccessShareLock : NoLock);
}

/* The index of the marks, or the primary key where that is missing, as in the middle of a restore. */
Relation
OpenMarks(const Counter &counter, Relation slots, bool wait)
{
	Relation index = OpenToRead(counter.frozen, wait);

	return index != nullptr ? index : OpenToRead(SlotsKey(slots), wait);
}

/*
 * True when the index has an entry for a post, of whatever version.  Few likes are of a post that was ever frozen, so for
 * most of them this is all: no snapshot, no look into the table, and in a SERIALIZABLE transaction nothing that a freeze
 * of another post could be in conflict with.
 */
bool
HasEntry(Relation slots, Relation index, Datum post)
{
	IndexScanDesc scan = BeginIndexScan(slots, index, SnapshotSelf, 1);
	ScanKeyData key;

	InitPostKey(&key, index);
	RescanPost(scan, &key, post);
	bool found = index_getnext_tid(scan, ForwardScanDirection) != nullptr;

	index_endscan(scan);
	return found;
}

/*
 * True when a scan of an index meets a mark: of one post or (nullptr) of any, committed or this transaction's own.  For
 * any it looks at some entries only: there may be a million of posts that were unfrozen, before the first one that counts.
 */
bool
MeetsMark(Relation slots, Relation index, const Datum *post)
{
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	IndexScanDesc scan = BeginIndexScan(slots, index, snapshot, post == nullptr ? 0 : 1);
	TupleTableSlot *row = table_slot_create(slots, nullptr);
	ScanKeyData key;
	int looked = 0;
	bool found = false;

	InitPostKey(&key, index);
	if (post != nullptr)
		RescanPost(scan, &key, *post);
	else
		index_rescan(scan, nullptr, 0, nullptr, 0);
	while (!found && (post != nullptr || looked++ < kMostEntries) &&
		   index_getnext_tid(scan, ForwardScanDirection) != nullptr)
	{
		bool isnull;

		found = index_fetch_heap(scan, row) &&
				DatumGetInt16(slot_getattr(row, kSlotSlot, &isnull)) == kFrozenSlot;
	}
	ExecDropSingleTupleTableSlot(row);
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	return found;
}

/*
 * True when a post, or (nullptr) any, is frozen.  For one post nothing is waited for, as a like asks: while somebody
 * rewrites the slots and their indexes, it is taken for one that was in flight when the post was frozen.
 */
bool
FindMark(const Counter &counter, const Datum *post)
{
	bool wait = post == nullptr;
	Relation slots = OpenToRead(counter.slots, wait);
	bool found = false;

	if (slots == nullptr)
		return false;

	Relation index = OpenMarks(counter, slots, wait);

	if (index != nullptr)
	{
		found = (post == nullptr || HasEntry(slots, index, *post)) && MeetsMark(slots, index, post);
		relation_close(index, AccessShareLock);
	}
	table_close(slots, AccessShareLock);
	return found;
}

/* A slot row that is there. */
struct Found
{
	bool found;
	ItemPointerData tid;
	int64 value;
};

/* The slots of a post, as their writer sees them. */
struct PostSlots
{
	Found zero, mark; /* of this node */
	bool frozen;	  /* there is a mark, of whatever node */
	int64 sum;		  /* of all slots */
	bool overflow;	  /* of that */
};

static_assert(kPlain<PostSlots>);

/* Reads a post's slots; where none can be frozen, only up to this node's slot 0. */
PostSlots
ReadSlots(SlotWriter *writer, Datum post, bool all)
{
	PostSlots slots = {};
	TupleTableSlot *row = writer->old_slot;
	MemoryContext caller = MemoryContextSwitchTo(writer->context);

	RescanPost(writer->scan, &writer->key, post);
	while (index_getnext_slot(writer->scan, ForwardScanDirection, row))
	{
		slot_getallattrs(row);

		int16 number = DatumGetInt16(row->tts_values[kSlotSlot - 1]);
		bool ours = DatumGetInt16(row->tts_values[kSlotNode - 1]) == guc_node;
		Found found = {true, row->tts_tid, DatumGetInt64(row->tts_values[kSlotValue - 1])};

		slots.overflow |= pg_add_s64_overflow(slots.sum, found.value, &slots.sum);
		slots.frozen |= number == kFrozenSlot;
		if (ours && number == kSlotZero)
			slots.zero = found;
		else if (ours && number == kFrozenSlot)
			slots.mark = found;
		if (slots.zero.found && !all)
			break;
	}
	MemoryContextSwitchTo(caller);
	/* Its pin would keep the next look at this page from pruning the versions that pile up. */
	ExecClearTuple(row);
	return slots;
}

/* Writes a slot of this node: in the place of the one that was found, if one was. */
void
WriteSlot(SlotWriter *writer, Datum post, int16 number, int64 value, Found *old)
{
	TupleTableSlot *row = writer->new_slot;
	bool only_summarizing = false;
	bool entries = true;

	CacheChanging(*writer->counter, post);
	FillSlot(row, post, number, value, writer->now);

	MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(writer->estate));

	if (old->found)
		entries =
			UpdateTableTuple(writer->table, &old->tid, row, writer->snapshot, &only_summarizing);
	else
		simple_table_tuple_insert(writer->table, row);
	if (entries)
		InsertIndexEntries(writer->result, row, writer->estate, old->found, only_summarizing);
	MemoryContextSwitchTo(caller);
	ResetPerTupleExprContext(writer->estate);
}

/* Deletes a post's marks, or all its slots; true: there was one. */
bool
DeleteSlots(SlotWriter *writer, Datum post, bool marks_only)
{
	bool any = false;

	CacheChanging(*writer->counter, post);
	RescanPost(writer->scan, &writer->key, post);
	while (index_getnext_slot(writer->scan, ForwardScanDirection, writer->old_slot))
	{
		bool isnull;
		Datum number = slot_getattr(writer->old_slot, kSlotSlot, &isnull);

		if (marks_only && DatumGetInt16(number) != kFrozenSlot)
			continue;
		simple_table_tuple_delete(writer->table, &writer->old_slot->tts_tid, writer->snapshot);
		any = true;
	}
	ExecClearTuple(writer->old_slot);
	return any;
}

/* True when a smallint column of a row has a value.  The table may be anybody's, with our trigger. */
bool
IsColumn(Relation relation, HeapTuple row, const char *name, int16 value)
{
	int column = SPI_fnumber(RelationGetDescr(relation), name);
	bool isnull;

	if (column <= 0 || TupleDescAttr(RelationGetDescr(relation), column - 1)->atttypid != INT2OID)
		return false;

	Datum found = heap_getattr(row, column, RelationGetDescr(relation), &isnull);

	return !isnull && DatumGetInt16(found) == value;
}

/* The same as Counter's, as of now: under the slots lock nobody else adds a mark. */
bool
MarksToLookFor(const SlotWriter *writer)
{
	const ResultRelInfo *result = writer->result;

	for (int i = 0; i < result->ri_NumIndices; i++)
		if (RelationGetRelid(result->ri_IndexRelationDescs[i]) == writer->counter->frozen)
			return RelationGetNumberOfBlocks(result->ri_IndexRelationDescs[i]) > 1;
	return true;
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
InitPostKey(ScanKey key, Relation index)
{
	Oid equal = get_opfamily_member(index->rd_opfamily[0], index->rd_opcintype[0],
									index->rd_opcintype[0], BTEqualStrategyNumber);

	ScanKeyEntryInitialize(key, 0, kSlotPost, BTEqualStrategyNumber, index->rd_opcintype[0],
						   index->rd_indcollation[0], get_opcode(equal), (Datum) 0);
}

void
RescanPost(IndexScanDesc scan, ScanKey key, Datum post)
{
	key->sk_argument = post;
	index_rescan(scan, key, 1, nullptr, 0);
}

void
FillSlot(TupleTableSlot *row, Datum post, int16 number, int64 value, TimestampTz at)
{
	ExecClearTuple(row);
	/* Columns that somebody has added. */
	memset(row->tts_isnull, true, sizeof(bool) * (Size) row->tts_tupleDescriptor->natts);
	memset(row->tts_isnull, false, sizeof(bool) * kSlotColumns);
	row->tts_values[kSlotPost - 1] = post;
	row->tts_values[kSlotNode - 1] = Int16GetDatum((int16) guc_node);
	row->tts_values[kSlotSlot - 1] = Int16GetDatum(number);
	row->tts_values[kSlotValue - 1] = Int64GetDatum(value);
	row->tts_values[kSlotUpdatedAt - 1] = TimestampTzGetDatum(at);
	ExecStoreVirtualTuple(row);
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
SlotReaderTotal(SlotReader *reader, Datum post, bool *frozen)
{
	int64 total = 0;
	MemoryContext caller = MemoryContextSwitchTo(reader->context);

	if (frozen != nullptr)
		*frozen = false;
	RescanPost(reader->scan, &reader->key, post);
	while (index_getnext_slot(reader->scan, ForwardScanDirection, reader->slot))
	{
		bool isnull;
		int64 value = DatumGetInt64(slot_getattr(reader->slot, kSlotValue, &isnull));

		if (frozen != nullptr)
			*frozen |= DatumGetInt16(slot_getattr(reader->slot, kSlotSlot, &isnull)) == kFrozenSlot;
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
IsFrozen(const Counter &counter, Datum post)
{
	return FindMark(counter, &post);
}

bool
LockIndexes(Relation table)
{
	List *indexes = RelationGetIndexList(table);
	bool locked = true;
	ListCell *cell;

	foreach (cell, indexes)
		locked = locked && ConditionalLockRelationOid(lfirst_oid(cell), RowExclusiveLock);
	list_free(indexes);
	return locked;
}

bool
SlotWriterOpen(SlotWriter *writer, const Counter *counter, SlotsLock mode)
{
	bool wait = mode == SlotsLock::kAlone;

	if (!LockSlots(counter->id, mode, wait))
		return false;
	if (wait)
		LockRelationOid(counter->slots, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(counter->slots, RowExclusiveLock))
		return false;
	writer->table = try_table_open(counter->slots, NoLock);
	if (writer->table == nullptr)
		return false;

	Oid pk = PrimaryKeyOf(writer->table);

	if (!OidIsValid(pk) || (!wait && !LockIndexes(writer->table)))
	{
		/* A restore has not built the key yet, or somebody is moving an index. */
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
	 * The newest committed state, not the flush's snapshot: nobody else writes what is written here, and what an earlier
	 * flush of this transaction wrote has to be seen.
	 */
	writer->snapshot = RegisterSnapshot(GetLatestSnapshot());
	writer->scan = BeginIndexScan(writer->table, writer->index, writer->snapshot, 1);
	writer->context = CurrentMemoryContext;
	InitPostKey(&writer->key, writer->index);
	writer->old_slot = table_slot_create(writer->table, nullptr);
	writer->new_slot = MakeSingleTupleTableSlot(RelationGetDescr(writer->table), &TTSOpsVirtual);
	writer->now = GetCurrentTimestamp();
	writer->may_be_frozen = MarksToLookFor(writer);
	return true;
}

Added
SlotWriterAdd(SlotWriter *writer, Datum post, int64 delta)
{
	PostSlots slots = ReadSlots(writer, post, writer->may_be_frozen);
	int64 value, mark = 0;

	if (pg_add_s64_overflow(slots.zero.value, delta, &value) ||
		(slots.frozen && pg_sub_s64_overflow(slots.mark.value, delta, &mark)))
		return Added::kOverflow;
	WriteSlot(writer, post, kSlotZero, value, &slots.zero);
	if (slots.frozen)
		WriteSlot(writer, post, kFrozenSlot, mark, &slots.mark);
	return Added::kDone;
}

bool
SlotWriterFreeze(SlotWriter *writer, Datum post, int64 *total)
{
	PostSlots slots = ReadSlots(writer, post, true);
	int64 mark = 0;

	if (slots.overflow || (!slots.frozen && pg_sub_s64_overflow(*total, slots.sum, &mark)))
		ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("total of a post in %s does not fit a bigint",
					   RelationGetRelationName(writer->table)));
	if (slots.frozen)
	{
		*total = slots.sum;
		return false;
	}

	/*
	 * Backends that know of no frozen post have to hear of this one.  Where a committed mark stands, whoever made it has
	 * told them.  One of a transaction that was rolled back counts for nothing, though it made the index grow.  Telling
	 * them once more than needed does no harm.
	 */
	if (OidIsValid(writer->counter->frozen) && !FindMark(*writer->counter, nullptr))
		CacheInvalidateRelcache(writer->table);
	WriteSlot(writer, post, kFrozenSlot, mark, &slots.mark);
	return true;
}

bool
SlotWriterUnfreeze(SlotWriter *writer, Datum post)
{
	return DeleteSlots(writer, post, true);
}

bool
SlotWriterForget(SlotWriter *writer, Datum post)
{
	return DeleteSlots(writer, post, false);
}

int
SlotWriterFold(SlotWriter *writer, Datum post, const OpenSlot *open, int count, const Quiet &quiet,
			   bool *busy)
{
	Key key = KeyFromDatum(writer->counter->post_type, post);
	auto *taken = palloc_array(ItemPointerData, count);
	TupleTableSlot *row = writer->old_slot;
	int folded = 0;
	int64 sum = 0;

	for (int i = 0; i < count; i++)
	{
		ItemPointerData tid = open[i].tid;
		TM_FailureData failure;
		bool isnull;
		int64 with;

		/* Who opens the slot again must not meet this transaction in the index. */
		if (!LockSlot(*writer->counter, key, open[i].number) ||
			table_tuple_lock(writer->table, &tid, writer->snapshot, row, GetCurrentCommandId(true),
							 LockTupleExclusive, LockWaitSkip, TUPLE_LOCK_FLAG_FIND_LAST_VERSION,
							 &failure) != TM_Ok ||
			!quiet.Includes(DatumGetTimestampTz(slot_getattr(row, kSlotUpdatedAt, &isnull))))
			*busy = true;
		else if (!pg_add_s64_overflow(sum, DatumGetInt64(slot_getattr(row, kSlotValue, &isnull)),
									  &with))
		{
			sum = with;
			taken[folded++] = row->tts_tid;
		}
		ExecClearTuple(row);
	}
	if (folded == 0)
		return 0;

	PostSlots slots = ReadSlots(writer, post, false);
	int64 value;

	if (pg_add_s64_overflow(slots.zero.value, sum, &value))
		return 0;
	LIKECOUNT_DEBUG_POINT("fold: slots locked");
	/* A mark stays: what the other slots add up to is the same. */
	WriteSlot(writer, post, kSlotZero, value, &slots.zero);
	for (int i = 0; i < folded; i++)
		simple_table_tuple_delete(writer->table, &taken[i], writer->snapshot);
	return folded;
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
	return Acquire(ObjectTag(0, kFlushLock), ExclusiveLock, wait);
}

bool
LockCounter(int32 id, bool wait)
{
	return Acquire(ObjectTag(id, 0), ExclusiveLock, wait);
}

bool
LockSlots(int32 id, SlotsLock mode, bool wait)
{
	return Acquire(ObjectTag(id, kSlotsLock),
				   mode == SlotsLock::kShared ? ShareLock : ExclusiveLock, wait);
}

bool
LockSlot(const Counter &counter, const Key &post, int16 number)
{
	LOCKTAG tag;

	/* Two posts with one hash merely see each other's slots as taken. */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, counter.slots, KeyHash(post), (uint16) number);
	return Acquire(tag, ExclusiveLock, false);
}

void
LockSetup()
{
	(void) Acquire(ObjectTag(0, kSetupLock), ExclusiveLock, true);
}

int
FlushLockHolder()
{
	return Holder(ObjectTag(0, kFlushLock), ExclusiveLock);
}

int
CounterLockHolder(int32 id)
{
	int pid = Holder(ObjectTag(id, 0), ExclusiveLock);

	/* Who has it in share mode is not meant: a flush shows as the holder of the flush lock, a direct commit is brief. */
	return pid != 0 ? pid : Holder(ObjectTag(id, kSlotsLock), ShareLock);
}
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_other_node);
PGDLLEXPORT Datum likecount_other_node(PG_FUNCTION_ARGS);
}

/*
 * Refuses a replicated slot of this server's own node: both servers would write that row.  And tells of a post that is
 * frozen where the slot comes from.
 */
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

	if (IsColumn(trigger->tg_relation, row, "node", (int16) guc_node))
		ereport(
			ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg(
				"a row of table %s arrives by replication for node %d, which is this server's own",
				QualifiedName(RelationGetRelid(trigger->tg_relation)), guc_node),
			errhint("Give each server another likecount.node before its slots are replicated."));
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event) &&
		IsColumn(trigger->tg_relation, row, "slot", kFrozenSlot))
		CacheInvalidateRelcache(trigger->tg_relation);
	return PointerGetDatum(row);
}
