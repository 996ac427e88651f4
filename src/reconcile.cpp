/*
 * reconcile.cpp: drift, measured in one snapshot and appended to the journal.
 *
 * drift = count of the source's rows - total - pending - the caller's own deltas, where the total is what all slots but
 * a frozen post's mark add up to (slots.cpp).  All of it is read under one
 * snapshot, so it is right for that moment whatever happens meanwhile, and it is added, not set: deltas that are
 * committed later find their place as ever.  The correction goes to the journal, so only flushes write slots, and no
 * user transaction holds a slot row.
 *
 * Locks first, snapshot second: ACCESS SHARE on the source with all its partitions (TRUNCATE and a rewriting ALTER
 * TABLE are not MVCC-safe: under a snapshot that is older than one of them the table would read empty), the counter
 * lock (two recounts must not add the same drift), slots, segments.  Pending is read into memory and the segments'
 * locks given back at once, or a long count would keep segments from being emptied; emptying removes only rows that
 * were read already.
 *
 * The walk over all posts goes by ranges of keys over source, slots and pending together: a post whose last row went
 * away while it was still uncounted has no row in the source any more, only a wrong total.
 *
 * The source is read as its owner under restriction and without row security: what would still be filtered is
 * an error, never a smaller count.
 *
 * Where a capture trigger has not fired yet for rows that the snapshot sees, the count would run ahead of the deltas:
 * that is refused.
 */
#include "reconcile.hpp"

#include "capture.hpp"
#include "debug.hpp"
#include "flush.hpp"
#include "only_where.hpp"
#include "queue.hpp"
#include "shmem.hpp"
#include "slots.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
/* What is known of one post of a chunk. */
struct Post
{
	CounterKey key;
	int64 rows;
	int64 total;
	int64 pending;
};

static_assert(kPlain<Post>);

/* Posts being measured: those of an array, or a range of keys. */
struct Measure
{
	const Counter *counter;
	MemoryContext context;
	Snapshot snapshot;
	HTAB *posts; /* of Post */
	ArrayType *only;
	bool has_after, has_end;
	Datum after, end;
};

Post *
PostOf(Measure *measure, Datum post)
{
	CounterKey key = {measure->counter->id, KeyFromDatum(measure->counter->post_type, post)};
	bool found;
	auto *entry = static_cast<Post *>(hash_search(measure->posts, &key, HASH_ENTER, &found));

	if (!found)
	{
		entry->key.key = KeyCopy(measure->context, key.key);
		entry->rows = entry->total = entry->pending = 0;
	}
	return entry;
}

int
ComparePosts(const Counter *counter, Datum a, Datum b)
{
	TypeCacheEntry *type = lookup_type_cache(counter->post_type, TYPECACHE_CMP_PROC_FINFO);

	return DatumGetInt32(FunctionCall2Coll(&type->cmp_proc_finfo, counter->post_collation, a, b));
}

/* Whether a post that a scan of pending met is being measured. */
bool
Wanted(const Measure *measure, const Key &key, Datum post)
{
	if (measure->only != nullptr)
	{
		CounterKey wanted = {measure->counter->id, key};

		return hash_search(measure->posts, &wanted, HASH_FIND, nullptr) != nullptr;
	}
	return (!measure->has_after || ComparePosts(measure->counter, post, measure->after) > 0) &&
		   (!measure->has_end || ComparePosts(measure->counter, post, measure->end) <= 0);
}

/* Reads (post, number) of the posts being measured into the given field; limit 0: all of them. */
void
ReadNumbers(Measure *measure, const char *column, const char *number, const char *from,
			const char *condition, int64 limit, int64 Post::*field)
{
	const Counter *counter = measure->counter;
	StringInfoData sql;
	SpiArgs args = {};

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT s.%s, %s FROM %s s WHERE s.%s IS NOT NULL", column, number, from,
					 column);
	/* What is too long for a key was there before attach, and is not counted. */
	if (KeyKindOf(counter->post_type) == KeyKind::kText)
		appendStringInfo(&sql, " AND pg_catalog.octet_length(s.%s) <= %d", column, kMaxTextKey);
	if (condition != nullptr)
		appendStringInfo(&sql, " AND (%s)", condition);
	if (measure->only != nullptr)
	{
		args.Add(get_array_type(counter->post_type), PointerGetDatum(measure->only));
		appendStringInfo(&sql, " AND s.%s = ANY ($%d)", column, args.count);
	}
	if (measure->has_after)
	{
		args.Add(counter->post_type, measure->after);
		appendStringInfo(&sql, " AND s.%s > $%d", column, args.count);
	}
	if (measure->has_end)
	{
		args.Add(counter->post_type, measure->end);
		appendStringInfo(&sql, " AND s.%s <= $%d", column, args.count);
	}
	appendStringInfo(&sql, " GROUP BY s.%s", column);
	if (limit > 0)
		appendStringInfo(&sql, " ORDER BY s.%s LIMIT " INT64_FORMAT, column, limit);

	uint64 rows = SpiQueryAt(sql.data, &args, measure->snapshot);
	bool isnull;

	for (uint64 i = 0; i < rows; i++)
		PostOf(measure, SpiValue(i, 1, &isnull))->*field = DatumGetInt64(SpiValue(i, 2, &isnull));

	/* The last one bounds the range when there may be more. */
	if (limit > 0 && rows == (uint64) limit)
	{
		MemoryContext caller = MemoryContextSwitchTo(measure->context);
		int16 len;
		bool byval;

		get_typlenbyval(counter->post_type, &len, &byval);
		measure->end = datumCopy(SpiValue(rows - 1, 1, &isnull), byval, len);
		measure->has_end = true;
		MemoryContextSwitchTo(caller);
	}
}

/*
 * A chunk of a walk takes its rows in the order of an index, if there is one.  Of a table that
 * nobody has analyzed yet, as after a restore, the planner would rather read and sort all rows, for
 * each chunk.
 */
void
InOrder(int64 limit)
{
	static const char *const others[] = {"enable_seqscan", "enable_bitmapscan", "enable_hashagg"};

	if (limit == 0)
		return;
	for (const char *other : others)
		PinSetting(other, "off");
	PinSetting("max_parallel_workers_per_gather", "0");
}

/* Counts the source's rows, as the source's owner. */
void
CountSource(Measure *measure, int64 limit)
{
	const Counter *counter = measure->counter;
	UserSwitch saved = SwitchUser(counter->owner, RunAs::kOwnerOfSource);

	InOrder(limit);
	ReadNumbers(measure, SourceColumn(counter, counter->post_att), "pg_catalog.count(*)",
				SourceFrom(counter), ConditionText(counter), limit, &Post::rows);
	SwitchBack(saved);
}

/* Sums the slots. */
void
SumSlots(Measure *measure, int64 limit)
{
	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	InOrder(limit);
	ReadNumbers(measure, "post", "pg_catalog.sum(s.value)::bigint",
				QualifiedName(measure->counter->slots), "s.slot >= 0", limit, &Post::total);
	SwitchBack(saved);
}

bool
LockOne(Oid relation, bool wait)
{
	if (!wait)
		return ConditionalLockRelationOid(relation, AccessShareLock);
	LockRelationOid(relation, AccessShareLock);
	return true;
}

/* Tells what is wrong, and appends the correction to the journal when that is wanted. */
void
Conclude(Measure *measure, Recount *recount)
{
	TimestampTz now = GetCurrentTimestamp();
	Appender journal = {};
	HASH_SEQ_STATUS seq;

	hash_seq_init(&seq, measure->posts);
	while (auto *post = static_cast<Post *>(hash_seq_search(&seq)))
	{
		const Key &key = post->key.key;
		Datum value;

		/* What the first scan read beyond the end that the second one set belongs to the next chunk. */
		if (!KeyToDatum(measure->counter->post_type, key.Data(), key.len, &value) ||
			!Wanted(measure, key, value))
			continue;
		recount->checked++;

		int64 was = post->total + post->pending + OwnDelta(post->key.counter, key);
		int64 drift = post->rows - was;

		if (drift == 0)
			continue;
		recount->wrong++;
		recount->drift += drift;

		auto *finding = palloc_object(Finding);

		*finding = {KeyCopy(CurrentMemoryContext, key), was, post->rows};
		recount->findings = lappend(recount->findings, finding);
		if (!recount->append)
			continue;
		if (journal.relation == nullptr)
			AppendOpen(&journal, Where::kJournal);
		Append(&journal, post->key.counter, key, drift, now);
	}
	if (journal.relation != nullptr)
	{
		AppendClose(&journal);
		WakeWorkerAtCommit();
	}
}

/* Adds the pending deltas that were read to the posts being measured. */
void
AddPending(Measure *measure, HTAB *pending)
{
	HASH_SEQ_STATUS seq;

	hash_seq_init(&seq, pending);
	while (auto *sum = static_cast<PendingSum *>(hash_seq_search(&seq)))
	{
		const Key &key = sum->key.key;
		Datum value;

		if (KeyToDatum(measure->counter->post_type, key.Data(), key.len, &value) &&
			Wanted(measure, key, value))
			PostOf(measure, value)->pending = sum->delta;
	}
}

/* Enters the posts of the array, so that each is measured though it be nowhere. */
void
EnterPosts(Measure *measure)
{
	int16 len;
	bool byval;
	char align;
	Datum *posts;
	int count;

	get_typlenbyvalalign(measure->counter->post_type, &len, &byval, &align);
	deconstruct_array(measure->only, measure->counter->post_type, len, byval, align, &posts,
					  nullptr, &count);
	for (int i = 0; i < count; i++)
		(void) PostOf(measure, posts[i]);
}

char *
PostToText(const Counter *counter, Datum post)
{
	Oid output;
	bool varlena;

	getTypeOutputInfo(counter->post_type, &output, &varlena);
	return OidOutputFunctionCall(output, post);
}

/* Adds the caller's own deltas of every level to a hash of PendingSum. */
void
AddOwnTo(const OwnEntry &entry, void *arg)
{
	AddSum(static_cast<HTAB *>(arg), CurrentMemoryContext, {entry.counter, entry.post},
		   entry.delta);
}

/* Takes back a post's total and what waits for it; the hash keeps what is still to be taken back. */
void
ZeroPost(int32 counter, const Key &post, int64 total, HTAB *rest)
{
	CounterKey key = {counter, post};
	auto *sum = static_cast<PendingSum *>(hash_search(rest, &key, HASH_FIND, nullptr));

	if (sum != nullptr)
	{
		total += sum->delta;
		sum->delta = 0;
	}
	if (total != 0)
		AddDelta(counter, post, -total);
}

} // namespace

char *
SourceColumn(const Counter *counter, AttrNumber att)
{
	return pstrdup(quote_identifier(get_attname(counter->source, att, false)));
}

char *
SourceFrom(const Counter *counter)
{
	return psprintf("%s%s", counter->partitioned ? "" : "ONLY ", QualifiedName(counter->source));
}

char *
ConditionText(const Counter *counter)
{
	Node *only_where = ReadOnlyWhere(counter);

	return only_where == nullptr ? nullptr : DeparseOnlyWhere(only_where, counter->source, "s");
}

bool
LockForRecount(const Counter *counter, bool append, bool wait)
{
	if (!LockOne(counter->source, wait))
		return false;
	if (counter->partitioned)
	{
		List *parts = find_all_inheritors(counter->source, NoLock, nullptr);
		ListCell *cell;

		foreach (cell, parts)
			if (!LockOne(lfirst_oid(cell), wait))
				return false;
	}
	/* Who only looks adds nothing that another one could add, too. */
	return (!append || LockCounter(counter->id, wait)) && LockOne(counter->slots, wait);
}

void
CheckRecount(const Counter *counter, const char *what, bool counts)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR, errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				errmsg("cannot %s in a REPEATABLE READ or SERIALIZABLE transaction", what),
				errhint("Run it in a READ COMMITTED transaction: it needs the newest snapshot."));

	if (counts && SlotsAreReplicated(counter))
		ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("cannot %s of counter \"%s\": a subscription brings its slots", what,
					   NameStr(counter->verb)),
				errhint("Do that on the publisher, or replicate the table of likes only."));

	List *relations = counter->partitioned ? find_all_inheritors(counter->source, NoLock, nullptr)
										   : list_make1_oid(counter->source);
	ListCell *cell;

	foreach (cell, relations)
		if (AfterTriggerPendingOnRel(lfirst_oid(cell)))
			ereport(ERROR, errcode(ERRCODE_OBJECT_IN_USE),
					errmsg("cannot %s while triggers of table %s are pending", what,
						   QualifiedName(counter->source)),
					errhint("Run it in a statement of its own."));
}

void
CheckStillThere(const Counter *counter)
{
	const Counter *now = FindCounterById(counter->id);

	if (now == nullptr || now->slots != counter->slots || now->source != counter->source)
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("counter \"%s\" was detached meanwhile", NameStr(counter->verb)));
}

ArrayType *
PostArray(const Counter *counter, Datum *posts, int count)
{
	int16 len;
	bool byval;
	char align;

	get_typlenbyvalalign(counter->post_type, &len, &byval, &align);
	return construct_array(posts, count, counter->post_type, len, byval, align);
}

Datum
TextToPost(const Counter *counter, const char *text)
{
	Oid input, param;

	getTypeInputInfo(counter->post_type, &input, &param);
	return OidInputFunctionCall(input, const_cast<char *>(text), param, -1);
}

bool
Reconcile(Recount *recount)
{
	const Counter *counter = recount->counter;
	Measure measure = {};

	CheckRecount(counter, "recount posts", true);
	if (!LockForRecount(counter, recount->append, recount->wait))
		return false;
	CheckStillThere(counter);
	if (recount->append)
		ForbidPrepare();

	/* What the caller did in this transaction is in its deltas: the snapshot has to see it too. */
	CommandCounterIncrement();

	measure.counter = counter;
	measure.context =
		AllocSetContextCreate(CurrentMemoryContext, "likecount recount", ALLOCSET_DEFAULT_SIZES);
	measure.posts = CounterKeyHash("likecount recount", 1024, sizeof(Post), measure.context);
	measure.only = recount->posts;

	LockSegments(AccessShareLock);
	measure.snapshot = RegisterSnapshot(GetLatestSnapshot());
	LIKECOUNT_DEBUG_POINT("recount: snapshot taken");

	HTAB *pending = ReadPending(counter->id, measure.snapshot, measure.context, nullptr);

	UnlockSegments(AccessShareLock);
	LIKECOUNT_DEBUG_POINT("recount: pending read");

	recount->checked = recount->wrong = recount->drift = 0;
	recount->findings = NIL;
	recount->last = nullptr;
	if (recount->posts != nullptr)
		EnterPosts(&measure);
	else if (recount->after != nullptr)
	{
		measure.has_after = true;
		measure.after = TextToPost(counter, recount->after);
	}

	MemoryContext caller = CurrentMemoryContext;

	SPI_connect();
	CountSource(&measure, recount->posts == nullptr ? recount->limit : 0);
	LIKECOUNT_DEBUG_POINT("recount: rows counted");
	SumSlots(&measure, recount->posts == nullptr ? recount->limit : 0);
	SPI_finish();
	MemoryContextSwitchTo(caller);
	AddPending(&measure, pending);
	LIKECOUNT_DEBUG_POINT("recount: measured");
	Conclude(&measure, recount);
	UnregisterSnapshot(measure.snapshot);

	if (measure.has_end)
		recount->last = PostToText(counter, measure.end);
	MemoryContextDelete(measure.context);
	return true;
}

int64
CountRows(const Counter *counter, Datum post, Snapshot snapshot)
{
	Measure measure = {};
	MemoryContext caller = CurrentMemoryContext;

	measure.counter = counter;
	measure.context =
		AllocSetContextCreate(CurrentMemoryContext, "likecount count", ALLOCSET_DEFAULT_SIZES);
	measure.posts = CounterKeyHash("likecount count", 16, sizeof(Post), measure.context);
	measure.snapshot = snapshot;
	measure.only = PostArray(counter, &post, 1);
	SPI_connect();
	CountSource(&measure, 0);
	SPI_finish();
	MemoryContextSwitchTo(caller);

	int64 rows = PostOf(&measure, post)->rows;

	MemoryContextDelete(measure.context);
	return rows;
}

int64
EstimatePosts(const Counter *counter)
{
	Relation source = RelationIdGetRelation(counter->source);
	double rows = source->rd_rel->reltuples;
	double distinct = 0;

	RelationClose(source);

	HeapTuple stats =
		SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(counter->source),
						Int16GetDatum(counter->post_att), BoolGetDatum(counter->partitioned));

	if (HeapTupleIsValid(stats))
	{
		distinct = reinterpret_cast<Form_pg_statistic>(GETSTRUCT(stats))->stadistinct;
		ReleaseSysCache(stats);
	}
	if (rows <= 0 || distinct == 0)
		return 0;
	return (int64) (distinct < 0 ? -distinct * rows : distinct);
}

bool
SlotsAreReplicated(const Counter *counter)
{
	ScanKeyData key;
	Relation rel = table_open(SubscriptionRelRelationId, AccessShareLock);

	ScanKeyInit(&key, Anum_pg_subscription_rel_srrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(counter->slots));
	SysScanDesc scan =
		systable_beginscan(rel, SubscriptionRelSrrelidSrsubidIndexId, true, nullptr, 1, &key);
	bool found = HeapTupleIsValid(systable_getnext(scan));

	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

void
ZeroCounter(const char *verb)
{
	const Counter *found = FindCounter(verb);

	if (found == nullptr)
		return;

	/* The source is locked ACCESS EXCLUSIVE by TRUNCATE: nobody recounts, nobody likes. */
	Counter counter = *found;
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "likecount truncate", ALLOCSET_DEFAULT_SIZES);
	Relation slots = table_open(counter.slots, AccessShareLock);
	Relation index = index_open(SlotsKey(slots), AccessShareLock);

	CommandCounterIncrement();
	LockSegments(AccessShareLock);

	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	HTAB *rest = ReadPending(counter.id, snapshot, context, nullptr);

	UnlockSegments(AccessShareLock);

	MemoryContext caller = MemoryContextSwitchTo(context);

	VisitOwn(false, AddOwnTo, rest);
	MemoryContextSwitchTo(caller);

	/* By the key, so that the slots of a post come together and memory holds no more than pending does. */
	IndexScanDesc scan = BeginIndexScan(slots, index, snapshot, 0);
	TupleTableSlot *row = table_slot_create(slots, nullptr);
	MemoryContext keys =
		AllocSetContextCreate(context, "likecount truncate post", ALLOCSET_SMALL_SIZES);
	bool any = false;
	Key post = {};
	int64 total = 0;

	index_rescan(scan, nullptr, 0, nullptr, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, row))
	{
		bool isnull;
		Key next = KeyFromDatum(counter.post_type, slot_getattr(row, kSlotPost, &isnull));

		CHECK_FOR_INTERRUPTS();
		/* A frozen post stays frozen, at its total; what its rows were counted as goes. */
		if (DatumGetInt16(slot_getattr(row, kSlotSlot, &isnull)) == kFrozenSlot)
			continue;
		if (!any || !KeyEqual(post, next))
		{
			if (any)
				ZeroPost(counter.id, post, total, rest);
			MemoryContextReset(keys);
			post = KeyCopy(keys, next);
			total = 0;
			any = true;
		}
		total += DatumGetInt64(slot_getattr(row, kSlotValue, &isnull));
	}
	if (any)
		ZeroPost(counter.id, post, total, rest);
	ExecDropSingleTupleTableSlot(row);
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	index_close(index, NoLock);
	table_close(slots, NoLock);

	HASH_SEQ_STATUS seq;

	hash_seq_init(&seq, rest);
	while (auto *sum = static_cast<PendingSum *>(hash_seq_search(&seq)))
		if (sum->delta != 0 && sum->key.counter == counter.id)
			AddDelta(counter.id, sum->key.key, -sum->delta);
	MemoryContextDelete(context);
}
} // namespace likecount
