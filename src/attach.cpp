/*
 * attach.cpp: create_counter(), attach(), set_mode() and detach(), as SQL calls them, and everything they check.
 *
 * The functions are SECURITY INVOKER: who may do what to the source is decided by GetUserId(), which SECURITY DEFINER
 * would hide.  They become the extension's owner only to create and link our own objects.
 *
 * attach() checks everything before it makes anything.  It first looks at the source without a lock, so that who is
 * refused anyway never queues a strong lock before somebody else's table, then locks it and looks again.  The lock
 * is SHARE ROW EXCLUSIVE: it waits out the writers under way, whose rows no trigger captured, and from its release on
 * every writer has the triggers.  What the table holds by then is counted after the commit, by backfill.
 *
 * set_mode() takes the same lock: when it has it, no transaction is under way that has captured something and might
 * append it by the old mode.  Why that matters is in direct.cpp.
 *
 * Locks: source with partitions, then the set-up lock, to the end of the transaction.  Both keep adoption away from
 * a half-made counter (adopt.cpp).  create_counter() takes the set-up lock first, for the new table's name; nobody
 * else can hold a lock on a table that is not committed yet.
 */
#include "attach.hpp"

#include "generate.hpp"
#include "only_where.hpp"
#include "registration.hpp"
#include "shmem.hpp"
#include "slots.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
/* The arguments of attach(). */
struct Request
{
	Oid source;
	const char *post;
	const char *user; /* nullptr: not given; so for the next ones */
	const char *time;
	const char *verb;
	const char *past;
	const char *only_where;
	Mode mode;
	bool count_replicated;
	bool if_not_exists;
};

void
RefuseNull(const char *function, const char *argument)
{
	ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			errmsg("argument \"%s\" of likecount.%s() must not be null", argument, function));
}

/* Set-up must not run where its objects would become somebody else's. */
void
CheckContext(const char *function)
{
	(void) GetMembers();
	PreventCommandIfReadOnly(psprintf("likecount.%s()", function));
	if (creating_extension)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("counters cannot be set up by the script of an extension"),
				errdetail("Their objects would become members of it, and be left out of dumps."));
}

Mode
CheckMode(const char *text)
{
	Mode mode;

	if (!ModeFromText(text, &mode))
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("unknown mode \"%s\"", text),
				errhint("The modes are \"%s\" and \"%s\".", ModeName(Mode::kQueued),
						ModeName(Mode::kDirect)));
	return mode;
}

/* ------------------------------------------------------------------------------------------------------------
 * The table
 */

/* Checks that the current user owns the table; it may be unlocked, and gone. */
void
CheckOwner(Oid source)
{
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(source)))
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_TABLE),
				errmsg("relation with OID %u does not exist", source));
	if (!object_ownercheck(RelationRelationId, source, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(source)),
					   get_rel_name(source));
}

/* Checks that rows of a relation, the source or a partition of it, survive a crash and fire row triggers. */
void
CheckStorage(Oid relation, Oid source)
{
	char kind = get_rel_relkind(relation);
	char persistence = get_rel_persistence(relation);
	const char *name = QualifiedName(relation);

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
	{
		if (relation != source)
			ereport(ERROR, errcode(ERRCODE_WRONG_OBJECT_TYPE),
					errmsg("partition %s of %s cannot be counted", name, QualifiedName(source)),
					errdetail_relkind_not_supported(kind));
		ereport(ERROR, errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("%s cannot be counted", name),
				errdetail_relkind_not_supported(kind),
				errhint("Attach an ordinary or partitioned table."));
	}
	if (persistence == RELPERSISTENCE_TEMP)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("temporary table %s cannot be counted", name),
				errdetail("Only its own session can read it."));
	if (persistence == RELPERSISTENCE_UNLOGGED)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("unlogged table %s cannot be counted", name),
				errdetail("A crash empties it, and the totals would stay."),
				errhint("ALTER TABLE ... SET LOGGED makes it durable."));
}

/* Checks the kind of table, its schema and its relatives; it may be unlocked. */
void
CheckTable(Oid source)
{
	const char *name = QualifiedName(source);
	Oid schema = get_rel_namespace(source);

	if (source < FirstNormalObjectId)
		ereport(ERROR, errcode(ERRCODE_WRONG_OBJECT_TYPE),
				errmsg("system catalog %s cannot be counted", name));
	if (schema == GetMembers()->schema)
		ereport(ERROR, errcode(ERRCODE_RESERVED_NAME),
				errmsg("%s cannot be counted: schema %s belongs to the extension", name, kSchema),
				errdetail("DROP EXTENSION would drop the table."),
				errhint("Move the table to another schema."));
	CheckStorage(source, source);
	if (get_rel_relispartition(source))
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("partition %s cannot be counted by itself", name),
				errhint("Attach the partitioned table."));
	if (has_superclass(source))
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("table %s cannot be counted: it inherits from another table", name));
	if (get_rel_relkind(source) == RELKIND_RELATION &&
		find_inheritance_children(source, NoLock) != NIL)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("table %s cannot be counted: other tables inherit from it", name),
				errdetail("Rows of the children fire no trigger of the parent."));
}

/* Locks a table and its partitions, and checks that the current user (still) owns it.  Returns them all. */
List *
LockSource(Oid source, LOCKMODE mode)
{
	CheckOwner(source);
	LockRelationOid(source, mode);
	CheckOwner(source);
	return find_all_inheritors(source, mode, nullptr);
}

/* ------------------------------------------------------------------------------------------------------------
 * The columns
 */

/* Finds a column by name. */
Form_pg_attribute
FindColumn(Relation source, const char *name)
{
	AttrNumber number = get_attnum(RelationGetRelid(source), name);

	if (number == InvalidAttrNumber)
		ereport(ERROR, errcode(ERRCODE_UNDEFINED_COLUMN),
				errmsg("column \"%s\" of table %s does not exist", name,
					   QualifiedName(RelationGetRelid(source))));
	if (number < 0)
		ereport(ERROR, errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
				errmsg("system column \"%s\" cannot be counted by", name));

	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(source), number - 1);

	/* Triggers do not get to see the values of virtual generated columns. */
	if (att->attgenerated != '\0' && att->attgenerated != ATTRIBUTE_GENERATED_STORED)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("virtual generated column \"%s\" cannot be counted by", name));
	return att;
}

/* Checks a type that posts or users have; subject is how the error calls it. */
void
CheckKeyType(Oid type, const char *subject)
{
	if (!OidIsValid(type) || KeyKindOf(type) == KeyKind::kNone)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("%s is of type %s, which cannot be counted by", subject,
					   format_type_extended(type, -1, FORMAT_TYPE_ALLOW_INVALID)),
				errdetail("Posts and users are smallint, integer, bigint, uuid, text or varchar."));
}

/* Checks the column that holds posts, or users. */
AttrNumber
CheckKeyColumn(Relation source, const char *name)
{
	Form_pg_attribute att = FindColumn(source, name);

	CheckKeyType(att->atttypid, psprintf("column \"%s\"", name));
	if (OidIsValid(att->attcollation) && !get_collation_isdeterministic(att->attcollation))
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("column \"%s\" has the nondeterministic collation \"%s\"", name,
					   get_collation_name(att->attcollation)),
				errdetail("Keys that are equal must have equal bytes."));
	if (!att->attnotnull)
		ereport(ERROR, errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				errmsg("column \"%s\" may be NULL", name),
				errhint("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL.",
						QualifiedName(RelationGetRelid(source)), quote_identifier(name)));
	return att->attnum;
}

void
CheckTimeColumn(Relation source, const char *name)
{
	Oid type = FindColumn(source, name)->atttypid;

	if (type != TIMESTAMPTZOID && type != TIMESTAMPOID && type != DATEOID)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("time column \"%s\" is of type %s", name, format_type_be(type)),
				errdetail("It must be timestamp with time zone, timestamp or date."),
				errhint("With timestamp with time zone and an index, likes cost least."));
}

/* Demands the index that makes a user's like of a post one row. */
void
CheckUnique(Relation source, AttrNumber post, AttrNumber user, Node *only_where)
{
	const char *obstacle = nullptr;
	const char *post_name = get_attname(RelationGetRelid(source), post, false);
	const char *user_name = get_attname(RelationGetRelid(source), user, false);
	ListCell *cell;

	foreach (cell, RelationGetIndexList(source))
	{
		Relation index = index_open(lfirst_oid(cell), AccessShareLock);
		const char *name = RelationGetRelationName(index);
		const char *why = nullptr;
		bool match = IsUniqueOn(index, post, user);

		if (match)
		{
			/* Reading it runs the immutable functions in it, which are the owner's. */
			UserSwitch saved = SwitchUser(source->rd_rel->relowner, RunAs::kOwnerOfSource);
			List *predicate = RelationGetIndexPredicate(index);

			SwitchBack(saved);

			if (!index->rd_index->indisvalid)
				why = psprintf("Index \"%s\" is not valid.", name);
			else if (!index->rd_index->indimmediate)
				why = psprintf("Index \"%s\" belongs to a deferrable constraint.", name);
			else if (!HasOrdinaryEquality(index, RelationGetDescr(source)))
				why = psprintf("Index \"%s\" compares by a special operator class or collation.",
							   name);
			else if (predicate != NIL &&
					 (only_where == nullptr || !IsPredicateOf(only_where, index)))
				why = psprintf("Index \"%s\" is partial, with another condition than only_where.",
							   name);
		}
		index_close(index, AccessShareLock);
		if (match && why == nullptr)
			return;
		if (match)
			obstacle = why;
	}
	ereport(ERROR, errcode(ERRCODE_INVALID_TABLE_DEFINITION),
			errmsg("table %s has no unique index on exactly (%s, %s)",
				   QualifiedName(RelationGetRelid(source)), quote_identifier(post_name),
				   quote_identifier(user_name)),
			obstacle != nullptr ? errdetail_internal("%s", obstacle)
								: errdetail("It makes sure that a user likes a post once."),
			errhint("Create a unique index or a primary key on these columns, or leave user_column "
					"out to count rows."));
}

/* ------------------------------------------------------------------------------------------------------------
 * attach
 */

/* Finds the rows view of a verb over a source, registered or not; InvalidOid: there is none. */
Oid
FindRowsView(Oid source, const char *verb)
{
	ListCell *cell;

	foreach (cell, RowsViewsOf(source))
		if (strcmp(VerbOfRowsView(lfirst_oid(cell)), verb) == 0)
			return lfirst_oid(cell);
	return InvalidOid;
}

/* True when the source is counted under this verb and if_not_exists makes that right; else an error. */
bool
IsAttached(const Request &request, const char *verb)
{
	Oid view = FindRowsView(request.source, verb);

	if (!OidIsValid(view))
		return false;
	if (request.if_not_exists)
	{
		ereport(NOTICE, errmsg("table %s has a counter \"%s\" already, skipping",
							   QualifiedName(request.source), verb));
		return true;
	}
	if (FindStateRow(ReadStateRows(), view) == nullptr)
		ereport(ERROR, errcode(ERRCODE_DUPLICATE_OBJECT),
				errmsg("table %s has a restored counter \"%s\" already",
					   QualifiedName(request.source), verb),
				errhint("The worker adopts it, or likecount.flush() where none runs; "
						"likecount.detach() removes it."));
	ereport(ERROR, errcode(ERRCODE_DUPLICATE_OBJECT),
			errmsg("table %s has a counter \"%s\" already", QualifiedName(request.source), verb),
			errhint("A table can have several counters, each with a verb of its own."));
	return false;
}

/* Fills in verb and past form, and tells a derived verb. */
void
ChooseVerb(const Request &request, Definition *definition)
{
	if (request.verb != nullptr)
	{
		CheckVerb(request.verb);
		namestrcpy(&definition->verb, request.verb);
	}
	else
		DeriveVerb(get_rel_name(request.source), &definition->verb);
	if (request.past != nullptr)
	{
		CheckPast(request.past);
		namestrcpy(&definition->past, request.past);
	}
	else
		DerivePast(NameStr(definition->verb), &definition->past);
}

/* Checks the columns, the condition and the unique index, and fills in what they say. */
void
CheckColumns(Relation source, const Request &request, Definition *definition)
{
	AttrNumber post = CheckKeyColumn(source, request.post);
	AttrNumber user = InvalidAttrNumber;
	Form_pg_attribute post_att = TupleDescAttr(RelationGetDescr(source), post - 1);
	const char *in_the_way = nullptr;

	definition->post = request.post;
	definition->post_type = post_att->atttypid;
	definition->post_collation = post_att->attcollation;
	if (request.user != nullptr)
	{
		user = CheckKeyColumn(source, request.user);
		if (user == post)
			ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("post_column and user_column are both \"%s\"", request.post));
		definition->user = request.user;
		definition->user_type = TupleDescAttr(RelationGetDescr(source), user - 1)->atttypid;
	}
	if (request.time != nullptr)
	{
		CheckTimeColumn(source, request.time);
		definition->time = request.time;
	}
	if (request.only_where != nullptr)
		definition->only_where = ParseOnlyWhere(source, request.only_where);
	if (user == InvalidAttrNumber)
		return;
	CheckUnique(source, post, user, definition->only_where);
	definition->writable = IsWritable(source, post, user, &in_the_way);
	if (!definition->writable && definition->only_where == nullptr)
		ereport(NOTICE,
				errmsg("%s and %s are not created",
					   quote_qualified_identifier(kSchema, NameStr(definition->verb)),
					   quote_qualified_identifier(kSchema, ObjectName(Part::kAddMany,
																	  NameStr(definition->verb),
																	  NameStr(definition->past)))),
				errdetail(
					"Post and user alone make no row: column \"%s\" needs a value, or takes none.",
					in_the_way));
}

/* What came out of the generated view must pass the check again, whatever deparsing and parsing did to it. */
void
RecheckOnlyWhere(Relation source, Oid rows_view)
{
	Counter counter = {};

	counter.rows_view = rows_view;

	Node *condition = ReadOnlyWhere(&counter);

	if (condition != nullptr)
		CheckOnlyWhere(source, condition);
}

/* Starts counting; all arguments are checked for NULL and the mode is right. */
void
Attach(const Request &request)
{
	Definition definition = {};
	ListCell *cell;

	CheckOwner(request.source);
	CheckTable(request.source);

	List *relations = LockSource(request.source, ShareRowExclusiveLock);

	CheckTable(request.source);
	foreach (cell, relations)
		CheckStorage(lfirst_oid(cell), request.source);
	LockSetup();
	(void) LockCounter(kAdoption, true);

	ChooseVerb(request, &definition);

	const char *verb = NameStr(definition.verb);
	const char *past = NameStr(definition.past);

	if (IsAttached(request, verb))
		return;
	CheckNamesFree(verb, past);

	Relation source = table_open(request.source, NoLock);

	definition.source = request.source;
	definition.mode = request.mode;
	definition.owner = source->rd_rel->relowner;
	definition.partitioned = source->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	CheckColumns(source, request, &definition);
	if (request.verb == nullptr)
		ereport(NOTICE,
				errmsg("the verb of table %s is \"%s\"", QualifiedName(request.source), verb),
				errdetail("Its past form is \"%s\".", past));

	Oid rows_view = MakeRowsView(definition);

	RecheckOnlyWhere(source, rows_view);
	/* ALTER TABLE, for the triggers, demands that nobody has it open. */
	table_close(source, NoLock);
	MakeObjects(definition, false);
	MakeTriggers(definition, request.count_replicated);
	foreach (cell, FindCaptureTriggers(request.source))
	{
		auto *set = static_cast<CaptureTriggers *>(lfirst(cell));

		if (strcmp(NameStr(set->verb), verb) == 0)
			(void) Link(rows_view, request.source, verb, past, set, true);
	}
	(void) InsertStateRow(rows_view, verb, past, request.mode, State::kBackfilling, "attached");
	WakeWorkerAtCommit();
}

/* ------------------------------------------------------------------------------------------------------------
 * create_counter
 */

/* The name that the caller means, with its schema. */
RangeVar *
NewTable(text *source)
{
	RangeVar *name = makeRangeVarFromNameList(textToQualifiedNameList(source));
	const Members *m = GetMembers();
	Oid schema = RangeVarGetCreationNamespace(name);

	if (schema == m->schema)
		ereport(
			ERROR, errcode(ERRCODE_RESERVED_NAME),
			errmsg("table \"%s\" cannot be created in schema %s, which belongs to the extension",
				   name->relname, kSchema),
			errdetail("DROP EXTENSION would drop the table."),
			errhint("Qualify the name: likecount.create_counter('public.%s').", name->relname));
	if (isAnyTempNamespace(schema))
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("temporary table \"%s\" cannot be counted", name->relname),
				errhint("Qualify the name: likecount.create_counter('public.%s').", name->relname));
	name->schemaname = get_namespace_name(schema);
	return name;
}

/* Creates the table as the caller; returns it. */
Oid
CreateTable(const RangeVar *name, Oid post_type, Oid user_type)
{
	const char *quoted = quote_qualified_identifier(name->schemaname, name->relname);
	int guc_level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	(void) SpiExecute(
		psprintf("CREATE TABLE %s (post_id %s NOT NULL, user_id %s NOT NULL,"
				 " liked_at timestamp with time zone NOT NULL DEFAULT pg_catalog.clock_timestamp(),"
				 " PRIMARY KEY (post_id, user_id))",
				 quoted, format_type_be(post_type), format_type_be(user_type)),
		nullptr, SPI_OK_UTILITY);
	/* Repair reads the rows since the watermark; pages that are not summarized would all be read. */
	(void) SpiExecute(psprintf("CREATE INDEX ON %s USING brin (liked_at) WITH (autosummarize = on)",
							   quoted),
					  nullptr, SPI_OK_UTILITY);
	SPI_finish();
	AtEOXact_GUC(false, guc_level);
	return get_relname_relid(name->relname, get_namespace_oid(name->schemaname, false));
}

/* ------------------------------------------------------------------------------------------------------------
 * detach
 */

/* Puts our hint in the place of the one that DROP VIEW would give. */
void
DetachHint(void *)
{
	if (geterrcode() == ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST)
		errhint("Pass cascade => true to drop the dependent objects too.");
}

/* The rows view that detach() means; InvalidOid: there is none, and that is right. */
Oid
ChooseRowsView(Oid source, const char *verb, bool if_exists)
{
	List *views = RowsViewsOf(source);
	Oid view = InvalidOid;

	if (verb != nullptr)
		view = FindRowsView(source, verb);
	else if (list_length(views) == 1)
		view = linitial_oid(views);
	else if (views != NIL)
		ereport(ERROR, errcode(ERRCODE_AMBIGUOUS_PARAMETER),
				errmsg("table %s has more than one counter", QualifiedName(source)),
				errdetail("Two of its verbs are \"%s\" and \"%s\".",
						  VerbOfRowsView(linitial_oid(views)), VerbOfRowsView(lsecond_oid(views))),
				errhint("Pass the argument verb."));

	if (!OidIsValid(view))
		ereport(if_exists ? NOTICE : ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
				verb == nullptr ? errmsg("table %s has no counter%s", QualifiedName(source),
										 if_exists ? ", skipping" : "")
								: errmsg("table %s has no counter \"%s\"%s", QualifiedName(source),
										 verb, if_exists ? ", skipping" : ""));
	return view;
}

/* Drops a counter's objects and what this database knows about it. */
void
Detach(Oid source, Oid rows_view, bool cascade)
{
	StateRow *row = FindStateRow(ReadStateRows(), rows_view);
	const char *verb = VerbOfRowsView(rows_view);
	const CaptureTriggers *triggers = nullptr;
	ErrorContextCallback callback;
	ObjectAddress address;
	ListCell *cell;

	foreach (cell, FindCaptureTriggers(source))
	{
		auto *set = static_cast<CaptureTriggers *>(lfirst(cell));

		if (strcmp(NameStr(set->verb), verb) == 0)
			triggers = set;
	}

	NameData past = {};

	if (row != nullptr)
		past = row->past;
	else if (triggers != nullptr)
		past = triggers->past;
	else
		DerivePast(verb, &past);

	/* Restored and not yet adopted: nothing hangs on the view yet. */
	(void) Link(rows_view, source, verb, NameStr(past), triggers, true);

	callback.callback = DetachHint;
	callback.arg = nullptr;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	ObjectAddressSet(address, RelationRelationId, rows_view);
	performDeletion(&address, cascade ? DROP_CASCADE : DROP_RESTRICT, 0);
	error_context_stack = callback.previous;

	/* Its state row is invalid now.  Who deletes it holds the flush lock; this transaction must not. */
	if (row != nullptr)
		InvalidateCounters();
}

char *
OptionalText(FunctionCallInfo fcinfo, int argument)
{
	return PG_ARGISNULL(argument) ? nullptr : text_to_cstring(PG_GETARG_TEXT_PP(argument));
}

char *
OptionalName(FunctionCallInfo fcinfo, int argument)
{
	return PG_ARGISNULL(argument) ? nullptr : pstrdup(NameStr(*PG_GETARG_NAME(argument)));
}

void
DemandArguments(FunctionCallInfo fcinfo, const char *function, const char *const *names)
{
	for (int i = 0; i < PG_NARGS(); i++)
		if (names[i] != nullptr && PG_ARGISNULL(i))
			RefuseNull(function, names[i]);
}
/* create_counter(source, verb, past, post_type, user_type, mode, if_not_exists) */
Oid
CreateCounter(FunctionCallInfo fcinfo)
{
	/* nullptr: may be NULL */
	constexpr const char *kDemanded[] = {"source",	  nullptr, nullptr,		   "post_type",
										 "user_type", "mode",  "if_not_exists"};
	Request request = {};

	CheckContext("create_counter");
	DemandArguments(fcinfo, "create_counter", kDemanded);
	request.mode = CheckMode(text_to_cstring(PG_GETARG_TEXT_PP(5)));
	CheckKeyType(PG_GETARG_OID(3), "post_type");
	CheckKeyType(PG_GETARG_OID(4), "user_type");

	RangeVar *name = NewTable(PG_GETARG_TEXT_PP(0));

	LockSetup();

	Oid existing = get_relname_relid(name->relname, get_namespace_oid(name->schemaname, false));

	request.verb = OptionalText(fcinfo, 1);
	request.past = OptionalText(fcinfo, 2);
	request.if_not_exists = PG_GETARG_BOOL(6);
	if (OidIsValid(existing))
	{
		bool counted = RowsViewsOf(existing) != NIL;

		if (!request.if_not_exists || !counted)
			ereport(ERROR, errcode(ERRCODE_DUPLICATE_TABLE),
					errmsg("relation %s already exists", QualifiedName(existing)),
					counted
						? errhint("It is counted already: if_not_exists => true makes that right.")
						: errhint("likecount.attach() starts counting an existing table."));
		ereport(NOTICE, errmsg("table %s exists already and is counted, skipping",
							   QualifiedName(existing)));
		return existing;
	}

	request.source = CreateTable(name, PG_GETARG_OID(3), PG_GETARG_OID(4));
	request.post = "post_id";
	request.user = "user_id";
	request.time = "liked_at";
	Attach(request);
	return request.source;
}

/* attach(source, post_column, user_column, time_column, verb, past, only_where, mode, count_replicated, if_not_exists) */
void
AttachTable(FunctionCallInfo fcinfo)
{
	constexpr const char *kDemanded[] = {"source",		 "post_column", nullptr,
										 nullptr,		 nullptr,		nullptr,
										 nullptr,		 "mode",		"count_replicated",
										 "if_not_exists"};
	Request request = {};

	CheckContext("attach");
	DemandArguments(fcinfo, "attach", kDemanded);
	request.mode = CheckMode(text_to_cstring(PG_GETARG_TEXT_PP(7)));

	request.source = PG_GETARG_OID(0);
	request.post = OptionalName(fcinfo, 1);
	request.user = OptionalName(fcinfo, 2);
	request.time = OptionalName(fcinfo, 3);
	request.verb = OptionalText(fcinfo, 4);
	request.past = OptionalText(fcinfo, 5);
	request.only_where = OptionalText(fcinfo, 6);
	request.count_replicated = PG_GETARG_BOOL(8);
	request.if_not_exists = PG_GETARG_BOOL(9);
	Attach(request);
}

/* set_mode(source, mode, verb) */
void
SwitchMode(FunctionCallInfo fcinfo)
{
	constexpr const char *kDemanded[] = {"source", "mode", nullptr};

	CheckContext("set_mode");
	DemandArguments(fcinfo, "set_mode", kDemanded);

	Oid source = PG_GETARG_OID(0);
	Mode mode = CheckMode(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	const char *verb = OptionalText(fcinfo, 2);

	/* First who is refused anyway, or has nothing to do: without queueing a strong lock before likers. */
	CheckOwner(source);
	for (bool locked = false;; locked = true)
	{
		List *relations = locked ? LockSource(source, ShareRowExclusiveLock) : NIL;
		const Counter *counter = CounterOfSource(source, verb, false);

		if (counter->mode == mode)
		{
			ereport(NOTICE, errmsg("counter \"%s\" is in mode \"%s\" already",
								   NameStr(counter->verb), ModeName(mode)));
			return;
		}
		if (!locked)
			continue;

		Counter switched = *counter;

		SetTriggerMode(relations, NameStr(switched.verb), mode);
		(void) InsertMode(switched.id, mode);
		/* The next flush has to find out that nothing of it is in the queue any more. */
		WakeWorkerAtCommit();
		return;
	}
}

/* detach(source, verb, if_exists, cascade) */
void
DetachTable(FunctionCallInfo fcinfo)
{
	constexpr const char *kDemanded[] = {"source", nullptr, "if_exists", "cascade"};

	CheckContext("detach");
	DemandArguments(fcinfo, "detach", kDemanded);

	Oid source = PG_GETARG_OID(0);

	(void) LockSource(source, AccessExclusiveLock);
	LockSetup();
	(void) LockCounter(kAdoption, true);

	Oid rows_view = ChooseRowsView(source, OptionalText(fcinfo, 1), PG_GETARG_BOOL(2));

	if (OidIsValid(rows_view))
		Detach(source, rows_view, PG_GETARG_BOOL(3));
}
} // namespace
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_create_counter);
PGDLLEXPORT Datum likecount_create_counter(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_attach);
PGDLLEXPORT Datum likecount_attach(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_set_mode);
PGDLLEXPORT Datum likecount_set_mode(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(likecount_detach);
PGDLLEXPORT Datum likecount_detach(PG_FUNCTION_ARGS);

Datum
likecount_create_counter(PG_FUNCTION_ARGS)
{
	PG_RETURN_OID(likecount::CreateCounter(fcinfo));
}

Datum
likecount_attach(PG_FUNCTION_ARGS)
{
	likecount::AttachTable(fcinfo);
	PG_RETURN_VOID();
}

Datum
likecount_set_mode(PG_FUNCTION_ARGS)
{
	likecount::SwitchMode(fcinfo);
	PG_RETURN_VOID();
}

Datum
likecount_detach(PG_FUNCTION_ARGS)
{
	likecount::DetachTable(fcinfo);
	PG_RETURN_VOID();
}
}
