/*
 * generate.hpp: making a counter's objects and tying them together (see generate.cpp).
 */
#pragma once

#include "counter.hpp"
#include "names.hpp"

namespace likecount
{
/* What the objects of a counter are made from: checked by attach, or read from its rows view by adoption. */
struct Definition
{
	NameData verb;
	NameData past;
	Oid source;
	Oid owner; /* of the source */
	bool partitioned;
	const char *post; /* column names; nullptr: no such column */
	const char *user;
	const char *time;
	Oid post_type;
	Oid user_type;
	Oid post_collation;
	Node *only_where; /* varno 1; nullptr: every row counts */
	bool writable;	  /* a row can be made from post and user alone */
	Mode mode;
};

static_assert(kPlain<Definition>);

/* The capture triggers of one verb on one relation. */
struct CaptureTriggers
{
	static constexpr int kEvents = 4; /* insert, delete, update, truncate */

	Oid relation;
	NameData verb;
	NameData past;
	NameData mode;
	Oid triggers[kEvents]; /* InvalidOid: missing */
	List *names;		   /* of all, char * */

	bool IsComplete() const
	{
		for (Oid trigger : triggers)
			if (!OidIsValid(trigger))
				return false;
		return true;
	}
};

static_assert(kPlain<CaptureTriggers>);

/* True when a row of the source can be made from the two columns alone; else *why names a column in the way. */
extern bool IsWritable(Relation source, AttrNumber post, AttrNumber user, const char **why);

/* Creates the view <verb>_rows, as the extension's owner; returns it. */
extern Oid MakeRowsView(const Definition &definition);
/*
 * Creates slots, totals view and functions, those that are missing, as the extension's owner.  replace: functions of
 * an older version too.
 */
extern void MakeObjects(const Definition &definition, bool replace);
/* True when MakeObjects would create something. */
extern bool ObjectsMissing(const Definition &definition);
/*
 * Makes the extension's owner the owner of a counter's objects, as attach does; after a restore it may be another.
 * It leaves privileges alone: a restore sets them last, when adoption may be at work already, and the two would
 * meet in one catalog row ("tuple concurrently updated", for the restore).
 */
extern bool TakeOwnership(const Definition &definition);

/* Creates the capture triggers, as the current user; leftovers of a partial restore are replaced. */
extern void MakeTriggers(const Definition &definition, bool count_replicated);

/* Notes a counter's mode in the arguments of its capture triggers, which a dump carries. */
extern void SetTriggerMode(List *relations, const char *verb, Mode mode);

/* All capture triggers of the database, or of one relation, as a List of CaptureTriggers *. */
extern List *FindCaptureTriggers(Oid relation);

/*
 * Records the dependencies by which DROP TABLE takes the counter along, those that are missing.  True when one was;
 * with write false nothing is recorded.
 */
extern bool Link(Oid rows_view, Oid source, const char *verb, const char *past,
				 const CaptureTriggers *triggers, bool write);
} // namespace likecount
