/*
 * recount.cpp: the recounts that people ask for: reconcile, reconcile_recent, reconcile_all, check.
 *
 * All of them measure with Reconcile() (reconcile.cpp), so they are right under live traffic and beside each other;
 * only check() appends nothing.  They check that the source is the caller's, and read it as its owner.  A call over many posts
 * measures them in rounds, each with its own snapshot.
 */
#include "queue.hpp"
#include "reconcile.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
/* How many posts one round of a recount inside a user's statement measures. */
constexpr int64 kRound = 10000;

/* A set of posts of a counter, gathered from several places. */
struct PostSet
{
	const Counter *counter;
	MemoryContext context;
	HTAB *keys; /* of CounterKey */
};

void
PostSetInit(PostSet *set, const Counter *counter)
{
	set->counter = counter;
	set->context = CurrentMemoryContext;
	set->keys = CounterKeyHash("likecount posts", 256, sizeof(CounterKey), set->context);
}

void
PostSetAdd(PostSet *set, const Key &post)
{
	CounterKey key = {set->counter->id, post};
	bool found;
	auto *entry = static_cast<CounterKey *>(hash_search(set->keys, &key, HASH_ENTER, &found));

	if (!found)
		entry->key = KeyCopy(set->context, post);
}

/* Adds the first column of a query's result. */
void
PostSetAddQuery(PostSet *set, const char *sql, const SpiArgs *args, Oid user, RunAs how)
{
	UserSwitch saved = SwitchUser(user, how);

	SPI_connect();
	uint64 rows = SpiExecute(sql, args, SPI_OK_SELECT);

	for (uint64 i = 0; i < rows; i++)
	{
		bool isnull;
		Datum post = SpiValue(i, 1, &isnull);

		if (!isnull)
			PostSetAdd(set, KeyFromDatum(set->counter->post_type, post));
	}
	SPI_finish();
	SwitchBack(saved);
}

/* Measures a set, in rounds; visits each finding. */
void
ReconcileSet(PostSet *set, Recount *recount, void (*visit)(const Recount *recount, void *arg),
			 void *arg)
{
	const Counter *counter = set->counter;
	long count = hash_get_num_entries(set->keys);
	auto *posts = static_cast<Datum *>(
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Datum) * (Size) (count + 1)));
	HASH_SEQ_STATUS seq;
	long n = 0;

	hash_seq_init(&seq, set->keys);
	while (auto *key = static_cast<CounterKey *>(hash_seq_search(&seq)))
		if (KeyToDatum(counter->post_type, key->key.Data(), key->key.len, &posts[n]))
			n++;

	for (long done = 0; done < n; done += kRound)
	{
		recount->posts = PostArray(counter, posts + done, (int) Min(kRound, n - done));
		(void) Reconcile(recount);
		visit(recount, arg);
	}
}

/* Posts of the rows whose liked_at is not older than the argument. */
void
AddRecentLikes(PostSet *set, const SpiArgs *since)
{
	const Counter *counter = set->counter;

	PostSetAddQuery(set,
					psprintf("SELECT DISTINCT s.%s FROM %s s WHERE s.%s >= $1",
							 SourceColumn(counter, counter->post_att), SourceFrom(counter),
							 SourceColumn(counter, counter->time_att)),
					since, counter->owner, RunAs::kOwnerOfSource);
}

/* Posts of the deltas that wait in queue and journal. */
void
AddPendingPosts(PostSet *set)
{
	HASH_SEQ_STATUS seq;

	LockSegments(AccessShareLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	HTAB *pending = ReadPending(set->counter->id, snapshot, CurrentMemoryContext, nullptr);

	UnregisterSnapshot(snapshot);
	UnlockSegments(AccessShareLock);
	hash_seq_init(&seq, pending);
	while (auto *sum = static_cast<PendingSum *>(hash_seq_search(&seq)))
		PostSetAdd(set, sum->key.key);
}

/* Share of a table's pages that holds about ten times the wanted number of rows. */
double
SamplePercent(Oid relation, int64 wanted)
{
	Relation rel = relation_open(relation, AccessShareLock);
	double rows = rel->rd_rel->reltuples;

	relation_close(rel, NoLock);
	return rows <= 0 ? 100.0 : Min(100.0, 1000.0 * (double) wanted / rows + 0.1);
}

/* Where reconcile_all stands in a counter, nullptr: at the start. */
char *
ReadProgress(const Counter *counter)
{
	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);
	MemoryContext caller = CurrentMemoryContext;
	SpiArgs args = {};
	char *after = nullptr;
	bool isnull = true;

	args.Add(INT4OID, Int32GetDatum(counter->id));
	SPI_connect();
	if (SpiExecute("SELECT after FROM likecount._progress WHERE counter = $1 FOR UPDATE", &args,
				   SPI_OK_SELECT) > 0)
	{
		Datum value = SpiValue(0, 1, &isnull);

		if (!isnull)
			after = MemoryContextStrdup(caller, TextDatumGetCString(value));
	}
	SPI_finish();
	SwitchBack(saved);
	return after;
}

/* Notes what one chunk of reconcile_all did; its last one leaves after NULL, so the next call starts anew. */
void
WriteProgress(const Recount *recount)
{
	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(recount->counter->id));
	args.Add(TEXTOID, recount->last == nullptr ? (Datum) 0 : CStringGetTextDatum(recount->last),
			 recount->last == nullptr);
	args.Add(INT8OID, Int64GetDatum(recount->checked));
	args.Add(INT8OID, Int64GetDatum(EstimatePosts(recount->counter)));
	args.Add(INT8OID, Int64GetDatum(recount->wrong));
	args.Add(INT8OID, Int64GetDatum(recount->drift));
	args.Add(BOOLOID, BoolGetDatum(recount->after == nullptr));
	SPI_connect();
	SpiExecute("INSERT INTO likecount._progress AS p (counter, after, done, total, drift_posts, "
			   "drift_found, started_at, updated_at)"
			   " VALUES ($1, $2, $3, greatest($3, nullif($4, 0)), $5, $6, "
			   "pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp())"
			   " ON CONFLICT (counter) DO UPDATE SET after = $2,"
			   " done = CASE WHEN $7 THEN 0 ELSE p.done END + $3,"
			   " total = CASE WHEN $2 IS NULL THEN CASE WHEN $7 THEN 0 ELSE p.done END + $3"
			   " ELSE greatest(CASE WHEN $7 THEN 0 ELSE p.done END + $3, nullif($4, 0)) END,"
			   " drift_posts = CASE WHEN $7 THEN 0 ELSE p.drift_posts END + $5,"
			   " drift_found = CASE WHEN $7 THEN 0 ELSE p.drift_found END + $6,"
			   " started_at = CASE WHEN $7 THEN excluded.started_at ELSE p.started_at END,"
			   " updated_at = excluded.updated_at",
			   &args, SPI_OK_INSERT);
	SPI_finish();
	SwitchBack(saved);
}

/* Up to about the given number of random posts: half of them from the slots, half from the source, since a post may be missing in either. */
void
AddSample(PostSet *set, int64 sample)
{
	const Counter *counter = set->counter;
	int64 half = (sample + 1) / 2;
	SpiArgs args = {};

	args.Add(INT8OID, Int64GetDatum(half));
	args.Add(FLOAT8OID, Float8GetDatum(SamplePercent(counter->slots, half)));
	PostSetAddQuery(
		set,
		psprintf("SELECT q.post FROM (SELECT DISTINCT s.post FROM %s s TABLESAMPLE SYSTEM ($2)) q"
				 " ORDER BY pg_catalog.random() LIMIT $1",
				 QualifiedName(counter->slots)),
		&args, GetMembers()->owner, RunAs::kExtensionOwner);
	args.values[1] = Float8GetDatum(SamplePercent(counter->source, half));
	PostSetAddQuery(
		set,
		psprintf(
			"SELECT q.post FROM (SELECT DISTINCT s.%s AS post FROM %s s TABLESAMPLE SYSTEM ($2)) q"
			" ORDER BY pg_catalog.random() LIMIT $1",
			SourceColumn(counter, counter->post_att), SourceFrom(counter)),
		&args, counter->owner, RunAs::kOwnerOfSource);
}

/* Puts what a recount found into a function's result: post as text, was, now. */
void
PutFindings(const Recount *recount, void *arg)
{
	auto *result = static_cast<ReturnSetInfo *>(arg);
	ListCell *cell;

	foreach (cell, recount->findings)
	{
		auto *finding = static_cast<Finding *>(lfirst(cell));
		Datum values[3];
		bool nulls[3] = {};

		values[0] = CStringGetTextDatum(
			KeyToText(recount->counter->post_type, finding->post.Data(), finding->post.len));
		values[1] = Int64GetDatum(finding->was);
		values[2] = Int64GetDatum(finding->now);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
}
} // namespace

const Counter *
CounterArgument(FunctionCallInfo fcinfo, int source_arg, int verb_arg)
{
	if (PG_ARGISNULL(source_arg))
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"source\" must not be null"));

	Oid source = PG_GETARG_OID(source_arg);
	char *verb = PG_ARGISNULL(verb_arg) ? nullptr : text_to_cstring(PG_GETARG_TEXT_PP(verb_arg));
	char *name = get_rel_name(source);

	if (name == nullptr)
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_TABLE),
				errmsg("there is no table with OID %u", source));
	if (!object_ownercheck(RelationRelationId, source, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);

	/* A copy in the call's memory: the cache may be rebuilt by what follows. */
	auto *counter = palloc_object(Counter);

	*counter = *CounterOfSource(source, verb, false);
	return counter;
}

Datum
PostArgument(FunctionCallInfo fcinfo, int post_arg, const Counter *counter)
{
	Oid output;
	bool varlena;

	if (PG_ARGISNULL(post_arg))
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"post\" must not be null"));
	getTypeOutputInfo(get_fn_expr_argtype(fcinfo->flinfo, post_arg), &output, &varlena);
	return TextToPost(counter, OidOutputFunctionCall(output, PG_GETARG_DATUM(post_arg)));
}
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_reconcile);
PGDLLEXPORT Datum likecount_reconcile(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_reconcile_recent);
PGDLLEXPORT Datum likecount_reconcile_recent(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_reconcile_chunk);
PGDLLEXPORT Datum likecount_reconcile_chunk(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_check);
PGDLLEXPORT Datum likecount_check(PG_FUNCTION_ARGS);

using namespace likecount;

/* reconcile(source, post, verb): recounts one post and returns its drift. */
Datum
likecount_reconcile(PG_FUNCTION_ARGS)
{
	const Counter *counter = CounterArgument(fcinfo, 0, 2);
	Recount recount = {};

	PreventCommandIfReadOnly("likecount.reconcile()");

	Datum post = PostArgument(fcinfo, 1, counter);

	recount.counter = counter;
	recount.append = true;
	recount.wait = true;
	recount.posts = PostArray(counter, &post, 1);
	(void) Reconcile(&recount);
	PG_RETURN_INT64(recount.drift);
}

/* reconcile_recent(source, interval, verb): recounts the posts with activity since then. */
Datum
likecount_reconcile_recent(PG_FUNCTION_ARGS)
{
	const Counter *counter = CounterArgument(fcinfo, 0, 2);
	Recount recount = {};
	PostSet set;
	SpiArgs args = {};

	if (PG_ARGISNULL(1))
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"since\" must not be null"));
	PreventCommandIfReadOnly("likecount.reconcile_recent()");
	InitMaterializedSRF(fcinfo, 0);

	PostSetInit(&set, counter);
	args.Add(TIMESTAMPTZOID,
			 DirectFunctionCall2(timestamptz_mi_interval,
								 TimestampTzGetDatum(GetCurrentTimestamp()), PG_GETARG_DATUM(1)));
	/* Likes leave their time in the source, everything that was flushed in its slot, the rest is pending. */
	if (counter->time_att != InvalidAttrNumber)
		AddRecentLikes(&set, &args);
	PostSetAddQuery(&set,
					psprintf("SELECT DISTINCT s.post FROM %s s WHERE s.updated_at >= $1",
							 QualifiedName(counter->slots)),
					&args, GetMembers()->owner, RunAs::kExtensionOwner);
	AddPendingPosts(&set);

	recount.counter = counter;
	recount.append = true;
	recount.wait = true;
	ReconcileSet(&set, &recount, PutFindings, fcinfo->resultinfo);
	PG_RETURN_NULL();
}

/* _reconcile_chunk(source, chunk, verb): one chunk of reconcile_all; true: there is more. */
Datum
likecount_reconcile_chunk(PG_FUNCTION_ARGS)
{
	const Counter *counter = CounterArgument(fcinfo, 0, 2);
	Recount recount = {};

	if (PG_ARGISNULL(1) || PG_GETARG_INT32(1) < 1)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("chunk must be at least 1"),
				errdetail("It is the number of posts that are recounted in one transaction."));
	PreventCommandIfReadOnly("likecount.reconcile_all()");
	recount.counter = counter;
	recount.append = true;
	recount.wait = true;
	recount.limit = PG_GETARG_INT32(1);
	/* Before the row of _progress: who has recounted a post and then walks has the counter already. */
	(void) LockForRecount(counter, true, true);
	recount.after = ReadProgress(counter);
	(void) Reconcile(&recount);
	WriteProgress(&recount);
	PG_RETURN_BOOL(recount.last != nullptr);
}

/* check(source, sample, verb): as reconcile, for all posts or some, but touches nothing. */
Datum
likecount_check(PG_FUNCTION_ARGS)
{
	const Counter *counter = CounterArgument(fcinfo, 0, 2);
	Recount recount = {};

	/* What is pending there is not known here. */
	PreventCommandDuringRecovery("likecount.check()");
	InitMaterializedSRF(fcinfo, 0);
	recount.counter = counter;
	recount.wait = true;
	if (PG_ARGISNULL(1))
	{
		recount.limit = kRound;
		do
		{
			(void) Reconcile(&recount);
			PutFindings(&recount, fcinfo->resultinfo);
			recount.after = recount.last;
		} while (recount.last != nullptr);
	}
	else
	{
		PostSet set;

		if (PG_GETARG_INT64(1) < 1)
			ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("sample must be at least 1"),
					errdetail("It is the number of random posts to check; NULL checks all."));
		PostSetInit(&set, counter);
		AddSample(&set, PG_GETARG_INT64(1));
		ReconcileSet(&set, &recount, PutFindings, fcinfo->resultinfo);
	}
	PG_RETURN_NULL();
}
}
