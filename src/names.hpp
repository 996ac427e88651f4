/*
 * names.hpp: verbs, and the names that they make in schema likecount (see names.cpp).
 */
#pragma once

#include "pg.hpp"

namespace likecount
{
/* The objects of a counter that has everything, in the order of kPatterns in names.cpp. */
enum class Part : uint8
{
	kAdd,
	kRemove,
	kHas,
	kAddMany,
	kCount,
	kCountNow,
	kCounts,
	kPostsOf,
	kTotals,
	kRows,
	kSlots,
	kFrozen,
	kOpen,
};

/* The name of one object of a counter, in the current memory context. */
extern char *ObjectName(Part part, const char *verb, const char *past);

/* The verb that a table's name suggests; an error when that is no verb. */
extern void DeriveVerb(const char *table, NameData *verb);
/* Checks that a text can be a verb, or a verb's past form; what names it in the error. */
extern void CheckVerb(const char *verb);
extern void CheckPast(const char *past);
/* The past form of a verb without grammar: e -> +d, else +ed. */
extern void DerivePast(const char *verb, NameData *past);

/*
 * Refuses a verb when any name that its counter makes, now or in a planned version, is taken in schema likecount or
 * belongs to the extension.  The caller holds the set-up lock.
 */
extern void CheckNamesFree(const char *verb, const char *past);

/* The function of a name in a schema, whatever its arguments; InvalidOid: none. */
extern Oid FunctionNamed(const char *name, Oid schema);
} // namespace likecount
