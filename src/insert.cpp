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
 * Whatever else a table asks of them stays with the statement: see TableRefusal(), ReadInsert() and ReadRemove(), which
 * list it.  The answers are kept with the cached counter, which goes when the source changes.  What can change without
 * that is looked at on each call, by ReasonOfTheDay().
 *
 * What differs from the statement shows in no row: modules that watch statements (pg_stat_statements with track = all)
 * see the outer call alone, and an error's context does not quote the statement.  Modules that act on statements, in
 * planner_hook or ExecutorStart_hook, do not get to act on these; one that checks privileges in ExecutorCheckPerms_hook
 * gets the statement, and so do tables on a server with Citus.
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
	Datum value;  /* of a constant */
	Oid function; /* that tells the time, InvalidOid: none */
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

/* How the source's rows are inserted, and removed; not changed once it is made. */
struct InsertPlan
{
	Demand demand;
	Column *columns;
	List *arbiters; /* the indexes that ON CONFLICT (post, user) infers */
	int index_count;
	Oid *indexes; /* all of them */
	IndexInfo *
		*index_info; /* what the executor wants to know of each, without what one call adds */
};

struct RemovePlan
{
	Demand demand;
	Oid lookup; /* the index that finds the row */
};

static_assert(kPlain<InsertPlan> && kPlain<RemovePlan>);

namespace
{
bool
IsForeignFunction(Oid function, void *)
{
	return function >= FirstUnpinnedObjectId;
}

/* True when an expression depends on what somebody may replace without the table's knowing. */
bool
NeedsForeignCode(Node *node, void *)
{
	return node != nullptr && (IsA(node, CoerceToDomain) ||
							   check_functions_in_node(node, IsForeignFunction, nullptr) ||
							   WalkExpression(node, NeedsForeignCode, nullptr));
}

/* Reads a default that is the time of something; false: it is not. */
bool
ReadTime(Node *node, Column *column)
{
	if (IsA(node, FuncExpr))
	{
		column->function = reinterpret_cast<FuncExpr *>(node)->funcid;
		switch (column->function)
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
				column->function = InvalidOid;
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

/*
 * Finds out what a like leaves in a column; returns why it has to be a statement, or nullptr.  Without evaluate, no
 * default is computed, and its value is not known: a default that fails fails whoever inserts, and nobody else.
 */
const char *
ReadColumn(const Counter &counter, Relation source, Form_pg_attribute att, bool evaluate,
		   Column *column)
{
	*column = {From::kConstant, true, (Datum) 0, InvalidOid};
	if (att->attisdropped)
		return nullptr;
	/* The value of a domain is checked on its way into the row. */
	if (get_typtype(att->atttypid) == TYPTYPE_DOMAIN)
		return psprintf("column \"%s\" is of a domain", NameStr(att->attname));
	if (att->attgenerated != '\0' || att->attidentity != '\0')
		return psprintf("column \"%s\" is generated", NameStr(att->attname));
	if (att->attnum == counter.post_att || att->attnum == counter.user_att)
	{
		column->from = att->attnum == counter.post_att ? From::kPost : From::kUser;
		return att->atttypmod < 0
				   ? nullptr
				   : psprintf("column \"%s\" has a limited length", NameStr(att->attname));
	}

	Node *value = build_column_default(source, att->attnum);

	if (value == nullptr)
		return att->attnotnull
				   ? psprintf("column \"%s\" is NOT NULL without a default", NameStr(att->attname))
				   : nullptr;
	if (ReadTime(value, column))
		return nullptr;
	if (contain_mutable_functions(value) || NeedsForeignCode(value, nullptr))
		return psprintf("the default of column \"%s\" is neither constant nor the time",
						NameStr(att->attname));
	if (!evaluate)
		return nullptr;

	/* What cannot be computed here is the statement's to compute, and so is the error about a NULL. */
	value = eval_const_expressions(nullptr, value);
	if (!IsA(value, Const) || (reinterpret_cast<Const *>(value)->constisnull && att->attnotnull))
		return psprintf("the default of column \"%s\" is not a value", NameStr(att->attname));
	column->isnull = reinterpret_cast<Const *>(value)->constisnull;
	column->value = reinterpret_cast<Const *>(value)->constvalue;
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
	Oid capture = FunctionNamed("_capture", GetMembers()->schema);
	/* After the look-up: it lets invalidations in, and they may replace the descriptor of an open table. */
	const TriggerDesc *triggers = source->trigdesc;

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

/* True when the key columns of an index are the post and the user, in whatever order and number. */
bool
IsOverKeys(const FormData_pg_index *index, const Counter &counter)
{
	bool post = false;
	bool user = false;

	for (int i = 0; i < index->indnkeyatts; i++)
	{
		AttrNumber att = index->indkey.values[i];

		if (att != counter.post_att && att != counter.user_att)
			return false;
		post |= att == counter.post_att;
		user |= att == counter.user_att;
	}
	return post && user;
}

/* Finds the indexes that ON CONFLICT infers, without a lock; returns why it has to be a statement, or nullptr. */
const char *
ReadArbiters(const Counter &counter, Relation source, List **arbiters)
{
	ListCell *cell;
	const char *refusal = nullptr;

	foreach (cell, RelationGetIndexList(source))
	{
		HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));

		if (!HeapTupleIsValid(tuple))
			continue;

		auto *index = reinterpret_cast<Form_pg_index>(GETSTRUCT(tuple));

		if (index->indisunique && index->indisvalid && IsOverKeys(index, counter))
		{
			/* Whether ON CONFLICT infers it is for the planner to say. */
			if (index->indnkeyatts != 2 || index->indisexclusion ||
				!heap_attisnull(tuple, Anum_pg_index_indpred, nullptr))
				refusal = "an unusual unique index is over the post and the user";
			else if (!index->indimmediate)
				refusal = "the unique constraint is deferrable";
			*arbiters = lappend_oid(*arbiters, lfirst_oid(cell));
		}
		ReleaseSysCache(tuple);
	}
	return *arbiters == NIL ? "no unique index is over exactly the post and the user" : refusal;
}

/*
 * Finds an index that finds a row as the statement's = does; returns why it has to be a statement, or nullptr.  One
 * that was built over broken HOT chains (indcheckxmin) is not for every snapshot.
 */
const char *
ReadLookup(const Counter &counter, Relation source, Oid *lookup)
{
	ListCell *cell;

	foreach (cell, RelationGetIndexList(source))
	{
		Relation index = index_open(lfirst_oid(cell), AccessShareLock);
		const FormData_pg_index *form = index->rd_index;

		if (form->indisvalid && form->indimmediate && !form->indcheckxmin &&
			index->rd_rel->relam == BTREE_AM_OID && RelationGetIndexPredicate(index) == NIL &&
			IsUniqueOn(index, counter.post_att, counter.user_att) &&
			HasOrdinaryEquality(index, RelationGetDescr(source)))
			*lookup = RelationGetRelid(index);
		index_close(index, AccessShareLock);
	}
	return OidIsValid(*lookup) ? nullptr : "no plain unique index is over the post and the user";
}

/* Reads of all indexes what the executor reads for each statement. */
void
ReadIndexes(Relation source, InsertPlan *plan)
{
	List *indexes = RelationGetIndexList(source);
	ListCell *cell;

	plan->indexes = palloc_array(Oid, list_length(indexes));
	plan->index_info = palloc_array(IndexInfo *, list_length(indexes));
	foreach (cell, indexes)
	{
		Relation index = index_open(lfirst_oid(cell), AccessShareLock);
		IndexInfo *info = BuildIndexInfo(index);

		if (info->ii_Unique && !index->rd_index->indisexclusion)
			BuildSpeculativeIndexInfo(index, info);
		plan->indexes[plan->index_count] = lfirst_oid(cell);
		plan->index_info[plan->index_count++] = info;
		index_close(index, AccessShareLock);
	}
}

/* Returns why neither statement can be done without, or nullptr. */
const char *
TableRefusal(Relation source)
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
	/* A distributed table looks like a heap; the planner sends its statements elsewhere. */
	if (OidIsValid(get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE)))
		return "tables may be distributed by Citus";
	return nullptr;
}

/* The columns whose privileges both statements need: they read the keys that they name. */
Bitmapset *
KeyColumns(const Counter &counter)
{
	Bitmapset *post = bms_make_singleton(counter.post_att - FirstLowInvalidHeapAttributeNumber);

	return bms_add_member(post, counter.user_att - FirstLowInvalidHeapAttributeNumber);
}

/* Finds out what an INSERT would do, in the current memory context. */
void
ReadInsert(const Counter &counter, Relation source, bool evaluate, InsertPlan *plan)
{
	TupleDesc desc = RelationGetDescr(source);
	Demand *demand = &plan->demand;

	demand->refusal = TableRefusal(source);
	if (demand->refusal == nullptr)
		demand->refusal = ReadTriggers(source, TRIGGER_TYPE_INSERT, &demand->captures);
	if (demand->refusal == nullptr)
		demand->refusal = ReadArbiters(counter, source, &plan->arbiters);
	if (demand->refusal == nullptr && desc->constr != nullptr && desc->constr->num_check > 0)
		demand->refusal = "the table has a CHECK constraint";
	plan->columns = palloc_array(Column, desc->natts);
	for (int i = 0; demand->refusal == nullptr && i < desc->natts; i++)
		demand->refusal =
			ReadColumn(counter, source, TupleDescAttr(desc, i), evaluate, &plan->columns[i]);
	if (demand->refusal == nullptr && evaluate)
		ReadIndexes(source, plan);
	AskPrivileges(source, ACL_INSERT | ACL_SELECT, KeyColumns(counter), KeyColumns(counter),
				  &demand->range_table, &demand->permissions);
}

/* Finds out what a DELETE would do, in the current memory context. */
void
ReadRemove(const Counter &counter, Relation source, RemovePlan *plan)
{
	Demand *demand = &plan->demand;

	demand->refusal = TableRefusal(source);
	if (demand->refusal == nullptr)
		demand->refusal = ReadTriggers(source, TRIGGER_TYPE_DELETE, &demand->captures);
	if (demand->refusal == nullptr)
		demand->refusal = ReadLookup(counter, source, &plan->lookup);
	AskPrivileges(source, ACL_DELETE | ACL_SELECT, KeyColumns(counter), nullptr,
				  &demand->range_table, &demand->permissions);
}

/* Runs a function that fills in a plan, and keeps the plan with the cached counter once it is whole. */
template <typename Plan, typename Fill>
const Plan *
Planned(const Counter &counter, Plan **kept, Fill fill)
{
	if (*kept != nullptr)
		return *kept;

	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "likecount source", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	auto *plan = static_cast<Plan *>(palloc0(sizeof(Plan)));

	fill(plan);
	MemoryContextSwitchTo(caller);
	MemoryContextSetParent(context, counter.plans->context);
	*kept = plan;
	return plan;
}

/*
 * What may be different on each call: why this one has to be a statement, or nullptr, and which triggers to stand in
 * for.
 */
const char *
ReasonOfTheDay(Relation source, const Demand &demand, CapturedList *captured)
{
	captured->count = 0;
	if (demand.refusal != nullptr)
		return demand.refusal;
	if (ExecutorCheckPerms_hook != nullptr)
		return "a module checks the privileges of each statement";
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return "session_replication_role is replica";
	for (int i = 0; i < demand.captures.count; i++)
	{
		const Captured *found = FindCaptured(source, demand.captures.verbs[i]);

		if (found == nullptr)
			continue;
		if (found->only_where != nullptr)
			return "a counter of the table has a condition";
		captured->each[captured->count++] = found;
	}
	return nullptr;
}

/* True when a call can do without the statement.  An error when the user may not. */
bool
Allowed(Relation source, const Demand &demand, CapturedList *captured)
{
	if (ReasonOfTheDay(source, demand, captured) != nullptr)
		return false;
	PreventCommandIfParallelMode("a like");
	CheckPrivileges(demand.range_table, demand.permissions);
	return true;
}

/* An error when the user may not execute a function of a default.  Those of constants are the planner's to check. */
void
CheckFunctions(const InsertPlan *plan, int columns)
{
	for (int i = 0; i < columns; i++)
	{
		Oid function = plan->columns[i].function;
		AclResult result = OidIsValid(function) ? object_aclcheck(ProcedureRelationId, function,
																  GetUserId(), ACL_EXECUTE)
												: ACLCHECK_OK;

		if (result != ACLCHECK_OK)
			aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
	}
}

/* Puts the row of a like into a slot. */
void
FillRow(const InsertPlan *plan, Datum post, Datum user, TupleTableSlot *row)
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
	if (!table_tuple_satisfies_snapshot(source, there, GetTransactionSnapshot()))
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

		HeapTuple tuple = heap_form_tuple(RelationGetDescr(insert->source), insert->row->tts_values,
										  insert->row->tts_isnull);
		/* Others that want the same keys wait for this token, not for the end of the transaction. */
		uint32 token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());

		HeapTupleHeaderSetSpeculativeToken(tuple->t_data, token);
		heap_insert(insert->source, tuple, GetCurrentCommandId(true), HEAP_INSERT_SPECULATIVE,
					nullptr);
		insert->row->tts_tid = tuple->t_self;
		InsertIndexEntriesSpeculative(insert->result, insert->row, insert->estate, &conflict,
									  arbiters);
		if (conflict)
			heap_abort_speculative(insert->source, &tuple->t_self);
		else
			heap_finish_speculative(insert->source, &tuple->t_self);
		SpeculativeInsertionLockRelease(GetCurrentTransactionId());
		if (!conflict)
			return true;
	}
}

/* ExecOpenIndices(), with what the plan knows of the indexes. */
void
OpenIndexes(FastInsert *insert)
{
	const InsertPlan *plan = insert->plan;
	ResultRelInfo *result = insert->result;

	result->ri_NumIndices = plan->index_count;
	result->ri_IndexRelationDescs = palloc_array(Relation, plan->index_count);
	result->ri_IndexRelationInfo = palloc_array(IndexInfo *, plan->index_count);
	for (int i = 0; i < plan->index_count; i++)
	{
		IndexInfo *info = palloc_object(IndexInfo);

		*info = *plan->index_info[i];
		info->ii_Context = CurrentMemoryContext;
		result->ri_IndexRelationDescs[i] = index_open(plan->indexes[i], RowExclusiveLock);
		/* Of the index's own entry in the cache of relations, as the rest is of the table's. */
		info->ii_ReadyForInserts = result->ri_IndexRelationDescs[i]->rd_index->indisready;
		result->ri_IndexRelationInfo[i] = info;
	}
}

/* The locks stay, as the table's does: a transaction's next like has them already. */
void
CloseIndexes(FastInsert *insert)
{
	for (int i = 0; i < insert->result->ri_NumIndices; i++)
	{
		EndIndexInserts(insert->result->ri_IndexRelationDescs[i],
						insert->result->ri_IndexRelationInfo[i]);
		index_close(insert->result->ri_IndexRelationDescs[i], NoLock);
	}
}
} // namespace

bool
FastInsertBegin(FastInsert *insert, const Counter &counter)
{
	Relation source = table_open(counter.source, NoLock);

	insert->plan = Planned(counter, &counter.plans->insert, [&](InsertPlan *plan) {
		ReadInsert(counter, source, true, plan);
	});
	if (!Allowed(source, insert->plan->demand, &insert->captured))
	{
		table_close(source, NoLock);
		return false;
	}
	CheckFunctions(insert->plan, RelationGetDescr(source)->natts);
	insert->source = source;
	insert->estate = CreateExecutorState();

	MemoryContext caller = MemoryContextSwitchTo(insert->estate->es_query_cxt);

	insert->result = makeNode(ResultRelInfo);
	insert->result->ri_RelationDesc = source;
	OpenIndexes(insert);
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
		CaptureInsert(*insert->captured.each[i], insert->row);
	ExecClearTuple(insert->row);
	ResetPerTupleExprContext(insert->estate);
	MemoryContextSwitchTo(caller);
	return inserted;
}

void
FastInsertEnd(FastInsert *insert)
{
	ExecDropSingleTupleTableSlot(insert->row);
	CloseIndexes(insert);
	FreeExecutorState(insert->estate);
	table_close(insert->source, NoLock);
}

bool
FastRemove(const Counter &counter, Datum post, Datum user, bool *removed)
{
	Relation source = table_open(counter.source, NoLock);
	const RemovePlan *plan = Planned(counter, &counter.plans->remove, [&](RemovePlan *made) {
		ReadRemove(counter, source, made);
	});
	CapturedList captured;

	if (!Allowed(source, plan->demand, &captured))
	{
		table_close(source, NoLock);
		return false;
	}
	CheckCmdReplicaIdentity(source, CMD_DELETE);

	/* As a statement of its own: it sees what this transaction did before. */
	CommandCounterIncrement();
	Snapshot snapshot = RegisterSnapshot(GetTransactionSnapshot());
	Relation index = index_open(plan->lookup, AccessShareLock);
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
		CaptureDelete(*captured.each[i], row);
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
	InsertPlan plan = {};
	CapturedList captured;

	ReadInsert(counter, source, false, &plan);
	return ReasonOfTheDay(source, plan.demand, &captured);
}
} // namespace likecount
