/*
 * reconcile.hpp: drift, measured in one snapshot and appended to the journal (see reconcile.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* A post whose drift was not 0. */
struct Finding
{
	Key post;
	int64 was; /* total and pending: what would have been displayed */
	int64 now; /* the source's rows */
};

/* A recount: which posts, and what was found. */
struct Recount
{
	const Counter *counter;
	bool append; /* what is wrong is corrected; else it is only told */
	bool wait;	 /* for locks; else nothing is done when one cannot be had at once */

	/* In: the posts, an array of the column's type; nullptr: a stretch of the walk over all posts, in key order. */
	ArrayType *posts;
	const char *after; /* the last post that the walk has done, as text; nullptr: start */
	int64 limit;	   /* at most about this many posts */

	/* Out. */
	const char *last; /* the last post done, as text; nullptr: the walk is complete */
	int64 checked;
	int64 wrong;
	int64 drift;	/* sum of the corrections */
	List *findings; /* of Finding, in the caller's context */
};

/* Recounts in the caller's transaction.  False, with nothing done: a lock was not to be had. */
extern bool Reconcile(Recount *recount);

/* The locks of a recount, in order, without the segments'; kept to the end of the transaction. */
extern bool LockForRecount(const Counter *counter, bool append, bool wait);

/* An error where a recount cannot be right, and where none is made; what: the verb and object of "cannot ...". */
extern void CheckRecount(const Counter *counter, const char *what, bool counts);
/* With its locks held: a counter may have gone, or become another one, while they were waited for. */
extern void CheckStillThere(const Counter *counter);
/* Counts the rows of one post under a registered snapshot, as the source's owner. */
extern int64 CountRows(const Counter *counter, Datum post, Snapshot snapshot);

/* The counter that a user names, after the check that the source is theirs; and the post. */
extern const Counter *CounterArgument(FunctionCallInfo fcinfo, int source_arg, int verb_arg);
extern Datum PostArgument(FunctionCallInfo fcinfo, int post_arg, const Counter *counter);

/* The source in SQL text, for alias s: as it stands in FROM, and a column. */
extern char *SourceFrom(const Counter *counter);
extern char *SourceColumn(const Counter *counter, AttrNumber att);
/* The condition of the counter; nullptr: none. */
extern char *ConditionText(const Counter *counter);
/* Posts as an array of the column's type. */
extern ArrayType *PostArray(const Counter *counter, Datum *posts, int count);
/* A post from text, as the type's input reads it. */
extern Datum TextToPost(const Counter *counter, const char *text);

/* Estimate of the number of posts, for progress; 0: unknown. */
extern int64 EstimatePosts(const Counter *counter);

/*
 * True when this database's subscription brings the counter's slots: they include what the publisher counted, so
 * the rows here say nothing about drift.
 */
extern bool SlotsAreReplicated(const Counter *counter);

/* Zeroes a counter whose source is being truncated; called from the capture trigger. */
extern void ZeroCounter(const char *verb);
} // namespace likecount
