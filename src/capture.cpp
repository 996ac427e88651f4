/*
 * capture.cpp: the capture trigger and this transaction's deltas.
 *
 * The trigger sees each row that a source really gained or lost, whoever did it, and adds to an accumulator in this
 * backend's memory.  The accumulator is transactional, as PostgreSQL's own table statistics are: an entry carries
 * the subtransaction level that made it; a savepoint's rollback drops the entries of its level, a release merges
 * them into the level below.  Only the innermost level gets new entries, so entries of one level are a stretch at
 * the end of the array, and both operations are a walk over that stretch.
 *
 * At pre-commit what is left is appended, one row per counter and post: a COPY of ten million likes of one post
 * leaves one row.  Nothing that a user can do comes after that, except the callbacks of other extensions; what those
 * change goes straight to the journal.
 *
 * An accumulator past a bound is spilled before that, the innermost level only (an outer level's rows would
 * carry the inner transaction's id, and its rollback would lose them), and always to the journal: nothing has been
 * published for the watermark yet, and the transaction may still be prepared.
 *
 * Queue or journal.  The queue is lost in a crash, so a delta may go there only if repair can find its post again,
 * by looking at the source's rows since the watermark.  That takes an insert (a removed row cannot be found), with
 * a liked_at that is not older than the watermark may be by then (the protocol is in shmem.cpp), in a transaction
 * that is not being prepared.  For the same reason a delete, or a change of a key or of liked_at, leaves a row in
 * the journal even when the transaction's net for the post is 0: the delta that its row had left in the queue
 * may be lost, and then only the journal still tells that the post was touched.
 *
 * A counter in direct mode takes neither: what is left is added to slots (direct.cpp), and only what finds none goes
 * to the journal.
 *
 * A like of a frozen post is refused here, whoever makes it.  Looking that up takes an index scan, so it is done for
 * counters alone that may have frozen posts, and once for a post and transaction.  A transaction that has looked may
 * still like a post that is frozen meanwhile: such a like was in flight, is recorded, and shows when the post is unfrozen.
 * So is one that logical replication brings: it was committed elsewhere, and an error would stop the subscription for good.
 *
 * Anybody can create a trigger with our function.  Which relations are listened to is decided in counter.cpp.
 */
#include "capture.hpp"

#include "debug.hpp"
#include "direct.hpp"
#include "queue.hpp"
#include "reconcile.hpp"
#include "repair.hpp"
#include "shmem.hpp"
#include "slots.hpp"

namespace likecount
{
namespace
{
/* Posts in one accumulator before it is spilled. */
constexpr int kSpillEntries = 131072;
/* Entries up to which a linear search beats a hash table. */
constexpr int kLinear = 16;

struct Entry
{
	CounterKey key;
	int64 delta;
	int64 oldest; /* smallest liked_at inserted */
	int level;
	int below;	  /* index of the entry with the same key on a lower level, -1: none */
	bool marked;  /* leaves a journal row whatever the net is */
	bool journal; /* cannot take the queue */
	bool checked; /* the post was not frozen when this transaction looked */
	bool apart;	  /* a part comes from a table that is neither the source nor a partition of it */
	bool direct;  /* at pre-commit: is to be added to a slot */
};

static_assert(kPlain<Entry>);

struct IndexEntry
{
	CounterKey key;
	int top; /* index of the entry on the highest level */
};

/* The accumulator; memory in TopTransactionContext. */
Entry *entries = nullptr;
int count = 0;
int capacity = 0;
HTAB *index_hash = nullptr;			 /* from kLinear entries on */
MemoryContext key_context = nullptr; /* of long keys, emptied with the accumulator */
/* The post last found not to be frozen, so that a like need not look again when its row is captured. */
CounterKey unfrozen = {};
bool unfrozen_valid = false;
bool appended = false; /* pre-commit is over: captured deltas go straight to the journal */

void
Reset()
{
	entries = nullptr;
	count = 0;
	capacity = 0;
	index_hash = nullptr;
	key_context = nullptr;
	unfrozen_valid = false;
	appended = false;
	DirectReset();
}

void
IndexSet(const CounterKey &key, int top)
{
	if (index_hash == nullptr)
		return;
	if (top < 0)
		(void) hash_search(index_hash, &key, HASH_REMOVE, nullptr);
	else
		static_cast<IndexEntry *>(hash_search(index_hash, &key, HASH_ENTER, nullptr))->top = top;
}

/* Finds the entry of a key on the highest level, -1: there is none. */
int
FindTop(const CounterKey &key)
{
	if (index_hash != nullptr)
	{
		auto *found = static_cast<IndexEntry *>(hash_search(index_hash, &key, HASH_FIND, nullptr));

		return found == nullptr ? -1 : found->top;
	}
	for (int i = count - 1; i >= 0; i--)
		if (entries[i].key.counter == key.counter && KeyEqual(entries[i].key.key, key.key))
			return i;
	return -1;
}

void
Grow()
{
	if (entries == nullptr)
	{
		capacity = kLinear;
		entries = static_cast<Entry *>(
			MemoryContextAlloc(TopTransactionContext, sizeof(Entry) * capacity));
	}
	else if (count == capacity)
	{
		capacity *= 2;
		entries = static_cast<Entry *>(repalloc_huge(entries, sizeof(Entry) * capacity));
	}
	if (count == kLinear && index_hash == nullptr)
	{
		index_hash = CounterKeyHash("likecount accumulator", 4 * kLinear, sizeof(IndexEntry),
									TopTransactionContext);
		for (int i = 0; i < count; i++)
			IndexSet(entries[i].key, i);
	}
}

int64
SumOrError(int64 a, int64 b)
{
	int64 sum;

	if (pg_add_s64_overflow(a, b, &sum))
		ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				errmsg("the changes of one post in this transaction do not fit a bigint"));
	return sum;
}

void
MergeInto(Entry *into, const Entry &from)
{
	into->delta = SumOrError(into->delta, from.delta);
	into->oldest = Min(into->oldest, from.oldest);
	into->marked |= from.marked;
	into->journal |= from.journal;
	into->checked |= from.checked;
	into->apart |= from.apart;
}

/* Index of the first entry of the given level or a higher one. */
int
LevelStart(int level)
{
	int start = count;

	while (start > 0 && entries[start - 1].level >= level)
		start--;
	return start;
}

/* Raises the error that merging a level into the one below could raise, while raising one is allowed. */
void
CheckMerge(int level)
{
	for (int i = LevelStart(level); i < count; i++)
		if (entries[i].below >= 0)
			(void) SumOrError(entries[i].delta, entries[entries[i].below].delta);
}

void
DropFrom(int start)
{
	while (count > start)
	{
		count--;
		IndexSet(entries[count].key, entries[count].below);
	}
	if (count == 0 && key_context != nullptr)
		MemoryContextReset(key_context);
}

/* Nothing is written for a net of 0, unless the entry must be seen by repair. */
bool
LeavesNothing(const Entry &entry)
{
	return entry.delta == 0 && !entry.marked;
}

/* Appends the innermost level's entries to the journal and forgets them. */
void
Spill(int level)
{
	int start = LevelStart(level);
	TimestampTz now = GetCurrentTimestamp();
	Appender journal;

	if (start == count)
		return;
	AppendOpen(&journal, Where::kJournal);
	for (int i = start; i < count; i++)
		if (!LeavesNothing(entries[i]))
			Append(&journal, entries[i].key.counter, entries[i].key.key, entries[i].delta, now);
	AppendClose(&journal);
	DropFrom(start);
	WakeWorkerAtCommit();
}

void
Add(const Entry &change)
{
	int level = GetCurrentTransactionNestLevel();

	if (appended)
	{
		Appender journal;

		AppendOpen(&journal, Where::kJournal);
		Append(&journal, change.key.counter, change.key.key, change.delta, GetCurrentTimestamp());
		AppendClose(&journal);
		WakeWorkerAtCommit();
		return;
	}

	int top = FindTop(change.key);

	if (top >= 0 && entries[top].level == level)
	{
		MergeInto(&entries[top], change);
		return;
	}
	if (count >= kSpillEntries)
	{
		Spill(level);
		top = FindTop(change.key);
	}
	Grow();

	Entry *entry = &entries[count];

	*entry = change;
	if (key_context == nullptr && change.key.key.len > Key::kInline)
		key_context =
			AllocSetContextCreate(TopTransactionContext, "likecount posts", ALLOCSET_SMALL_SIZES);
	entry->key.key = KeyCopy(key_context, change.key.key);
	entry->level = level;
	entry->below = top;
	entry->checked |= top >= 0 && entries[top].checked;
	IndexSet(entry->key, count);
	count++;
}

Entry
Change(const Captured &captured, const Key &post, int64 delta)
{
	Entry change = {};

	change.key = {captured.counter, post};
	change.delta = delta;
	change.oldest = kNothingPublished;
	change.marked = true;
	change.journal = true;
	change.apart = captured.apart;
	return change;
}

/* The smallest liked_at that may still take the queue. */
int64
Horizon(TimestampTz clock_high)
{
	return Max(GetCurrentTimestamp(), clock_high) - kWatermarkSlack;
}

/*
 * Decides which entries take the queue and publishes for them, as shmem.cpp demands: look once before publishing, so
 * that a loader of old likes does not pull the watermark back; publish; then read the clock, which decides.
 * Returns whether any entry is left for the queue.
 */
bool
ChooseQueue(DatabaseShared *database)
{
	int64 horizon = Horizon((TimestampTz) pg_atomic_read_u64(&database->clock_high));
	int64 smallest = kNothingPublished;
	bool any = false;

	for (int i = 0; i < count; i++)
	{
		if (!entries[i].journal && entries[i].oldest < horizon)
			entries[i].journal = true;
		if (!entries[i].journal && !LeavesNothing(entries[i]))
		{
			smallest = Min(smallest, entries[i].oldest);
			any = true;
		}
	}
	if (!any)
		return false;

	horizon = Horizon(PublishLikedAt(database, smallest));
	any = false;
	for (int i = 0; i < count; i++)
	{
		if (entries[i].oldest < horizon)
			entries[i].journal = true;
		any |= !entries[i].journal;
	}
	return any;
}

void
AppendWhere(Where where)
{
	bool journal = where == Where::kJournal;
	TimestampTz now = GetCurrentTimestamp();
	Appender appender = {};

	for (int i = 0; i < count; i++)
	{
		const Entry &entry = entries[i];

		if (entry.journal != journal || LeavesNothing(entry))
			continue;
		if (appender.relation == nullptr)
			AppendOpen(&appender, where);
		Append(&appender, entry.key.counter, entry.key.key, entry.delta, now);
	}
	if (appender.relation != nullptr)
	{
		AppendClose(&appender);
		WakeWorkerAtCommit();
	}
}

void
Drop(Entry *entry)
{
	entry->delta = 0;
	entry->marked = false;
	entry->direct = false;
}

/*
 * Decides by the counters' modes, as they are now: what was captured before set_mode() in this very transaction goes by
 * the new mode.  Returns whether any entry is to be added to a slot.
 */
bool
ChooseDirect(bool prepare)
{
	const Counter *counter = nullptr;
	int32 id = 0;
	bool any = false;

	for (int i = 0; i < count; i++)
	{
		Entry *entry = &entries[i];

		if (i == 0 || entry->key.counter != id)
		{
			id = entry->key.counter;
			counter = FindCounterById(id);
		}
		/* Detached, or dropped with its source, in this very transaction: nothing to count any more. */
		if (counter == nullptr)
		{
			Drop(entry);
			continue;
		}
		entry->journal |= counter->journal_reason != nullptr;
		/* Nothing of it is in the queue, so a crash loses nothing for which a mark would have to be left. */
		if (counter->direct)
			entry->marked = false;
		entry->direct = counter->direct && entry->delta != 0 && !entry->apart && !prepare &&
						!IsolationUsesXactSnapshot();
		any |= entry->direct;
	}
	return any;
}

/* Adds to slots what can be added; the rest goes to the journal. */
void
AddToSlots()
{
	for (int i = 0; i < count; i++)
	{
		int32 id = entries[i].key.counter;
		const Counter *counter = entries[i].direct ? FindCounterById(id) : nullptr;
		DirectWriter writer;

		if (counter == nullptr)
			continue;

		bool open = DirectOpen(&writer, counter);

		for (int j = i; j < count; j++)
		{
			CHECK_FOR_INTERRUPTS();
			if (!entries[j].direct || entries[j].key.counter != id)
				continue;
			entries[j].direct = false;
			if (open && DirectAdd(&writer, entries[j].key.key, entries[j].delta))
				Drop(&entries[j]);
		}
		if (open)
			DirectClose(&writer);
	}
}

/* Appends everything, before commit or prepare. */
void
AppendAll(bool prepare)
{
	const Members *m = count == 0 ? nullptr : FindMembers();

	if (count > 0 && m == nullptr)
		RefuseMisfit();
	if (m != nullptr)
	{
		if (ChooseDirect(prepare))
			AddToSlots();

		DatabaseShared *database = MyDatabase(true);
		bool queue = !prepare && database != nullptr &&
					 pg_atomic_read_u32(&database->ready) == m->watermark && ChooseQueue(database);

		LIKECOUNT_DEBUG_POINT("commit: place chosen");
		if (queue)
			AppendWhere(Where::kQueue);
		else
			for (int i = 0; i < count; i++)
				entries[i].journal = true;
		AppendWhere(Where::kJournal);
	}
	DropFrom(0);
	appended = true;
	/* Not where every commit of the server passes. */
	if (m != nullptr)
		LIKECOUNT_DEBUG_POINT("commit: appended");
}

void
XactCallback(XactEvent event, void *)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			AppendAll(false);
			break;
		case XACT_EVENT_PRE_PREPARE:
			AppendAll(true);
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			/* The transaction has left the proc array: whatever it put in the queue, the next snapshot sees. */
			UnpublishLikedAt();
			Reset();
			break;
		default:
			break;
	}
}

void
SubXactCallback(SubXactEvent event, SubTransactionId, SubTransactionId, void *)
{
	int level = GetCurrentTransactionNestLevel();

	/* An unfreeze may have been rolled back. */
	if (event == SUBXACT_EVENT_ABORT_SUB)
		unfrozen_valid = false;
	if (count == 0)
		return;
	switch (event)
	{
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			/*
			 * A loop of savepoints grows a level that captures nothing itself.  This is the last moment at which the
			 * rows can be written under the inner transaction's id.
			 */
			if (count >= kSpillEntries)
				Spill(level);
			CheckMerge(level);
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
		{
			int kept = LevelStart(level);

			for (int i = kept; i < count; i++)
			{
				Entry entry = entries[i];

				if (entry.below >= 0 && entries[entry.below].level == level - 1)
				{
					MergeInto(&entries[entry.below], entry);
					IndexSet(entry.key, entry.below);
					continue;
				}
				entry.level = level - 1;
				entries[kept] = entry;
				IndexSet(entry.key, kept);
				kept++;
			}
			count = kept;
			break;
		}
		case SUBXACT_EVENT_ABORT_SUB:
			DropFrom(LevelStart(level));
			break;
		default:
			break;
	}
}

/* only_where, ready to be evaluated for rows of one relation, for the time of one query. */
struct CaptureState
{
	ExprContext *econtext;
	ExprState *only_where;
};

bool
Matches(FunctionCallInfo fcinfo, const Captured *captured, TupleTableSlot *row)
{
	if (captured->only_where == nullptr)
		return true;

	auto *state = static_cast<CaptureState *>(fcinfo->flinfo->fn_extra);

	if (state == nullptr)
	{
		MemoryContext caller = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		state = palloc_object(CaptureState);
		state->econtext = CreateStandaloneExprContext();
		state->only_where = ExecInitQual(make_ands_implicit(expression_planner(
											 reinterpret_cast<Expr *>(captured->only_where))),
										 nullptr);
		fcinfo->flinfo->fn_extra = state;
		MemoryContextSwitchTo(caller);
	}
	state->econtext->ecxt_scantuple = row;
	ResetExprContext(state->econtext);
	return ExecQual(state->only_where, state->econtext);
}

bool
IsUnfrozen(const CounterKey &key)
{
	int top = FindTop(key);

	return (top >= 0 && entries[top].checked) ||
		   (unfrozen_valid && unfrozen.counter == key.counter && KeyEqual(unfrozen.key, key.key));
}

/* True for two rows of one post. */
bool
SamePost(const Captured &captured, TupleTableSlot *a, TupleTableSlot *b)
{
	bool a_null, b_null;
	Datum x = slot_getattr(a, captured.post_att, &a_null);
	Datum y = slot_getattr(b, captured.post_att, &b_null);

	return !a_null && !b_null && KeyFits(captured.post_type, x) && KeyFits(captured.post_type, y) &&
		   KeyEqual(KeyFromDatum(captured.post_type, x), KeyFromDatum(captured.post_type, y));
}

/* How a row that is captured changed. */
enum class How : uint8
{
	kInserted, /* by a plain INSERT */
	kCame,	   /* by an UPDATE, from another post or from not being counted */
	kStayed,   /* the new version of a row of the same post */
	kWent,
};

/* Captures one row. */
void
CaptureRow(const Captured &captured, TupleTableSlot *row, How how)
{
	int64 delta = how == How::kWent ? -1 : 1;
	bool isnull;
	Datum post = slot_getattr(row, captured.post_att, &isnull);

	if (isnull)
		return;
	/* A row that was there before attach and was never counted may still go. */
	if (delta < 0 && !KeyFits(captured.post_type, post))
		return;

	Entry change = Change(captured, KeyFromDatum(captured.post_type, post), delta);

	if (captured.may_be_frozen && (how == How::kInserted || how == How::kCame) &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA)
	{
		const Counter *counter = FindCounterById(captured.counter);

		if (counter != nullptr)
			DemandUnfrozen(*counter, post);
		change.checked = true;
	}
	if (how == How::kInserted)
	{
		change.marked = false;
		if (captured.queueable)
		{
			Datum liked_at = slot_getattr(row, captured.time_att, &isnull);

			if (!isnull)
			{
				change.journal = false;
				change.oldest = DatumGetTimestampTz(liked_at);
			}
		}
	}
	Add(change);
}

/* The same for a trigger's row, if it counts. */
void
CaptureIfCounted(FunctionCallInfo fcinfo, const Captured &captured, TupleTableSlot *row, How how)
{
	if (Matches(fcinfo, &captured, row))
		CaptureRow(captured, row, how);
}

/* The same for the two versions of a row. */
void
CaptureUpdate(FunctionCallInfo fcinfo, const Captured &captured, TupleTableSlot *before,
			  TupleTableSlot *after)
{
	bool counted = Matches(fcinfo, &captured, before);

	if (counted)
		CaptureRow(captured, before, How::kWent);
	CaptureIfCounted(fcinfo, captured, after,
					 counted && SamePost(captured, before, after) ? How::kStayed : How::kCame);
}

Datum
Capture(FunctionCallInfo fcinfo)
{
	auto *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		!(TRIGGER_FIRED_FOR_ROW(trigger->tg_event) ||
		  TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event)) ||
		trigger->tg_trigger->tgnargs < 1)
		ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("likecount._capture() is not a trigger for this event"),
				errhint("likecount.attach() creates the triggers that a counter needs."));

	const char *verb = trigger->tg_trigger->tgargs[0];
	const Captured *captured = FindCaptured(trigger->tg_relation, verb);

	if (captured == nullptr)
		return PointerGetDatum(nullptr);

	/* A copy: what the cache holds may change under user code that an expression or SPI could reach. */
	Captured c = *captured;

	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
	{
		if (RelationGetRelid(trigger->tg_relation) == c.source)
			ZeroCounter(verb);
		else
			AppendRequest(c.counter, "a part of the source was truncated");
	}
	else if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		CaptureIfCounted(fcinfo, c, trigger->tg_trigslot, How::kInserted);
	else if (TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		CaptureIfCounted(fcinfo, c, trigger->tg_trigslot, How::kWent);
	else
		CaptureUpdate(fcinfo, c, trigger->tg_trigslot, trigger->tg_newslot);
	return PointerGetDatum(nullptr);
}
} // namespace

void
CaptureInit()
{
	RegisterXactCallback(XactCallback, nullptr);
	RegisterSubXactCallback(SubXactCallback, nullptr);
}

int64
OwnDelta(int32 counter, const Key &post)
{
	int64 sum = 0;

	for (int i = FindTop({counter, post}); i >= 0; i = entries[i].below)
		sum += entries[i].delta;
	return sum;
}

void
CaptureInsert(const Captured &captured, TupleTableSlot *row)
{
	CaptureRow(captured, row, How::kInserted);
}

void
CaptureDelete(const Captured &captured, TupleTableSlot *row)
{
	CaptureRow(captured, row, How::kWent);
}

void
DemandUnfrozen(const Counter &counter, Datum post)
{
	if (!counter.may_be_frozen)
		return;

	CounterKey key = {counter.id, KeyFromDatum(counter.post_type, post)};

	if (IsUnfrozen(key))
		return;
	if (IsFrozen(counter, post))
		ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				errmsg("post %s is frozen",
					   KeyToText(counter.post_type, key.key.Data(), key.key.len)),
				errdetail("Counter \"%s\" keeps its total as it is.", NameStr(counter.verb)),
				errhint("likecount.unfreeze() lets it be liked again."));
	if (key.key.len <= Key::kInline)
	{
		unfrozen = key;
		unfrozen_valid = true;
	}
}

void
ForgetUnfrozen(int32 counter, const Key &post)
{
	unfrozen_valid = false;
	for (int i = FindTop({counter, post}); i >= 0; i = entries[i].below)
		entries[i].checked = false;
}

void
AddDelta(int32 counter, const Key &post, int64 delta)
{
	Captured captured = {};

	captured.counter = counter;
	Add(Change(captured, post, delta));
}

void
VisitOwn(bool current_level_only, void (*visit)(const OwnEntry &entry, void *arg), void *arg)
{
	int start = current_level_only ? LevelStart(GetCurrentTransactionNestLevel()) : 0;

	for (int i = start; i < count; i++)
		visit({entries[i].key.counter, entries[i].key.key, entries[i].delta}, arg);
}

void
ForgetOwnOfLevel(int32 counter)
{
	int start = LevelStart(GetCurrentTransactionNestLevel());

	for (int i = start; i < count; i++)
		if (entries[i].key.counter == counter)
		{
			entries[i].delta = 0;
			entries[i].marked = false;
		}
}
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_capture);
PGDLLEXPORT Datum likecount_capture(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_discard);
PGDLLEXPORT Datum likecount_discard(PG_FUNCTION_ARGS);

Datum
likecount_capture(PG_FUNCTION_ARGS)
{
	return likecount::Capture(fcinfo);
}

/* Keeps rows that logical replication applies out of this database's run-time tables (see sql/likecount.sql). */
Datum
likecount_discard(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("likecount._discard() is a trigger"));
	return PointerGetDatum(nullptr);
}
}
