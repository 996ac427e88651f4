/*
 * registration.hpp: state rows and rows views as set-up and adoption see them, without touching a source (see
 * registration.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* No counter has this id: LockCounter on it keeps set-up and adoption apart, and adoption never waits for it. */
constexpr int32 kAdoption = 0;

/* What set-up needs of a row of _counter. */
struct StateRow
{
	int32 id;
	Oid rows_view;
	NameData verb;
	NameData past;
	char *version;
	bool adopting;
	bool committed; /* not written by the current transaction */
};

static_assert(kPlain<StateRow>);

/* Every row of _counter whose rows view exists, as a List of StateRow *, read with a fresh snapshot. */
extern List *ReadStateRows();
/* The row of a rows view, nullptr: none. */
extern StateRow *FindStateRow(List *rows, Oid rows_view);

/* Adds a state row as the extension's owner; returns its id. */
extern int32 InsertStateRow(Oid rows_view, const char *verb, const char *past, Mode mode,
							State state, const char *reason);
/* Notes which mode a counter has from now on; returns the number of the row that says so. */
extern int64 InsertMode(int32 id, Mode mode);
/* Notes, under the flush lock, that nothing of a direct counter is in the queue since that row. */
extern void SettleMode(int32 id, int64 row);
/* Deletes the rows before the one that counts, under the flush lock. */
extern void ForgetModes(int32 id, int64 before);
/* Notes that a counter's objects are those of the installed version. */
extern void StampVersion(int32 id);
/* Deletes all that this database keeps about a counter; as the extension's owner. */
extern void ForgetCounter(int32 id);
/* Deletes the state rows whose rows view is gone; returns how many there were.  With write false it only counts. */
extern int ForgetGoneCounters(bool write);

/* The installed version of the extension. */
extern char *InstalledVersion();

/* The relation that a view <verb>_rows reads; InvalidOid: it is not such a view. */
extern Oid SourceOfRowsView(Oid rows_view);
/* The views <verb>_rows that read a relation, as a list of OIDs. */
extern List *RowsViewsOf(Oid source);
/* The verb of a view <verb>_rows. */
extern char *VerbOfRowsView(Oid rows_view);
} // namespace likecount
