/*
 * counter.cpp: what a counter is.
 *
 * The definition of a counter is its view <verb>_rows: which table, which columns, under which condition.  The
 * server keeps it right through renames, and a dump carries it.  We read it from the view's rule.  The state is a row of
 * _counter, valid only while that view exists, and the mode the newest row of _mode (direct.cpp).
 *
 * Both are cached per backend and always read with a fresh snapshot, never the transaction's: a REPEATABLE READ
 * transaction that is older than the counter must capture for it all the same.  Whoever changes a state row
 * invalidates _counter's relcache entry, and that, like a change of a source, a rows view or a relation that fired
 * a capture trigger, empties the cache.  A writer processes invalidations when it locks the source, so a state that
 * was committed before it got that lock is the one it sees.
 *
 * What the cache held stays readable to the end of the transaction, so pointers that a caller got survive.
 */
#include "counter.hpp"

#include "debug.hpp"
#include "queue.hpp"
#include "reconcile.hpp"
#include "shmem.hpp"

namespace likecount
{
namespace
{
Members members;
bool members_valid = false;

/* Everything below lives in this context; nullptr: nothing is cached. */
MemoryContext cache_context = nullptr;
List *cached_counters = NIL;
bool counters_valid = false;

struct CapturedKey
{
	Oid relation;
	NameData verb;
};

struct CapturedEntry
{
	CapturedKey key;
	bool accepted;
	Captured captured;
};

static_assert(kPlain<CapturedEntry>);

HTAB *captured_hash = nullptr;
CapturedEntry *last_captured = nullptr;

/* Bumped by every invalidation, so that whoever builds an entry sees that it is stale already. */
uint64 generation = 0;

void
DropCache()
{
	counters_valid = false;
	last_captured = nullptr;
	captured_hash = nullptr;
	cached_counters = NIL;
	generation++;
}

bool
IsMember(Oid relation)
{
	if (relation == members.counter || relation == members.mode || relation == members.request ||
		relation == members.sentinel || relation == members.watermark ||
		relation == members.repair_todo || relation == members.rejected)
		return true;
	for (int i = 0; i < Members::kSegments; i++)
		if (relation == members.queue[i] || relation == members.journal[i])
			return true;
	return false;
}

bool
IsCached(Oid relation)
{
	ListCell *cell;

	foreach (cell, cached_counters)
	{
		auto *counter = static_cast<Counter *>(lfirst(cell));

		if (relation == counter->source || relation == counter->rows_view ||
			relation == counter->slots || relation == counter->frozen ||
			relation == counter->open || relation == counter->totals)
			return true;
	}
	if (captured_hash != nullptr)
	{
		HASH_SEQ_STATUS seq;
		CapturedEntry *entry;
		bool found = false;

		hash_seq_init(&seq, captured_hash);
		while ((entry = static_cast<CapturedEntry *>(hash_seq_search(&seq))) != nullptr)
			if (entry->key.relation == relation)
				found = true;
		return found;
	}
	return false;
}

/* Reads the extension's OID and owner; false when it is not installed. */
bool
ReadExtension(Members *m)
{
	ScanKeyData key;
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);
	bool found = false;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(kExtension));
	SysScanDesc scan = systable_beginscan(rel, ExtensionNameIndexId, true, nullptr, 1, &key);
	HeapTuple tuple = systable_getnext(scan);

	if (HeapTupleIsValid(tuple))
	{
		auto *form = reinterpret_cast<Form_pg_extension>(GETSTRUCT(tuple));

		m->extension = form->oid;
		m->owner = form->extowner;
		found = true;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* True when a table of ours has the columns that this library knows. */
bool
HasColumns(Oid relation, int columns)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	bool same;

	if (!HeapTupleIsValid(tuple))
		return false;
	same = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relnatts == columns;
	ReleaseSysCache(tuple);
	return same;
}

/* Reports that the package was upgraded and the SQL objects were not, or the other way round. */
void
ReportMisfit(int level)
{
	ereport(
		level, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		errmsg("the SQL objects of extension \"%s\" do not fit the loaded library, version %s",
			   kExtension, LIKECOUNT_VERSION),
		errhint(
			"Run ALTER EXTENSION %s UPDATE, or restart the server if an older library is loaded.",
			kExtension));
}

/* True when the extension is there and FindMembers() refuses it. */
bool
IsMisfit()
{
	Members found = {};

	return FindMembers() == nullptr && ReadExtension(&found);
}

bool
ReadMembers(Members *m)
{
	if (!ReadExtension(m))
		return false;
	m->schema = get_namespace_oid(kSchema, true);
	if (!OidIsValid(m->schema))
		return false;

	m->counter = get_relname_relid("_counter", m->schema);
	m->mode = get_relname_relid("_mode", m->schema);
	m->request = get_relname_relid("_request", m->schema);
	m->sentinel = get_relname_relid("_sentinel", m->schema);
	m->watermark = get_relname_relid("_watermark", m->schema);
	m->repair_todo = get_relname_relid("_repair_todo", m->schema);
	m->rejected = get_relname_relid("_rejected", m->schema);
	for (int i = 0; i < Members::kSegments; i++)
	{
		char name[NAMEDATALEN];

		snprintf(name, sizeof(name), "_queue_%d", i);
		m->queue[i] = get_relname_relid(name, m->schema);
		snprintf(name, sizeof(name), "_journal_%d", i);
		m->journal[i] = get_relname_relid(name, m->schema);
		if (!OidIsValid(m->queue[i]) || !OidIsValid(m->journal[i]))
			return false;
		if (!HasColumns(m->queue[i], kSegmentPost) || !HasColumns(m->journal[i], kSegmentPost))
			return false;
	}
	return HasColumns(m->counter, kCounterColumns) && HasColumns(m->mode, kModeColumns) &&
		   OidIsValid(m->request) && OidIsValid(m->sentinel) && OidIsValid(m->watermark) &&
		   OidIsValid(m->repair_todo) && OidIsValid(m->rejected);
}

/*
 * Reads the query behind a view from its rule, without a lock: who holds one on a view or a source for long must not
 * stop the flushes of all other counters.  nullptr: there is no such view in our schema.
 */
Query *
ReadViewQuery(Oid view)
{
	HeapTuple rule;
	bool isnull;

	if (get_rel_relkind(view) != RELKIND_VIEW ||
		get_rel_namespace(view) != get_namespace_oid(kSchema, true))
		return nullptr;
	rule =
		SearchSysCache2(RULERELNAME, ObjectIdGetDatum(view), CStringGetDatum(ViewSelectRuleName));
	if (!HeapTupleIsValid(rule))
		return nullptr;

	Datum action = SysCacheGetAttr(RULERELNAME, rule, Anum_pg_rewrite_ev_action, &isnull);
	auto *actions = isnull ? NIL : static_cast<List *>(stringToNode(TextDatumGetCString(action)));

	ReleaseSysCache(rule);
	return actions == NIL ? nullptr : linitial_node(Query, actions);
}

/* Finds the one table of a rows view's FROM, nullptr when the view is not of our making. */
RangeTblEntry *
BaseTable(Query *query, int *varno)
{
	if (query->commandType != CMD_SELECT || list_length(query->jointree->fromlist) != 1 ||
		!IsA(linitial(query->jointree->fromlist), RangeTblRef))
		return nullptr;
	*varno = (static_cast<RangeTblRef *>(linitial(query->jointree->fromlist)))->rtindex;

	auto *rte = rt_fetch(*varno, query->rtable);

	return rte->rtekind == RTE_RELATION ? rte : nullptr;
}

Oid
AccessMethodOf(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid am = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		am = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relam;
		ReleaseSysCache(tuple);
	}
	return am;
}

/* True for a valid index over all rows through which rows can be found by a column. */
bool
FindsByColumn(HeapTuple index, AttrNumber column, bool in_order)
{
	auto *form = reinterpret_cast<Form_pg_index>(GETSTRUCT(index));
	Oid am = AccessMethodOf(form->indexrelid);

	if (!form->indisvalid || !heap_attisnull(index, Anum_pg_index_indpred, nullptr))
		return false;
	if (am == BTREE_AM_OID)
		return form->indkey.values[0] == column;
	if (am == BRIN_AM_OID && !in_order)
		for (int i = 0; i < form->indnkeyatts; i++)
			if (form->indkey.values[i] == column)
				return true;
	return false;
}

/* Says why a counter's deltas cannot take the queue: a crash must be able to find their posts by liked_at. */
const char *
WhyJournal(const Counter *counter)
{
	if (!Preloaded())
		return "likecount is not in shared_preload_libraries";
	if (counter->time_att == InvalidAttrNumber)
		return "the counter has no time column";
	if (counter->time_type != TIMESTAMPTZOID)
		return "the time column is not of type timestamp with time zone";
	if (counter->replicated)
		return "a subscription brings slots: what a crash lost could not be recounted";
	return HasIndexOn(counter->source, counter->time_att, false)
			   ? nullptr
			   : "the time column has no valid btree or BRIN index";
}

State
StateFromText(const char *text)
{
	static constexpr State kStates[] = {State::kAdopting, State::kBackfilling, State::kRepairing};

	for (State state : kStates)
		if (strcmp(text, StateName(state)) == 0)
			return state;
	return State::kActive;
}

/* A row of _mode. */
struct ModeRow
{
	int64 id;
	int32 counter;
	Mode mode;
};

/* Reads _mode, as a List of ModeRow *. */
List *
ReadModes(const Members *m)
{
	List *result = NIL;
	Relation rel = table_open(m->mode, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
	HeapTuple tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum values[kModeColumns];
		bool nulls[kModeColumns];
		auto *row = palloc_object(ModeRow);

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		row->id = DatumGetInt64(values[kModeId - 1]);
		row->counter = DatumGetInt32(values[kModeCounter - 1]);
		if (!ModeFromText(TextDatumGetCString(values[kModeMode - 1]), &row->mode))
			row->mode = Mode::kQueued;
		result = lappend(result, row);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

/*
 * Sets a counter's mode, as the newest row says, and where its deltas go therefore.  settled_since is the row with which
 * a flush found nothing of it in the queue any more.
 */
void
SetMode(Counter *counter, List *modes, int64 settled_since)
{
	ListCell *cell;

	foreach (cell, modes)
	{
		auto *row = static_cast<ModeRow *>(lfirst(cell));

		if (row->counter != counter->id)
			continue;
		counter->superseded |= counter->switched != 0;
		if (row->id < counter->switched)
			continue;
		counter->switched = row->id;
		counter->mode = row->mode;
	}
	if (counter->mode != Mode::kDirect)
		return;
	counter->settled = counter->switched == settled_since;
	if (!counter->settled)
		counter->journal_reason = "the counter is being switched to direct mode";
	else if (counter->state == State::kBackfilling || counter->state == State::kAdopting)
		counter->journal_reason = "the posts are being recounted";
	else if (counter->replicated)
		counter->journal_reason = "a subscription brings slots";
	else
	{
		counter->direct = true;
		counter->journal_reason = "the counter is in direct mode";
	}
}

/* Reads all valid state rows into the current context. */
List *
ReadCounters(const Members *m)
{
	List *result = NIL;
	/* In whatever order: a counter is direct only when a row of each fits the other. */
	List *modes = ReadModes(m);
	Relation rel = table_open(m->counter, AccessShareLock);
	/* A null snapshot: a fresh one, in a parallel worker too, that sees what this transaction did. */
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
	HeapTuple tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum values[kCounterColumns];
		bool nulls[kCounterColumns];
		Counter counter = {};

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		counter.id = DatumGetInt32(values[kCounterId - 1]);
		counter.verb = *DatumGetName(values[kCounterVerb - 1]);
		counter.past = *DatumGetName(values[kCounterPast - 1]);
		counter.uncommitted =
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
		counter.state = StateFromText(TextDatumGetCString(values[kCounterState - 1]));
		if (ReadDefinition(DatumGetObjectId(values[kCounterRowsView - 1]), &counter))
		{
			auto *kept = palloc_object(Counter);

			SetMode(&counter, modes,
					nulls[kCounterDirectSince - 1]
						? 0
						: DatumGetInt64(values[kCounterDirectSince - 1]));
			counter.may_be_frozen = MayHaveEntries(counter.frozen);
			*kept = counter;
			result = lappend(result, kept);
			LIKECOUNT_DEBUG_POINT("counters: one read");
		}
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

/* Fills the cache of counters; on return it may be stale already, which the next look-up sees. */
void
LoadCounters()
{
	const Members *m = FindMembers();

	/* Readers may hold pointers into the old cache: it goes when the transaction does. */
	if (cache_context != nullptr)
		MemoryContextSetParent(cache_context, TopTransactionContext);
	cache_context = nullptr;
	DropCache();
	cache_context =
		AllocSetContextCreate(CacheMemoryContext, "likecount counters", ALLOCSET_SMALL_SIZES);
	if (m == nullptr)
	{
		/* Better no like than one that is misread. */
		RefuseMisfit();
		return;
	}

	uint64 started = generation;
	MemoryContext scratch =
		AllocSetContextCreate(CurrentMemoryContext, "likecount counter load", ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	List *counters = ReadCounters(m);
	ListCell *cell;

	MemoryContextSwitchTo(cache_context);
	List *kept = NIL;

	foreach (cell, counters)
	{
		auto *copy = palloc_object(Counter);

		*copy = *static_cast<Counter *>(lfirst(cell));
		copy->plans = palloc0_object(SourcePlans);
		copy->plans->context = cache_context;
		kept = lappend(kept, copy);
	}
	cached_counters = kept;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	counters_valid = started == generation;
}

List *
Counters()
{
	if (!counters_valid)
		LoadCounters();
	return cached_counters;
}

/* Decides whether a relation may speak for a counter, and where its columns are. */
bool
ReadCaptured(Relation relation, const char *verb, Captured *captured)
{
	const Counter *counter = FindCounter(verb);
	Oid relid = RelationGetRelid(relation);

	if (counter == nullptr)
		return false;
	captured->apart = relid != counter->source &&
					  (!relation->rd_rel->relispartition ||
					   !list_member_oid(get_partition_ancestors(relid), counter->source));
	/* Anybody can put our trigger on a table of theirs. */
	if (captured->apart && relation->rd_rel->relowner != counter->owner)
		return false;

	char *post = get_attname(counter->source, counter->post_att, true);

	if (post == nullptr)
		return false;
	captured->counter = counter->id;
	captured->source = counter->source;
	captured->post_att = get_attnum(relid, post);
	captured->post_type = counter->post_type;
	captured->time_type = counter->time_type;
	captured->queueable = counter->journal_reason == nullptr && !captured->apart;
	captured->may_be_frozen = counter->may_be_frozen;
	if (counter->time_att != InvalidAttrNumber)
	{
		char *time = get_attname(counter->source, counter->time_att, true);

		captured->time_att = time == nullptr ? InvalidAttrNumber : get_attnum(relid, time);
		if (captured->time_att == InvalidAttrNumber ||
			get_atttype(relid, captured->time_att) != counter->time_type)
			captured->queueable = false;
	}
	if (captured->post_att == InvalidAttrNumber ||
		get_atttype(relid, captured->post_att) != counter->post_type)
		return false;

	if (counter->has_where)
	{
		Node *only_where = ReadOnlyWhere(counter);

		if (relid != counter->source)
		{
			Relation source = table_open(counter->source, AccessShareLock);
			List *mapped = map_partition_varattnos(list_make1(only_where), 1, relation, source);

			only_where = static_cast<Node *>(linitial(mapped));
			table_close(source, AccessShareLock);
		}
		MemoryContext caller = MemoryContextSwitchTo(cache_context);

		captured->only_where = static_cast<Node *>(copyObjectImpl(only_where));
		MemoryContextSwitchTo(caller);
	}
	return true;
}

void
RelcacheCallback(Datum, Oid relation)
{
	if (!OidIsValid(relation) || IsMember(relation))
	{
		members_valid = false;
		DropCache();
	}
	/* While they are being read nobody can tell of which relations they are made. */
	else if (!counters_valid || IsCached(relation))
		DropCache();
}

/* A subscription got a table, perhaps our slots, or lost it. */
void
SubscriptionCallback(Datum, int, uint32)
{
	DropCache();
}
} // namespace

const char *
StateName(State state)
{
	switch (state)
	{
		case State::kAdopting:
			return "adopting";
		case State::kBackfilling:
			return "backfilling";
		case State::kRepairing:
			return "repairing";
		case State::kActive:
			return "active";
	}
	pg_unreachable();
}

const char *
ModeName(Mode mode)
{
	return mode == Mode::kDirect ? "direct" : "queued";
}

bool
ModeFromText(const char *text, Mode *mode)
{
	static constexpr Mode kModes[] = {Mode::kQueued, Mode::kDirect};

	for (Mode known : kModes)
		if (strcmp(text, ModeName(known)) == 0)
		{
			*mode = known;
			return true;
		}
	return false;
}

const Members *
FindMembers()
{
	while (!members_valid)
	{
		uint64 started = generation;
		Members found = {};

		if (!ReadMembers(&found))
		{
			if (IsWorker() && OidIsValid(found.schema))
				ReportMisfit(WARNING);
			return nullptr;
		}
		members = found;
		members_valid = started == generation;
	}
	return &members;
}

const Members *
GetMembers()
{
	const Members *m = FindMembers();

	if (m == nullptr)
		RefuseMisfit();
	if (m == nullptr)
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("extension \"%s\" is not installed in database \"%s\"", kExtension,
					   get_database_name(MyDatabaseId)),
				errhint("Run CREATE EXTENSION %s.", kExtension));
	return m;
}

void
RefuseMisfit()
{
	if (IsMisfit())
		ReportMisfit(ERROR);
}

bool
HasIndexOn(Oid relation, AttrNumber column, bool in_order)
{
	ScanKeyData key;
	HeapTuple index;
	bool found = false;
	Relation rel = table_open(IndexRelationId, AccessShareLock);

	ScanKeyInit(&key, Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	SysScanDesc scan = systable_beginscan(rel, IndexIndrelidIndexId, true, nullptr, 1, &key);

	while (!found && HeapTupleIsValid(index = systable_getnext(scan)))
		found = FindsByColumn(index, column, in_order);
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

bool
HasOrdinaryEquality(Relation index, TupleDesc desc)
{
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, index->rd_index->indkey.values[i] - 1);
		Oid equality = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i],
										   index->rd_opcintype[i], BTEqualStrategyNumber);

		if (equality != lookup_type_cache(att->atttypid, TYPECACHE_EQ_OPR)->eq_opr)
			return false;
		if (OidIsValid(index->rd_indcollation[i]) &&
			!get_collation_isdeterministic(index->rd_indcollation[i]))
			return false;
	}
	return true;
}

bool
IsUniqueOn(Relation index, AttrNumber post, AttrNumber user)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisunique || form->indnkeyatts != 2)
		return false;

	AttrNumber a = form->indkey.values[0];
	AttrNumber b = form->indkey.values[1];

	return (a == post && b == user) || (a == user && b == post);
}

bool
ReadDefinition(Oid rows_view, Counter *counter)
{
	int varno;
	Query *query = ReadViewQuery(rows_view);
	RangeTblEntry *rte = query == nullptr ? nullptr : BaseTable(query, &varno);
	HeapTuple source =
		rte == nullptr ? nullptr : SearchSysCache1(RELOID, ObjectIdGetDatum(rte->relid));
	char *verb = NameStr(counter->verb);
	ListCell *cell;

	if (!HeapTupleIsValid(source))
		return false;

	auto *form = reinterpret_cast<Form_pg_class>(GETSTRUCT(source));
	Oid schema = get_rel_namespace(rows_view);

	counter->rows_view = rows_view;
	counter->source = rte->relid;
	counter->owner = form->relowner;
	counter->partitioned = form->relkind == RELKIND_PARTITIONED_TABLE;
	ReleaseSysCache(source);
	counter->has_where = query->jointree->quals != nullptr;
	counter->post_att = counter->user_att = counter->time_att = InvalidAttrNumber;
	foreach (cell, query->targetList)
	{
		auto *entry = static_cast<TargetEntry *>(lfirst(cell));
		auto *var = reinterpret_cast<Var *>(entry->expr);

		if (!IsA(var, Var) || var->varno != varno || var->varattno < 1)
			continue;
		if (strcmp(entry->resname, "post_id") == 0)
		{
			counter->post_att = var->varattno;
			counter->post_type = var->vartype;
			counter->post_collation = var->varcollid;
		}
		else if (strcmp(entry->resname, "user_id") == 0)
		{
			counter->user_att = var->varattno;
			counter->user_type = var->vartype;
		}
		else if (strcmp(entry->resname, "liked_at") == 0)
		{
			counter->time_att = var->varattno;
			counter->time_type = var->vartype;
		}
	}
	counter->slots = get_relname_relid(psprintf("%s_slots", verb), schema);
	counter->frozen = get_relname_relid(psprintf("%s_slots_frozen", verb), schema);
	counter->open = get_relname_relid(psprintf("%s_slots_open", verb), schema);
	counter->totals = get_relname_relid(psprintf("%s_totals", verb), schema);
	if (counter->post_att == InvalidAttrNumber || !OidIsValid(counter->slots) ||
		KeyKindOf(counter->post_type) == KeyKind::kNone)
		return false;
	counter->replicated = SlotsAreReplicated(counter);
	counter->journal_reason = WhyJournal(counter);
	return true;
}

Node *
ReadOnlyWhere(const Counter *counter)
{
	Query *query = ReadViewQuery(counter->rows_view);
	int varno;

	if (query == nullptr || BaseTable(query, &varno) == nullptr)
		return nullptr;
	if (varno != 1)
		ChangeVarNodes(query->jointree->quals, varno, 1, 0);
	return query->jointree->quals;
}

List *
AllCounters()
{
	const Members *m = FindMembers();

	return m == nullptr ? NIL : ReadCounters(m);
}

const Counter *
FindCounter(const char *verb)
{
	ListCell *cell;

	foreach (cell, Counters())
	{
		auto *counter = static_cast<const Counter *>(lfirst(cell));

		if (strcmp(NameStr(counter->verb), verb) == 0)
			return counter;
	}
	return nullptr;
}

const Counter *
FindCounterById(int32 id)
{
	ListCell *cell;

	foreach (cell, Counters())
	{
		auto *counter = static_cast<const Counter *>(lfirst(cell));

		if (counter->id == id)
			return counter;
	}
	return nullptr;
}

const Counter *
GetCounter(const char *verb)
{
	const Counter *counter = FindCounter(verb);

	if (counter == nullptr)
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("there is no counter with verb \"%s\" in this database", verb),
				errhint("After a restore the counter is adopted by the worker, or by "
						"likecount.flush() where none runs."));
	return counter;
}

const Counter *
CounterOfSource(Oid source, const char *verb, bool missing_ok)
{
	const Counter *found = nullptr;
	ListCell *cell;

	foreach (cell, Counters())
	{
		auto *counter = static_cast<const Counter *>(lfirst(cell));

		if (counter->source != source ||
			(verb != nullptr && strcmp(NameStr(counter->verb), verb) != 0))
			continue;
		if (found != nullptr)
			ereport(ERROR, errcode(ERRCODE_AMBIGUOUS_PARAMETER),
					errmsg("table %s has more than one counter", QualifiedName(source)),
					errdetail("Two of its verbs are \"%s\" and \"%s\".", NameStr(found->verb),
							  NameStr(counter->verb)),
					errhint("Pass the argument verb."));
		found = counter;
	}
	if (found == nullptr && !missing_ok)
	{
		if (verb != nullptr)
			ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
					errmsg("table %s has no counter with verb \"%s\"", QualifiedName(source),
						   verb));
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("table %s has no counter", QualifiedName(source)),
				errhint("likecount.attach() starts counting a table."));
	}
	return found;
}

const Captured *
FindCaptured(Relation relation, const char *verb)
{
	CapturedKey key = {};
	bool found;

	if (counters_valid && last_captured != nullptr &&
		last_captured->key.relation == RelationGetRelid(relation) &&
		strcmp(NameStr(last_captured->key.verb), verb) == 0)
		return last_captured->accepted ? &last_captured->captured : nullptr;

	(void) Counters();
	if (captured_hash == nullptr)
	{
		HASHCTL control = {};

		control.keysize = sizeof(CapturedKey);
		control.entrysize = sizeof(CapturedEntry);
		control.hcxt = cache_context;
		captured_hash = hash_create("likecount captured relations", 16, &control,
									HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}

	key.relation = RelationGetRelid(relation);
	namestrcpy(&key.verb, verb);

	auto *entry =
		static_cast<CapturedEntry *>(hash_search(captured_hash, &key, HASH_FIND, nullptr));

	if (entry == nullptr)
	{
		Captured captured = {};
		HTAB *hash = captured_hash;
		bool accepted = ReadCaptured(relation, verb, &captured);

		/* Reading the catalogs may have emptied the cache: then this answer serves this call alone. */
		if (hash != captured_hash)
		{
			if (!accepted)
				return nullptr;
			auto *once = static_cast<Captured *>(
				MemoryContextAlloc(TopTransactionContext, sizeof(Captured)));

			*once = captured;
			return once;
		}
		entry = static_cast<CapturedEntry *>(hash_search(captured_hash, &key, HASH_ENTER, &found));
		entry->accepted = accepted;
		entry->captured = captured;
	}
	last_captured = entry;
	return entry->accepted ? &entry->captured : nullptr;
}

/* A look at the file's size, whatever the number of rows; no state that a restore or a crash would have to keep right. */
bool
MayHaveEntries(Oid index)
{
	bool may_have = true;

	if (!OidIsValid(index) || !ConditionalLockRelationOid(index, AccessShareLock))
		return true;

	Relation rel = try_relation_open(index, NoLock);

	if (rel != nullptr)
	{
		may_have = RelationGetNumberOfBlocks(rel) > 1;
		relation_close(rel, NoLock);
	}
	UnlockRelationOid(index, AccessShareLock);
	return may_have;
}

void
InvalidateCounters()
{
	const Members *m = FindMembers();

	if (m != nullptr)
		CacheInvalidateRelcacheByRelid(m->counter);
}

void
CounterInit()
{
	CacheRegisterRelcacheCallback(RelcacheCallback, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, SubscriptionCallback, (Datum) 0);
}

char *
QualifiedName(Oid relation)
{
	char *name = get_rel_name(relation);

	if (name == nullptr)
		return psprintf("%u", relation);

	char *schema = get_namespace_name(get_rel_namespace(relation));

	return quote_qualified_identifier(schema, name);
}
} // namespace likecount
