/*
 * guard.cpp: work on a counter's source that must not harm anybody else.
 *
 * Backfill, repair and audit read tables of users: what they read may raise any error, take very long, or be locked.
 * They run in the one process that flushes all counters of the database.  So each step runs in a subtransaction with
 * a time limit, takes its locks only if they are free, waits for none longer than a moment, and is sized so that the
 * flushes do not wait for it noticeably (where the posts have no index, a step reads the whole source).
 * An error is noted in the counter's state row and the step tried again later, at growing distances, while the
 * flushes, and other counters, go on.
 */
#include "guard.hpp"

#include "shmem.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
constexpr int64 kLargestChunk = 100000;
/* A step that takes longer than this stalls the flushes that follow it. */
constexpr int64 kStepTarget = 200 * INT64CONST(1000);
constexpr int kFirstTimeoutMs = 10000;
constexpr int kLastTimeoutMs = 60000;

/* Of Pace, for the life of the process. */
List *paces = NIL;

void
RecordError(int32 counter, const ErrorData *error)
{
	SpiArgs args = {};

	SPI_connect();
	args.Add(INT4OID, Int32GetDatum(counter));
	args.Add(TEXTOID, CStringGetTextDatum(
						  psprintf("%s: %s", unpack_sql_state(error->sqlerrcode), error->message)));
	SpiExecute("UPDATE likecount._counter SET last_error = $2,"
			   " last_error_at = pg_catalog.clock_timestamp() WHERE id = $1",
			   &args, SPI_OK_UPDATE);
	SPI_finish();
}

/* Ends a step's time limit, also one that ran out just now. */
void
EndTimeLimit(bool worker)
{
	if (!worker)
		return;
	disable_timeout(STATEMENT_TIMEOUT, false);
	QueryCancelPending = false;
}

/* After an error: smaller steps, more time, and a pause that grows. */
void
SlowDown(Pace *pace, const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		pace->limit_ms = Min(pace->limit_ms * 2, kLastTimeoutMs);
	pace->limit = kFirstChunk;
	pace->failures++;
	pace->not_before =
		TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
									1000 * (INT64CONST(1) << Min(pace->failures - 1, 6)));
}
} // namespace

Pace *
PaceOf(int32 counter)
{
	ListCell *cell;

	foreach (cell, paces)
		if (static_cast<Pace *>(lfirst(cell))->counter == counter)
			return static_cast<Pace *>(lfirst(cell));

	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	auto *pace = palloc_object(Pace);

	*pace = {counter, kFirstChunk, kFirstTimeoutMs, 0, 0};
	paces = lappend(paces, pace);
	MemoryContextSwitchTo(caller);
	return pace;
}

bool
Guard(Step *step, StepFunction function)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	Pace *pace = step->pace;
	TimestampTz start = GetCurrentTimestamp();
	/* A user's own statement has its own time limit. */
	bool worker = IsWorker();
	volatile bool done = false;

	if (worker && start < pace->not_before)
		return false;

	BeginInternalSubTransaction(nullptr);
	PG_TRY();
	{
		int guc_level = NewGUCNestLevel();

		if (worker)
		{
			/* The planner and the executor lock indexes in passing: not even for those is anybody waited. */
			(void) set_config_option("lock_timeout", "100ms", PGC_SUSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
			enable_timeout_after(STATEMENT_TIMEOUT, pace->limit_ms);
		}
		SPI_connect();
		done = function(step);
		SPI_finish();
		EndTimeLimit(worker);
		AtEOXact_GUC(false, guc_level);
		/* Without its locks a step may have stopped half way. */
		if (done)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
		pace->failures = 0;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caller);

		ErrorData *error = CopyErrorData();

		EndTimeLimit(worker);
		if (!worker && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();
		done = false;
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
		SlowDown(pace, error);
		ereport(WARNING, errcode(error->sqlerrcode),
				errmsg("%s of counter \"%s\" failed: %s", step->what, NameStr(step->counter->verb),
					   error->message),
				errhint(
					"It is tried again; likecount.counters shows the error until it succeeds."));
		RecordError(step->counter->id, error);
	}
	PG_END_TRY();

	int64 took = GetCurrentTimestamp() - start;

	if (done && took < kStepTarget / 2)
		pace->limit = Min(pace->limit * 2, kLargestChunk);
	else if (done && took > kStepTarget * 2)
		pace->limit = Max(pace->limit / 2, 1);
	return done;
}
} // namespace likecount
