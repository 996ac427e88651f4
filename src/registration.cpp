/*
 * registration.cpp: state rows and rows views as set-up and adoption see them.
 *
 * Everything here reads catalogs and _counter only.  It opens no source and waits for no lock on one: adoption runs
 * in the worker, which must not queue behind an ALTER TABLE, and set-up of one table, which holds the set-up lock,
 * must not wait for another table whose detach waits for that lock.
 */
#include "registration.hpp"

#include "spi.hpp"

namespace likecount
{
namespace
{
constexpr const char *kRowsSuffix = "_rows";

/* True when an OID is that of a view in schema likecount; its name is the caller's to judge. */
bool
IsOurView(Oid view)
{
	return get_rel_relkind(view) == RELKIND_VIEW && get_rel_namespace(view) == GetMembers()->schema;
}

/* The rule of a view, InvalidOid: none. */
Oid
RuleOf(Oid view)
{
	return GetSysCacheOid2(RULERELNAME, Anum_pg_rewrite_oid, ObjectIdGetDatum(view),
						   CStringGetDatum("_RETURN"));
}

/* The relation that a rule belongs to, InvalidOid: there is no such rule. */
Oid
RelationOfRule(Oid rule)
{
	ScanKeyData key;
	Relation rel = table_open(RewriteRelationId, AccessShareLock);

	ScanKeyInit(&key, Anum_pg_rewrite_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(rule));
	SysScanDesc scan = systable_beginscan(rel, RewriteOidIndexId, true, nullptr, 1, &key);
	HeapTuple tuple = systable_getnext(scan);
	Oid result = HeapTupleIsValid(tuple)
					 ? reinterpret_cast<Form_pg_rewrite>(GETSTRUCT(tuple))->ev_class
					 : InvalidOid;

	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}
} // namespace

List *
ReadStateRows()
{
	List *result = NIL;
	Relation rel = table_open(GetMembers()->counter, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
	HeapTuple tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Datum values[kCounterColumns];
		bool nulls[kCounterColumns];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);

		Oid view = DatumGetObjectId(values[kCounterRowsView - 1]);

		if (!IsOurView(view))
			continue;

		auto *row = palloc_object(StateRow);

		row->id = DatumGetInt32(values[kCounterId - 1]);
		row->rows_view = view;
		row->verb = *DatumGetName(values[kCounterVerb - 1]);
		row->past = *DatumGetName(values[kCounterPast - 1]);
		row->version = TextDatumGetCString(values[kCounterVersion - 1]);
		row->adopting = strcmp(TextDatumGetCString(values[kCounterState - 1]),
							   StateName(State::kAdopting)) == 0;
		row->committed =
			!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
		result = lappend(result, row);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

StateRow *
FindStateRow(List *rows, Oid rows_view)
{
	ListCell *cell;

	foreach (cell, rows)
	{
		auto *row = static_cast<StateRow *>(lfirst(cell));

		if (row->rows_view == rows_view)
			return row;
	}
	return nullptr;
}

int32
InsertStateRow(Oid rows_view, const char *verb, const char *past, Mode mode, State state,
			   const char *reason)
{
	SpiArgs args = {};
	NameData verb_name;
	NameData past_name;
	bool isnull;

	namestrcpy(&verb_name, verb);
	namestrcpy(&past_name, past);
	args.Add(REGCLASSOID, ObjectIdGetDatum(rows_view));
	args.Add(NAMEOID, NameGetDatum(&verb_name));
	args.Add(NAMEOID, NameGetDatum(&past_name));
	args.Add(TEXTOID, CStringGetTextDatum(StateName(state)));
	args.Add(TEXTOID, CStringGetTextDatum(reason));
	args.Add(TEXTOID, CStringGetTextDatum(InstalledVersion()));

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	SPI_connect();
	/* The id first: an INSERT ... RETURNING gives no row where a replica role's trigger discards it. */
	(void) SpiExecute("SELECT pg_catalog.nextval('likecount._counter_id')::pg_catalog.int4",
					  nullptr, SPI_OK_SELECT);

	int32 id = DatumGetInt32(SpiValue(0, 1, &isnull));

	/* Nothing of a counter that nobody has seen yet is in the queue. */
	int64 direct_since = mode == Mode::kDirect ? InsertMode(id, mode) : 0;

	args.Add(INT4OID, Int32GetDatum(id));
	args.Add(INT8OID, Int64GetDatum(direct_since), direct_since == 0);
	(void) SpiExecute("INSERT INTO likecount._counter"
					  " (rows_view, verb, past, state, reason, version, id, direct_since)"
					  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
					  &args, SPI_OK_INSERT);
	SPI_finish();
	SwitchBack(saved);
	InvalidateCounters();
	return id;
}

int64
InsertMode(int32 id, Mode mode)
{
	SpiArgs args = {};
	bool isnull;

	args.Add(INT4OID, Int32GetDatum(id));
	args.Add(TEXTOID, CStringGetTextDatum(ModeName(mode)));

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	SPI_connect();
	(void) SpiExecute("INSERT INTO likecount._mode (counter, mode) VALUES ($1, $2) RETURNING id",
					  &args, SPI_OK_INSERT_RETURNING);

	int64 row = DatumGetInt64(SpiValue(0, 1, &isnull));

	SPI_finish();
	SwitchBack(saved);
	InvalidateCounters();
	return row;
}

void
SettleMode(int32 id, int64 row)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(id));
	args.Add(INT8OID, Int64GetDatum(row));
	(void) SpiExecute(
		"UPDATE likecount._counter SET direct_since = $2 WHERE id OPERATOR(pg_catalog.=) $1", &args,
		SPI_OK_UPDATE);
	InvalidateCounters();
}

void
ForgetModes(int32 id, int64 before)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(id));
	args.Add(INT8OID, Int64GetDatum(before));
	(void) SpiExecute("DELETE FROM likecount._mode WHERE counter OPERATOR(pg_catalog.=) $1"
					  " AND id OPERATOR(pg_catalog.<) $2",
					  &args, SPI_OK_DELETE);
	InvalidateCounters();
}

void
StampVersion(int32 id)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(id));
	args.Add(TEXTOID, CStringGetTextDatum(InstalledVersion()));

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	SPI_connect();
	(void)
		SpiExecute("UPDATE likecount._counter SET version = $2 WHERE id OPERATOR(pg_catalog.=) $1",
				   &args, SPI_OK_UPDATE);
	SPI_finish();
	SwitchBack(saved);
	InvalidateCounters();
}

void
ForgetCounter(int32 id)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(id));

	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	SPI_connect();
	(void) SpiExecute("DELETE FROM likecount._counter WHERE id OPERATOR(pg_catalog.=) $1", &args,
					  SPI_OK_DELETE);
	(void) SpiExecute("DELETE FROM likecount._mode WHERE counter OPERATOR(pg_catalog.=) $1", &args,
					  SPI_OK_DELETE);
	(void) SpiExecute("DELETE FROM likecount._request WHERE counter OPERATOR(pg_catalog.=) $1",
					  &args, SPI_OK_DELETE);
	(void) SpiExecute("DELETE FROM likecount._sentinel WHERE counter OPERATOR(pg_catalog.=) $1",
					  &args, SPI_OK_DELETE);
	(void) SpiExecute("DELETE FROM likecount._repair_todo WHERE counter OPERATOR(pg_catalog.=) $1",
					  &args, SPI_OK_DELETE);
	(void) SpiExecute("DELETE FROM likecount._progress WHERE counter OPERATOR(pg_catalog.=) $1",
					  &args, SPI_OK_DELETE);
	SPI_finish();
	SwitchBack(saved);
	InvalidateCounters();
}

int
ForgetGoneCounters(bool write)
{
	Relation rel = table_open(GetMembers()->counter, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, nullptr, 0, nullptr);
	List *gone = NIL;
	HeapTuple tuple;
	ListCell *cell;
	bool isnull;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		TupleDesc desc = RelationGetDescr(rel);
		Oid view = DatumGetObjectId(heap_getattr(tuple, kCounterRowsView, desc, &isnull));

		if (!IsOurView(view))
			gone = lappend_int(gone, DatumGetInt32(heap_getattr(tuple, kCounterId, desc, &isnull)));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	if (write)
		foreach (cell, gone)
			ForgetCounter(lfirst_int(cell));
	return list_length(gone);
}

char *
InstalledVersion()
{
	ScanKeyData key;
	bool isnull = true;
	Relation rel = table_open(ExtensionRelationId, AccessShareLock);

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(kExtension));
	SysScanDesc scan = systable_beginscan(rel, ExtensionNameIndexId, true, nullptr, 1, &key);
	HeapTuple tuple = systable_getnext(scan);
	Datum version = HeapTupleIsValid(tuple) ? heap_getattr(tuple, Anum_pg_extension_extversion,
														   RelationGetDescr(rel), &isnull)
											: (Datum) 0;

	if (isnull)
		elog(ERROR, "extension \"%s\" has no version", kExtension);

	char *result = TextDatumGetCString(version);

	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

Oid
SourceOfRowsView(Oid rows_view)
{
	Oid source = InvalidOid;
	Oid rule = IsOurView(rows_view) ? RuleOf(rows_view) : InvalidOid;
	ScanKeyData key[2];
	HeapTuple tuple;

	if (!OidIsValid(rule))
		return InvalidOid;

	Relation rel = table_open(DependRelationId, AccessShareLock);

	ScanKeyInit(&key[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RewriteRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(rule));
	SysScanDesc scan = systable_beginscan(rel, DependDependerIndexId, true, nullptr, 2, key);

	/* Its condition is made of built-ins and holds no subquery, so there is one relation beside the view itself. */
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		auto *depend = reinterpret_cast<Form_pg_depend>(GETSTRUCT(tuple));

		if (depend->refclassid == RelationRelationId && depend->refobjid != rows_view)
			source = depend->refobjid;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return source;
}

List *
RowsViewsOf(Oid source)
{
	List *result = NIL;
	ScanKeyData key[2];
	HeapTuple tuple;
	Relation rel = table_open(DependRelationId, AccessShareLock);

	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(source));
	SysScanDesc scan = systable_beginscan(rel, DependReferenceIndexId, true, nullptr, 2, key);

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		auto *depend = reinterpret_cast<Form_pg_depend>(GETSTRUCT(tuple));

		if (depend->classid != RewriteRelationId)
			continue;

		Oid view = RelationOfRule(depend->objid);

		if (OidIsValid(view) && IsOurView(view) && VerbOfRowsView(view) != nullptr)
			result = list_append_unique_oid(result, view);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

char *
VerbOfRowsView(Oid rows_view)
{
	char *name = get_rel_name(rows_view);
	size_t suffix = strlen(kRowsSuffix);
	size_t len = name == nullptr ? 0 : strlen(name);

	if (len <= suffix || strcmp(name + len - suffix, kRowsSuffix) != 0)
		return nullptr;
	name[len - suffix] = '\0';
	return name;
}
} // namespace likecount
