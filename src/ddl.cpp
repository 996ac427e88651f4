/*
 * ddl.cpp: the utility hook, for what likecount has to know about commands of others.
 *
 * Databases.  DROP, RENAME, SET TABLESPACE and the use as a template need a database to which
 * nobody is connected, and nothing in the server tells our worker so.  Before such a command, once
 * its own permission checks would pass (else anybody's failing command would stop workers), the
 * worker is barred and its end awaited.  The bar is taken back at the end of the transaction,
 * however it ends; after DROP DATABASE the registry forgets the database.
 *
 * Wishes.  A commit of likes wakes the worker, but other things make work as well: CREATE
 * EXTENSION, a restored capture trigger or slots table, a new or newly opened database, and COMMIT
 * PREPARED, for which no transaction callback runs.
 *
 * DROP EXTENSION.  Dropping takes members first and the sources' triggers last, while a liker holds
 * its source and wants a member at commit.  So all sources are locked before anything else, in OID
 * order, each with its partitions in the order in which the server locks them: the lock order
 * stands in slots.cpp.
 *
 * Rows that move unseen.  Attaching, detaching, dropping or truncating a partition changes what the
 * source counts without firing a row trigger; SET LOGGED and SET UNLOGGED change whether a crash
 * empties it. Such a command appends a request, in its own transaction and after it has its locks,
 * that makes the counter recount; a recount adds the drift, so one too many does no harm.  Dropped
 * partitions are noticed by the object access hook, which sees them also in DROP SCHEMA, DROP OWNED
 * and other cascades.
 *
 * All other commands pay for a switch on the node's tag.
 */
#include "ddl.hpp"

#include "cache.hpp"
#include "counter.hpp"
#include "launcher.hpp"
#include "repair.hpp"

namespace likecount
{
namespace
{
ProcessUtility_hook_type previous_utility_hook = nullptr;
object_access_hook_type previous_access_hook = nullptr;

/* What the end of the transaction means for a database. */
enum class Then : uint8
{
	kLetBack, /* its worker was barred */
	kForget,  /* the same, but when this commits the database is gone */
	kRequest, /* when this commits it may have work for a worker */
};

struct Ending
{
	Oid database;
	Then then;
	bool armed;
};

static_assert(kPlain<Ending>);

/* In the top transaction's context. */
List *endings = NIL;
/* Tables that lost a partition, until the command that dropped it has ended. */
List *bereft = NIL;

Ending *
AddEnding(Oid database, Then then)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);
	auto *ending = palloc0_object(Ending);

	ending->database = database;
	ending->then = then;
	endings = lappend(endings, ending);
	MemoryContextSwitchTo(caller);
	return ending;
}

/* Stops the worker of a database and keeps it out to the end of the transaction. */
void
Bar(Oid database, Then then)
{
	Ending *ending = AddEnding(database, then);

	ending->armed = BarWorker(database);
	if (ending->armed)
		AwaitNoWorker(database);
}

void
Request(Oid database)
{
	AddEnding(database, Then::kRequest)->armed = true;
}

/* Cannot fail: it runs in the transaction's callbacks. */
void
CarryOut(const Ending &ending, bool commit)
{
	/* Also of a database that never had an entry in the registry, because that was full. */
	if (ending.then == Then::kForget && commit)
		CacheForget(ending.database);
	if (!ending.armed)
		return;
	switch (ending.then)
	{
		case Then::kForget:
			if (commit)
			{
				ForgetDatabase(ending.database);
				break;
			}
			LetWorkerBack(ending.database);
			break;
		case Then::kLetBack:
			LetWorkerBack(ending.database);
			break;
		case Then::kRequest:
			if (commit)
				RequestWorker(ending.database);
			break;
	}
}

bool
OwnsDatabase(Oid database)
{
	return object_ownercheck(DatabaseRelationId, database, GetUserId());
}

/* Minor releases differ in whether they export have_createdb_privilege(). */
bool
MayCreateDatabases()
{
	HeapTuple tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool may = superuser();

	if (HeapTupleIsValid(tuple))
	{
		may |= reinterpret_cast<Form_pg_authid>(GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	return may;
}

bool
MayBeTemplate(Oid database)
{
	HeapTuple tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool may = false;

	if (HeapTupleIsValid(tuple))
	{
		may = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple))->datistemplate;
		ReleaseSysCache(tuple);
	}
	return may || OwnsDatabase(database);
}

const DefElem *
FindOption(const List *options, const char *name)
{
	ListCell *cell;

	foreach (cell, options)
	{
		auto *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			return option;
	}
	return nullptr;
}

void
BeforeDropDatabase(const DropdbStmt *stmt)
{
	Oid database = get_database_oid(stmt->dbname, true);

	if (OidIsValid(database) && database != MyDatabaseId && OwnsDatabase(database))
		Bar(database, Then::kForget);
}

void
BeforeAlterDatabase(const AlterDatabaseStmt *stmt)
{
	Oid database = get_database_oid(stmt->dbname, true);

	if (!OidIsValid(database))
		return;
	if (FindOption(stmt->options, "tablespace") != nullptr && database != MyDatabaseId &&
		OwnsDatabase(database))
		Bar(database, Then::kLetBack);
	Request(database);
}

void
BeforeRenameDatabase(const RenameStmt *stmt)
{
	Oid database = get_database_oid(stmt->subname, true);

	if (OidIsValid(database) && database != MyDatabaseId && OwnsDatabase(database) &&
		MayCreateDatabases())
	{
		Bar(database, Then::kLetBack);
		Request(database);
	}
}

void
BeforeCreateDatabase(const CreatedbStmt *stmt)
{
	const DefElem *option = FindOption(stmt->options, "template");
	const char *name = option != nullptr && option->arg != nullptr
						   ? defGetString(const_cast<DefElem *>(option))
						   : "template1";
	Oid database = get_database_oid(name, true);

	if (OidIsValid(database) && MayCreateDatabases() && MayBeTemplate(database))
		Bar(database, Then::kLetBack);
}

void
AfterCreateDatabase(const CreatedbStmt *stmt)
{
	CommandCounterIncrement();
	Request(get_database_oid(stmt->dbname, false));
}

/*
 * Locks every relation with capture triggers, in the order that every other user of these locks
 * keeps.
 */
void
LockSources(const Members *m)
{
	oidvector *no_arguments = buildoidvector(nullptr, 0);
	Oid capture = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("_capture"),
								  PointerGetDatum(no_arguments), ObjectIdGetDatum(m->schema));
	List *sources = NIL;
	HeapTuple tuple;
	ListCell *cell;

	if (!OidIsValid(capture))
		return;

	Relation triggers = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(triggers, InvalidOid, false, nullptr, 0, nullptr);

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		auto form = reinterpret_cast<Form_pg_trigger>(GETSTRUCT(tuple));

		/* A partition's triggers are children of the root's. */
		if (form->tgfoid == capture && !OidIsValid(form->tgparentid))
			sources = list_append_unique_oid(sources, form->tgrelid);
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);

	list_sort(sources, list_oid_cmp);
	foreach (cell, sources)
	{
		LockRelationOid(lfirst_oid(cell), AccessExclusiveLock);
		(void) find_all_inheritors(lfirst_oid(cell), AccessExclusiveLock, nullptr);
	}
}

/* The extension, if it is here and the user may drop it. */
const Members *
DroppableExtension()
{
	const Members *m = FindMembers();

	return m != nullptr && object_ownercheck(ExtensionRelationId, m->extension, GetUserId())
			   ? m
			   : nullptr;
}

void
BeforeDrop(const DropStmt *stmt)
{
	ListCell *cell;

	/* Without CASCADE it is refused while there is a source. */
	if (stmt->removeType != OBJECT_EXTENSION || stmt->behavior != DROP_CASCADE)
		return;
	foreach (cell, stmt->objects)
		if (strcmp(strVal(lfirst(cell)), kExtension) == 0)
		{
			const Members *m = DroppableExtension();

			if (m != nullptr)
				LockSources(m);
			return;
		}
}

void
BeforeDropOwned(const DropOwnedStmt *stmt)
{
	const Members *m = stmt->behavior == DROP_CASCADE ? FindMembers() : nullptr;
	ListCell *cell;

	if (m == nullptr)
		return;
	foreach (cell, stmt->roles)
	{
		Oid role = get_rolespec_oid(lfirst_node(RoleSpec, cell), true);

		if (role == m->owner && has_privs_of_role(GetUserId(), role))
		{
			LockSources(m);
			return;
		}
	}
}

/* The ids of the counters of which one of these tables is the source. */
List *
CountersOf(const List *tables)
{
	List *ids = NIL;
	ListCell *cell;

	if (tables == NIL || FindMembers() == nullptr)
		return NIL;
	foreach (cell, AllCounters())
	{
		auto *counter = static_cast<Counter *>(lfirst(cell));

		if (list_member_oid(tables, counter->source))
			ids = lappend_int(ids, counter->id);
	}
	return ids;
}

/* The tables of which a relation is a partition, on whatever level. */
List *
AncestorsOf(Oid relation)
{
	return get_rel_relispartition(relation) ? get_partition_ancestors(relation) : NIL;
}

/* Appends requests to recount, in the transaction of the command that makes them necessary. */
void
RequestRecount(const List *ids, const char *reason)
{
	ListCell *cell;
	bool push = ids != NIL && !ActiveSnapshotSet();

	if (push)
		PushActiveSnapshot(GetTransactionSnapshot());
	foreach (cell, ids)
		/* Dropped together with its partitions, it has nothing to recount. */
		if (FindMembers() != nullptr && FindCounterById(lfirst_int(cell)) != nullptr)
		{
			AppendRequest(lfirst_int(cell), reason);
			WakeWorkerAtCommit();
		}
	if (push)
		PopActiveSnapshot();
}

/*
 * What a subcommand of ALTER TABLE does to the rows of a source; nullptr: nothing that its triggers
 * would not see.
 */
const char *
ReasonOfSubcommand(const AlterTableCmd *cmd)
{
	switch (static_cast<int>(cmd->subtype))
	{
		case AT_AttachPartition:
			return "a partition was attached";
		case AT_DetachPartition:
		case AT_DetachPartitionFinalize:
			return "a partition was detached";
		case AT_SetLogged:
		case AT_SetUnLogged:
			return "the source was set logged or unlogged";
		case AT_SetExpression:
			return "a generated column of the source got another expression";
		default:
			return nullptr;
	}
}

bool
IsConcurrentDetach(const AlterTableCmd *cmd)
{
	return cmd->subtype == AT_DetachPartition && castNode(PartitionCmd, cmd->def)->concurrent;
}

/* Which counters an ALTER TABLE makes unsure, and why. */
List *
BeforeAlterTable(const AlterTableStmt *stmt, const char **reason)
{
	bool concurrent = false;
	ListCell *cell;

	if (stmt->objtype != OBJECT_TABLE)
		return NIL;
	*reason = nullptr;
	foreach (cell, stmt->cmds)
	{
		auto *cmd = lfirst_node(AlterTableCmd, cell);
		const char *this_reason = ReasonOfSubcommand(cmd);

		if (this_reason != nullptr)
			*reason = this_reason;
		concurrent |= IsConcurrentDetach(cmd);
	}
	if (*reason == nullptr)
		return NIL;

	Oid relation = RangeVarGetRelid(stmt->relation, NoLock, true);

	if (!OidIsValid(relation))
		return NIL;

	List *ids = CountersOf(lappend_oid(AncestorsOf(relation), relation));

	/*
	 * This one commits in the middle, and from then on the rows do not count; what comes after may
	 * never happen.  The lock is the one that the command takes.
	 */
	if (ids != NIL && concurrent)
	{
		(void) RangeVarGetRelidExtended(stmt->relation, ShareUpdateExclusiveLock, 0,
										RangeVarCallbackOwnsRelation, nullptr);
		RequestRecount(ids, *reason);
	}
	return ids;
}

/*
 * Which counters a TRUNCATE makes unsure: those of which it names a partition.  Where it names the
 * source its own trigger fires, and a recount finds nothing to do.
 */
List *
BeforeTruncate(const TruncateStmt *stmt)
{
	List *relations = NIL;
	List *ancestors = NIL;
	ListCell *cell;

	foreach (cell, stmt->relations)
	{
		Oid relation = RangeVarGetRelid(lfirst_node(RangeVar, cell), NoLock, true);

		if (OidIsValid(relation))
			relations = list_append_unique_oid(relations, relation);
	}
	if (stmt->behavior == DROP_CASCADE && FindMembers() != nullptr)
		for (List *more = heap_truncate_find_FKs(relations); more != NIL;
			 more = heap_truncate_find_FKs(relations))
			relations = list_concat_unique_oid(relations, more);
	foreach (cell, relations)
		ancestors = list_concat_unique_oid(ancestors, AncestorsOf(lfirst_oid(cell)));
	return CountersOf(ancestors);
}

/*
 * True for a statement about a relation that lives, by its name, in our schema: a restore brings
 * back a counter.
 */
bool
InOurSchema(const RangeVar *relation)
{
	return relation != nullptr && relation->schemaname != nullptr &&
		   strcmp(relation->schemaname, kSchema) == 0;
}

/* Lets a sleeping worker notice that the extension has gone. */
void
WakeIfGone()
{
	if (MyDatabase(false) != nullptr && FindMembers() == nullptr)
		WakeWorkerAtCommit();
}

/* Asks for a worker when the extension is here. */
void
WakeIfInstalled()
{
	if (FindMembers() != nullptr)
		WakeWorkerAtCommit();
}
} // namespace
} // namespace likecount

extern "C"
{
static void LikecountDdlCallback(XactEvent event, void *);
static void
LikecountObjectAccess(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg);
static void LikecountProcessUtility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
									ProcessUtilityContext context, ParamListInfo params,
									QueryEnvironment *environment, DestReceiver *dest,
									QueryCompletion *completion);
}

static void
LikecountDdlCallback(XactEvent event, void *)
{
	using namespace likecount;
	ListCell *cell;

	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			foreach (cell, endings)
				CarryOut(*static_cast<Ending *>(lfirst(cell)), event == XACT_EVENT_COMMIT);
			endings = NIL;
			bereft = NIL;
			break;
		default:
			break;
	}
}

static void
LikecountObjectAccess(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	using namespace likecount;

	if (previous_access_hook != nullptr)
		previous_access_hook(access, class_id, object_id, sub_id, arg);
	if (access == OAT_DROP && class_id == RelationRelationId && sub_id == 0 &&
		get_rel_relispartition(object_id))
	{
		/*
		 * Half of a counter may be gone by now, so which ones are concerned is found out at the
		 * end.
		 */
		MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);

		bereft = list_concat_unique_oid(bereft, get_partition_ancestors(object_id));
		MemoryContextSwitchTo(caller);
	}
}

static void
LikecountProcessUtility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
						ProcessUtilityContext context, ParamListInfo params,
						QueryEnvironment *environment, DestReceiver *dest,
						QueryCompletion *completion)
{
	using namespace likecount;
	Node *stmt = pstmt->utilityStmt;
	NodeTag tag = nodeTag(stmt);
	List *unsure = NIL;
	const char *reason = "a partition was truncated";
	bool commit_prepared = false;

	switch (tag)
	{
		case T_DropdbStmt:
			BeforeDropDatabase(castNode(DropdbStmt, stmt));
			break;
		case T_AlterDatabaseStmt:
			BeforeAlterDatabase(castNode(AlterDatabaseStmt, stmt));
			break;
		case T_RenameStmt:
			if (castNode(RenameStmt, stmt)->renameType == OBJECT_DATABASE)
				BeforeRenameDatabase(castNode(RenameStmt, stmt));
			break;
		case T_CreatedbStmt:
			BeforeCreateDatabase(castNode(CreatedbStmt, stmt));
			break;
		case T_DropStmt:
			BeforeDrop(castNode(DropStmt, stmt));
			break;
		case T_DropOwnedStmt:
			BeforeDropOwned(castNode(DropOwnedStmt, stmt));
			break;
		case T_AlterTableStmt:
			unsure = BeforeAlterTable(castNode(AlterTableStmt, stmt), &reason);
			break;
		case T_TruncateStmt:
			unsure = BeforeTruncate(castNode(TruncateStmt, stmt));
			break;
		case T_TransactionStmt:
			/* Read it now: a ROLLBACK may free the statement. */
			commit_prepared = castNode(TransactionStmt, stmt)->kind == TRANS_STMT_COMMIT_PREPARED;
			break;
		default:
			break;
	}

	if (previous_utility_hook != nullptr)
		previous_utility_hook(pstmt, query, read_only_tree, context, params, environment, dest,
							  completion);
	else
		standard_ProcessUtility(pstmt, query, read_only_tree, context, params, environment, dest,
								completion);

	switch (tag)
	{
		case T_CreatedbStmt:
			AfterCreateDatabase(castNode(CreatedbStmt, stmt));
			break;
		case T_CreateExtensionStmt:
			if (strcmp(castNode(CreateExtensionStmt, stmt)->extname, kExtension) == 0)
				WakeIfInstalled();
			break;
		case T_AlterExtensionStmt:
			if (strcmp(castNode(AlterExtensionStmt, stmt)->extname, kExtension) == 0)
				WakeIfInstalled();
			break;
		case T_CreateTrigStmt:
			if (strcmp(strVal(llast(castNode(CreateTrigStmt, stmt)->funcname)), "_capture") == 0)
				WakeIfInstalled();
			break;
		case T_IndexStmt:
			if (InOurSchema(castNode(IndexStmt, stmt)->relation))
				WakeIfInstalled();
			break;
		case T_ViewStmt:
			if (InOurSchema(castNode(ViewStmt, stmt)->view))
				WakeIfInstalled();
			break;
		case T_AlterTableStmt:
			RequestRecount(unsure, reason);
			if (InOurSchema(castNode(AlterTableStmt, stmt)->relation))
				WakeIfInstalled();
			break;
		case T_TruncateStmt:
			RequestRecount(unsure, reason);
			break;
		case T_DropStmt:
		case T_DropOwnedStmt:
			if (bereft != NIL)
				RequestRecount(CountersOf(bereft), "a partition was dropped");
			bereft = NIL;
			if (tag == T_DropOwnedStmt || castNode(DropStmt, stmt)->removeType == OBJECT_EXTENSION)
				WakeIfGone();
			break;
		case T_TransactionStmt:
			/* No callback runs for the transaction that was prepared. */
			if (commit_prepared)
				WakeWorker();
			break;
		default:
			break;
	}
}

namespace likecount
{
void
DdlInit()
{
	previous_utility_hook = ProcessUtility_hook;
	ProcessUtility_hook = LikecountProcessUtility;
	previous_access_hook = object_access_hook;
	object_access_hook = LikecountObjectAccess;
	RegisterXactCallback(LikecountDdlCallback, nullptr);
}
} // namespace likecount
