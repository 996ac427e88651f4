/*
 * fold.cpp: bringing the slots of quiet posts together.
 *
 * Direct mode opens as many slots as a post needs while it is liked by many at a time (direct.cpp).  Each of them costs
 * whoever reads the total.  So slots above 0 of this node that were not written for a while are added to slot 0 and
 * deleted, in one transaction: the sum is the same in every snapshot.
 *
 * The holder of the flush lock does it, since slot 0 is its own, in chunks, and waits for nobody: the slots lock, the lock
 * on (counter, post, slot) and the row itself are taken only if they are free.  A transaction that finds one of them taken
 * goes on to another slot.  The row is read again under its lock, so nothing that was added meanwhile is lost.
 *
 * The index <verb>_slots_open has the slots above 0 alone.  Where its file is no more than a metapage nothing was ever
 * opened, and there is nothing to do.  Else it is walked by posts; the position lives in the process, and a new one
 * begins at the start.  While somebody sits in an old snapshot, entries of slots that were folded pile up, and looking
 * at all of them would hold up the next flush: so a chunk is bounded by entries, not by rows.  As the locks are kept to
 * the end of the transaction a step, over all counters, takes as many as one transaction should have, and the next one
 * begins with the counter behind the last.
 *
 * Slots that are not quiet yet keep the worker awake until they are.  Those that can't be folded for another reason
 * do not: a total that would not fit, or a table that is locked.  They stay as they are, and the totals are right.
 */
#include "fold.hpp"

#include "audit.hpp"
#include "debug.hpp"
#include "init.hpp"
#include "shmem.hpp"
#include "slots.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
/* A slot that was not written for this long is quiet. */
constexpr int64 kQuiet = INT64CONST(10) * USECS_PER_SEC;
/* When some were not: look again after this. */
constexpr int64 kLookAgain = INT64CONST(5) * USECS_PER_SEC;
constexpr int64 kShortestWaitMs = 100;
/* Entries that a chunk looks at, or a few more, as it ends with a post. */
constexpr int kLargestLook = 10000;

/* How far the walk over a counter's open slots is.  A list of these lives as long as the process. */
struct Walk
{
	int32 counter;
	bool begun;
	Key after; /* the last post that is done with, if begun */
	uint8 long_key[kMaxTextKey];
	bool waiting; /* slots were not quiet yet */
	bool moved;	  /* in this chunk */
	TimestampTz not_before;
};

static_assert(kPlain<Walk>);

/* The quiet slots of one post. */
struct Post
{
	Datum post;
	OpenSlot *open;
	int count;
};

static_assert(kPlain<Post>);

List *walks = NIL;

/* The counter that was looked at last. */
int32 folded_last = 0;

/* Locks, and so slots, of one step. */
int
LargestStep()
{
	return Max(max_locks_per_xact / 2, 1);
}

Walk *
WalkOf(int32 counter)
{
	ListCell *cell;

	foreach (cell, walks)
		if (static_cast<Walk *>(lfirst(cell))->counter == counter)
			return static_cast<Walk *>(lfirst(cell));

	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	auto *walk = palloc0_object(Walk);

	walk->counter = counter;
	walks = lappend(walks, walk);
	MemoryContextSwitchTo(caller);
	return walk;
}

/* How long until a counter is to be looked at again.  A longer time than any was set before the clock was set back. */
int64
LeftOf(const Walk &walk)
{
	int64 left = walk.not_before - GetCurrentTimestamp();

	return left > kLookAgain ? 0 : left;
}

/* True when it is time to look at a counter; one that has nothing to fold is not waited for. */
bool
IsDue(const Counter &counter)
{
	Walk *walk = WalkOf(counter.id);

	if (!OidIsValid(counter.open) || !MayHaveEntries(counter.open))
		walk->waiting = false;
	/* Who calls flush() may not call it again. */
	else if (!IsWorker() || LeftOf(*walk) <= 0)
		return true;
	return false;
}

void
SetAfter(Walk *walk, const Key &post)
{
	walk->begun = walk->moved = true;
	walk->after = post;
	if (post.len > Key::kInline)
	{
		memcpy(walk->long_key, post.Data(), post.len);
		walk->after.more = walk->long_key;
	}
}

/* Starts the scan of the open slots behind the walk's position. */
IndexScanDesc
BeginWalk(const Walk &walk, const SlotWriter &writer, Relation index)
{
	IndexScanDesc scan = BeginIndexScan(writer.table, index, writer.snapshot, walk.begun ? 1 : 0);
	Datum after;
	ScanKeyData key;

	/* The post of an entry is wanted whether or not its row is there. */
	scan->xs_want_itup = true;
	if (!walk.begun ||
		!KeyToDatum(writer.counter->post_type, walk.after.Data(), walk.after.len, &after))
	{
		index_rescan(scan, nullptr, 0, nullptr, 0);
		return scan;
	}

	Oid greater = get_opfamily_member(index->rd_opfamily[0], index->rd_opcintype[0],
									  index->rd_opcintype[0], BTGreaterStrategyNumber);

	ScanKeyEntryInitialize(&key, 0, 1, BTGreaterStrategyNumber, index->rd_opcintype[0],
						   index->rd_indcollation[0], get_opcode(greater), after);
	index_rescan(scan, &key, 1, nullptr, 0);
	return scan;
}

/*
 * Collects the quiet slots of the next posts, as a List of Post *, and moves the walk on.  *room: how many more may be
 * taken.  *end: these were the last.
 */
List *
NextPosts(Walk *walk, const SlotWriter &writer, Relation index, const Quiet &quiet, int *room,
		  bool *end)
{
	Oid type = writer.counter->post_type;
	int looked = 0;
	List *posts = NIL;
	Post *post = nullptr;
	Key key = {};
	TupleTableSlot *row = table_slot_create(writer.table, nullptr);
	IndexScanDesc scan = BeginWalk(*walk, writer, index);
	int16 len;
	bool byval;

	get_typlenbyval(type, &len, &byval);
	*end = true;
	while (index_getnext_tid(scan, ForwardScanDirection) != nullptr)
	{
		bool isnull;
		Key next = KeyFromDatum(type, index_getattr(scan->xs_itup, 1, scan->xs_itupdesc, &isnull));

		CHECK_FOR_INTERRUPTS();
		if (looked++ == 0 || !KeyEqual(key, next))
		{
			if (looked > 1)
				SetAfter(walk, key);
			if (*room == 0 || looked > kLargestLook)
			{
				*end = false;
				break;
			}
			key = KeyCopy(CurrentMemoryContext, next);
			post = nullptr;
		}
		if (!index_fetch_heap(scan, row))
			continue;
		slot_getallattrs(row);
		if (DatumGetInt16(row->tts_values[kSlotNode - 1]) != guc_node)
			continue;
		if (!quiet.Includes(DatumGetTimestampTz(row->tts_values[kSlotUpdatedAt - 1])))
		{
			walk->waiting = true;
			continue;
		}
		if (*room == 0)
		{
			/* The walk has not moved over this post, so the next chunk has the rest of it. */
			*end = false;
			break;
		}
		if (post == nullptr)
		{
			post = palloc0_object(Post);
			post->post = datumCopy(row->tts_values[kSlotPost - 1], byval, len);
			post->open = palloc_array(OpenSlot, *room);
			posts = lappend(posts, post);
		}
		post->open[post->count++] = {DatumGetInt16(row->tts_values[kSlotSlot - 1]), row->tts_tid};
		(*room)--;
	}
	ExecDropSingleTupleTableSlot(row);
	index_endscan(scan);
	return posts;
}

/* True when there is more to do at once. */
bool
FoldChunk(const Counter *counter, Walk *walk, int *room)
{
	TimestampTz now = GetCurrentTimestamp();
	Quiet quiet = {now - kQuiet, now + kQuiet};
	SlotWriter writer;
	Relation index = nullptr;
	bool end = true;
	int folded = 0;
	ListCell *cell;

	if (!walk->begun)
		walk->waiting = false;
	walk->moved = false;
	if (SlotWriterOpen(&writer, counter, SlotsLock::kShared))
	{
		if (ConditionalLockRelationOid(counter->open, AccessShareLock))
			index = try_relation_open(counter->open, NoLock);
		if (index != nullptr)
		{
			List *posts = NextPosts(walk, writer, index, quiet, room, &end);

			relation_close(index, NoLock);
			LIKECOUNT_DEBUG_POINT("fold: slots found");
			foreach (cell, posts)
			{
				auto *post = static_cast<Post *>(lfirst(cell));
				int done = SlotWriterFold(&writer, post->post, post->open, post->count, quiet,
										  &walk->waiting);

				/* Of a direct counter the audit learns here. */
				if (done > 0)
					NoteFlushed(counter->id, KeyFromDatum(counter->post_type, post->post));
				folded += done;
			}
		}
		SlotWriterClose(&writer);
	}
	/* Not over and over the slots of one post that are all taken. */
	if (end || (folded == 0 && !walk->moved))
	{
		walk->begun = false;
		walk->not_before = index == nullptr || walk->waiting ? now + kLookAgain : 0;
		return false;
	}
	return true;
}
} // namespace

bool
FoldDue(List *counters)
{
	bool due = false;
	ListCell *cell;

	foreach (cell, walks)
	{
		auto *walk = static_cast<Walk *>(lfirst(cell));
		bool there = false;
		ListCell *other;

		foreach (other, counters)
			there |= static_cast<Counter *>(lfirst(other))->id == walk->counter;
		if (!there)
		{
			walks = foreach_delete_current(walks, cell);
			pfree(walk);
		}
	}
	foreach (cell, counters)
		due |= IsDue(*static_cast<Counter *>(lfirst(cell)));
	return due;
}

bool
Fold(List *counters)
{
	MemoryContext context =
		AllocSetContextCreate(CurrentMemoryContext, "likecount fold", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	int room = LargestStep();
	int count = list_length(counters);
	int first = 0;
	bool more = false;

	for (int i = 0; i < count; i++)
		if (static_cast<Counter *>(list_nth(counters, i))->id == folded_last)
			first = i + 1;
	for (int i = 0; i < count && !more; i++)
	{
		auto *counter = static_cast<Counter *>(list_nth(counters, (first + i) % count));

		if (!IsDue(*counter))
			continue;
		if (room == 0)
			more = true;
		else
		{
			folded_last = counter->id;
			more = FoldChunk(counter, WalkOf(counter->id), &room);
		}
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return more;
}

int64
FoldWaitMs()
{
	int64 wait_ms = 0;
	ListCell *cell;

	foreach (cell, walks)
	{
		auto *walk = static_cast<Walk *>(lfirst(cell));

		if (!walk->waiting)
			continue;

		int64 left_ms = Max(LeftOf(*walk) / 1000, kShortestWaitMs);

		wait_ms = wait_ms == 0 ? left_ms : Min(wait_ms, left_ms);
	}
	return wait_ms;
}
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_open_slots);
PGDLLEXPORT Datum likecount_open_slots(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_hot_posts);
PGDLLEXPORT Datum likecount_hot_posts(PG_FUNCTION_ARGS);

using namespace likecount;

/* _open_slots(counter): how many slots above 0 there are, for the view counters. */
Datum
likecount_open_slots(PG_FUNCTION_ARGS)
{
	const Counter *counter = FindCounterById(PG_GETARG_INT32(0));
	SpiArgs args = {};
	bool isnull;

	if (counter == nullptr)
		PG_RETURN_NULL();
	if (OidIsValid(counter->open) && !MayHaveEntries(counter->open))
		PG_RETURN_INT64(0);

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	SPI_connect();
	(void) SpiQueryAt(psprintf("SELECT pg_catalog.count(*) FROM %s s WHERE s.slot > 0",
							   QualifiedName(counter->slots)),
					  &args, GetActiveSnapshot());
	int64 count = DatumGetInt64(SpiValue(0, 1, &isnull));

	SPI_finish();
	SwitchBack(saved);
	PG_RETURN_INT64(count);
}

/* _hot_posts(): the posts with slots above 0, of all counters. */
Datum
likecount_hot_posts(PG_FUNCTION_ARGS)
{
	auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
	ListCell *cell;

	InitMaterializedSRF(fcinfo, 0);

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	foreach (cell, AllCounters())
	{
		auto *counter = static_cast<Counter *>(lfirst(cell));
		const char *slots = QualifiedName(counter->slots);
		SpiArgs args = {};

		if (OidIsValid(counter->open) && !MayHaveEntries(counter->open))
			continue;
		SPI_connect();
		uint64 rows = SpiQueryAt(
			psprintf("SELECT s.post::pg_catalog.text,"
					 " (pg_catalog.count(*) FILTER (WHERE s.slot > 0))::pg_catalog.int4,"
					 " pg_catalog.sum(s.value)::pg_catalog.int8 FROM %s s"
					 " WHERE s.post IN (SELECT o.post FROM %s o WHERE o.slot > 0) GROUP BY s.post",
					 slots, slots),
			&args, GetActiveSnapshot());

		for (uint64 i = 0; i < rows; i++)
		{
			Datum values[4];
			bool nulls[4];

			values[0] = NameGetDatum(&counter->verb);
			nulls[0] = false;
			for (int column = 1; column < 4; column++)
				values[column] = SpiValue(i, column, &nulls[column]);
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		}
		SPI_finish();
	}
	SwitchBack(saved);
	return (Datum) 0;
}
}
