/*
 * status.cpp: what a person on call can see: the functions behind the views counters, status and
 * pending, and lag(), version(), reset_stats().
 *
 * Monitoring must not be in the way of what it watches.  Queue and journal are read here and not by
 * SQL, because a lock on a segment that lasts to the end of the reader's transaction keeps the
 * segment from being emptied: it is released as soon as the rows are read.  Later emptying takes
 * away only rows that were read already.  The rows are those of the reading statement's snapshot,
 * so that pending, totals and count(*) in one statement fit together.
 *
 * The numbers in shared memory are read one by one, not as of one moment; each of them is right.
 *
 * Nothing here checks privileges: EXECUTE and SELECT are granted to pg_monitor, and lag() and
 * version() are for all.
 */
#include "attach.hpp"
#include "init.hpp"
#include "insert.hpp"
#include "queue.hpp"
#include "registration.hpp"
#include "shmem.hpp"
#include "slots.hpp"

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_status);
PG_FUNCTION_INFO_V1(likecount_counter_facts);
PG_FUNCTION_INFO_V1(likecount_pending);
PG_FUNCTION_INFO_V1(likecount_lag);
PG_FUNCTION_INFO_V1(likecount_version);
PG_FUNCTION_INFO_V1(likecount_reset_stats);

PGDLLEXPORT Datum likecount_status(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_counter_facts(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_pending(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_lag(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_version(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum likecount_reset_stats(PG_FUNCTION_ARGS);
}

namespace likecount
{
namespace
{
/* A result row that is filled from left to right. */
struct Row
{
	static constexpr int kMax = 40;

	int count;
	Datum values[kMax];
	bool nulls[kMax];

	void Add(Datum value, bool isnull = false)
	{
		Assert(count < kMax);
		values[count] = value;
		nulls[count] = isnull;
		count++;
	}

	void AddText(const char *value)
	{
		Add(value == nullptr ? (Datum) 0 : CStringGetTextDatum(value), value == nullptr);
	}

	/* 0 stands for nobody. */
	void AddPid(int pid)
	{
		Add(Int32GetDatum(pid), pid == 0);
	}

	/* 0 stands for never. */
	void AddTime(TimestampTz time)
	{
		Add(TimestampTzGetDatum(time), time == 0);
	}
};

static_assert(kPlain<Row>);

/* RowResult makes the row the result of a function with OUT parameters. */
Datum
RowResult(FunctionCallInfo fcinfo, Row *row)
{
	TupleDesc desc;

	if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE ||
		desc->natts != row->count)
		elog(ERROR, "the function's result does not have %d columns", row->count);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row->values, row->nulls));
}

/*
 * LagDatum returns the age of the oldest delta as an interval, zero when nothing waits, and never a
 * negative one: clocks can be set back.
 */
Datum
LagDatum(const PendingTotals &totals)
{
	auto *interval = static_cast<Interval *>(palloc0(sizeof(Interval)));

	if (totals.oldest != 0)
		interval->time = Max(GetCurrentTimestamp() - totals.oldest, 0);
	return IntervalPGetDatum(interval);
}

/* ReadTotals counts what waits in queue and journal; a standby has no queue. */
PendingTotals
ReadTotals()
{
	PendingTotals totals = {};

	LockSegments(AccessShareLock);
	(void) ReadPending(0, GetActiveSnapshot(), nullptr, &totals);
	UnlockSegments(AccessShareLock);
	return totals;
}

/*
 * How many transactions ago the oldest snapshot was taken that keeps dead rows of this database
 * from being removed.
 */
int32
HorizonAge()
{
	/* any table of the database would do */
	Relation rel = table_open(GetMembers()->watermark, AccessShareLock);
	TransactionId oldest = GetOldestNonRemovableTransactionId(rel);

	table_close(rel, AccessShareLock);
	return Max((int32) (ReadNextTransactionId() - oldest), 0);
}

/* What shared memory says about a worker, copied under the registry's lock. */
struct WorkerState
{
	pid_t pid;
	TimestampTz since;
	uint32 starts;
	TimestampTz not_before;
	const char *name;
};

WorkerState
ReadWorkerState(DatabaseShared *database)
{
	WorkerState state = {};
	bool wanted = false;
	bool barred = false;

	if (database != nullptr)
	{
		LWLockAcquire(RegistryLock(), LW_SHARED);
		state.pid = database->worker_pid;
		state.since = database->worker_since;
		state.starts = database->worker_starts;
		state.not_before = database->not_before;
		wanted = database->wanted_since != 0 || database->starting;
		barred = database->barred > 0;
		LWLockRelease(RegistryLock());
	}
	if (state.not_before <= GetCurrentTimestamp())
		state.not_before = 0;
	if (state.pid == 0)
		state.since = 0;

	if (!Preloaded())
		state.name = "not preloaded";
	else if (RecoveryInProgress())
		state.name = "in recovery";
	else if (state.pid != 0)
		state.name = pg_atomic_read_u32(&database->asleep) != 0 ? "asleep" : "running";
	else if (!guc_worker)
		state.name = "off";
	else if (barred)
		state.name = "barred";
	else if (state.not_before != 0)
		state.name = "backing off";
	else
		state.name = wanted ? "starting" : "not needed";
	return state;
}

void
AddStats(Row *row, DatabaseShared *database)
{
	if (database == nullptr)
	{
		for (int i = 0; i < 10; i++)
			row->Add((Datum) 0, true);
		return;
	}

	StatsShared *stats = &database->stats;
	auto last_flush_at = (TimestampTz) pg_atomic_read_u64(&stats->last_flush_at);

	row->AddTime(last_flush_at);
	row->Add(Float8GetDatum((double) pg_atomic_read_u64(&stats->last_flush_us) / 1000.0),
			 last_flush_at == 0);
	row->Add(Int64GetDatum((int64) pg_atomic_read_u64(&stats->flushes)));
	row->Add(Int64GetDatum((int64) pg_atomic_read_u64(&stats->deltas)));
	row->Add(Int64GetDatum((int64) pg_atomic_read_u64(&stats->posts)));
	row->Add(Int64GetDatum((int64) pg_atomic_read_u64(&stats->discarded)));
	row->Add(Int64GetDatum((int64) pg_atomic_read_u64(&stats->rejected)));
	row->Add(Int64GetDatum((int64) pg_atomic_read_u64(&stats->errors)));
	row->Add(Int64GetDatum((int64) pg_atomic_read_u64(&stats->truncations)));
	row->AddTime((TimestampTz) pg_atomic_read_u64(&stats->reset_at));
}
} // namespace
} // namespace likecount

using namespace likecount;

/*
 * likecount_status is behind the view status, which names and explains the columns in this order.
 */
Datum
likecount_status(PG_FUNCTION_ARGS)
{
	DatabaseShared *database = MyDatabase(false);
	WorkerState worker = ReadWorkerState(database);
	PendingTotals totals = ReadTotals();
	bool ready =
		database != nullptr && pg_atomic_read_u32(&database->ready) == GetMembers()->watermark;
	Row row = {};

	row.AddText(LIKECOUNT_VERSION);
	row.AddText(InstalledVersion());
	row.Add(BoolGetDatum(Preloaded()));
	row.Add(BoolGetDatum(RecoveryInProgress()));
	row.Add(BoolGetDatum(ready));

	row.AddPid(LauncherPid());
	row.AddText(worker.name);
	row.AddPid(worker.pid);
	row.AddTime(worker.since);
	row.Add(Int64GetDatum(worker.starts));
	row.AddTime(worker.not_before);

	AddStats(&row, database);
	row.AddPid(database == nullptr ? 0 : (int) pg_atomic_read_u32(&database->blocked_by));
	row.AddPid(FlushLockHolder());

	row.Add(LagDatum(totals));
	row.AddTime(totals.oldest);
	row.Add(Int64GetDatum(totals.queue_rows));
	row.Add(Int64GetDatum(totals.queue_bytes));
	row.Add(Int64GetDatum(totals.journal_rows));
	row.Add(Int64GetDatum(totals.journal_bytes));

	row.Add(Int32GetDatum(HorizonAge()));
	row.Add(Int32GetDatum(UnadoptedCounters()));
	return RowResult(fcinfo, &row);
}

/* Adds how a like of the counter is inserted, and why; without waiting for the source's lock. */
void
AddInsertPath(Row *row, const Counter *counter)
{
	Relation source = nullptr;
	const char *path = nullptr;
	const char *reason = nullptr;

	if (counter->user_att == InvalidAttrNumber || counter->has_where)
		reason = "the counter has no function that inserts";
	else if (!ConditionalLockRelationOid(counter->source, AccessShareLock))
		reason = "the source is locked";
	else
	{
		source = try_table_open(counter->source, NoLock);
		if (source == nullptr)
			reason = "the source is gone";
		else
		{
			reason = StatementReason(*counter, source);
			path = reason == nullptr ? "fast" : "executor";
			table_close(source, NoLock);
		}
		UnlockRelationOid(counter->source, AccessShareLock);
	}
	row->AddText(path);
	row->AddText(reason);
}

/*
 * likecount_counter_facts tells the view counters what the catalogs alone do not: where a
 * counter's source is, why its deltas take the journal, how likes are inserted, who holds its lock.  All null for a state
 * row that is not valid any more.
 */
Datum
likecount_counter_facts(PG_FUNCTION_ARGS)
{
	int32 id = PG_GETARG_INT32(0);
	const Counter *counter = FindCounterById(id);
	Row row = {};

	if (counter == nullptr)
	{
		for (int i = 0; i < 8; i++)
			row.Add((Datum) 0, true);
		return RowResult(fcinfo, &row);
	}

	DatabaseShared *database = MyDatabase(false);
	const char *reason = counter->direct ? nullptr : counter->journal_reason;
	bool switching = counter->mode == Mode::kDirect && !counter->settled;

	if (!counter->direct && reason == nullptr &&
		(database == nullptr || pg_atomic_read_u32(&database->ready) != GetMembers()->watermark))
		reason = "no flush has checked the queue since the server started";

	row.Add(ObjectIdGetDatum(counter->source));
	row.Add(ObjectIdGetDatum(counter->slots));
	row.AddText(switching ? "switching to direct" : ModeName(counter->mode));
	row.AddText(counter->direct ? "slots" : reason == nullptr ? "queue" : "journal");
	row.AddText(reason);
	AddInsertPath(&row, counter);
	row.AddPid(CounterLockHolder(id));
	return RowResult(fcinfo, &row);
}

/*
 * likecount_pending is behind the view pending: a row for each post that has deltas in queue or
 * journal.
 */
Datum
likecount_pending(PG_FUNCTION_ARGS)
{
	auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
	HASH_SEQ_STATUS seq;
	PendingSum *sum;

	InitMaterializedSRF(fcinfo, 0);
	LockSegments(AccessShareLock);
	HTAB *sums = ReadPending(0, GetActiveSnapshot(), CurrentMemoryContext, nullptr);

	UnlockSegments(AccessShareLock);

	hash_seq_init(&seq, sums);
	while ((sum = static_cast<PendingSum *>(hash_seq_search(&seq))) != nullptr)
	{
		const Counter *counter = FindCounterById(sum->key.counter);

		/* of a counter that is gone: the next flush discards it */
		if (counter == nullptr)
			continue;

		const Key &post = sum->key.key;
		char *text = KeyToText(counter->post_type, post.Data(), post.len);
		Datum values[3] = {NameGetDatum(&counter->verb), CStringGetTextDatum(text),
						   Int64GetDatum(sum->delta)};
		bool nulls[3] = {};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* likecount_lag returns the age of the oldest delta that waits. */
Datum
likecount_lag(FunctionCallInfo)
{
	return LagDatum(ReadTotals());
}

/* likecount_version returns the versions of the loaded library and of the SQL objects. */
Datum
likecount_version(PG_FUNCTION_ARGS)
{
	Row row = {};

	row.AddText(LIKECOUNT_VERSION);
	row.AddText(InstalledVersion());
	return RowResult(fcinfo, &row);
}

/* likecount_reset_stats sets this database's cumulative numbers to zero. */
Datum
likecount_reset_stats(FunctionCallInfo)
{
	DatabaseShared *database = MyDatabase(true);

	if (database == nullptr)
		ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("this database has no statistics of likecount"),
				Preloaded() ? errdetail("Shared memory has no room for another database.")
							: errhint("Add likecount to shared_preload_libraries."));

	StatsShared *stats = &database->stats;
	pg_atomic_uint64 *numbers[] = {&stats->flushes,	  &stats->deltas,	&stats->posts,
								   &stats->discarded, &stats->rejected, &stats->truncations,
								   &stats->errors};

	for (pg_atomic_uint64 *number : numbers)
		pg_atomic_write_u64(number, 0);
	pg_atomic_write_u64(&stats->reset_at, (uint64) GetCurrentTimestamp());
	PG_RETURN_VOID();
}
