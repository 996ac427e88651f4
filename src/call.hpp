/*
 * call.hpp: what the functions of a counter have in common: the counter and the arguments of a call (see call.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* The generated functions. */
enum class Generated : uint8
{
	kLike,
	kUnlike,
	kLiked,
	kLikeMany,
	kLikeCount,
	kLikeCountNow,
	kLikeCounts,
	kLikedPosts,
};

/* What is known of the arguments at one place in a plan. */
struct CallSite;

/* One call: the function and its counter, which survives whatever the call does to the caches. */
struct Call
{
	FunctionCallInfo fcinfo;
	const CallSite *site;
	Generated function;
	char verb[NAMEDATALEN];
	Counter counter;
};

static_assert(kPlain<Call>);

/* Reads the verb and looks the counter up.  Functions that write fail first where nothing can be written. */
extern void BeginCall(Call *call, FunctionCallInfo fcinfo, Generated function);
/* The function that was called, for messages. */
extern const char *NameOf(const Call &call);

/* Refuses what a counter of rows without a user, or of rows under a condition, has no function for. */
extern void NeedUser(const Call &call, bool writes);
/* Demands that an argument, or an array's elements, have the type that goes with the column. */
extern void CheckType(const Call &call, int argument, Oid column_type, bool array);
extern void CheckNotNull(const Call &call, int argument, const char *name);
/* All of that for the two keys of like, unlike and liked. */
extern void CheckKeys(const Call &call, bool writes);

/* KeyNarrow for a value that is to be stored. */
extern Datum NarrowOrFail(const Call &call, Datum given, const char *name, Oid column_type);
/* An array of one dimension without nulls. */
extern ArrayType *ArrayArgument(const Call &call, int argument, const char *name);
extern int ArrayLength(const ArrayType *array);
/* The elements of an array in the column's type; fails as for one key. */
extern Datum *ReadKeys(const Call &call, ArrayType *array, const char *name, Oid column_type);

/* A post that a list asks for. */
struct Wanted
{
	Key key;
	Datum value;  /* in the column's type */
	int position; /* in the list */
};

static_assert(kPlain<Wanted>);

/* The posts of an array argument: all of them as given, and in key order those that a column can hold. */
struct WantedList
{
	int count;
	Datum *given;
	Wanted *sorted;
	int sorted_count;
};

static_assert(kPlain<WantedList>);

extern WantedList ReadWanted(const Call &call, int argument);
/* The first of the equal posts in key order; -1: the list does not ask for this one. */
extern int FirstWanted(const WantedList &list, const Key &key);
} // namespace likecount
