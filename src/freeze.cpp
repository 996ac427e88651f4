/*
 * freeze.cpp: posts whose total stays as it is.
 *
 * A frozen post has a mark among its slots (slots.cpp), by which it is displayed with the count that it had.  New likes
 * are refused (capture.cpp); what goes by DELETE, and what was in flight, is captured, flushed and recounted as ever, and
 * shows when the mark is deleted.
 *
 * freeze() stores the exact count, of the source's rows, and not the total: a total trails, and between a crash and the
 * first flush it lacks what the queue had held.  Deltas that wait are of rows that were counted, and change the mark by
 * the opposite when they are flushed.
 *
 * The mark is written here and not by a flush, because likes are to be refused from the commit on.  That needs no flush
 * lock.  What must not happen is that a flush adds to slot 0 without seeing the mark, or that the mark is computed from
 * slots that a flush is changing.  Both change slots under the slots lock of the counter, kept to commit, freeze() alone,
 * and read them with a snapshot taken after they got it: either the flush has committed, and its slots are in the mark's
 * sum, or it comes later and sees the mark.  The same holds for a transaction of a direct counter, whose commit may be
 * under way.  The order is source -> slots lock -> slots; a flush takes the slots lock only if it is free and passes over
 * the counter otherwise, so it neither waits for an open transaction that has frozen a post nor closes a circle with it.
 * Such a transaction holds up the totals of its counter, not of others; counters.locked_by names it.
 *
 * It needs no counter lock.  Recounts leave marks out, and change nothing but the journal, so they and a freeze do not
 * see each other; and who freezes many posts, one transaction after the other, does not keep the worker from repairing.
 *
 * Nothing of a like in flight is lost.  Its row was not committed when freeze() took its snapshot, so it is not in the
 * stored count; its delta, committed with the row, goes to slot 0 and, negated, to the mark.  So the slots without the
 * mark always add up to the rows, less what waits, and they are what unfreeze() leaves.
 */
#include "freeze.hpp"

#include "capture.hpp"
#include "flush.hpp"
#include "reconcile.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
int64
Freeze(const Counter *counter, Datum post)
{
	SlotWriter writer;

	if (!KeyFits(counter->post_type, post))
		ereport(ERROR, errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				errmsg("argument \"post\" is too long"),
				errdetail("A key of type text has at most %d bytes.", kMaxTextKey));
	BeginChange(counter, &writer, Change::kFreeze);

	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	int64 total = CountRows(counter, post, snapshot);

	UnregisterSnapshot(snapshot);
	if (SlotWriterFreeze(&writer, post, &total))
		ForgetUnfrozen(counter->id, KeyFromDatum(counter->post_type, post));
	SlotWriterClose(&writer);
	return total;
}

bool
Unfreeze(const Counter *counter, Datum post)
{
	SlotWriter writer;

	BeginChange(counter, &writer, Change::kUnfreeze);
	bool frozen = SlotWriterUnfreeze(&writer, post);

	SlotWriterClose(&writer);
	return frozen;
}
} // namespace

void
BeginChange(const Counter *counter, SlotWriter *writer, Change change)
{
	static constexpr const char *kWhat[] = {"freeze a post", "unfreeze a post", "forget a post"};

	/*
	 * Unfreezing counts nothing.  It is possible where a subscription brings the slots, too: when the publisher's mark has
	 * gone, the one in which this node has kept what its own slots lost meanwhile stays.
	 */
	CheckRecount(counter, kWhat[(int) change], change != Change::kUnfreeze);
	(void) LockForRecount(counter, change == Change::kForget, true);
	CheckStillThere(counter);
	ForbidPrepare();

	/* What this transaction did is to be seen by the snapshots that follow. */
	CommandCounterIncrement();
	if (!SlotWriterOpen(writer, counter, SlotsLock::kAlone))
		ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("the slots of counter \"%s\" are being restored", NameStr(counter->verb)));
}
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_freeze);
PGDLLEXPORT Datum likecount_freeze(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_unfreeze);
PGDLLEXPORT Datum likecount_unfreeze(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_frozen);
PGDLLEXPORT Datum likecount_frozen(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_frozen_posts);
PGDLLEXPORT Datum likecount_frozen_posts(PG_FUNCTION_ARGS);

using namespace likecount;

/* freeze(source, post, verb): returns the total that is displayed from now on. */
Datum
likecount_freeze(PG_FUNCTION_ARGS)
{
	const Counter *counter = CounterArgument(fcinfo, 0, 2);

	PreventCommandIfReadOnly("likecount.freeze()");
	PG_RETURN_INT64(Freeze(counter, PostArgument(fcinfo, 1, counter)));
}

/* unfreeze(source, post, verb): true when the post was frozen. */
Datum
likecount_unfreeze(PG_FUNCTION_ARGS)
{
	const Counter *counter = CounterArgument(fcinfo, 0, 2);

	PreventCommandIfReadOnly("likecount.unfreeze()");
	PG_RETURN_BOOL(Unfreeze(counter, PostArgument(fcinfo, 1, counter)));
}

/* frozen(source, verb): the frozen posts, as text, and their totals. */
Datum
likecount_frozen(PG_FUNCTION_ARGS)
{
	const Counter *counter = CounterArgument(fcinfo, 0, 1);
	auto *result = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
	const char *slots = QualifiedName(counter->slots);

	InitMaterializedSRF(fcinfo, 0);

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);
	SpiArgs args = {};

	SPI_connect();
	uint64 rows = SpiQueryAt(
		psprintf("SELECT m.post::pg_catalog.text, (SELECT pg_catalog.sum(s.value)::bigint FROM %s s"
				 " WHERE s.post = m.post) FROM (SELECT DISTINCT m.post FROM %s m"
				 " WHERE m.slot = -1) m",
				 slots, slots),
		&args, GetActiveSnapshot());

	for (uint64 i = 0; i < rows; i++)
	{
		Datum values[2];
		bool nulls[2];

		values[0] = SpiValue(i, 1, &nulls[0]);
		values[1] = SpiValue(i, 2, &nulls[1]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	SPI_finish();
	SwitchBack(saved);
	PG_RETURN_NULL();
}

/* _frozen_posts(counter): how many posts are frozen, for the view counters. */
Datum
likecount_frozen_posts(PG_FUNCTION_ARGS)
{
	const Counter *counter = FindCounterById(PG_GETARG_INT32(0));
	int64 count = 0;
	bool isnull;

	if (counter == nullptr)
		PG_RETURN_NULL();
	if (!counter->may_be_frozen)
		PG_RETURN_INT64(0);

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);
	SpiArgs args = {};

	SPI_connect();
	(void) SpiQueryAt(psprintf("SELECT pg_catalog.count(*) FROM (SELECT DISTINCT m.post FROM %s m"
							   " WHERE m.slot = -1) m",
							   QualifiedName(counter->slots)),
					  &args, GetActiveSnapshot());
	count = DatumGetInt64(SpiValue(0, 1, &isnull));
	SPI_finish();
	SwitchBack(saved);
	PG_RETURN_INT64(count);
}
}
