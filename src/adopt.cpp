/*
 * adopt.cpp: counters that arrive without being attached.
 *
 * A dump carries a counter's ordinary objects: capture triggers, rows view, slots, totals, functions.  It carries
 * neither the state row nor the AUTO dependencies, both of this database.  So wherever a dump comes from (whole, of
 * one table, schema only, by pg_upgrade) the same thing happens: capture triggers that name a verb, with a rows view
 * over their table, and slots with their primary key (the last things that a restore makes) but without a state row
 * are registered again and all posts are recounted.  What a partial dump lacks, or an older version generated, is
 * made anew; what merely lost its dependencies is linked again.
 *
 * Until a state row exists the triggers count nothing.  A writer that began before it was committed may not have
 * seen it, and its rows are in no delta.  So the counter is registered as `adopting`; after that has committed, those
 * who hold a lock by which they could be such a writer are noted, once, and when they have ended the counter becomes
 * `backfilling`: its recount, in a snapshot taken later, sees their rows.  CREATE INDEX CONCURRENTLY waits in the same
 * way.  Nobody queues behind it, as no lock on the source is requested.
 *
 * Everything here runs in the worker's turn or in flush(), where nothing may wait: locks on sources are tried, and
 * a counter whose source is locked is looked at again later.  The adoption lock keeps this apart from set-up and from
 * another adopter: set-up holds it until its registration is visible, triggers and state row together; here it is
 * tried, then the catalogs are read, then the state rows.  SettleAdopted takes it too, since it is released only after
 * the registration's invalidation messages are out: whoever locks the source after that sees the state row.
 *
 * One counter that can't be adopted must not keep the others waiting, nor the flush: each is adopted in a
 * subtransaction, and after an error it is left alone for a while.
 */
#include "attach.hpp"

#include "generate.hpp"
#include "registration.hpp"
#include "repair.hpp"
#include "shmem.hpp"
#include "slots.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
/* How long a session watches older writers. */
constexpr int64 kPatience = USECS_PER_SEC;
constexpr int64 kRetryAfter = INT64CONST(60) * USECS_PER_SEC;

/* A counter that has to be registered, completed or linked. */
struct Candidate
{
	CaptureTriggers triggers;
	Oid rows_view;
	StateRow *row; /* nullptr: not registered */
	bool replace;  /* its objects are of another version */
};

static_assert(kPlain<Candidate>);

/* A rows view whose adoption failed, and when to try again.  A list of these lives as long as the process. */
struct Failed
{
	Oid rows_view;
	TimestampTz retry_at;
};

/* An adopted counter, and the transactions to wait for. */
struct Settling
{
	int32 counter;
	Oid rows_view;
	int count;
	VirtualTransactionId *older;
};

List *failed = NIL;
List *settling = NIL;
/* False: something may have changed since the last look found nothing to do. */
bool nothing_to_do = false;

void
RelcacheCallback(Datum, Oid)
{
	nothing_to_do = false;
}

/* Learns of triggers, views and state rows that come and go. */
void
WatchCatalogs()
{
	static bool watching = false;

	if (!watching)
		CacheRegisterRelcacheCallback(RelcacheCallback, (Datum) 0);
	watching = true;
}

bool
FailedLately(Oid rows_view)
{
	ListCell *cell;

	foreach (cell, failed)
	{
		auto *entry = static_cast<Failed *>(lfirst(cell));

		if (entry->rows_view == rows_view)
			return GetCurrentTimestamp() < entry->retry_at;
	}
	return false;
}

void
NoteFailure(Oid rows_view)
{
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	Failed *entry = nullptr;
	ListCell *cell;

	foreach (cell, failed)
		if (static_cast<Failed *>(lfirst(cell))->rows_view == rows_view)
			entry = static_cast<Failed *>(lfirst(cell));
	if (entry == nullptr)
	{
		entry = palloc_object(Failed);
		failed = lappend(failed, entry);
	}
	entry->rows_view = rows_view;
	entry->retry_at = GetCurrentTimestamp() + kRetryAfter;
	MemoryContextSwitchTo(caller);
}

/* True when a table has a valid primary key: a restore makes it after the data. */
bool
HasPrimaryKey(Oid table)
{
	ScanKeyData key;
	HeapTuple tuple;
	bool found = false;
	Relation rel = table_open(IndexRelationId, AccessShareLock);

	ScanKeyInit(&key, Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(table));
	SysScanDesc scan = systable_beginscan(rel, IndexIndrelidIndexId, true, nullptr, 1, &key);

	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		auto *form = reinterpret_cast<Form_pg_index>(GETSTRUCT(tuple));

		found = form->indisprimary && form->indisvalid;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/*
 * Reads what the objects of a candidate are made from out of its rows view.  The source is locked.  False when the
 * view is not of our making.
 */
bool
ReadCandidate(const Candidate &candidate, Definition *definition)
{
	Counter counter = {};
	const char *in_the_way = nullptr;

	definition->verb = counter.verb = candidate.triggers.verb;
	definition->past = candidate.triggers.past;
	/* False without slots, which a partial dump may lack; what else it demands is checked here. */
	(void) ReadDefinition(candidate.rows_view, &counter);
	if (counter.source != candidate.triggers.relation || counter.post_att == InvalidAttrNumber ||
		KeyKindOf(counter.post_type) == KeyKind::kNone)
		return false;

	Relation source = table_open(counter.source, NoLock);

	definition->source = counter.source;
	definition->owner = counter.owner;
	definition->partitioned = counter.partitioned;
	definition->post = get_attname(counter.source, counter.post_att, false);
	definition->post_type = counter.post_type;
	definition->post_collation = counter.post_collation;
	if (counter.user_att != InvalidAttrNumber)
	{
		definition->user = get_attname(counter.source, counter.user_att, false);
		definition->user_type = counter.user_type;
		definition->writable = IsWritable(source, counter.post_att, counter.user_att, &in_the_way);
	}
	if (counter.time_att != InvalidAttrNumber)
		definition->time = get_attname(counter.source, counter.time_att, false);
	if (counter.has_where)
		definition->only_where = ReadOnlyWhere(&counter);
	table_close(source, NoLock);
	return true;
}

/* Looks at one set of triggers; true when there is something to do.  *busy: it could not be told. */
bool
IsCandidate(const CaptureTriggers &triggers, List *rows, const char *version, Candidate *candidate,
			bool *busy)
{
	const char *verb = NameStr(triggers.verb);
	Oid schema = GetMembers()->schema;
	Definition definition = {};

	if (!triggers.IsComplete() || *verb == '\0' || *NameStr(triggers.past) == '\0')
		return false;

	Oid view = get_relname_relid(ObjectName(Part::kRows, verb, NameStr(triggers.past)), schema);
	Oid slots = get_relname_relid(ObjectName(Part::kSlots, verb, NameStr(triggers.past)), schema);

	if (!OidIsValid(view) || SourceOfRowsView(view) != triggers.relation)
		return false;
	candidate->triggers = triggers;
	candidate->rows_view = view;
	candidate->row = FindStateRow(rows, view);
	candidate->replace = candidate->row != nullptr && strcmp(candidate->row->version, version) != 0;
	if (FailedLately(view))
	{
		*busy = true;
		return false;
	}
	if (OidIsValid(slots) && !HasPrimaryKey(slots))
		return false;
	if (candidate->row != nullptr && !candidate->replace &&
		!Link(view, triggers.relation, verb, NameStr(triggers.past), &triggers, false) &&
		OidIsValid(slots))
	{
		/* Only its functions may be missing, which takes a look at the source. */
		if (!ConditionalLockRelationOid(triggers.relation, AccessShareLock))
		{
			*busy = true;
			return false;
		}

		/* Only a look: who flushes in an open transaction must not keep a lock on every source. */
		bool missing = ReadCandidate(*candidate, &definition) && ObjectsMissing(definition);

		UnlockRelationOid(triggers.relation, AccessShareLock);
		return missing;
	}
	return true;
}

/* All there is to do, as a List of Candidate *.  *busy: some could not be told. */
List *
FindCandidates(bool *busy)
{
	List *result = NIL;
	List *sets = FindCaptureTriggers(InvalidOid);
	ListCell *cell;

	if (sets == NIL)
		return NIL;

	List *rows = ReadStateRows();
	const char *version = InstalledVersion();

	foreach (cell, sets)
	{
		Candidate candidate = {};

		if (IsCandidate(*static_cast<CaptureTriggers *>(lfirst(cell)), rows, version, &candidate,
						busy))
		{
			auto *kept = palloc_object(Candidate);

			*kept = candidate;
			result = lappend(result, kept);
		}
	}
	return result;
}

/* Sets a counter to be recounted, as the extension's owner. */
void
StartBackfill(int32 counter, const char *reason)
{
	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	SPI_connect();
	SetState(counter, State::kBackfilling, reason);
	SPI_finish();
	SwitchBack(saved);
}

/* Registers, completes or links one counter.  False when its source is locked, or not as it looked. */
bool
Adopt(const Candidate &candidate)
{
	const CaptureTriggers &triggers = candidate.triggers;
	const char *verb = NameStr(triggers.verb);
	const char *past = NameStr(triggers.past);
	Definition definition = {};

	if (!ConditionalLockRelationOid(triggers.relation, AccessShareLock) ||
		!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(triggers.relation)) ||
		!ReadCandidate(candidate, &definition))
		return false;

	bool slots_missing =
		!OidIsValid(get_relname_relid(ObjectName(Part::kSlots, verb, past), GetMembers()->schema));

	if (candidate.row == nullptr && !TakeOwnership(definition))
		return false;
	MakeObjects(definition, candidate.replace);
	(void) Link(candidate.rows_view, triggers.relation, verb, past, &triggers, true);
	if (candidate.row == nullptr)
	{
		Mode mode = Mode::kQueued;

		(void) ModeFromText(NameStr(triggers.mode), &mode);
		(void) InsertStateRow(candidate.rows_view, verb, past, mode, State::kAdopting, "restored");
		ereport(LOG, errmsg("likecount: counter \"%s\" of table %s is adopted", verb,
							QualifiedName(triggers.relation)));
	}
	else
	{
		if (candidate.replace)
			StampVersion(candidate.row->id);
		if (slots_missing)
			StartBackfill(candidate.row->id, "slots were missing");
	}
	return true;
}

/* Adopt in a subtransaction: an error stays with the counter. */
bool
AdoptGuarded(const Candidate &candidate)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool done = false;

	BeginInternalSubTransaction(nullptr);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		done = Adopt(candidate);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);

		ErrorData *error = CopyErrorData();

		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		NoteFailure(candidate.rows_view);
		ereport(WARNING, errcode(error->sqlerrcode),
				errmsg("likecount: counter \"%s\" could not be adopted: %s",
					   NameStr(candidate.triggers.verb), error->message));
		done = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return done;
}

/* Notes who holds a lock that a writer of the source, or of a partition of it, would hold. */
Settling *
NoteWriters(const StateRow &row)
{
	Oid source = SourceOfRowsView(row.rows_view);
	List *relations = OidIsValid(source) ? find_all_inheritors(source, NoLock, nullptr) : NIL;
	ListCell *cell;
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);
	auto *entry = palloc0_object(Settling);

	entry->counter = row.id;
	entry->rows_view = row.rows_view;
	foreach (cell, relations)
	{
		LOCKTAG tag;
		int count;

		SET_LOCKTAG_RELATION(tag, MyDatabaseId, lfirst_oid(cell));

		VirtualTransactionId *holders = GetLockConflicts(&tag, ShareLock, &count);
		Size size = sizeof(VirtualTransactionId) * (entry->count + count);

		if (count == 0)
		{
			pfree(holders);
			continue;
		}
		entry->older = static_cast<VirtualTransactionId *>(
			entry->older == nullptr ? palloc(size) : repalloc(entry->older, size));
		memcpy(entry->older + entry->count, holders, sizeof(VirtualTransactionId) * count);
		entry->count += count;
		pfree(holders);
	}
	settling = lappend(settling, entry);
	MemoryContextSwitchTo(caller);
	return entry;
}

Settling *
FindSettling(const StateRow &row)
{
	ListCell *cell;

	foreach (cell, settling)
	{
		auto *entry = static_cast<Settling *>(lfirst(cell));

		if (entry->counter == row.id && entry->rows_view == row.rows_view)
			return entry;
	}
	return nullptr;
}

void
ForgetSettling(Settling *entry)
{
	settling = list_delete_ptr(settling, entry);
	if (entry->older != nullptr)
		pfree(entry->older);
	pfree(entry);
}

/* Drops what is remembered about counters that are not being adopted any more. */
void
PruneSettling(List *rows)
{
	List *stale = NIL;
	ListCell *cell;

	foreach (cell, settling)
	{
		auto *entry = static_cast<Settling *>(lfirst(cell));
		StateRow *row = FindStateRow(rows, entry->rows_view);

		if (row == nullptr || row->id != entry->counter || !row->adopting)
			stale = lappend(stale, entry);
	}
	foreach (cell, stale)
		ForgetSettling(static_cast<Settling *>(lfirst(cell)));
}

/*
 * True when all of the older writers have ended; those that have are dropped.  The worker looks and comes back.  A
 * session may not come back, so it keeps looking for a moment, and gives up rather than keep the flush lock.
 */
bool
WritersEnded(Settling *entry)
{
	TimestampTz until = GetCurrentTimestamp() + (IsWorker() ? 0 : kPatience);

	for (;;)
	{
		int left = 0;

		for (int i = 0; i < entry->count; i++)
			if (!VirtualXactLock(entry->older[i], false))
				entry->older[left++] = entry->older[i];
		entry->count = left;
		if (left == 0 || GetCurrentTimestamp() >= until)
			return left == 0;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}
} // namespace

bool
AdoptCounters()
{
	bool busy = false;
	bool wrote = false;
	ListCell *cell;

	if (FindMembers() == nullptr || !LockCounter(kAdoption, false))
		return false;

	foreach (cell, FindCandidates(&busy))
		wrote |= AdoptGuarded(*static_cast<Candidate *>(lfirst(cell)));
	wrote |= ForgetGoneCounters(true) > 0;
	return wrote;
}

bool
AdoptionWanted()
{
	bool busy = false;

	if (FindMembers() == nullptr)
		return false;
	WatchCatalogs();
	if (nothing_to_do)
		return false;

	/* First, as reading the catalogs may tell of a change. */
	nothing_to_do = true;
	if (FindCandidates(&busy) != NIL || ForgetGoneCounters(false) > 0)
	{
		nothing_to_do = false;
		return true;
	}
	if (busy)
		nothing_to_do = false;
	return false;
}

bool
SettleAdopted()
{
	bool moved = false;
	ListCell *cell;

	if (FindMembers() == nullptr || !LockCounter(kAdoption, false))
		return false;

	List *rows = ReadStateRows();

	PruneSettling(rows);
	foreach (cell, rows)
	{
		auto *row = static_cast<StateRow *>(lfirst(cell));

		if (!row->adopting || !row->committed)
			continue;

		Settling *entry = FindSettling(*row);

		if (entry == nullptr)
			entry = NoteWriters(*row);
		if (!WritersEnded(entry))
			continue;
		ForgetSettling(entry);
		StartBackfill(row->id, "restored");
		moved = true;
	}
	return moved;
}

int
UnadoptedCounters()
{
	int count = 0;
	List *sets = FindMembers() == nullptr ? NIL : FindCaptureTriggers(InvalidOid);
	List *rows = sets == NIL ? NIL : ReadStateRows();
	ListCell *cell;

	foreach (cell, sets)
	{
		auto *set = static_cast<CaptureTriggers *>(lfirst(cell));
		bool registered = false;
		ListCell *other;

		foreach (other, rows)
			registered |= strcmp(NameStr(static_cast<StateRow *>(lfirst(other))->verb),
								 NameStr(set->verb)) == 0;
		count += registered ? 0 : 1;
	}
	return count;
}
} // namespace likecount
