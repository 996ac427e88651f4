/*
 * flush.cpp: moving deltas from queue and journal into slots.
 *
 * A flush is one transaction: the flush lock, requests and sentinels (repair.cpp), the watermark, one snapshot, drain,
 * net per post, slots in key order, the new watermark.  Whatever it does is undone together, so a delta is either
 * pending or in a slot, and a crash that takes back an asynchronous commit takes the watermark back too.
 *
 * One snapshot serves queue and journal.  With two, an unlike could be drained whose like, committed between them,
 * is not; a crash would then lose the like's delta and keep the unlike's.  It is the newest snapshot, so flush() refuses
 * REPEATABLE READ and above, and it is taken after the clock was raised and the published liked_at were read (the
 * protocol is in shmem.cpp).
 *
 * For the same reason a counter's journal rows, and the caller's own deltas, are applied only in a turn that took
 * every queue row of that counter which its snapshot saw.  A turn is bounded by likecount.flush_batch and takes the
 * queue first; the journal comes in the turn that has room left.
 *
 * A counter whose slots cannot be locked at once (its table is being dropped or restored) is left whole, and the
 * watermark stays where it is.  A delta that does not fit its total is set aside in _rejected with the reason.
 *
 * The slots lock of each counter comes before the snapshot (slots.cpp).  A counter whose lock is taken is passed over
 * as a whole: none of its rows is drained.  Where one transaction after the other freezes posts, the lock is never seen
 * free.  So before its next flush the worker waits for it in line, holding no lock but the extension's, and only a
 * moment: a transaction that stays open must not hold up the other counters.
 *
 * A counter that is being switched to direct mode becomes direct with the first flush that came to the end of the queue and
 * left nothing of it there (direct.cpp).  Its row of _mode is read before the snapshot, so what was queued before it is
 * seen.
 *
 * What must wait for the commit, allowing the queue and lowering the clock, happens in the commit callback, which
 * runs before the flush lock is released.
 */
#include "flush.hpp"

#include "attach.hpp"
#include "audit.hpp"
#include "capture.hpp"
#include "debug.hpp"
#include "fold.hpp"
#include "init.hpp"
#include "queue.hpp"
#include "registration.hpp"
#include "repair.hpp"
#include "shmem.hpp"
#include "slots.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
/* The watermark is stored at most this often: any lower one is right, and every version of its row costs. */
constexpr int64 kWatermarkStep = INT64CONST(10) * USECS_PER_SEC;

/* What the commit of this transaction's flushes entails. */
struct AtCommit
{
	bool flushed;
	DatabaseShared *database;
	Oid ready;				 /* allow the queue for this _watermark; InvalidOid: leave it */
	TimestampTz lower_clock; /* 0: leave it */
	int level;				 /* highest subtransaction level that flushed */
	FlushResult sums;
	TimestampTz started;
};

AtCommit at_commit = {};

/* How long the worker waits for the slots lock of a counter that its last flush passed over. */
constexpr const char *kInLine = "100ms";
/* The counter for which it last did. */
int32 waited_for = 0;

/* What one flush does with a counter. */
struct Target
{
	int32 id;
	const Counter *counter; /* nullptr: not registered */
	bool open;				/* its slots are locked and writer is valid */
	SlotWriter writer;
	int64 posts;
};

struct Net
{
	CounterKey key;
	Target *target;
	int64 delta;
};

static_assert(kPlain<Target> && kPlain<Net>);

/* The state of one flush. */
struct Turn
{
	MemoryContext context;
	List *counters; /* of Counter */
	List *targets;	/* of Target */
	List *locked;	/* ids of the counters whose slots lock was free */
	HTAB *nets;
	int64 room;		 /* rows that may still be taken */
	bool queue_read; /* the scan of the queue came to its end */
	FlushResult result;
};

Target *
TargetOf(Turn *turn, int32 id)
{
	ListCell *cell;

	foreach (cell, turn->targets)
		if (static_cast<Target *>(lfirst(cell))->id == id)
			return static_cast<Target *>(lfirst(cell));

	MemoryContext caller = MemoryContextSwitchTo(turn->context);
	auto *target = palloc0_object(Target);

	target->id = id;
	foreach (cell, turn->counters)
		if (static_cast<Counter *>(lfirst(cell))->id == id)
			target->counter = static_cast<Counter *>(lfirst(cell));
	if (target->counter != nullptr && list_member_int(turn->locked, id))
		target->open = SlotWriterOpen(&target->writer, target->counter, SlotsLock::kShared);
	turn->targets = lappend(turn->targets, target);
	MemoryContextSwitchTo(caller);
	return target;
}

void
Reject(Turn *turn, int32 counter, const uint8 *post, uint32 len, int64 delta, const char *reason)
{
	SpiArgs args = {};
	auto *bytes = static_cast<bytea *>(palloc(VARHDRSZ + len));

	SET_VARSIZE(bytes, VARHDRSZ + len);
	memcpy(VARDATA(bytes), post, len);
	args.Add(INT4OID, Int32GetDatum(counter));
	args.Add(BYTEAOID, PointerGetDatum(bytes));
	args.Add(INT8OID, Int64GetDatum(delta));
	args.Add(TEXTOID, CStringGetTextDatum(reason));
	SpiExecute(
		"INSERT INTO likecount._rejected (counter, post, delta, reason) VALUES ($1, $2, $3, $4)",
		&args, SPI_OK_INSERT);
	turn->result.rejected++;
}

/* Adds one delta to the net of its post. */
void
Take(Turn *turn, Target *target, const Key &post, int64 delta)
{
	CounterKey key = {target->id, post};
	bool found;
	int64 sum;
	auto *net = static_cast<Net *>(hash_search(turn->nets, &key, HASH_ENTER, &found));

	if (!found)
	{
		net->key.key = KeyCopy(turn->context, post);
		net->target = target;
		net->delta = 0;
	}
	if (pg_add_s64_overflow(net->delta, delta, &sum))
		Reject(turn, target->id, post.Data(), post.len, delta,
			   "with other deltas of the post it does not fit a bigint");
	else
		net->delta = sum;
	turn->result.deltas++;
}

/* Takes and deletes what the snapshot sees; false when it had to leave something. */
bool
Drain(Turn *turn, Where where, Snapshot snapshot)
{
	SegmentScan scan;
	Pending row;
	bool all = true;

	SegmentScanBegin(&scan, where, snapshot, true);
	while (SegmentScanNext(&scan, &row))
	{
		Target *target = TargetOf(turn, row.counter);

		if (turn->room <= 0)
		{
			all = false;
			SegmentScanEnd(&scan);
			break;
		}
		if (target->counter == nullptr)
			turn->result.discarded++;
		else if (!target->open)
		{
			all = false;
			continue;
		}
		else
			Take(turn, target, KeyFromBytes(row.post, row.post_len), row.delta);
		SegmentScanDelete(&scan, &row);
		turn->room--;
	}
	return all;
}

void
TakeOwn(const OwnEntry &entry, void *arg)
{
	auto *turn = static_cast<Turn *>(arg);
	Target *target = TargetOf(turn, entry.counter);

	if (target->open && entry.delta != 0)
		Take(turn, target, entry.post, entry.delta);
}

int
CompareNets(const void *a, const void *b)
{
	auto *x = *static_cast<Net *const *>(a);
	auto *y = *static_cast<Net *const *>(b);

	if (x->key.counter != y->key.counter)
		return x->key.counter < y->key.counter ? -1 : 1;
	return KeyCompare(x->key.key, y->key.key);
}

/* Adds the nets to the slots, in key order. */
void
WriteSlots(Turn *turn)
{
	long count = hash_get_num_entries(turn->nets);
	auto **sorted = static_cast<Net **>(
		MemoryContextAllocHuge(turn->context, sizeof(Net *) * (Size) (count + 1)));
	HASH_SEQ_STATUS seq;
	long n = 0;

	hash_seq_init(&seq, turn->nets);
	while (auto *net = static_cast<Net *>(hash_seq_search(&seq)))
		sorted[n++] = net;
	qsort(sorted, (size_t) n, sizeof(Net *), CompareNets);

	MemoryContext scratch =
		AllocSetContextCreate(turn->context, "likecount slot write", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);

	for (long i = 0; i < n; i++)
	{
		Net *net = sorted[i];
		const Key &key = net->key.key;
		Datum post;

		CHECK_FOR_INTERRUPTS();
		if (net->delta == 0)
			continue;
		if (!KeyToDatum(net->target->counter->post_type, key.Data(), key.len, &post))
			Reject(turn, net->target->id, key.Data(), key.len, net->delta,
				   "the post is no value of the counter's type");
		else if (SlotWriterAdd(&net->target->writer, post, net->delta) == Added::kOverflow)
			Reject(turn, net->target->id, key.Data(), key.len, net->delta,
				   "the total would not fit a bigint");
		else
		{
			NoteFlushed(net->target->id, key);
			turn->result.posts++;
		}
		MemoryContextReset(scratch);
	}
	MemoryContextSwitchTo(caller);
}

/* Stores how far back an unflushed delta of the queue can reach, if it is worth a write. */
void
AdvanceWatermark(TimestampTz clock, TimestampTz published, bool drained, bool lowering)
{
	TimestampTz stored;
	bool has = ReadWatermark(&stored);
	TimestampTz watermark = Min(published, clock) - kWatermarkSlack;

	if (lowering)
	{
		if (!has || watermark < stored)
			StoreWatermark(watermark);
		at_commit.lower_clock = clock;
	}
	else if (!has || (drained && watermark >= stored + kWatermarkStep))
		StoreWatermark(watermark);
}

/* Takes what the snapshot sees out of queue and journal, within the batch, and the caller's own deltas. */
void
MoveDeltas(Turn *turn, Snapshot snapshot, bool own)
{
	ListCell *cell;

	turn->room = guc_flush_batch;
	turn->nets = CounterKeyHash("likecount flush", 1024, sizeof(Net), turn->context);

	bool all = Drain(turn, Where::kQueue, snapshot);

	turn->queue_read = turn->room > 0;
	LIKECOUNT_DEBUG_POINT("flush: queue drained");
	/*
	 * A counter that was skipped has none of its rows taken; the others' journal rows need only that the scan of the
	 * queue came to its end.
	 */
	if (turn->queue_read)
	{
		all &= Drain(turn, Where::kJournal, snapshot);
		if (own && turn->room <= 0)
			all = false;
		else if (own)
		{
			VisitOwn(true, TakeOwn, turn);
			foreach (cell, turn->targets)
				if (static_cast<Target *>(lfirst(cell))->open)
					ForgetOwnOfLevel(static_cast<Target *>(lfirst(cell))->id);
		}
	}
	else
		all = false;

	LIKECOUNT_DEBUG_POINT("flush: drained");
	WriteSlots(turn);
	foreach (cell, turn->targets)
	{
		auto *target = static_cast<Target *>(lfirst(cell));

		if (target->open)
			SlotWriterClose(&target->writer);
	}
	turn->result.drained = all;
	turn->result.full = turn->room <= 0;
}

/* Of the counters that were passed over, the one for which the worker has not waited longest. */
int32
PassedOver(const Turn *turn)
{
	int32 next = 0;
	ListCell *cell;

	foreach (cell, turn->targets)
	{
		auto *target = static_cast<Target *>(lfirst(cell));

		if (target->counter != nullptr && !target->open &&
			(next == 0 ||
			 (uint32) (target->id - waited_for - 1) < (uint32) (next - waited_for - 1)))
			next = target->id;
	}
	return next;
}

/* Lets counters be direct of which nothing is left in the queue. */
void
SettleModes(Turn *turn)
{
	ListCell *cell;

	foreach (cell, turn->counters)
	{
		auto *counter = static_cast<Counter *>(lfirst(cell));
		bool left = !turn->queue_read;
		ListCell *other;

		if (counter->superseded)
			ForgetModes(counter->id, counter->switched);
		if (counter->mode != Mode::kDirect || counter->settled)
			continue;
		foreach (other, turn->targets)
		{
			auto *target = static_cast<Target *>(lfirst(other));

			left |= target->id == counter->id && !target->open;
		}
		if (!left)
			SettleMode(counter->id, counter->switched);
	}
}

void
CheckIsolation(const char *what)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR, errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				errmsg("%s cannot run in a transaction of isolation level %s", what,
					   XactIsoLevel == XACT_SERIALIZABLE ? "SERIALIZABLE" : "REPEATABLE READ"),
				errhint("Run it in a READ COMMITTED transaction: it needs the newest snapshot."));
}

void
AddUp(FlushResult *sums, const FlushResult &one)
{
	sums->deltas += one.deltas;
	sums->posts += one.posts;
	sums->discarded += one.discarded;
	sums->rejected += one.rejected;
}

/* Carries out what had to wait for the commit; the flush lock is still held. */
void
Committed()
{
	DatabaseShared *database = at_commit.database;

	if (database == nullptr)
		return;

	StatsShared *stats = &database->stats;
	TimestampTz now = GetCurrentTimestamp();

	if (OidIsValid(at_commit.ready))
		pg_atomic_write_u32(&database->ready, at_commit.ready);
	if (at_commit.lower_clock != 0)
		pg_atomic_write_u64(&database->clock_high, (uint64) at_commit.lower_clock);
	pg_atomic_fetch_add_u64(&stats->flushes, 1);
	pg_atomic_fetch_add_u64(&stats->deltas, at_commit.sums.deltas);
	pg_atomic_fetch_add_u64(&stats->posts, at_commit.sums.posts);
	pg_atomic_fetch_add_u64(&stats->discarded, at_commit.sums.discarded);
	pg_atomic_fetch_add_u64(&stats->rejected, at_commit.sums.rejected);
	pg_atomic_write_u64(&stats->last_flush_at, (uint64) now);
	pg_atomic_write_u64(&stats->last_flush_us, (uint64) (now - at_commit.started));
}

void
XactCallback(XactEvent event, void *)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			/* A crash would bring back the drained queue rows' transaction without the rows: they would count twice. */
			if (at_commit.flushed)
				ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg(
							"cannot PREPARE a transaction that has flushed, reconciled or frozen"),
						errhint("Do that in a transaction of its own."));
			break;
		case XACT_EVENT_COMMIT:
			if (at_commit.flushed)
				Committed();
			at_commit = {};
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			at_commit = {};
			break;
		default:
			break;
	}
}
void
SubXactCallback(SubXactEvent event, SubTransactionId, SubTransactionId, void *)
{
	int level = GetCurrentTransactionNestLevel();

	if (!at_commit.flushed ||
		(event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB))
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB && at_commit.level >= level)
	{
		/* The watermark that it stored is gone: allow nothing by it, nor by an earlier one.  The next flush does. */
		at_commit.ready = InvalidOid;
		at_commit.lower_clock = 0;
		at_commit.sums = {};
	}
	at_commit.level = Min(at_commit.level, level - 1);
}

/* True when a process of ours does this database's upkeep. */
bool
WorkerServes()
{
	DatabaseShared *database = MyDatabase(false);

	if (database == nullptr)
		return false;
	LWLockAcquire(RegistryLock(), LW_SHARED);
	bool serves = database->worker_pid != 0;

	LWLockRelease(RegistryLock());
	return serves;
}

bool
UpkeepWantedOf(List *counters, bool own_only)
{
	ListCell *cell;

	foreach (cell, counters)
	{
		auto *counter = static_cast<Counter *>(lfirst(cell));

		if (counter->state != State::kActive && (counter->uncommitted || !own_only))
			return true;
	}
	return !own_only && (AuditDue() || AdoptionWanted());
}
} // namespace

void
FlushInit()
{
	RegisterXactCallback(XactCallback, nullptr);
	RegisterSubXactCallback(SubXactCallback, nullptr);
}

void
ForbidPrepare()
{
	at_commit.flushed = true;
}

void
WaitInLine(int32 counter)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	waited_for = counter;
	BeginInternalSubTransaction(nullptr);
	PG_TRY();
	{
		int guc_level = NewGUCNestLevel();

		PinSetting("lock_timeout", kInLine);
		(void) LockSlots(counter, SlotsLock::kShared, true);
		AtEOXact_GUC(false, guc_level);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		MemoryContextSwitchTo(caller);
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();
}

FlushResult
Flush(bool wait, bool own)
{
	const Members *m = GetMembers();
	Turn turn = {};
	ListCell *cell;

	CheckIsolation("likecount.flush()");
	PreventCommandIfReadOnly("likecount.flush()");
	if (!LockFlush(wait))
		return turn.result;

	UserSwitch saved = SwitchUser(m->owner, RunAs::kExtensionOwner);
	DatabaseShared *database = MyDatabase(true);
	TimestampTz now = GetCurrentTimestamp();

	turn.result.ran = true;
	turn.context =
		AllocSetContextCreate(CurrentMemoryContext, "likecount flush", ALLOCSET_DEFAULT_SIZES);
	at_commit.flushed = true;
	at_commit.database = database;
	at_commit.level = Max(at_commit.level, GetCurrentTransactionNestLevel());
	/* What an earlier flush of this transaction wanted to lower the clock to may be below the watermark of this one. */
	at_commit.lower_clock = 0;
	if (at_commit.started == 0)
		at_commit.started = now;

	SPI_connect();
	/* What this transaction has journalled itself, by an early spill or a recount, is to be seen. */
	CommandCounterIncrement();
	(void) TakeRequests();

	MemoryContext caller = MemoryContextSwitchTo(turn.context);

	turn.counters = AllCounters();
	if (CheckSentinels(turn.counters))
		CommandCounterIncrement();

	/*
	 * Before the snapshot: what a forget() did about deltas that wait, and the deltas, are then seen together or not at
	 * all.
	 */
	foreach (cell, turn.counters)
		if (int32 id = static_cast<Counter *>(lfirst(cell))->id;
			LockSlots(id, SlotsLock::kShared, false))
			turn.locked = lappend_int(turn.locked, id);

	bool first = database != nullptr && pg_atomic_read_u32(&database->ready) != m->watermark;
	bool lowering = false;
	TimestampTz clock = now;
	TimestampTz published = kNothingPublished;

	if (database != nullptr)
	{
		TimestampTz watermark;

		/* After a restart clock_high is lost: what entered the queue before is not older than W. */
		if (first && ReadWatermark(&watermark))
			(void) RaiseClock(database, watermark + kWatermarkSlack, &published);
		clock = RaiseClock(database, now, &published);
		if (clock > now + kWatermarkSlack)
		{
			/* The clock was set back.  W goes down with this commit, clock_high only after it. */
			lowering = true;
			clock = now;
		}
	}

	LIKECOUNT_DEBUG_POINT("flush: clock raised");
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());

	LIKECOUNT_DEBUG_POINT("flush: snapshot taken");
	MoveDeltas(&turn, snapshot, own);
	UnregisterSnapshot(snapshot);
	turn.result.passed_over = PassedOver(&turn);
	SettleModes(&turn);

	bool moved = turn.result.deltas > 0 || turn.result.discarded > 0;

	if (database == nullptr)
	{
		TimestampTz watermark;

		/* Nobody here uses the queue, and now nothing is left in it. */
		if (turn.result.drained && ReadWatermark(&watermark))
			ForgetWatermark();
	}
	else if (turn.counters != NIL && (first || moved || lowering))
	{
		AdvanceWatermark(clock, published, turn.result.drained, lowering);
		at_commit.ready = m->watermark;
	}
	MemoryContextSwitchTo(caller);
	SPI_finish();
	MemoryContextDelete(turn.context);
	SwitchBack(saved);
	AddUp(&at_commit.sums, turn.result);
	return turn.result;
}

bool
Upkeep(bool own_only)
{
	List *counters = AllCounters();
	ListCell *cell;
	bool more = false;

	bool fold = !own_only && FoldDue(counters);

	/* Whoever writes state rows, or slot 0, holds the flush lock. */
	if (!(fold || UpkeepWantedOf(counters, own_only)) || !LockFlush(false))
		return false;
	at_commit.flushed = true;
	if (!own_only)
	{
		more |= AdoptCounters();
		more |= SettleAdopted();
		counters = AllCounters();
	}

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	foreach (cell, counters)
	{
		auto *counter = static_cast<Counter *>(lfirst(cell));

		if (own_only && !counter->uncommitted)
			continue;
		if (counter->state == State::kBackfilling)
			more |= BackfillStep(counter);
		else if (counter->state == State::kRepairing)
			more |= RepairStep(counter);
	}
	if (!own_only && AuditDue())
		more |= Audit();
	if (fold)
		more |= Fold(counters);
	SwitchBack(saved);
	return more;
}

bool
UpkeepWanted()
{
	return UpkeepWantedOf(AllCounters(), false);
}
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_flush);
PGDLLEXPORT Datum likecount_flush(PG_FUNCTION_ARGS);

/* Moves everything, in batches, and where no worker does it a share of the upkeep (see sql/likecount.sql). */
Datum
likecount_flush(PG_FUNCTION_ARGS)
{
	using namespace likecount;
	int64 moved = 0;

	(void) fcinfo;
	/*
	 * Without a worker this is where segments are emptied: before the first flush of a transaction that has written
	 * nothing, so that only what committed flushes consumed can go.
	 */
	if (!WorkerServes() && !RecoveryInProgress() && !XactReadOnly &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny()) && SegmentsWantTruncation())
		TruncateConsumedSegments();
	for (;;)
	{
		FlushResult result = Flush(true, true);

		moved += result.deltas;
		/* What is left otherwise is of counters whose slots somebody has locked. */
		if (!result.full)
			break;
	}
	/* What no worker will do: everything where none runs, else the counters that this transaction made. */
	if (Upkeep(WorkerServes()))
		moved += Flush(true, false).deltas;
	PG_RETURN_INT64(moved);
}
}
