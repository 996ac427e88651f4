/*
 * repair.cpp: the recounts that run by themselves: what a flush does about a queue that a crash may have emptied,
 * and the walk over all posts of a counter that is new here.
 *
 * A crash, a promotion and a restore empty unlogged tables.  Each counter has a row in the unlogged table _sentinel,
 * so the rows vanish exactly when the queue's do; and its state row, which is logged, remembers its home: the cluster
 * and the database in which a flush last saw that row.  Every flush, by whomever, looks under the flush lock before it
 * drains anything:
 *
 *   the sentinel row is there                     nothing was lost; a changed home (a template's copy, pg_upgrade) is noted
 *   the whole table is empty, home is this one    a crash: the queue is gone
 *   otherwise                                     the counter is new here: attached, adopted, copied without its queue
 *
 * After a crash the posts that can be wrong are known: a delta goes to the queue only if its row's liked_at is not
 * older than the watermark, and whatever else touches such a row leaves a row in the journal (capture.cpp).  So the
 * set is the posts with liked_at >= watermark and the posts in the journal, read in one snapshot, before this
 * flush drains the journal.  It is written to the logged _repair_todo in the transaction that puts the sentinels back;
 * then flushes run as ever, and each post is struck off in the transaction that appended its drift.  A source that
 * cannot be read at once, or a set that is too big, makes the counter 'backfilling' instead, and so does everything under
 * "otherwise".  Only when no watermark is stored had the queue never been used, and nothing is lost; nor is it of a
 * counter in direct mode.
 *
 * attach and adoption write no sentinel and no home; only a flush, after this check, writes both.
 *
 * All who change or delete state rows hold the flush lock; attach only adds one.  User transactions, which must not wait for it, append to _request
 * what they want, and the next flush carries it out.
 */
#include "repair.hpp"

#include "debug.hpp"
#include "guard.hpp"
#include "queue.hpp"
#include "reconcile.hpp"
#include "shmem.hpp"
#include "slots.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
/* True when sentinels tell nothing: somebody made their table a logged one, and no flush has looked since the server started. */
bool
SentinelsOutliveCrash()
{
	DatabaseShared *database = MyDatabase(false);

	if (get_rel_persistence(GetMembers()->sentinel) == RELPERSISTENCE_UNLOGGED)
		return false;
	return database == nullptr || pg_atomic_read_u32(&database->ready) != GetMembers()->watermark;
}

/* Reads the counters that have a sentinel. */
List *
ReadSentinels()
{
	List *ids = NIL;
	uint64 rows = SpiExecute("SELECT counter FROM likecount._sentinel", nullptr, SPI_OK_SELECT);

	for (uint64 i = 0; i < rows; i++)
	{
		bool isnull;

		ids = lappend_int(ids, DatumGetInt32(SpiValue(i, 1, &isnull)));
	}
	return ids;
}

void
WriteSentinel(int32 counter)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(counter));
	SpiExecute("INSERT INTO likecount._sentinel VALUES ($1) ON CONFLICT DO NOTHING", &args,
			   SPI_OK_INSERT);
}

void
WriteHome(int32 counter)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(counter));
	args.Add(INT8OID, Int64GetDatum((int64) GetSystemIdentifier()));
	args.Add(OIDOID, ObjectIdGetDatum(MyDatabaseId));
	SpiExecute("UPDATE likecount._counter SET home_system = $2, home_database = $3 WHERE id = $1",
			   &args, SPI_OK_UPDATE);
}

/* Without an index on the post every chunk reads the whole source, so few chunks; their posts fit in memory. */
constexpr int64 kUnindexedChunk = 1000000;
/* More posts than this are recounted by a walk. */
constexpr int64 kLargestRepair = 1000000;

/* Where the counter's walk stands, nullptr: at its start. */
char *
ReadWalk(int32 counter)
{
	SpiArgs args = {};
	bool isnull;

	args.Add(INT4OID, Int32GetDatum(counter));
	if (SpiExecute("SELECT walk_after FROM likecount._counter WHERE id = $1", &args,
				   SPI_OK_SELECT) == 0)
		return nullptr;

	Datum after = SpiValue(0, 1, &isnull);

	return isnull ? nullptr : TextDatumGetCString(after);
}

/* Notes what a step did; complete: the counter is right now. */
void
RecordStep(const Recount *recount, const char *after, int64 total, bool complete)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(recount->counter->id));
	args.Add(TEXTOID, after == nullptr ? (Datum) 0 : CStringGetTextDatum(after), after == nullptr);
	args.Add(INT8OID, Int64GetDatum(recount->checked));
	args.Add(INT8OID, Int64GetDatum(recount->drift));
	args.Add(INT8OID, Int64GetDatum(total));
	args.Add(BOOLOID, BoolGetDatum(complete));
	SpiExecute(
		"UPDATE likecount._counter SET walk_after = $2, walk_done = walk_done + $3,"
		" walk_drift = walk_drift + $4,"
		" walk_total = CASE WHEN $6 THEN walk_done + $3"
		" ELSE greatest(walk_done + $3, nullif($5, 0)) END,"
		" state = CASE WHEN $6 THEN 'active' ELSE state END,"
		" reason = CASE WHEN $6 THEN '' ELSE reason END,"
		" last_reconcile = CASE WHEN $6 THEN pg_catalog.clock_timestamp() ELSE last_reconcile END,"
		" last_error = NULL, last_error_at = NULL WHERE id = $1 RETURNING walk_done, walk_drift",
		&args, SPI_OK_UPDATE_RETURNING);
	if (!complete || SPI_processed == 0)
		return;

	bool isnull;
	int64 checked = DatumGetInt64(SpiValue(0, 1, &isnull));
	int64 drift = DatumGetInt64(SpiValue(0, 2, &isnull));

	InvalidateCounters();
	if (checked > 0)
		ereport(LOG, errhidestmt(true),
				errmsg("counter \"%s\" of database \"%s\" is exact again after its %s",
					   NameStr(recount->counter->verb), get_database_name(MyDatabaseId),
					   recount->counter->state == State::kRepairing ? "repair" : "backfill"),
				errdetail("Posts checked: " INT64_FORMAT ", drift removed: " INT64_FORMAT ".",
						  checked, drift));
}

/* Takes a counter's posts off the list, where they will not be recounted one by one. */
void
ForgetTodo(int32 counter)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(counter));
	SpiExecute("DELETE FROM likecount._repair_todo WHERE counter = $1", &args, SPI_OK_DELETE);
}

/* Where a subscription brings the slots the publisher counts, and there is nothing to do. */
bool
CountedElsewhere(const Recount *recount)
{
	if (!SlotsAreReplicated(recount->counter))
		return false;
	ForgetTodo(recount->counter->id);
	RecordStep(recount, nullptr, 0, true);
	return true;
}

bool
BackfillChunk(Step *step)
{
	const Counter *counter = step->counter;
	Recount recount = {};

	recount.counter = counter;
	recount.append = true;
	if (CountedElsewhere(&recount))
		return true;
	recount.after = ReadWalk(counter->id);
	recount.limit =
		HasIndexOn(counter->source, counter->post_att, true) ? step->pace->limit : kUnindexedChunk;
	if (!Reconcile(&recount))
		return false;
	RecordStep(&recount, recount.last, EstimatePosts(counter), recount.last == nullptr);
	step->more = recount.last != nullptr || recount.wrong > 0;
	return true;
}

/* Strikes posts off the list, and recounts them in the same transaction. */
bool
RepairChunk(Step *step)
{
	const Counter *counter = step->counter;
	Recount recount = {};
	SpiArgs args = {};
	bool isnull;

	recount.counter = counter;
	recount.append = true;
	if (CountedElsewhere(&recount))
		return true;
	if (!LockForRecount(counter, true, false))
		return false;
	args.Add(INT4OID, Int32GetDatum(counter->id));
	args.Add(INT8OID, Int64GetDatum(step->pace->limit));

	uint64 rows = SpiExecute(
		"DELETE FROM likecount._repair_todo t USING (SELECT post FROM likecount._repair_todo"
		" WHERE counter = $1 ORDER BY post LIMIT $2) q WHERE t.counter = $1 AND t.post = q.post"
		" RETURNING t.post",
		&args, SPI_OK_DELETE_RETURNING);
	auto *posts = palloc_array(Datum, rows + 1);
	int count = 0;

	for (uint64 i = 0; i < rows; i++)
	{
		bytea *post = DatumGetByteaPP(SpiValue(i, 1, &isnull));

		if (KeyToDatum(counter->post_type, reinterpret_cast<uint8 *>(VARDATA_ANY(post)),
					   VARSIZE_ANY_EXHDR(post), &posts[count]))
			count++;
	}
	recount.posts = PostArray(counter, posts, count);
	if (count > 0 && !Reconcile(&recount))
		return false;

	bool complete = rows < (uint64) step->pace->limit;

	RecordStep(&recount, nullptr, 0, complete);
	step->more = !complete || recount.wrong > 0;
	return true;
}

/* Adds posts to the list, as bytes. */
struct TodoBatch
{
	int32 counter;
	Datum posts[1000];
	int count;
	int64 written;
};

void
WriteTodo(TodoBatch *batch)
{
	SpiArgs args = {};

	if (batch->count == 0)
		return;
	args.Add(INT4OID, Int32GetDatum(batch->counter));
	args.Add(BYTEAARRAYOID, PointerGetDatum(construct_array(batch->posts, batch->count, BYTEAOID,
															-1, false, TYPALIGN_INT)));
	SpiExecute("INSERT INTO likecount._repair_todo SELECT $1, pg_catalog.unnest($2) ON CONFLICT DO "
			   "NOTHING",
			   &args, SPI_OK_INSERT);
	batch->written += batch->count;
	batch->count = 0;
}

void
AddTodo(TodoBatch *batch, const Key &post)
{
	auto *bytes = static_cast<bytea *>(palloc(VARHDRSZ + post.len));

	SET_VARSIZE(bytes, VARHDRSZ + post.len);
	memcpy(VARDATA(bytes), post.Data(), post.len);
	batch->posts[batch->count++] = PointerGetDatum(bytes);
	if (batch->count == lengthof(batch->posts))
		WriteTodo(batch);
}

bool
CollectChunk(Step *step)
{
	const Counter *counter = step->counter;
	TodoBatch batch = {};
	HASH_SEQ_STATUS seq;

	if (!LockForRecount(counter, true, false))
		return false;
	LockSegments(AccessShareLock);

	/* One snapshot: with an unlike between two, its journal row would be in neither. */
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	HTAB *pending = ReadPending(counter->id, snapshot, CurrentMemoryContext, nullptr);

	UnlockSegments(AccessShareLock);
	LIKECOUNT_DEBUG_POINT("repair: journal read");
	batch.counter = counter->id;
	hash_seq_init(&seq, pending);
	while (auto *sum = static_cast<PendingSum *>(hash_seq_search(&seq)))
		AddTodo(&batch, sum->key.key);
	WriteTodo(&batch);

	SpiArgs args = {};
	UserSwitch saved = SwitchUser(counter->owner, RunAs::kOwnerOfSource);

	args.Add(TIMESTAMPTZOID, TimestampTzGetDatum(*static_cast<const TimestampTz *>(step->arg)));

	uint64 rows =
		SpiQueryAt(psprintf("SELECT DISTINCT s.%s FROM %s s WHERE s.%s >= $1 LIMIT " INT64_FORMAT,
							SourceColumn(counter, counter->post_att), SourceFrom(counter),
							SourceColumn(counter, counter->time_att), kLargestRepair + 1),
				   &args, snapshot);
	SPITupleTable *table = SPI_tuptable;

	SwitchBack(saved);
	UnregisterSnapshot(snapshot);
	if (rows > (uint64) kLargestRepair)
		return false;
	for (uint64 i = 0; i < rows; i++)
	{
		bool isnull;
		Datum post = SPI_getbinval(table->vals[i], table->tupdesc, 1, &isnull);

		AddTodo(&batch, KeyFromDatum(counter->post_type, post));
	}
	WriteTodo(&batch);
	return true;
}

/* True when a crash empties more than the queue: the source, a partition of it, or what somebody made an unlogged table. */
bool
IsUnlogged(const Counter *counter)
{
	const Members *m = GetMembers();
	const Oid ours[] = {counter->slots, m->request,	   m->watermark, m->repair_todo,
						m->journal[0],	m->journal[1], m->journal[2]};
	List *relations = find_all_inheritors(counter->source, NoLock, nullptr);
	ListCell *cell;

	for (Oid table : ours)
		relations = lappend_oid(relations, table);
	foreach (cell, relations)
		if (get_rel_persistence(lfirst_oid(cell)) == RELPERSISTENCE_UNLOGGED)
			return true;
	return false;
}

/* After a crash: the posts that can be wrong, or all of them. */
void
StartRepair(const Counter *counter, TimestampTz watermark)
{
	Step step = {counter, "collecting the posts to repair", PaceOf(counter->id), &watermark, false};
	static const char reason[] = "the queue was lost in a crash or a failover";

	/* A walk that was under way has to start anew: what it has behind it may have lost deltas. */
	bool all = counter->state == State::kBackfilling || counter->time_att == InvalidAttrNumber ||
			   counter->time_type != TIMESTAMPTZOID || !Guard(&step, CollectChunk);

	SetState(counter->id, all ? State::kBackfilling : State::kRepairing, reason);
	ereport(
		LOG, errhidestmt(true),
		errmsg("the queue of counter \"%s\" of database \"%s\" was lost in a crash or a failover",
			   NameStr(counter->verb), get_database_name(MyDatabaseId)),
		all ? errdetail("Every post is recounted.")
			: errdetail("Posts with likes since %s are recounted.", timestamptz_to_str(watermark)));
}
} // namespace

bool
CheckSentinels(List *counters)
{
	struct Home
	{
		int32 id;
		bool here;
		bool known;
	};
	List *sentinels = SentinelsOutliveCrash() ? NIL : ReadSentinels();
	TimestampTz watermark = 0;
	bool used = ReadWatermark(&watermark);
	bool wrote = false;
	uint64 rows = SpiExecute("SELECT id, home_system, home_database FROM likecount._counter",
							 nullptr, SPI_OK_SELECT);
	auto *homes = palloc_array(Home, rows + 1);

	for (uint64 i = 0; i < rows; i++)
	{
		bool no_system, no_database, isnull;
		int64 system = DatumGetInt64(SpiValue(i, 2, &no_system));
		Oid database = DatumGetObjectId(SpiValue(i, 3, &no_database));

		homes[i].id = DatumGetInt32(SpiValue(i, 1, &isnull));
		homes[i].known = !no_system && !no_database;
		homes[i].here =
			homes[i].known && (uint64) system == GetSystemIdentifier() && database == MyDatabaseId;
	}

	for (uint64 i = 0; i < rows; i++)
	{
		const Counter *counter = nullptr;
		ListCell *cell;

		foreach (cell, counters)
			if (static_cast<Counter *>(lfirst(cell))->id == homes[i].id)
				counter = static_cast<Counter *>(lfirst(cell));
		if (counter == nullptr)
			continue;

		bool has_sentinel = list_member_int(sentinels, counter->id);

		if (has_sentinel && homes[i].here)
			continue;
		wrote = true;
		if (!has_sentinel)
		{
			bool crash = sentinels == NIL && homes[i].here;

			WriteSentinel(counter->id);
			/* One that is being adopted is recounted anyway, once its older writers have ended. */
			if (counter->state == State::kAdopting)
				;
			else if (crash && IsUnlogged(counter))
				SetState(counter->id, State::kBackfilling,
						 "a crash emptied an unlogged table of the counter");
			/* Of a direct counter nothing was in the queue. */
			else if (crash && used && !counter->settled)
				StartRepair(counter, watermark);
			else if (!crash && homes[i].known)
				SetState(counter->id, State::kBackfilling,
						 "the database is a copy without its queue");
		}
		if (!homes[i].here)
			WriteHome(counter->id);
	}
	return wrote;
}

bool
ReadWatermark(TimestampTz *watermark)
{
	bool isnull;

	if (SpiExecute("SELECT liked_at FROM likecount._watermark", nullptr, SPI_OK_SELECT) == 0)
		return false;
	*watermark = DatumGetTimestampTz(SpiValue(0, 1, &isnull));
	return true;
}

void
StoreWatermark(TimestampTz watermark)
{
	SpiArgs args = {};

	args.Add(TIMESTAMPTZOID, TimestampTzGetDatum(watermark));
	SpiExecute("INSERT INTO likecount._watermark (liked_at) VALUES ($1)"
			   " ON CONFLICT (one) DO UPDATE SET liked_at = excluded.liked_at",
			   &args, SPI_OK_INSERT);
}

void
ForgetWatermark()
{
	SpiExecute("DELETE FROM likecount._watermark", nullptr, SPI_OK_DELETE);
}

bool
TakeRequests()
{
	if (SpiExecute("SELECT FROM likecount._request LIMIT 1", nullptr, SPI_OK_SELECT) == 0)
		return false;
	uint64 rows = SpiExecute(
		"WITH taken AS (DELETE FROM likecount._request RETURNING counter, reason)"
		" SELECT c.id, c.state = 'adopting', pg_catalog.min(t.reason)"
		" FROM taken t JOIN likecount._counter c ON c.id = t.counter GROUP BY c.id, c.state",
		nullptr, SPI_OK_SELECT);
	SPITupleTable *table = SPI_tuptable;

	for (uint64 i = 0; i < rows; i++)
	{
		bool isnull;
		HeapTuple row = table->vals[i];
		int32 counter = DatumGetInt32(SPI_getbinval(row, table->tupdesc, 1, &isnull));
		/* One that is being adopted is recounted anyway. */
		bool adopting = DatumGetBool(SPI_getbinval(row, table->tupdesc, 2, &isnull));
		Datum reason = SPI_getbinval(row, table->tupdesc, 3, &isnull);

		SetState(counter, adopting ? State::kAdopting : State::kBackfilling,
				 TextDatumGetCString(reason));
	}
	return true;
}

void
AppendRequest(int32 counter, const char *reason)
{
	SpiArgs args = {};
	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	SPI_connect();
	args.Add(INT4OID, Int32GetDatum(counter));
	args.Add(TEXTOID, CStringGetTextDatum(reason));
	SpiExecute("INSERT INTO likecount._request (counter, reason) VALUES ($1, $2)", &args,
			   SPI_OK_INSERT);
	SPI_finish();
	SwitchBack(saved);
}

void
SetState(int32 counter, State state, const char *reason)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(counter));
	args.Add(TEXTOID, CStringGetTextDatum(StateName(state)));
	args.Add(TEXTOID, CStringGetTextDatum(reason));
	SpiExecute(
		"UPDATE likecount._counter SET state = $2, reason = $3, walk_after = NULL, walk_done = 0,"
		" walk_total = NULL, walk_drift = 0 WHERE id = $1",
		&args, SPI_OK_UPDATE);
	if (state != State::kRepairing)
		ForgetTodo(counter);
	InvalidateCounters();
}

bool
BackfillStep(const Counter *counter)
{
	Step step = {counter, "backfill", PaceOf(counter->id), nullptr, false};

	return Guard(&step, BackfillChunk) && step.more;
}

bool
RepairStep(const Counter *counter)
{
	Step step = {counter, "repair", PaceOf(counter->id), nullptr, false};

	return Guard(&step, RepairChunk) && step.more;
}
} // namespace likecount
