/*
 * only_where.hpp: the condition that decides which rows of a source count (see only_where.cpp).
 */
#pragma once

#include "pg.hpp"

namespace likecount
{
/* Parses and checks a condition over a relation's row; an error says what is wrong.  Its varno is 1. */
extern Node *ParseOnlyWhere(Relation source, const char *text);
/* Checks a condition that is stored already: built-ins only, immutable. */
extern void CheckOnlyWhere(Relation source, Node *condition);
/* SQL text of a checked condition, its columns prefixed by an alias.  The search_path must be pg_catalog alone. */
extern char *DeparseOnlyWhere(Node *condition, Oid source, const char *alias);
/* True when a partial index's predicate is this condition. */
extern bool IsPredicateOf(Node *condition, Relation index);
} // namespace likecount
