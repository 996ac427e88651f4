/*
 * totals.cpp: like_count(), like_counts() and like_count_now().
 *
 * Totals come from the cache (cache.cpp) or, without the executor, from the slots.  So nothing but CheckMayRead
 * asks whether the caller may have them.
 */
#include "cache.hpp"
#include "call.hpp"
#include "capture.hpp"
#include "queue.hpp"
#include "slots.hpp"

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_total);
PG_FUNCTION_INFO_V1(likecount_total_now);
PG_FUNCTION_INFO_V1(likecount_totals);

PGDLLEXPORT Datum likecount_total(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_total_now(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_totals(PG_FUNCTION_ARGS);
}

namespace likecount
{
namespace
{
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
