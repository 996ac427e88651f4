/*
 * like.cpp: the SQL entry points behind the functions that attach() generates.
 *
 * The generated functions are one-line wrappers that inline, so what runs is
 * likecount._add('like', post, user) and its siblings.  Anybody may call those by hand, with
 * arguments of any type; each call compares the types that the parser resolved with the counter's
 * before it looks at a value.
 *
 * Whatever touches the source acts as the caller: privileges, row security, defaults, triggers and
 * constraints are those of the plain statement.  insert.cpp stores and removes rows without one
 * where that is the same; else the statement is kept as an SPI plan per counter.  A kept plan is analysed again from its text whenever a relation in it
 * changes, and then a renamed table would not be found, or a table that took over the name would
 * be.  So each call first locks the source by its OID, which lets in what other sessions committed
 * and keeps the names as they are to the end of the transaction; a change of the source or of a
 * schema that came in marks the plan stale, and a stale plan is built anew before it is used.
 *
 * Two privileges a kept plan would not check again for the next role of the session, or not at
 * all: USAGE on the source's schema (checked here, on each call), and reading totals, which come
 * from the cache (cache.cpp) or, without the executor, from the slots.
 */
#include "cache.hpp"
#include "capture.hpp"
#include "insert.hpp"
#include "only_where.hpp"
#include "queue.hpp"
#include "slots.hpp"

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_add);
PG_FUNCTION_INFO_V1(likecount_remove);
PG_FUNCTION_INFO_V1(likecount_has);
PG_FUNCTION_INFO_V1(likecount_add_many);
PG_FUNCTION_INFO_V1(likecount_total);
PG_FUNCTION_INFO_V1(likecount_total_now);
PG_FUNCTION_INFO_V1(likecount_totals);
PG_FUNCTION_INFO_V1(likecount_posts_of);

PGDLLEXPORT Datum likecount_add(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_remove(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_has(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_add_many(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_total(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_total_now(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_totals(PG_FUNCTION_ARGS);
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

/* --- the arguments --- */

constexpr int kMaxArguments = 3;

/*
 * What is known of the arguments at one place in a plan: their types, as the parser resolved them.
 */
struct CallSite
{
	Oid types[kMaxArguments];
};

static_assert(kPlain<CallSite>);

const CallSite *
SiteOf(FunctionCallInfo fcinfo)
{
	FmgrInfo *flinfo = fcinfo->flinfo;

	if (flinfo->fn_extra == nullptr)
	{
		auto *site =
			static_cast<CallSite *>(MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(CallSite)));

		Assert(PG_NARGS() <= kMaxArguments);
		/* InvalidOid when nobody knows, which is no counter's type. */
		for (int i = 0; i < PG_NARGS(); i++)
			site->types[i] = get_fn_expr_argtype(flinfo, i);
		flinfo->fn_extra = site;
	}
	return static_cast<CallSite *>(flinfo->fn_extra);
}

/* The generated functions, for messages. */
enum class Generated : uint8
{
	kLike,
	kUnlike,
	kLiked,
	kLikeMany,
	kLikeCount,
	kLikeCountNow,
	kLikeCounts,
	kLikedPosts,
};

const char *
GeneratedName(Generated function, const char *verb, const char *past)
{
	switch (function)
	{
		case Generated::kLike:
			return psprintf("likecount.%s()", verb);
		case Generated::kUnlike:
			return psprintf("likecount.un%s()", verb);
		case Generated::kLiked:
			return psprintf("likecount.%s()", past);
		case Generated::kLikeMany:
			return psprintf("likecount.%s_many()", verb);
		case Generated::kLikeCount:
			return psprintf("likecount.%s_count()", verb);
		case Generated::kLikeCountNow:
			return psprintf("likecount.%s_count_now()", verb);
		case Generated::kLikeCounts:
			return psprintf("likecount.%s_counts()", verb);
		case Generated::kLikedPosts:
			return psprintf("likecount.%s_posts()", past);
	}
	pg_unreachable();
}

/* One call: the function and its counter, which survives whatever the call does to the caches. */
struct Call
{
	FunctionCallInfo fcinfo;
	const CallSite *site;
	Generated function;
	char verb[NAMEDATALEN];
	Counter counter;
};

static_assert(kPlain<Call>);

const char *
NameOf(const Call &call)
{
	return GeneratedName(call.function, call.verb, NameStr(call.counter.past));
}

/*
 * BeginCall reads the verb and looks the counter up.  Functions that write fail first where
 * nothing can be written.
 */
void
BeginCall(Call *call, FunctionCallInfo fcinfo, Generated function)
{
	call->fcinfo = fcinfo;
	call->site = SiteOf(fcinfo);
	call->function = function;

	if (PG_ARGISNULL(0))
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"verb\" must not be null"));

	/* Into the frame, not the heap.  A longer text is nobody's verb, cut off or not. */
	text *verb = PG_GETARG_TEXT_PP(0);
	Size len = Min(VARSIZE_ANY_EXHDR(verb), NAMEDATALEN - 1);

	memcpy(call->verb, VARDATA_ANY(verb), len);
	call->verb[len] = '\0';

	if (XactReadOnly && (function == Generated::kLike || function == Generated::kUnlike ||
						 function == Generated::kLikeMany))
		PreventCommandIfReadOnly(GeneratedName(function, call->verb, ""));

	/*
	 * Neither a lock that the transaction has already nor a total that comes from the cache lets them in, and what others have
	 * committed, a REVOKE or a detach, is to be known.
	 */
	AcceptInvalidationMessages();
	call->counter = *GetCounter(call->verb);
}

/*
 * NeedUser refuses what a counter of rows without a user, or of rows under a condition, has no
 * function for.
 */
void
NeedUser(const Call &call, bool writes)
{
	if (call.counter.user_att == InvalidAttrNumber)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("counter \"%s\" has no user column", call.verb),
				errdetail("It counts rows, and cannot tell whose they are."));
	if (writes && call.counter.has_where)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("counter \"%s\" counts only rows under a condition", call.verb),
				errhint("Write to table %s.", QualifiedName(call.counter.source)));
}

/*
 * CheckType demands that an argument, or an array's elements, have the type that goes with the
 * column.
 */
void
CheckType(const Call &call, int argument, Oid column_type, bool array)
{
	Oid wanted = KeyArgumentType(column_type);
	Oid given = call.site->types[argument];

	if (array && OidIsValid(given))
		given = get_element_type(given);

	if (given != wanted)
		ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("argument %d has type %s, but counter \"%s\" takes %s", argument + 1,
					   format_type_be(call.site->types[argument]), call.verb,
					   format_type_be(array ? get_array_type(wanted) : wanted)),
				errhint("Call %s.", NameOf(call)));
}

void
CheckNotNull(const Call &call, int argument, const char *name)
{
	if (call.fcinfo->args[argument].isnull)
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"%s\" of %s must not be null", name, NameOf(call)));
}

/* CheckKeys does all of that for the two keys of like, unlike and liked. */
void
CheckKeys(const Call &call, bool writes)
{
	NeedUser(call, writes);
	CheckType(call, 1, call.counter.post_type, false);
	CheckType(call, 2, call.counter.user_type, false);
	CheckNotNull(call, 1, "post_id");
	CheckNotNull(call, 2, "user_id");
}

/* NarrowOrFail is KeyNarrow for a value that is to be stored. */
Datum
NarrowOrFail(const Call &call, Datum given, const char *name, Oid column_type)
{
	Datum value;

	if (KeyNarrow(column_type, given, &value))
		return value;
	if (KeyKindOf(column_type) == KeyKind::kText)
		ereport(ERROR, errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				errmsg("argument \"%s\" of %s is too long", name, NameOf(call)),
				errdetail("A key of type text has at most %d bytes.", kMaxTextKey));
	ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			errmsg("argument \"%s\" of %s is out of range", name, NameOf(call)),
			errdetail("Value " INT64_FORMAT " does not fit into a column of type %s.",
					  DatumGetInt64(given), format_type_be(column_type)));
	pg_unreachable();
}

/* ArrayArgument returns an array of one dimension without nulls. */
ArrayType *
ArrayArgument(const Call &call, int argument, const char *name)
{
	ArrayType *array = DatumGetArrayTypeP(call.fcinfo->args[argument].value);

	if (ARR_NDIM(array) > 1)
		ereport(ERROR, errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				errmsg("argument \"%s\" of %s must be one-dimensional", name, NameOf(call)),
				errdetail("The array has %d dimensions.", ARR_NDIM(array)));
	if (array_contains_nulls(array))
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"%s\" of %s must not contain nulls", name, NameOf(call)));
	return array;
}

int
ArrayLength(const ArrayType *array)
{
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
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

/* ReadKeys narrows the elements of an array to the column's type, or fails as for one key. */
Datum *
ReadKeys(const Call &call, ArrayType *array, const char *name, Oid column_type)
{
	int16 len;
	bool byval;
	char align;
	Datum *keys;
	bool *nulls;
	int count;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &keys, &nulls, &count);
	for (int i = 0; i < count; i++)
		keys[i] = NarrowOrFail(call, keys[i], name, column_type);
	return keys;
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

/* --- lists of posts --- */

/* A post that a list asks for. */
struct Wanted
{
	Key key;
	Datum value;  /* in the column's type */
	int position; /* in the list */
};

static_assert(kPlain<Wanted>);

/*
 * The posts of an array argument: all of them as given, and in key order those that a column can
 * hold.
 */
struct WantedList
{
	int count;
	Datum *given;
	Wanted *sorted;
	int sorted_count;
};

static_assert(kPlain<WantedList>);

int
CompareWanted(const void *a, const void *b)
{
	auto *x = static_cast<const Wanted *>(a);
	auto *y = static_cast<const Wanted *>(b);
	int order = KeyCompare(x->key, y->key);

	return order != 0 ? order : x->position - y->position;
}

WantedList
ReadWanted(const Call &call, int argument)
{
	ArrayType *array = ArrayArgument(call, argument, "post_ids");
	Oid column_type = call.counter.post_type;
	WantedList list = {};
	int16 len;
	bool byval;
	char align;
	bool *nulls;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &list.given, &nulls,
					  &list.count);
	list.sorted = static_cast<Wanted *>(
		MemoryContextAllocHuge(CurrentMemoryContext, list.count * sizeof(Wanted)));
	for (int i = 0; i < list.count; i++)
	{
		Wanted *wanted = &list.sorted[list.sorted_count];

		if (!KeyNarrow(column_type, list.given[i], &wanted->value))
			continue;
		wanted->key = KeyFromDatum(column_type, wanted->value);
		wanted->position = i;
		list.sorted_count++;
	}
	qsort(list.sorted, list.sorted_count, sizeof(Wanted), CompareWanted);
	return list;
}

/*
 * FirstWanted finds the first of the equal posts in key order; -1: the list does not ask for this
 * one.
 */
int
FirstWanted(const WantedList &list, const Key &key)
{
	int low = 0;
	int high = list.sorted_count;

	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (KeyCompare(list.sorted[middle].key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < list.sorted_count && KeyEqual(list.sorted[low].key, key) ? low : -1;
}

/* --- totals --- */

/*
 * CheckMayRead: totals are for those who may select from the view, and for the owner of what is
 * counted.
 */
void
CheckMayRead(const Counter &counter)
{
	Oid user = GetUserId();

	if (OidIsValid(counter.totals) &&
		pg_class_aclcheck(counter.totals, user, ACL_SELECT) == ACLCHECK_OK)
		return;
	if (!object_ownercheck(RelationRelationId, counter.source, user))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_VIEW, psprintf("%s_totals", NameStr(counter.verb)));
}

/* ReadPost takes the argument of a count; false: there is nothing to count, and *result says what that gives. */
bool
ReadPost(const Call &call, Datum *post, Datum *result)
{
	FunctionCallInfo fcinfo = call.fcinfo;

	CheckType(call, 1, call.counter.post_type, false);
	CheckMayRead(call.counter);
	fcinfo->isnull = PG_ARGISNULL(1);
	*result = Int64GetDatum(0);
	return !fcinfo->isnull && KeyNarrow(call.counter.post_type, PG_GETARG_DATUM(1), post);
}

/*
 * OpenTotals opens the slots for what the cache lacks, and registers a snapshot, which it returns: of now, as what comes from
 * the cache is.  Locks first, snapshot second: a rewriting ALTER TABLE makes older snapshots see an empty table.
 */
Snapshot
OpenTotals(SlotReader *reader, const Counter &counter)
{
	LockRelationOid(counter.slots, AccessShareLock);

	bool now = CacheServes() && !IsInParallelMode();
	Snapshot snapshot = RegisterSnapshot(now ? GetLatestSnapshot() : GetActiveSnapshot());

	SlotReaderOpen(reader, &counter, snapshot);
	UnlockRelationOid(counter.slots, AccessShareLock);
	return snapshot;
}

int64
ReadTotal(const Counter &counter, Datum post, Snapshot snapshot, bool *frozen)
{
	SlotReader reader;

	SlotReaderOpen(&reader, &counter, snapshot);
	int64 total = SlotReaderTotal(&reader, post, frozen);

	SlotReaderClose(&reader);
	return total;
}

/* A post of a list that the cache does not have. */
struct Missing
{
	const Wanted *wanted;
	CachePlace place;
};

static_assert(kPlain<Missing>);

/* ReadTotals reads the totals of a list, each post once; 0 for those that no column can hold. */
int64 *
ReadTotals(const Counter &counter, const WantedList &list)
{
	MemoryContext context = CurrentMemoryContext;
	auto *totals =
		static_cast<int64 *>(MemoryContextAllocHuge(context, list.count * sizeof(int64)));
	auto *missing =
		static_cast<Missing *>(MemoryContextAllocHuge(context, list.count * sizeof(Missing)));
	int missing_count = 0;

	memset(totals, 0, list.count * sizeof(int64));
	for (int i = 0; i < list.sorted_count; i++)
	{
		const Wanted *wanted = &list.sorted[i];
		CachePlace place;

		CHECK_FOR_INTERRUPTS();
		if ((i > 0 && KeyEqual(wanted->key, wanted[-1].key)) ||
			CacheFind(counter, wanted->key, &totals[wanted->position], &place))
			continue;
		missing[missing_count++] = {wanted, place};
	}

	if (missing_count > 0)
	{
		SlotReader reader;
		Snapshot snapshot = OpenTotals(&reader, counter);

		for (int i = 0; i < missing_count; i++)
		{
			const Wanted *wanted = missing[i].wanted;
			int64 total = SlotReaderTotal(&reader, wanted->value, nullptr);

			CHECK_FOR_INTERRUPTS();
			totals[wanted->position] = total;
			CacheStore(missing[i].place, counter, wanted->key, total);
		}
		SlotReaderClose(&reader);
		UnregisterSnapshot(snapshot);
	}

	for (int i = 1; i < list.sorted_count; i++)
		if (KeyEqual(list.sorted[i].key, list.sorted[i - 1].key))
			totals[list.sorted[i].position] = totals[list.sorted[i - 1].position];
	return totals;
}

/*
 * FreshSnapshot registers the snapshot of a fresh read.  In READ COMMITTED the newest one: the segments are locked
 * already, so none of them is emptied of what it sees.  Above that the transaction's own, as of this command.
 */
Snapshot
FreshSnapshot()
{
	if (IsInParallelMode())
		return RegisterSnapshot(GetActiveSnapshot());

	/* What this transaction has journalled or flushed itself is to be seen, in the same statement, too. */
	CommandCounterIncrement();
	return RegisterSnapshot(IsolationUsesXactSnapshot() ? GetTransactionSnapshot()
														: GetLatestSnapshot());
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
 * likecount_total is behind <verb>_count(post_id): 0 for a post that nobody ever liked, null only
 * for null.
 */
Datum
likecount_total(PG_FUNCTION_ARGS)
{
	Call call;
	Datum post, result;

	BeginCall(&call, fcinfo, Generated::kLikeCount);
	if (!ReadPost(call, &post, &result))
		return result;

	Key key = KeyFromDatum(call.counter.post_type, post);
	CachePlace place;
	int64 total;

	if (!CacheFind(call.counter, key, &total, &place))
	{
		SlotReader reader;
		Snapshot snapshot = OpenTotals(&reader, call.counter);

		total = SlotReaderTotal(&reader, post, nullptr);
		SlotReaderClose(&reader);
		UnregisterSnapshot(snapshot);
		CacheStore(place, call.counter, key, total);
	}
	PG_RETURN_INT64(total);
}

/*
 * likecount_total_now is behind <verb>_count_now(post_id): total, pending deltas and the caller's own.  Total and
 * pending are read under one snapshot, so that a flush has happened in both or in neither.
 */
Datum
likecount_total_now(PG_FUNCTION_ARGS)
{
	Call call;
	Datum post, result;

	BeginCall(&call, fcinfo, Generated::kLikeCountNow);
	if (!ReadPost(call, &post, &result))
		return result;
	/* Half of what is pending, the queue, is not there. */
	if (RecoveryInProgress())
		PG_RETURN_INT64(ReadTotal(call.counter, post, GetActiveSnapshot(), nullptr));

	Key key = KeyFromDatum(call.counter.post_type, post);

	LockRelationOid(call.counter.slots, AccessShareLock);
	LockSegments(AccessShareLock);
	Snapshot snapshot = FreshSnapshot();
	bool frozen;
	int64 total = ReadTotal(call.counter, post, snapshot, &frozen);
	int64 pending = frozen ? 0 : ReadPendingOf(call.counter.id, key, snapshot);
	int64 own = frozen ? 0 : OwnDelta(call.counter.id, key);

	UnregisterSnapshot(snapshot);
	UnlockSegments(AccessShareLock);
	UnlockRelationOid(call.counter.slots, AccessShareLock);
	if (pg_add_s64_overflow(total, pending, &total) || pg_add_s64_overflow(total, own, &total))
		ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("result of %s does not fit a bigint", NameOf(call)));
	PG_RETURN_INT64(total);
}

/*
 * likecount_totals is behind <verb>_counts(post_ids[]): a row for each element, in the array's
 * order, whether the post is known or not.
 */
Datum
likecount_totals(PG_FUNCTION_ARGS)
{
	auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
	Call call;

	BeginCall(&call, fcinfo, Generated::kLikeCounts);
	CheckType(call, 1, call.counter.post_type, true);
	CheckMayRead(call.counter);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	/* An array that array_agg() made of no rows. */
	if (PG_ARGISNULL(1))
		return (Datum) 0;

	WantedList list = ReadWanted(call, 1);
	int64 *totals = ReadTotals(call.counter, list);

	for (int i = 0; i < list.count; i++)
	{
		Datum values[2] = {list.given[i], Int64GetDatum(totals[i])};
		bool nulls[2] = {};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
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
