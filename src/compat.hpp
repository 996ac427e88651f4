/*
 * compat.hpp: what differs between PostgreSQL 15 and 18, and nothing else.
 *
 * The code is written against the newest API; each entry gives older servers that API and names the release
 * that changed it.
 */
#pragma once

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "likecount supports PostgreSQL 15 to 18"
#endif

/* 16: one ownership check for every kind of object */
#if PG_VERSION_NUM < 160000
#define object_ownercheck(classid, objectid, roleid)                                    \
	((classid) == RelationRelationId	? pg_class_ownercheck((objectid), (roleid))     \
	 : (classid) == DatabaseRelationId	? pg_database_ownercheck((objectid), (roleid))  \
	 : (classid) == ExtensionRelationId ? pg_extension_ownercheck((objectid), (roleid)) \
										: false)
#define object_aclcheck(classid, objectid, roleid, mode)                                      \
	((classid) == NamespaceRelationId	? pg_namespace_aclcheck((objectid), (roleid), (mode)) \
	 : (classid) == ProcedureRelationId ? pg_proc_aclcheck((objectid), (roleid), (mode))      \
										: ACLCHECK_NO_PRIV)
#endif

/* 17: ALTER COLUMN SET EXPRESSION; a number that no subcommand has */
#if PG_VERSION_NUM < 170000
#define AT_SetExpression (-1)
#endif

/* 17: a custom wait event for extensions; before, the one that all extensions share */
#if PG_VERSION_NUM < 170000
#define WaitEventExtensionNew(name) ((void) (name), PG_WAIT_EXTENSION)
#endif

/* 18: the magic block carries name and version, and the old macro warns under -Wextra */
#if PG_VERSION_NUM < 180000
#define PG_MODULE_MAGIC_EXT(...) PG_MODULE_MAGIC
#endif

namespace likecount
{
/* 17: a virtual transaction id names a ProcNumber; before, a BackendId.  Pid of its process, 0: it has ended. */
inline int
VirtualTransactionPid(const VirtualTransactionId &vxid)
{
#if PG_VERSION_NUM >= 170000
	PGPROC *proc =
		vxid.procNumber == INVALID_PROC_NUMBER ? nullptr : ProcNumberGetProc(vxid.procNumber);
#else
	PGPROC *proc = vxid.backendId == InvalidBackendId ? nullptr : BackendIdGetProc(vxid.backendId);
#endif
	return proc == nullptr ? 0 : proc->pid;
}

/* 18: a deferrable primary key can be asked for */
inline Oid
PrimaryKeyOf(Relation table)
{
#if PG_VERSION_NUM >= 180000
	return RelationGetPrimaryKeyIndex(table, false);
#else
	return RelationGetPrimaryKeyIndex(table);
#endif
}

/* 18: index_beginscan takes a place for instrumentation */
inline IndexScanDesc
BeginIndexScan(Relation table, Relation index, Snapshot snapshot, int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(table, index, snapshot, nullptr, nkeys, 0);
#else
	return index_beginscan(table, index, snapshot, nkeys, 0);
#endif
}

/* 16: an update may concern summarizing indexes only; before, all indexes or none.  True: entries are needed. */
inline bool
UpdateTableTuple(Relation table, ItemPointer tid, TupleTableSlot *row, Snapshot snapshot,
				 bool *only_summarizing)
{
#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes update_indexes;

	simple_table_tuple_update(table, tid, row, snapshot, &update_indexes);
	*only_summarizing = update_indexes == TU_Summarizing;
	return update_indexes != TU_None;
#else
	bool update_indexes;

	simple_table_tuple_update(table, tid, row, snapshot, &update_indexes);
	*only_summarizing = false;
	return update_indexes;
#endif
}

/* ... of a row that this transaction has locked; false: it was not updated */
inline bool
UpdateLockedTuple(Relation table, ItemPointer tid, TupleTableSlot *row, Snapshot snapshot,
				  bool *entries, bool *only_summarizing)
{
	TM_FailureData failure;
	LockTupleMode mode;
	CommandId command = GetCurrentCommandId(true);
#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes update_indexes;
	bool updated = table_tuple_update(table, tid, row, command, snapshot, InvalidSnapshot, true,
									  &failure, &mode, &update_indexes) == TM_Ok;

	*entries = updated && update_indexes != TU_None;
	*only_summarizing = updated && update_indexes == TU_Summarizing;
#else
	bool update_indexes;
	bool updated = table_tuple_update(table, tid, row, command, snapshot, InvalidSnapshot, true,
									  &failure, &mode, &update_indexes) == TM_Ok;

	*entries = updated && update_indexes;
	*only_summarizing = false;
#endif
	return updated;
}

inline void
InsertIndexEntries(ResultRelInfo *result, TupleTableSlot *row, EState *estate, bool update,
				   bool only_summarizing)
{
#if PG_VERSION_NUM >= 160000
	list_free(
		ExecInsertIndexTuples(result, row, estate, update, false, nullptr, NIL, only_summarizing));
#else
	(void) only_summarizing;
	list_free(ExecInsertIndexTuples(result, row, estate, update, false, nullptr, NIL));
#endif
}

/* ... of an INSERT ... ON CONFLICT DO NOTHING; conflict: another session was faster */
inline void
InsertIndexEntriesSpeculative(ResultRelInfo *result, TupleTableSlot *row, EState *estate,
							  bool *conflict, List *arbiters)
{
#if PG_VERSION_NUM >= 160000
	list_free(ExecInsertIndexTuples(result, row, estate, false, true, conflict, arbiters, false));
#else
	list_free(ExecInsertIndexTuples(result, row, estate, false, true, conflict, arbiters));
#endif
}

/* 17: an index may keep something open between the inserts of a statement */
inline void
EndIndexInserts(Relation index, IndexInfo *info)
{
#if PG_VERSION_NUM >= 170000
	index_insert_cleanup(index, info);
#else
	(void) index;
	(void) info;
#endif
}

/* 18: the row may be in the table already */
inline bool
CheckIndexConstraints(ResultRelInfo *result, TupleTableSlot *row, EState *estate, ItemPointer there,
					  List *arbiters)
{
#if PG_VERSION_NUM >= 180000
	ItemPointerData none;

	ItemPointerSetInvalid(&none);
	return ExecCheckIndexConstraints(result, row, estate, there, &none, arbiters);
#else
	return ExecCheckIndexConstraints(result, row, estate, there, arbiters);
#endif
}

/* 16: the privileges that a query needs stand apart from its range table; these make and check them */
inline void
AskPrivileges(Relation relation, AclMode mode, Bitmapset *selected, Bitmapset *inserted,
			  List **range_table, List **permissions)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_RELATION;
	rte->relid = RelationGetRelid(relation);
	rte->relkind = relation->rd_rel->relkind;
	rte->rellockmode = RowExclusiveLock;
#if PG_VERSION_NUM >= 160000
	RTEPermissionInfo *asked = addRTEPermissionInfo(permissions, rte);
#else
	RangeTblEntry *asked = rte;

	(void) permissions;
#endif
	asked->requiredPerms = mode;
	asked->selectedCols = selected;
	asked->insertedCols = inserted;
	*range_table = lappend(*range_table, rte);
}

inline void
CheckPrivileges(List *range_table, List *permissions)
{
#if PG_VERSION_NUM >= 160000
	(void) ExecCheckPermissions(range_table, permissions, true);
#else
	(void) permissions;
	(void) ExecCheckRTPerms(range_table, true);
#endif
}

/* 18: it may be logged that a lock is not to be had.  False also when there is no room for one more lock. */
inline bool
LockIfFree(const LOCKTAG &tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 180000
	return LockAcquireExtended(&tag, mode, false, true, false, nullptr, false) !=
		   LOCKACQUIRE_NOT_AVAIL;
#else
	return LockAcquireExtended(&tag, mode, false, true, false, nullptr) != LOCKACQUIRE_NOT_AVAIL;
#endif
}

/* 17: MyProcNumber counts from 0; before, MyBackendId counts from 1 */
inline int
MyBackendIndex()
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyBackendId - 1;
#endif
}

/* 16: expression_tree_walker is a macro that casts the walker; before, it takes a function without prototype */
inline bool
WalkExpression(Node *node, bool (*walker)(Node *, void *), void *context)
{
#if PG_VERSION_NUM >= 160000
	return expression_tree_walker(node, walker, context);
#else
	return expression_tree_walker(
		node, reinterpret_cast<bool (*)()>(reinterpret_cast<void (*)()>(walker)), context);
#endif
}
} // namespace likecount
