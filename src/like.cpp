/*
 * like.cpp: like(), unlike() and what else works on the rows of a source, behind the functions that attach() generates.
 *
 * Whatever touches the source acts as the caller: privileges, row security, defaults, triggers and
 * constraints are those of the plain statement.  insert.cpp stores and removes rows without one
 * where that is the same; else the statement is kept as an SPI plan per counter.  A kept plan is
 * analysed again from its text whenever a relation in it changes, and then a renamed table would
 * not be found, or a table that took over the name would be.  So each call first locks the source
 * by its OID, which lets in what other sessions committed and keeps the names as they are to the
 * end of the transaction; a change of the source or of a schema that came in marks the plan stale,
 * and a stale plan is built anew before it is used.
 *
 * A kept plan would not check USAGE on the source's schema again for the next role of the session:
 * each call does.
 */
#include "call.hpp"
#include "capture.hpp"
#include "insert.hpp"
#include "only_where.hpp"

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_add);
PG_FUNCTION_INFO_V1(likecount_remove);
PG_FUNCTION_INFO_V1(likecount_has);
PG_FUNCTION_INFO_V1(likecount_add_many);
PG_FUNCTION_INFO_V1(likecount_posts_of);

PGDLLEXPORT Datum likecount_add(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_remove(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_has(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_add_many(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_posts_of(PG_FUNCTION_ARGS);
}

namespace likecount
{
namespace
{
/* --- the plans --- */

enum class Statement : int32
{
	kInsert,
	kDelete,
	kSelect,
	kInsertMany,
	kSelectMany,
};

struct PlanKey
{
	int32 counter;
	Statement statement;
};

struct PlanEntry
{
	PlanKey key;
	Oid source;
	bool stale;		 /* names in the text may have changed since it was built */
	SPIPlanPtr plan; /* nullptr: none yet */
};

static_assert(kPlain<PlanEntry>);

HTAB *plans = nullptr;

/* StalePlans marks the plans over a relation, or with InvalidOid all of them. */
void
StalePlans(Oid relation)
{
	HASH_SEQ_STATUS seq;
	PlanEntry *entry;

	hash_seq_init(&seq, plans);
	while ((entry = static_cast<PlanEntry *>(hash_seq_search(&seq))) != nullptr)
		if (!OidIsValid(relation) || entry->source == relation)
			entry->stale = true;
}

void
RelationChanged(Datum, Oid relation)
{
	StalePlans(relation);
}

void
SchemaChanged(Datum, int, uint32)
{
	StalePlans(InvalidOid);
}

void
FreePlan(void *plan)
{
	SPI_freeplan(static_cast<SPIPlanPtr>(plan));
}

/*
 * RetirePlan frees a plan when the transaction ends.  Not at once: a trigger that likes from within
 * a like may have found it stale while the outer call still runs it.
 */
void
RetirePlan(PlanEntry *entry)
{
	auto *callback = static_cast<MemoryContextCallback *>(
		MemoryContextAllocZero(TopTransactionContext, sizeof(MemoryContextCallback)));

	callback->func = FreePlan;
	callback->arg = entry->plan;
	entry->plan = nullptr;
	MemoryContextRegisterResetCallback(TopTransactionContext, callback);
}

/* FindPlan returns the entry of a statement, made when missing, perhaps without a plan. */
PlanEntry *
FindPlan(const Counter &counter, Statement statement)
{
	PlanKey key = {counter.id, statement};
	bool found;

	if (plans == nullptr)
	{
		HASHCTL control = {};

		control.keysize = sizeof(PlanKey);
		control.entrysize = sizeof(PlanEntry);
		control.hcxt = CacheMemoryContext;
		plans = hash_create("likecount plans", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterRelcacheCallback(RelationChanged, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, SchemaChanged, (Datum) 0);
	}

	auto *entry = static_cast<PlanEntry *>(hash_search(plans, &key, HASH_ENTER, &found));

	if (!found)
	{
		entry->source = InvalidOid;
		entry->stale = false;
		entry->plan = nullptr;
	}
	return entry;
}

/*
 * AppendCondition adds only_where, if the counter has one, to a statement that selects from the
 * source alone.
 */
void
AppendCondition(StringInfo sql, const Counter &counter)
{
	if (!counter.has_where)
		return;

	/* With today's path out of the way: a kept plan is analysed again under another one. */
	int guc_level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	appendStringInfo(sql, " AND (%s)",
					 DeparseOnlyWhere(ReadOnlyWhere(&counter), counter.source,
									  get_rel_name(counter.source)));
	AtEOXact_GUC(false, guc_level);
}

/* ByteOrder sorts texts as their keys are sorted. */
const char *
ByteOrder(Oid type)
{
	return KeyKindOf(type) == KeyKind::kText ? " COLLATE pg_catalog.\"C\"" : "";
}

/* StatementText writes a statement with today's names.  The source is locked, so they hold. */
char *
StatementText(const Counter &counter, Statement statement)
{
	const char *source = QualifiedName(counter.source);
	const char *post = quote_identifier(get_attname(counter.source, counter.post_att, false));
	const char *user = quote_identifier(get_attname(counter.source, counter.user_att, false));
	/* children of a plain table are other tables, whose rows are not captured */
	const char *only = counter.partitioned ? "" : "ONLY ";
	StringInfoData sql;

	initStringInfo(&sql);
	switch (statement)
	{
		case Statement::kInsert:
			appendStringInfo(&sql,
							 "INSERT INTO %s (%s, %s) VALUES ($1, $2)"
							 " ON CONFLICT (%s, %s) DO NOTHING",
							 source, post, user, post, user);
			break;
		case Statement::kDelete:
			appendStringInfo(&sql,
							 "DELETE FROM %s%s WHERE %s OPERATOR(pg_catalog.=) $1"
							 " AND %s OPERATOR(pg_catalog.=) $2",
							 only, source, post, user);
			break;
		case Statement::kSelect:
			appendStringInfo(&sql,
							 "SELECT 1 FROM %s%s WHERE %s OPERATOR(pg_catalog.=) $1"
							 " AND %s OPERATOR(pg_catalog.=) $2",
							 only, source, post, user);
			AppendCondition(&sql, counter);
			break;
		case Statement::kInsertMany:
			/* In one order of all pairs, InsertLikes()'s, so that two batches cannot wait for each other. */
			appendStringInfo(&sql,
							 "INSERT INTO %s (%s, %s) SELECT pair.post, pair.actor"
							 " FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2))"
							 " AS pair (post, actor) ORDER BY pair.post%s, pair.actor%s"
							 " ON CONFLICT (%s, %s) DO NOTHING",
							 source, post, user, ByteOrder(counter.post_type),
							 ByteOrder(counter.user_type), post, user);
			break;
		case Statement::kSelectMany:
			appendStringInfo(&sql,
							 "SELECT %s FROM %s%s WHERE %s OPERATOR(pg_catalog.=) $1"
							 " AND %s OPERATOR(pg_catalog.=) ANY ($2)",
							 post, only, source, user, post);
			AppendCondition(&sql, counter);
			break;
	}
	return sql.data;
}

/* ParameterTypes: values come narrowed to the columns' types, arrays as they were passed. */
void
ParameterTypes(const Counter &counter, Statement statement, Oid types[2])
{
	switch (statement)
	{
		case Statement::kInsert:
		case Statement::kDelete:
		case Statement::kSelect:
			types[0] = counter.post_type;
			types[1] = counter.user_type;
			break;
		case Statement::kInsertMany:
			types[0] = get_array_type(KeyArgumentType(counter.post_type));
			types[1] = get_array_type(KeyArgumentType(counter.user_type));
			break;
		case Statement::kSelectMany:
			types[0] = counter.user_type;
			types[1] = get_array_type(KeyArgumentType(counter.post_type));
			break;
	}
}

/*
 * Run executes a statement over the source and returns how many rows it touched.  Within
 * SPI_connect; the source is locked.  A rule of the source's owner that turns the statement into
 * another one makes it touch none.
 */
uint64
Run(const Counter &counter, Statement statement, Datum *values, int expect)
{
	PlanEntry *entry = FindPlan(counter, statement);
	bool read_only = expect == SPI_OK_SELECT;

	if (entry->stale || entry->plan == nullptr)
	{
		Oid types[2];

		if (entry->plan != nullptr)
			RetirePlan(entry);
		entry->source = counter.source;
		/* Before the text is built: what changes meanwhile makes it stale again. */
		entry->stale = false;

		const char *sql = StatementText(counter, statement);

		ParameterTypes(counter, statement, types);
		SPIPlanPtr plan = SPI_prepare(sql, 2, types);

		if (plan == nullptr)
			elog(ERROR, "\"%s\" gave %s", sql, SPI_result_code_string(SPI_result));
		(void) SPI_keepplan(plan);
		entry->plan = plan;
	}

	int rc = SPI_execute_plan(entry->plan, values, nullptr, read_only, 0);

	if (rc != expect && rc != SPI_OK_REWRITTEN)
		elog(ERROR, "statement %d of counter \"%s\" gave %s", (int) statement,
			 NameStr(counter.verb), SPI_result_code_string(rc));
	return SPI_processed;
}

/* --- the source --- */

/*
 * LockSource locks the call's source and reads the counter again, until both are of one moment.  To
 * the end of the transaction, and before any check of table privileges, as the plain statement
 * would.  What is checked afterwards is the counter that is locked: while this waited, its verb may
 * have gone to another one, of other types.
 */
void
LockSource(Call *call, LOCKMODE mode)
{
	for (;;)
	{
		Oid source = call->counter.source;

		LockRelationOid(source, mode);
		call->counter = *GetCounter(call->verb);
		if (call->counter.source == source)
			break;
		UnlockRelationOid(source, mode);
	}

	Oid schema = get_rel_namespace(call->counter.source);
	AclResult result = object_aclcheck(NamespaceRelationId, schema, GetUserId(), ACL_USAGE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_SCHEMA, get_namespace_name(schema));
}

/* InsertLike records one like and says whether it is new.  The source is locked. */
bool
InsertLike(const Counter &counter, Datum post, Datum user)
{
	Datum values[2] = {post, user};
	FastInsert insert;
	bool inserted;

	if (FastInsertBegin(&insert, counter))
	{
		inserted = FastInsertRow(&insert, post, user);
		FastInsertEnd(&insert);
		return inserted;
	}

	SPI_connect();
	inserted = Run(counter, Statement::kInsert, values, SPI_OK_INSERT) == 1;
	SPI_finish();
	return inserted;
}

/* Pairs of one call that are sorted in memory. */
constexpr int kMaxPairs = 100000;

/* A like of like_many(), and its keys in an order. */
struct Pair
{
	Key post_key;
	Key user_key;
	Datum post;
	Datum user;
};

static_assert(kPlain<Pair>);

int
ComparePairs(const void *a, const void *b)
{
	auto *x = static_cast<const Pair *>(a);
	auto *y = static_cast<const Pair *>(b);
	int order = KeyCompare(x->post_key, y->post_key);

	return order != 0 ? order : KeyCompare(x->user_key, y->user_key);
}

/*
 * InsertLikes records pairs and returns how many are new.  In one order of all pairs, so that two
 * batches cannot wait for each other.  The source is locked.
 */
int64
InsertLikes(const Call &call, ArrayType *posts, ArrayType *users)
{
	const Counter &counter = call.counter;
	int count = ArrayLength(posts);
	Datum *post_keys = ReadKeys(call, posts, "post_ids", counter.post_type);
	Datum *user_keys = ReadKeys(call, users, "user_ids", counter.user_type);
	FastInsert insert;
	int64 recorded = 0;

	/* The statement's sort spills to disk. */
	if (count > kMaxPairs || !FastInsertBegin(&insert, counter))
	{
		Datum values[2] = {PointerGetDatum(posts), PointerGetDatum(users)};

		/* Whether their likes are there or not: those that are nobody captures. */
		for (int i = 0; i < count; i++)
			DemandUnfrozen(counter, post_keys[i]);
		SPI_connect();
		recorded = (int64) Run(counter, Statement::kInsertMany, values, SPI_OK_INSERT);
		SPI_finish();
		return recorded;
	}

	auto *pairs = static_cast<Pair *>(palloc(count * sizeof(Pair)));

	for (int i = 0; i < count; i++)
		pairs[i] = {KeyFromDatum(counter.post_type, post_keys[i]),
					KeyFromDatum(counter.user_type, user_keys[i]), post_keys[i], user_keys[i]};
	qsort(pairs, count, sizeof(Pair), ComparePairs);
	for (int i = 0; i < count; i++)
		if (i == 0 || ComparePairs(&pairs[i - 1], &pairs[i]) != 0)
		{
			DemandUnfrozen(counter, pairs[i].post);
			recorded += FastInsertRow(&insert, pairs[i].post, pairs[i].user);
		}
	FastInsertEnd(&insert);
	return recorded;
}

} // namespace
} // namespace likecount

using namespace likecount;

/* likecount_add is behind <verb>(post_id, user_id): true when this call recorded the like. */
Datum
likecount_add(PG_FUNCTION_ARGS)
{
	Call call;

	BeginCall(&call, fcinfo, Generated::kLike);
	LockSource(&call, RowExclusiveLock);
	CheckKeys(call, true);

	Datum post = NarrowOrFail(call, PG_GETARG_DATUM(1), "post_id", call.counter.post_type);
	Datum user = NarrowOrFail(call, PG_GETARG_DATUM(2), "user_id", call.counter.user_type);

	/* Before the row is written, and whether there is one or not. */
	DemandUnfrozen(call.counter, post);
	PG_RETURN_BOOL(InsertLike(call.counter, post, user));
}

/* likecount_remove is behind un<verb>(post_id, user_id): true when this call removed the like. */
Datum
likecount_remove(PG_FUNCTION_ARGS)
{
	Call call;
	Datum values[2];
	bool removed;

	BeginCall(&call, fcinfo, Generated::kUnlike);
	LockSource(&call, RowExclusiveLock);
	CheckKeys(call, true);
	if (!KeyNarrow(call.counter.post_type, PG_GETARG_DATUM(1), &values[0]) ||
		!KeyNarrow(call.counter.user_type, PG_GETARG_DATUM(2), &values[1]))
		PG_RETURN_BOOL(false);

	DemandUnfrozen(call.counter, values[0]);
	if (FastRemove(call.counter, values[0], values[1], &removed))
		PG_RETURN_BOOL(removed);

	SPI_connect();
	removed = Run(call.counter, Statement::kDelete, values, SPI_OK_DELETE) > 0;
	SPI_finish();
	PG_RETURN_BOOL(removed);
}

/* likecount_has is behind <past>(post_id, user_id): whether the calling statement sees the like. */
Datum
likecount_has(PG_FUNCTION_ARGS)
{
	Call call;
	Datum values[2];

	BeginCall(&call, fcinfo, Generated::kLiked);
	LockSource(&call, AccessShareLock);
	CheckKeys(call, false);
	if (!KeyNarrow(call.counter.post_type, PG_GETARG_DATUM(1), &values[0]) ||
		!KeyNarrow(call.counter.user_type, PG_GETARG_DATUM(2), &values[1]))
		PG_RETURN_BOOL(false);

	SPI_connect();
	bool found = Run(call.counter, Statement::kSelect, values, SPI_OK_SELECT) > 0;

	SPI_finish();
	PG_RETURN_BOOL(found);
}

/*
 * likecount_add_many is behind <verb>_many(post_ids[], user_ids[]): how many of the pairs were
 * new.
 */
Datum
likecount_add_many(PG_FUNCTION_ARGS)
{
	Call call;

	BeginCall(&call, fcinfo, Generated::kLikeMany);
	LockSource(&call, RowExclusiveLock);
	NeedUser(call, true);
	CheckType(call, 1, call.counter.post_type, true);
	CheckType(call, 2, call.counter.user_type, true);
	CheckNotNull(call, 1, "post_ids");
	CheckNotNull(call, 2, "user_ids");

	ArrayType *posts = ArrayArgument(call, 1, "post_ids");
	ArrayType *users = ArrayArgument(call, 2, "user_ids");

	if (ArrayLength(posts) != ArrayLength(users))
		ereport(ERROR, errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				errmsg("the arrays of %s must have the same length", NameOf(call)),
				errdetail("There are %d posts and %d users.", ArrayLength(posts),
						  ArrayLength(users)));

	PG_RETURN_INT64(InsertLikes(call, posts, users));
}

/*
 * likecount_posts_of is behind <past>_posts(user_id, post_ids[]): those posts that the user likes,
 * in the array's order, once each.
 */
Datum
likecount_posts_of(PG_FUNCTION_ARGS)
{
	auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
	Call call;
	Datum user;

	BeginCall(&call, fcinfo, Generated::kLikedPosts);
	LockSource(&call, AccessShareLock);
	NeedUser(call, false);
	CheckType(call, 1, call.counter.user_type, false);
	CheckType(call, 2, call.counter.post_type, true);
	CheckNotNull(call, 1, "user_id");
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (PG_ARGISNULL(2) || !KeyNarrow(call.counter.user_type, PG_GETARG_DATUM(1), &user))
		return (Datum) 0;

	WantedList list = ReadWanted(call, 2);
	auto *liked = static_cast<bool *>(MemoryContextAllocHuge(CurrentMemoryContext, list.count));
	Datum arguments[2] = {user, PG_GETARG_DATUM(2)};

	memset(liked, false, list.count);
	SPI_connect();
	uint64 rows = Run(call.counter, Statement::kSelectMany, arguments, SPI_OK_SELECT);

	for (uint64 i = 0; i < rows; i++)
	{
		bool isnull;
		Datum post = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);
		int first = FirstWanted(list, KeyFromDatum(call.counter.post_type, post));

		if (first >= 0)
			liked[list.sorted[first].position] = true;
	}
	SPI_finish();

	for (int i = 0; i < list.count; i++)
	{
		bool isnull = false;

		if (liked[i])
			tuplestore_putvalues(result->setResult, result->setDesc, &list.given[i], &isnull);
	}
	return (Datum) 0;
}
