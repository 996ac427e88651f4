/*
 * counter.hpp: what a counter is: its definition, read from the catalogs, and its state (see counter.cpp).
 */
#pragma once

#include "key.hpp"

namespace likecount
{
/* OIDs of the extension's members in this database, cached until one of them changes. */
struct Members
{
	static constexpr int kSegments = 3;

	Oid schema;
	Oid extension;
	Oid owner; /* of the extension: it owns slots, views, functions */
	Oid counter, mode, request, sentinel, watermark, repair_todo, rejected;
	Oid queue[kSegments];
	Oid journal[kSegments];
};

/* The members, or nullptr when the extension is not installed in this database, or in a version that this library cannot serve. */
extern const Members *FindMembers();
/* The same, but an error that says which. */
extern const Members *GetMembers();
/* An error when the extension is installed, but in a version that this library cannot serve. */
extern void RefuseMisfit();

enum class State : uint8
{
	kAdopting,
	kBackfilling,
	kRepairing,
	kActive,
};

/* A state as _counter has it. */
extern const char *StateName(State state);

/* How deltas reach the totals. */
enum class Mode : uint8
{
	kQueued, /* the worker moves them */
	kDirect, /* the transaction itself adds them to slots, at its commit */
};

/* A mode as the arguments of set-up and of triggers have it. */
extern const char *ModeName(Mode mode);
/* False when a text is no mode. */
extern bool ModeFromText(const char *text, Mode *mode);

/* The columns of _mode. */
enum ModeColumn : AttrNumber
{
	kModeId = 1,
	kModeCounter,
	kModeMode,
	kModeColumns = kModeMode,
};

/* The columns of _counter. */
enum CounterColumn : AttrNumber
{
	kCounterId = 1,
	kCounterRowsView,
	kCounterVerb,
	kCounterPast,
	kCounterDirectSince,
	kCounterState,
	kCounterReason,
	kCounterHomeSystem,
	kCounterHomeDatabase,
	kCounterWalkAfter,
	kCounterWalkDone,
	kCounterWalkTotal,
	kCounterWalkDrift,
	kCounterDriftPosts,
	kCounterDriftFound,
	kCounterLastReconcile,
	kCounterLastError,
	kCounterLastErrorAt,
	kCounterVersion,
	kCounterColumns = kCounterVersion,
};

struct InsertPlan;
struct RemovePlan;

/* What insert.cpp has found out about a source: kept with the cached counter, and gone with it. */
struct SourcePlans
{
	MemoryContext context;
	InsertPlan *insert; /* nullptr: nobody has asked yet */
	RemovePlan *remove;
};

/* One registered counter, flat, so that it can be copied and kept across catalog access. */
struct Counter
{
	int32 id;
	NameData verb;
	NameData past;
	State state;
	bool uncommitted; /* its state row was written by this transaction */

	Mode mode;
	int64 switched;	 /* which row of _mode says so; 0: none does, and it is queued */
	bool settled;	 /* direct: nothing of it can be in the queue any more */
	bool superseded; /* _mode has older rows of it, too */
	bool direct;	 /* a transaction may add to its slots now */

	Oid rows_view; /* <verb>_rows, the definition */
	Oid slots;	   /* <verb>_slots */
	Oid frozen;	   /* its index <verb>_slots_frozen; InvalidOid: it is missing */
	Oid open;	   /* its index <verb>_slots_open; the same */
	Oid totals;	   /* <verb>_totals */
	Oid source;
	Oid owner; /* of the source */
	bool partitioned;
	bool has_where;		/* only_where was given */
	bool replicated;	/* a subscription brings slots */
	bool may_be_frozen; /* a post of it may be frozen; false: surely none is */

	AttrNumber post_att; /* in the source; 0: no such column */
	AttrNumber user_att;
	AttrNumber time_att;
	Oid post_type;
	Oid user_type;
	Oid time_type;
	Oid post_collation;

	/* Why deltas of plain inserts cannot take the unlogged queue; nullptr: they can. */
	const char *journal_reason;
	SourcePlans *plans; /* of a cached counter */
};

static_assert(kPlain<Counter>);

/* A relation whose capture triggers name a counter: the source, a partition of it, or a table of its owner. */
struct Captured
{
	int32 counter;
	Oid source;
	AttrNumber post_att; /* in the firing relation */
	AttrNumber time_att; /* 0: none */
	Oid post_type;
	Oid time_type;
	bool queueable; /* a plain insert's delta may take the queue */
	bool
		apart; /* neither the source nor a partition of it: who locks the source does not stop its writers */
	bool may_be_frozen;
	Node *only_where; /* condition over the firing relation (varno 1), or nullptr */
};

/*
 * Both look-ups answer from a cache that is dropped when a state row, the source or the rows view changes.  nullptr:
 * there is none.  What they return stays readable to the end of the transaction, and may be stale by then.
 */
extern const Counter *FindCounter(const char *verb);
extern const Captured *FindCaptured(Relation relation, const char *verb);
/* The same by id; for the holder of deltas.  nullptr: it is not, or no longer, registered. */
extern const Counter *FindCounterById(int32 id);
/* FindCounter, or an error that says what is wrong. */
extern const Counter *GetCounter(const char *verb);
/* Reads every valid state row, in the current memory context, as a List of Counter *. */
extern List *AllCounters();
/* The counters of a source; an error when it has none, or several and no verb is given. */
extern const Counter *CounterOfSource(Oid source, const char *verb, bool missing_ok);

/* Reads the definition behind a <verb>_rows view into a counter (not id, state, past); false when it is none of ours. */
extern bool ReadDefinition(Oid rows_view, Counter *counter);
/* only_where as the rows view has it: a condition over the source's columns with varno 1; nullptr: none. */
extern Node *ReadOnlyWhere(const Counter *counter);

/*
 * True when a valid index over all rows finds rows by a column: a btree that leads with it or, unless in_order, a BRIN
 * index.  Without a lock on the table or its indexes.
 */
extern bool HasIndexOn(Oid relation, AttrNumber column, bool in_order);

/* True when an index is unique on exactly these two columns. */
extern bool IsUniqueOn(Relation index, AttrNumber post, AttrNumber user);
/* True when an index tells two rows apart exactly as the types' own equality does. */
extern bool HasOrdinaryEquality(Relation index, TupleDesc desc);

/* False when an index surely has no entry: none was ever made.  True when that can't be told. */
extern bool MayHaveEntries(Oid index);

/* Makes every backend read the state rows anew, once this transaction has committed. */
extern void InvalidateCounters();

/* Registers the cache callbacks; called once from _PG_init. */
extern void CounterInit();

/* Builds "schema"."name" of a relation, quoted. */
extern char *QualifiedName(Oid relation);
} // namespace likecount
