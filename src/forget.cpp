/*
 * forget.cpp: posts of which nothing is to be kept.
 *
 * A slot row stays for ever, also of a post whose likes are gone.  forget() deletes the slots of a post that has no
 * rows, a frozen post's mark included, under the locks of freeze.cpp, so that no flush is at them, and under the counter
 * lock: a recount that has measured what is being deleted would append a drift that has gone with it.
 *
 * What waits for the post must not be lost, nor come back: a delta in queue or journal that is flushed later would make
 * a new slot, and its value would be wrong, since it was the other half of the one that was deleted.  So what waits is
 * summed in the snapshot in which there are no rows, and its opposite is appended; this transaction's own deltas are taken
 * back where they are.  Together they come to 0, of
 * which no slot is made: a flush takes the slots lock before its snapshot, so it sees both of them or neither.  (One that
 * its batch bounds may take them in two turns; then a slot of 0 stays.)  A like in flight is in neither: it comes with its
 * row and its delta, and the post is counted anew.
 *
 * The likes themselves are the user's.  They are deleted on demand only, by a DELETE as the caller, whose
 * privileges and row security hold and whose triggers fire, and not more than a batch in one call: the caller
 * decides where to commit.  A post with rows is not forgotten: its total would come back with the next recount.
 */
#include "capture.hpp"
#include "freeze.hpp"
#include "queue.hpp"
#include "reconcile.hpp"
#include "shmem.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
/* Deletes at most so many likes of a post, as the caller; returns how many. */
int64
DeleteLikes(const Counter *counter, Datum post, int32 batch)
{
	StringInfoData sql;
	SpiArgs args = {};
	int guc_level = NewGUCNestLevel();
	const char *from = SourceFrom(counter);
	const char *column = SourceColumn(counter, counter->post_att);

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	const char *condition = ConditionText(counter);

	condition = condition == nullptr ? "" : psprintf(" AND (%s)", condition);
	AtEOXact_GUC(false, guc_level);

	/* Rows of two partitions may have the same ctid: then a few more go, of the same post. */
	initStringInfo(&sql);
	appendStringInfo(&sql,
					 "DELETE FROM %s s WHERE s.%s OPERATOR(pg_catalog.=) $1%s"
					 " AND s.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT s.ctid FROM %s s"
					 " WHERE s.%s OPERATOR(pg_catalog.=) $1%s LIMIT %d))",
					 from, column, condition, from, column, condition, batch);
	args.Add(counter->post_type, post);
	SPI_connect();
	auto deleted = (int64) SpiExecute(sql.data, &args, SPI_OK_DELETE);

	SPI_finish();
	return deleted;
}

/* Forgets a post; false: there are likes left to delete. */
bool
Forget(const Counter *counter, Datum post, bool with_likes, int32 batch)
{
	SlotWriter writer;
	Key key = KeyFromDatum(counter->post_type, post);
	int64 deleted = with_likes ? DeleteLikes(counter, post, batch) : 0;

	if (with_likes && deleted >= batch)
		return false;
	BeginChange(counter, &writer, Change::kForget);

	LockSegments(AccessShareLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	int64 pending = ReadPendingOf(counter->id, key, snapshot);

	UnlockSegments(AccessShareLock);
	int64 rows = CountRows(counter, post, snapshot);

	UnregisterSnapshot(snapshot);
	if (rows > 0 && deleted == 0)
		ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg_plural("post %s has " INT64_FORMAT " like in table %s",
							  "post %s has " INT64_FORMAT " likes in table %s",
							  (unsigned long) rows,
							  KeyToText(counter->post_type, key.Data(), key.len), rows,
							  QualifiedName(counter->source)),
				with_likes ? errdetail("None of them could be deleted.")
						   : errhint("Pass with_likes => true to delete them, too."));
	if (rows == 0)
	{
		int64 own = OwnDelta(counter->id, key);

		(void) SlotWriterForget(&writer, post);
		if (own != 0)
			AddDelta(counter->id, key, -own);
		if (pending != 0)
		{
			Appender journal;

			AppendOpen(&journal, Where::kJournal);
			Append(&journal, counter->id, key, -pending, GetCurrentTimestamp());
			AppendClose(&journal);
			WakeWorkerAtCommit();
		}
	}
	SlotWriterClose(&writer);
	return rows == 0;
}
} // namespace
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_forget);
PGDLLEXPORT Datum likecount_forget(PG_FUNCTION_ARGS);

using namespace likecount;

/* forget(source, post, with_likes, batch, verb): true when it is done; false: likes are left, call again. */
Datum
likecount_forget(PG_FUNCTION_ARGS)
{
	const Counter *counter = CounterArgument(fcinfo, 0, 4);

	PreventCommandIfReadOnly("likecount.forget()");
	if (PG_ARGISNULL(2))
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"with_likes\" must not be null"));
	if (PG_ARGISNULL(3) || PG_GETARG_INT32(3) < 1)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("batch must be at least 1"),
				errdetail("It is the number of likes that one call deletes."));
	PG_RETURN_BOOL(
		Forget(counter, PostArgument(fcinfo, 1, counter), PG_GETARG_BOOL(2), PG_GETARG_INT32(3)));
}
}
