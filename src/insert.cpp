/*
 * insert.cpp: one like into the source, or out of it, without a plan where that is the same.
 *
 * A statement over one row spends more on building up and taking down its plan than on the row.  For a table whose INSERT
 * has nothing to do but to store two keys, constants and the time, this does what the executor's ModifyTable would do
 * with it, by the executor's own functions: privileges, a look into the indexes that ON CONFLICT names, a speculative
 * insert, the entries of all indexes with their unique and exclusion constraints, and again from the start when another
 * session was faster.  Then it captures what the capture triggers would have captured.  A DELETE is a look into one of
 * those indexes and the deletion of the row it finds; when another transaction was at that row first, it is left to the
 * statement, which knows what to do about it.
 *
 * Whatever else a table asks of them stays with the statement: see TableRefusal() and who calls it, which list it.  The
 * answers are kept per counter until the source changes, as plans are.  What can change without that is looked at on each
 * call: the replication role, which decides which triggers fire, and modules that want to see each statement's
 * privileges checked.
 *
 * Two things differ from the statement, and no row can show them: modules that watch statements (pg_stat_statements
 * with track = all) see the outer call alone, and an error's context does not quote the statement.
 */
#include "insert.hpp"

#include "capture.hpp"
#include "names.hpp"

namespace likecount
{
/* Where a column's value comes from. */
enum class From : uint8
{
	kPost,
	kUser,
	kConstant,
	kClock,
	kTransactionStart,
	kStatementStart,
};

struct Column
{
	From from;
	bool isnull;
	Datum value; /* of a constant */
};

/* Who fires on INSERT, or on DELETE, and is captured here: the verbs of our triggers. */
struct Captures
{
	const char *verbs[kMaxCaptures];
	int count;
};

/* What one of the two statements would demand. */
struct Demand
{
	const char *refusal; /* nullptr: it can be done without the statement */
	Captures captures;
	List *range_table;
	List *permissions; /* PostgreSQL 16 and later */
};

/* What the likes of one counter need to know of its source; not changed once it is made. */
struct SourcePlan
{
	MemoryContext context;
	Demand insert;
	Demand remove;
	Column *columns;
	List *arbiters; /* the indexes that ON CONFLICT (post, user) infers */
};

static_assert(kPlain<SourcePlan>);

namespace
{
struct PlanEntry
{
	int32 counter;
	Oid source;
	bool stale;		  /* the source has changed since the plan was made */
	SourcePlan *plan; /* nullptr: none yet */
};

static_assert(kPlain<PlanEntry>);

HTAB *plans = nullptr;
/* Grows with every change of a source, so that whoever makes a plan sees that it is stale already. */
uint64 changes = 0;

bool
IsForeignFunction(Oid function, void *)
{
	return function >= FirstUnpinnedObjectId;
}

/* True when an expression needs a function that somebody may replace without the table's knowing. */
bool
NeedsForeignFunction(Node *node, void *)
{
	return node != nullptr && (check_functions_in_node(node, IsForeignFunction, nullptr) ||
							   WalkExpression(node, NeedsForeignFunction, nullptr));
}

/* Reads a default that is the time of something; false: it is not. */
bool
ReadTime(Node *node, Column *column)
{
	if (IsA(node, FuncExpr))
	{
		switch (reinterpret_cast<FuncExpr *>(node)->funcid)
		{
			case F_CLOCK_TIMESTAMP:
				column->from = From::kClock;
				return true;
			case F_NOW:
			case F_TRANSACTION_TIMESTAMP:
				column->from = From::kTransactionStart;
				return true;
			case F_STATEMENT_TIMESTAMP:
				column->from = From::kStatementStart;
				return true;
			default:
				return false;
		}
	}
	if (IsA(node, SQLValueFunction) &&
		reinterpret_cast<SQLValueFunction *>(node)->op == SVFOP_CURRENT_TIMESTAMP)
	{
		column->from = From::kTransactionStart;
		return true;
	}
	return false;
}

/* Finds out what a like leaves in a column; returns why it has to be a statement, or nullptr. */
const char *
ReadColumn(const Counter &counter, Relation source, Form_pg_attribute att, Column *column)
{
	*column = {From::kConstant, true, (Datum) 0};
	if (att->attisdropped)
		return nullptr;
	/* The value of a domain is checked on its way into the row. */
	if (get_typtype(att->atttypid) == TYPTYPE_DOMAIN)
		return psprintf("column \"%s\" is of a domain", NameStr(att->attname));
	if (att->attnum == counter.post_att || att->attnum == counter.user_att)
	{
		column->from = att->attnum == counter.post_att ? From::kPost : From::kUser;
		return att->atttypmod < 0
				   ? nullptr
				   : psprintf("column \"%s\" has a limited length", NameStr(att->attname));
	}

	Node *value = att->attgenerated != '\0' ? nullptr : build_column_default(source, att->attnum);

	if (att->attgenerated != '\0' || att->attidentity != '\0')
		return psprintf("column \"%s\" is generated", NameStr(att->attname));
	if (value != nullptr && !ReadTime(value, column))
	{
		if (!NeedsForeignFunction(value, nullptr))
			value = eval_const_expressions(nullptr, value);
		if (!IsA(value, Const))
			return psprintf("the default of column \"%s\" is neither constant nor the time",
							NameStr(att->attname));

		auto *constant = reinterpret_cast<Const *>(value);

		column->isnull = constant->constisnull;
		column->value = constant->constvalue;
	}
	if (column->from == From::kConstant && column->isnull && att->attnotnull)
		return psprintf("column \"%s\" is NOT NULL without a default", NameStr(att->attname));
	return nullptr;
}

/* True for a trigger that captures rows and does nothing else. */
bool
IsCapture(const Trigger &trigger, Oid capture)
{
	return trigger.tgfoid == capture && TRIGGER_FOR_AFTER(trigger.tgtype) &&
		   TRIGGER_FOR_ROW(trigger.tgtype) && !trigger.tgdeferrable && trigger.tgqual == nullptr &&
		   trigger.tgnewtable == nullptr && trigger.tgoldtable == nullptr && trigger.tgnargs > 0;
}

/* Reads what an event (TRIGGER_TYPE_INSERT, ...) fires; returns why it has to be a statement, or nullptr. */
const char *
ReadTriggers(Relation source, int16 event, Captures *captures)
{
	const TriggerDesc *triggers = source->trigdesc;
	Oid capture = FunctionNamed("_capture", GetMembers()->schema);

	for (int i = 0; triggers != nullptr && i < triggers->numtriggers; i++)
	{
		const Trigger &trigger = triggers->triggers[i];

		if ((trigger.tgtype & event) == 0)
			continue;
		if (!IsCapture(trigger, capture))
			return psprintf("trigger \"%s\" fires on %s", trigger.tgname,
							event == TRIGGER_TYPE_INSERT ? "INSERT" : "DELETE");
		if (trigger.tgenabled != TRIGGER_FIRES_ON_ORIGIN &&
			trigger.tgenabled != TRIGGER_FIRES_ALWAYS)
			continue;
		if (captures->count == kMaxCaptures)
			return "many counters share the table";
		captures->verbs[captures->count++] = pstrdup(trigger.tgargs[0]);
	}
	return nullptr;
}

/* True when ON CONFLICT (post, user) infers an index: unique, over all rows, over exactly these columns. */
bool
IsArbiter(HeapTuple index, const Counter &counter)
{
	auto *form = reinterpret_cast<Form_pg_index>(GETSTRUCT(index));
	AttrNumber a = form->indkey.values[0];

	if (!form->indisvalid || !form->indisunique || form->indisexclusion || form->indnkeyatts != 2 ||
		!heap_attisnull(index, Anum_pg_index_indpred, nullptr))
		return false;

	AttrNumber b = form->indkey.values[1];

	return (a == counter.post_att && b == counter.user_att) ||
		   (a == counter.user_att && b == counter.post_att);
}

/* Finds the indexes that ON CONFLICT infers, without a lock; returns why it has to be a statement, or nullptr. */
const char *
ReadArbiters(const Counter &counter, Relation source, SourcePlan *plan)
{
	ListCell *cell;
	const char *refusal = nullptr;

	foreach (cell, RelationGetIndexList(source))
	{
		HeapTuple index = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));

		if (!HeapTupleIsValid(index))
			continue;
		if (IsArbiter(index, counter))
		{
			if (!reinterpret_cast<Form_pg_index>(GETSTRUCT(index))->indimmediate)
				refusal = "the unique constraint is deferrable";
			plan->arbiters = lappend_oid(plan->arbiters, lfirst_oid(cell));
		}
		ReleaseSysCache(index);
	}
	if (plan->arbiters == NIL)
		refusal = "no unique index is over exactly the post and the user";
	return refusal;
}

/* Returns why neither statement can be done without, or nullptr. */
const char *
TableRefusal(const Counter &counter, Relation source, SourcePlan *plan)
{
	const FormData_pg_class *form = source->rd_rel;

	if (form->relkind == RELKIND_PARTITIONED_TABLE)
		return "the table is partitioned";
	if (form->relkind != RELKIND_RELATION || form->relam != HEAP_TABLE_AM_OID)
		return "the table is not an ordinary heap";
	if (form->relispartition)
		return "the table is a partition";
	if (form->relrowsecurity)
		return "row-level security is enabled";
	if (source->rd_rules != nullptr)
		return "the table has a rule";
	return ReadArbiters(counter, source, plan);
}

/* Fills in the columns; returns why an INSERT has to be a statement, or nullptr. */
const char *
InsertRefusal(const Counter &counter, Relation source, SourcePlan *plan)
{
	TupleDesc desc = RelationGetDescr(source);
	const char *refusal = nullptr;

	if (desc->constr != nullptr && desc->constr->num_check > 0)
		return "the table has a CHECK constraint";
	plan->columns = palloc_array(Column, desc->natts);
	for (int i = 0; refusal == nullptr && i < desc->natts; i++)
		refusal = ReadColumn(counter, source, TupleDescAttr(desc, i), &plan->columns[i]);
	return refusal;
}

/* Makes a plan in the current memory context. */
SourcePlan *
MakePlan(const Counter &counter, Relation source)
{
	auto *plan = palloc0_object(SourcePlan);
	Bitmapset *keys = nullptr;
	const char *refusal = TableRefusal(counter, source, plan);

	plan->context = CurrentMemoryContext;
	plan->insert.refusal = refusal;
	if (plan->insert.refusal == nullptr)
		plan->insert.refusal = ReadTriggers(source, TRIGGER_TYPE_INSERT, &plan->insert.captures);
	if (plan->insert.refusal == nullptr)
		plan->insert.refusal = InsertRefusal(counter, source, plan);
	plan->remove.refusal = refusal;
	if (plan->remove.refusal == nullptr)
		plan->remove.refusal = ReadTriggers(source, TRIGGER_TYPE_DELETE, &plan->remove.captures);

	/* Both statements read the keys that they name. */
	keys = bms_add_member(keys, counter.post_att - FirstLowInvalidHeapAttributeNumber);
	keys = bms_add_member(keys, counter.user_att - FirstLowInvalidHeapAttributeNumber);
	AskPrivileges(source, ACL_INSERT | ACL_SELECT, keys, keys, &plan->insert.range_table,
				  &plan->insert.permissions);
	AskPrivileges(source, ACL_DELETE | ACL_SELECT, keys, nullptr, &plan->remove.range_table,
				  &plan->remove.permissions);
	return plan;
}

void
RelationChanged(Datum, Oid relation)
{
	HASH_SEQ_STATUS seq;

	changes++;
	hash_seq_init(&seq, plans);
	while (auto *entry = static_cast<PlanEntry *>(hash_seq_search(&seq)))
		if (!OidIsValid(relation) || entry->source == relation)
			entry->stale = true;
}

/* Returns the plan of a counter's likes.  It stays readable to the end of the transaction. */
const SourcePlan *
FindPlan(const Counter &counter, Relation source)
{
	bool found;

	if (plans == nullptr)
	{
		HASHCTL control = {};

		control.keysize = sizeof(int32);
		control.entrysize = sizeof(PlanEntry);
		control.hcxt = CacheMemoryContext;
		plans =
			hash_create("likecount sources", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterRelcacheCallback(RelationChanged, (Datum) 0);
	}

	auto *entry = static_cast<PlanEntry *>(hash_search(plans, &counter.id, HASH_ENTER, &found));

	if (!found)
		entry->plan = nullptr;
	else if (entry->plan != nullptr && !entry->stale)
		return entry->plan;

	/* Not freed at once: the code of an index expression that likes may have found it stale, within an insert. */
	if (entry->plan != nullptr)
		MemoryContextSetParent(entry->plan->context, TopTransactionContext);
	entry->plan = nullptr;
	entry->source = counter.source;

	uint64 started = changes;
	MemoryContext context =
		AllocSetContextCreate(TopTransactionContext, "likecount source", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	SourcePlan *plan = MakePlan(counter, source);

	MemoryContextSwitchTo(caller);
	if (started == changes)
	{
		MemoryContextSetParent(context, CacheMemoryContext);
		entry->plan = plan;
		entry->stale = false;
	}
	return plan;
}

/*
 * Looks at what may be different on each call: whether this one can do without the statement, and which triggers to
 * stand in for.  An error when the user may not.
 */
bool
Allowed(Relation source, const Demand &demand, CapturedList *captured)
{
	captured->count = 0;
	if (demand.refusal != nullptr || ExecutorCheckPerms_hook != nullptr ||
		SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return false;
	for (int i = 0; i < demand.captures.count; i++)
	{
		const Captured *found = FindCaptured(source, demand.captures.verbs[i]);

		if (found == nullptr)
			continue;
		/* A condition is the trigger's to evaluate. */
		if (found->only_where != nullptr)
			return false;
		captured->each[captured->count++] = *found;
	}
	PreventCommandIfParallelMode("a like");
	CheckPrivileges(demand.range_table, demand.permissions);
	return true;
}

/* Puts the row of a like into a slot. */
void
FillRow(const SourcePlan *plan, Datum post, Datum user, TupleTableSlot *row)
{
	for (int i = 0; i < row->tts_tupleDescriptor->natts; i++)
	{
		const Column &column = plan->columns[i];

		row->tts_isnull[i] = column.isnull && column.from == From::kConstant;
		switch (column.from)
		{
			case From::kPost:
				row->tts_values[i] = post;
				break;
			case From::kUser:
				row->tts_values[i] = user;
				break;
			case From::kConstant:
				row->tts_values[i] = column.value;
				break;
			case From::kClock:
				row->tts_values[i] = TimestampTzGetDatum(GetCurrentTimestamp());
				break;
			case From::kTransactionStart:
				row->tts_values[i] = TimestampTzGetDatum(GetCurrentTransactionStartTimestamp());
				break;
			case From::kStatementStart:
				row->tts_values[i] = TimestampTzGetDatum(GetCurrentStatementStartTimestamp());
				break;
		}
	}
	ExecStoreVirtualTuple(row);
}

/*
 * A row that is in the way must be one that the transaction can see: to a REPEATABLE READ or SERIALIZABLE transaction
 * the like is neither new nor there.
 */
void
CheckVisible(Relation source, ItemPointer tid)
{
	if (!IsolationUsesXactSnapshot())
		return;

	TupleTableSlot *there = table_slot_create(source, nullptr);

	if (!table_tuple_fetch_row_version(source, tid, SnapshotAny, there))
		elog(ERROR, "failed to fetch the row of a like");
	if (!table_tuple_satisfies_snapshot(source, there, GetActiveSnapshot()))
	{
		bool isnull;
		Datum xmin = slot_getsysattr(there, MinTransactionIdAttributeNumber, &isnull);

		/* The same statement may have inserted it. */
		if (!TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)))
			ereport(ERROR, errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("could not serialize access due to concurrent update"));
	}
	ExecDropSingleTupleTableSlot(there);
}

/* Stores the row unless one with its keys is there; returns whether.  ExecInsert()'s loop for ON CONFLICT DO NOTHING. */
bool
InsertUnlessThere(FastInsert *insert)
{
	List *arbiters = insert->plan->arbiters;

	for (;;)
	{
		ItemPointerData there;
		bool conflict = false;

		CHECK_FOR_INTERRUPTS();
		if (!CheckIndexConstraints(insert->result, insert->row, insert->estate, &there, arbiters))
		{
			CheckVisible(insert->source, &there);
			return false;
		}

		/* Others that want the same keys wait for this token, not for the end of the transaction. */
		uint32 token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());

		table_tuple_insert_speculative(insert->source, insert->row, GetCurrentCommandId(true), 0,
									   nullptr, token);
		InsertIndexEntriesSpeculative(insert->result, insert->row, insert->estate, &conflict,
									  arbiters);
		table_tuple_complete_speculative(insert->source, insert->row, token, !conflict);
		SpeculativeInsertionLockRelease(GetCurrentTransactionId());
		if (!conflict)
			return true;
	}
}
} // namespace

bool
FastInsertBegin(FastInsert *insert, const Counter &counter)
{
	Relation source = table_open(counter.source, NoLock);

	insert->plan = FindPlan(counter, source);
	if (!Allowed(source, insert->plan->insert, &insert->captured))
	{
		table_close(source, NoLock);
		return false;
	}
	insert->source = source;
	insert->estate = CreateExecutorState();

	MemoryContext caller = MemoryContextSwitchTo(insert->estate->es_query_cxt);

	insert->result = makeNode(ResultRelInfo);
	insert->result->ri_RelationDesc = source;
	ExecOpenIndices(insert->result, true);
	insert->row = MakeSingleTupleTableSlot(RelationGetDescr(source), &TTSOpsVirtual);
	insert->row->tts_tableOid = counter.source;
	MemoryContextSwitchTo(caller);
	return true;
}

bool
FastInsertRow(FastInsert *insert, Datum post, Datum user)
{
	MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(insert->estate));

	FillRow(insert->plan, post, user, insert->row);

	bool inserted = InsertUnlessThere(insert);

	for (int i = 0; inserted && i < insert->captured.count; i++)
		CaptureInsert(insert->captured.each[i], insert->row);
	ExecClearTuple(insert->row);
	ResetPerTupleExprContext(insert->estate);
	MemoryContextSwitchTo(caller);
	return inserted;
}

void
FastInsertEnd(FastInsert *insert)
{
	ExecDropSingleTupleTableSlot(insert->row);
	ExecCloseIndices(insert->result);
	FreeExecutorState(insert->estate);
	table_close(insert->source, NoLock);
}

bool
FastRemove(const Counter &counter, Datum post, Datum user, bool *removed)
{
	Relation source = table_open(counter.source, NoLock);
	const SourcePlan *plan = FindPlan(counter, source);
	CapturedList captured;

	if (!Allowed(source, plan->remove, &captured))
	{
		table_close(source, NoLock);
		return false;
	}
	CheckCmdReplicaIdentity(source, CMD_DELETE);

	/* As a statement of its own: it sees what this transaction did before. */
	CommandCounterIncrement();
	Snapshot snapshot = RegisterSnapshot(GetTransactionSnapshot());
	Relation index = index_open(linitial_oid(plan->arbiters), AccessShareLock);
	IndexScanDesc scan = BeginIndexScan(source, index, snapshot, 2);
	TupleTableSlot *row = table_slot_create(source, nullptr);
	ScanKeyData keys[2];
	TM_FailureData failure;
	bool done = true;

	for (int i = 0; i < 2; i++)
	{
		Oid equal = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i],
										index->rd_opcintype[i], BTEqualStrategyNumber);
		bool is_post = index->rd_index->indkey.values[i] == counter.post_att;

		ScanKeyEntryInitialize(&keys[i], 0, (AttrNumber) (i + 1), BTEqualStrategyNumber,
							   index->rd_opcintype[i], index->rd_indcollation[i], get_opcode(equal),
							   is_post ? post : user);
	}
	index_rescan(scan, keys, 2, nullptr, 0);
	*removed = index_getnext_slot(scan, ForwardScanDirection, row);
	if (*removed)
		done = table_tuple_delete(source, &row->tts_tid, GetCurrentCommandId(true), snapshot,
								  InvalidSnapshot, true, &failure, false) == TM_Ok;
	for (int i = 0; *removed && done && i < captured.count; i++)
		CaptureDelete(captured.each[i], row);
	ExecDropSingleTupleTableSlot(row);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	UnregisterSnapshot(snapshot);
	table_close(source, NoLock);
	return done;
}

const char *
StatementReason(const Counter &counter, Relation source)
{
	const SourcePlan *plan = MakePlan(counter, source);

	if (plan->insert.refusal == nullptr && ExecutorCheckPerms_hook != nullptr)
		return "a module checks the privileges of each statement";
	return plan->insert.refusal;
}
} // namespace likecount
