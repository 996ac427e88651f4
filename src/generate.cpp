/*
 * generate.cpp: making a counter's objects and tying them together.
 *
 * Who owns what.  The rows view, slots, totals and functions belong to the extension's owner: an owner of the source
 * who also owned these could put rules and triggers on them, and so run code as whoever flushes or reads.  They are
 * not members of the extension, because pg_dump leaves members out.  The capture triggers belong to the source.
 *
 * The functions are wrappers with SQL-standard bodies that carry the verb.  They inline into the calling query, so
 * they cost nothing in a prepared statement; STRICT, SET or SECURITY DEFINER would stop that.  Where EXPLAIN looks
 * they are gone, and where DROP and pg_dump look they depend on the inner functions.
 *
 * How things hang together: the rows view depends on the source, slots, functions and triggers on the rows view,
 * totals on slots, all of it AUTO.  So dropping the source, its schema or its owner's objects takes everything along
 * without CASCADE, dropping the rows view is detaching, and an object of a user's that uses the totals view makes
 * PostgreSQL refuse and name it.  The ordinary dependencies do the rest: a key column can't be dropped or change its
 * type, and the extension can't be dropped without CASCADE.  Dumps and pg_upgrade lose the AUTO entries, adoption puts
 * them back.
 *
 * Commands are built from quoted names and from the text of checked expression trees, and run with search_path
 * pg_catalog, pg_temp, where every name outside pg_catalog is written qualified.
 */
#include "generate.hpp"

#include "counter.hpp"
#include "only_where.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
enum class Needs : uint8
{
	kPost,
	kUser,	 /* a user column */
	kWriter, /* a user column, rows that can be made from post and user, and no condition */
	kEraser, /* a user column, and no condition */
};

/* A generated function.  Words in braces are replaced, see Expand. */
struct Function
{
	Part part;
	Needs needs;
	const char *arguments;
	const char *rest; /* result, attributes, body */
	const char *comment;
};

/* ROWS, COST and PARALLEL are those of the inner functions; here they count only where a wrapper is not inlined. */
constexpr Function kFunctions[] = {
	{Part::kAdd, Needs::kWriter, "post_id {post}, user_id {user}",
	 "boolean LANGUAGE sql VOLATILE PARALLEL UNSAFE RETURN likecount._add({verb}, post_id, "
	 "user_id)",
	 "records that a user likes a post; true: this call did, false: it was recorded already"},
	{Part::kRemove, Needs::kEraser, "post_id {post}, user_id {user}",
	 "boolean LANGUAGE sql VOLATILE PARALLEL UNSAFE RETURN likecount._remove({verb}, post_id, "
	 "user_id)",
	 "takes a record back; true: this call did, false: there was none"},
	{Part::kHas, Needs::kUser, "post_id {post}, user_id {user}",
	 "boolean LANGUAGE sql STABLE PARALLEL RESTRICTED RETURN likecount._has({verb}, post_id, "
	 "user_id)",
	 "whether a user's record of a post exists, exact, from the source"},
	{Part::kAddMany, Needs::kWriter, "post_ids {post}[], user_ids {user}[]",
	 "bigint LANGUAGE sql VOLATILE PARALLEL UNSAFE COST 1000"
	 " RETURN likecount._add_many({verb}, post_ids, user_ids)",
	 "records many pairs of post and user in one pass; returns how many are new"},
	{Part::kCount, Needs::kPost, "post_id {post}",
	 "bigint LANGUAGE sql STABLE PARALLEL SAFE RETURN likecount._total({verb}, post_id)",
	 "the displayed total of a post; 0 for an unknown one"},
	/* VOLATILE: it changes with each like of the statement that calls it. */
	{Part::kCountNow, Needs::kPost, "post_id {post}",
	 "bigint LANGUAGE sql VOLATILE PARALLEL RESTRICTED COST 1000"
	 " RETURN likecount._total_now({verb}, post_id)",
	 "the displayed total of a post and all that is not in it yet, the caller's own likes "
	 "included"},
	{Part::kCounts, Needs::kPost, "post_ids {post}[]",
	 "TABLE (post_id {post}, total bigint) LANGUAGE sql STABLE PARALLEL SAFE COST 100 ROWS 50"
	 " BEGIN ATOMIC SELECT t.post_id, t.total FROM likecount._totals({verb}, post_ids) AS t; END",
	 "the displayed totals of many posts, in the order of the array"},
	{Part::kPostsOf, Needs::kUser, "user_id {user}, post_ids {post}[]",
	 "SETOF {post} LANGUAGE sql STABLE PARALLEL RESTRICTED COST 100 ROWS 50"
	 " BEGIN ATOMIC SELECT p.post_id FROM likecount._posts_of({verb}, user_id, post_ids) AS p "
	 "(post_id);"
	 " END",
	 "those of the posts that a user's record exists of"},
};

constexpr Part kRelations[] = {Part::kRows, Part::kSlots, Part::kTotals};

/* The events of CaptureTriggers, in its order. */
struct Event
{
	const char *suffix;
	int16 type; /* pg_trigger.tgtype */
	const char *when;
};

constexpr Event kEventList[CaptureTriggers::kEvents] = {
	{"ins", TRIGGER_TYPE_INSERT | TRIGGER_TYPE_ROW, "AFTER INSERT"},
	{"del", TRIGGER_TYPE_DELETE | TRIGGER_TYPE_ROW, "AFTER DELETE"},
	{"upd", TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_ROW, "AFTER UPDATE"},
	{"trunc", TRIGGER_TYPE_TRUNCATE, "AFTER TRUNCATE"},
};

/* Replaces {post}, {user} (the types that functions take) and {verb} (a literal). */
char *
Expand(const char *text, const Definition &definition)
{
	StringInfoData out;
	const char *post = format_type_be(KeyArgumentType(definition.post_type));
	const char *user =
		definition.user == nullptr ? "" : format_type_be(KeyArgumentType(definition.user_type));

	initStringInfo(&out);
	while (*text != '\0')
	{
		if (strncmp(text, "{post}", 6) == 0)
			appendStringInfoString(&out, post);
		else if (strncmp(text, "{user}", 6) == 0)
			appendStringInfoString(&out, user);
		else if (strncmp(text, "{verb}", 6) == 0)
			appendStringInfoString(&out, quote_literal_cstr(NameStr(definition.verb)));
		else
		{
			appendStringInfoChar(&out, *text++);
			continue;
		}
		text += 6;
	}
	return out.data;
}

char *
NameOf(const Definition &definition, Part part)
{
	return ObjectName(part, NameStr(definition.verb), NameStr(definition.past));
}

/* Name of one of the counter's objects for a command, whether it exists or not. */
char *
Quoted(const Definition &definition, Part part)
{
	return quote_qualified_identifier(kSchema, NameOf(definition, part));
}

bool
Wanted(const Function &function, const Definition &definition)
{
	bool user = definition.user != nullptr;
	bool where = definition.only_where != nullptr;

	switch (function.needs)
	{
		case Needs::kPost:
			return true;
		case Needs::kUser:
			return user;
		case Needs::kWriter:
			return user && !where && definition.writable;
		case Needs::kEraser:
			return user && !where;
	}
	return false;
}

void
Run(const char *command)
{
	(void) SpiExecute(command, nullptr, SPI_OK_UTILITY);
}

void
Comment(const char *kind, const char *name, const char *comment)
{
	Run(psprintf("COMMENT ON %s %s IS %s", kind, name, quote_literal_cstr(comment)));
}

/* The owner of the source reads the view, and may pass that on. */
void
GrantToOwner(const Definition &definition, const char *view)
{
	Run(psprintf("GRANT SELECT ON %s TO %s WITH GRANT OPTION", view,
				 quote_identifier(GetUserNameFromId(definition.owner, false))));
}

/* Takes back what ALTER DEFAULT PRIVILEGES of the extension's owner gives away: nobody else writes slots. */
void
RevokeDefaults(const char *table)
{
	SpiArgs args = {};
	bool isnull;

	args.Add(TEXTOID, CStringGetTextDatum(table));

	/* aclexplode has a row per privilege; grantee 0 is PUBLIC. */
	uint64 rows =
		SpiExecute("SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC'"
				   " ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END"
				   " FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a"
				   " WHERE c.oid = $1::pg_catalog.regclass AND a.grantee <> c.relowner",
				   &args, SPI_OK_SELECT);
	SPITupleTable *result = SPI_tuptable;

	for (uint64 i = 0; i < rows; i++)
		Run(psprintf("REVOKE ALL ON TABLE %s FROM %s", table,
					 TextDatumGetCString(
						 SPI_getbinval(result->vals[i], result->tupdesc, 1, &isnull))));
}

void
MakeSlots(const Definition &definition)
{
	const char *name = Quoted(definition, Part::kSlots);
	const char *collate = "";

	if (OidIsValid(definition.post_collation) &&
		definition.post_collation != get_typcollation(definition.post_type))
	{
		Oid collation = definition.post_collation;
		HeapTuple tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "collation %u is gone", collation);

		auto *form = reinterpret_cast<Form_pg_collation>(GETSTRUCT(tuple));

		collate = psprintf(" COLLATE %s",
						   quote_qualified_identifier(get_namespace_name(form->collnamespace),
													  NameStr(form->collname)));
		ReleaseSysCache(tuple);
	}

	/* Room on each page for new versions of its rows: a slot is updated again and again, and only HOT stays small. */
	Run(psprintf(
		"CREATE TABLE %s (post %s%s NOT NULL, node smallint NOT NULL, slot smallint NOT NULL,"
		" value bigint NOT NULL, updated_at timestamp with time zone NOT NULL,"
		" PRIMARY KEY (post, node, slot)) WITH (fillfactor = 70)",
		name, format_type_be(definition.post_type), collate));
	/* Of frozen posts alone, so that it costs nothing where there are none: see slots.cpp. */
	Run(psprintf("CREATE INDEX %s ON %s (post) WHERE slot = -1",
				 quote_identifier(NameOf(definition, Part::kFrozen)), name));
	/* Of the slots of direct mode alone, which are few: see direct.cpp. */
	Run(psprintf("CREATE INDEX %s ON %s (post) WHERE slot > 0",
				 quote_identifier(NameOf(definition, Part::kOpen)), name));
	/* Where two servers with the same node number replicate to each other, each would overwrite what the other counted. */
	Run(psprintf("CREATE TRIGGER other_node BEFORE INSERT OR UPDATE ON %s FOR EACH ROW"
				 " EXECUTE FUNCTION likecount._other_node()",
				 name));
	Run(psprintf("ALTER TABLE %s ENABLE REPLICA TRIGGER other_node", name));
	RevokeDefaults(name);
	Comment("INDEX", Quoted(definition, Part::kFrozen),
			psprintf("likecount: frozen posts of counter \"%s\"", NameStr(definition.verb)));
	Comment("TABLE", name,
			psprintf("likecount: slots of counter \"%s\"; a post's total is the sum of its rows",
					 NameStr(definition.verb)));
}

void
MakeTotals(const Definition &definition)
{
	const char *name = Quoted(definition, Part::kTotals);

	Run(psprintf(
		"CREATE VIEW %s AS SELECT s.post AS post_id, pg_catalog.sum(s.value)::bigint AS total"
		" FROM %s AS s GROUP BY s.post",
		name, Quoted(definition, Part::kSlots)));
	RevokeDefaults(name);
	GrantToOwner(definition, name);
	Comment("VIEW", name,
			psprintf("likecount: the displayed totals of counter \"%s\"",
					 NameStr(definition.verb)));
}

void
MakeFunction(const Function &function, const Definition &definition)
{
	const char *name = Quoted(definition, function.part);

	Run(psprintf("CREATE OR REPLACE FUNCTION %s (%s) RETURNS %s", name,
				 Expand(function.arguments, definition), Expand(function.rest, definition)));
	/* Default privileges may have revoked it; USAGE on the schema is the gate. */
	Run(psprintf("GRANT EXECUTE ON FUNCTION %s TO PUBLIC", name));
	Comment("FUNCTION", name,
			psprintf("likecount, counter \"%s\": %s", NameStr(definition.verb), function.comment));
}

/* A trigger's arguments, each with its terminating zero, one after the other; nullptr: it has none. */
const char *
TriggerArguments(HeapTuple tuple, TupleDesc desc)
{
	bool isnull;
	Datum arguments = heap_getattr(tuple, Anum_pg_trigger_tgargs, desc, &isnull);

	if (isnull)
		return nullptr;

	bytea *bytes = DatumGetByteaPP(arguments);
	int len = VARSIZE_ANY_EXHDR(bytes);
	auto *text = static_cast<char *>(palloc0(len + 1));

	memcpy(text, VARDATA_ANY(bytes), len);
	return text;
}

/* Reads a name out of a trigger's arguments; the empty name when there is none or it is too long. */
NameData
TriggerArgument(const char *arguments, int count, int wanted)
{
	NameData result = {};

	if (wanted >= count)
		return result;
	for (int i = 0; i < wanted; i++)
		arguments += strlen(arguments) + 1;
	if (strlen(arguments) < NAMEDATALEN)
		namestrcpy(&result, arguments);
	return result;
}

/* Replaces the mode in the arguments of a verb's capture trigger; of another trigger nothing. */
void
SetModeOf(Relation triggers, HeapTuple tuple, Oid capture, const char *verb, Mode mode)
{
	auto *form = reinterpret_cast<Form_pg_trigger>(GETSTRUCT(tuple));
	const char *arguments = TriggerArguments(tuple, RelationGetDescr(triggers));
	Datum values[Natts_pg_trigger];
	bool nulls[Natts_pg_trigger] = {};
	bool replaced[Natts_pg_trigger] = {};
	StringInfoData out;

	if (form->tgfoid != capture || arguments == nullptr || form->tgnargs != 3)
		return;

	NameData of = TriggerArgument(arguments, form->tgnargs, 0);
	NameData past = TriggerArgument(arguments, form->tgnargs, 1);

	if (strcmp(NameStr(of), verb) != 0)
		return;

	const char *list[] = {verb, NameStr(past), ModeName(mode)};

	initStringInfo(&out);
	for (const char *argument : list)
		appendBinaryStringInfo(&out, argument, (int) strlen(argument) + 1);

	auto *bytes = static_cast<bytea *>(palloc(VARHDRSZ + out.len));

	SET_VARSIZE(bytes, VARHDRSZ + out.len);
	memcpy(VARDATA(bytes), out.data, out.len);
	values[Anum_pg_trigger_tgargs - 1] = PointerGetDatum(bytes);
	replaced[Anum_pg_trigger_tgargs - 1] = true;

	HeapTuple changed =
		heap_modify_tuple(tuple, RelationGetDescr(triggers), values, nulls, replaced);

	CatalogTupleUpdate(triggers, &changed->t_self, changed);
}

/* Adds a trigger to the set it belongs to. */
List *
AddTrigger(List *sets, HeapTuple tuple, TupleDesc desc)
{
	auto *form = reinterpret_cast<Form_pg_trigger>(GETSTRUCT(tuple));
	ListCell *cell;
	CaptureTriggers *set = nullptr;
	const char *text = TriggerArguments(tuple, desc);

	if (text == nullptr || OidIsValid(form->tgparentid) || form->tgisinternal)
		return sets;

	NameData verb = TriggerArgument(text, form->tgnargs, 0);

	foreach (cell, sets)
	{
		auto *other = static_cast<CaptureTriggers *>(lfirst(cell));

		if (other->relation == form->tgrelid && strcmp(NameStr(other->verb), NameStr(verb)) == 0)
			set = other;
	}
	if (set == nullptr)
	{
		set = palloc0_object(CaptureTriggers);
		set->relation = form->tgrelid;
		set->verb = verb;
		set->past = TriggerArgument(text, form->tgnargs, 1);
		set->mode = TriggerArgument(text, form->tgnargs, 2);
		sets = lappend(sets, set);
	}
	set->names = lappend(set->names, pstrdup(NameStr(form->tgname)));
	for (int i = 0; i < CaptureTriggers::kEvents; i++)
		if (form->tgtype == kEventList[i].type)
			set->triggers[i] = form->oid;
	return sets;
}

bool
HasAutoDependency(Oid class_id, Oid object, Oid on_class, Oid on)
{
	ScanKeyData key[2];
	HeapTuple tuple;
	bool found = false;
	Relation rel = table_open(DependRelationId, AccessShareLock);

	ScanKeyInit(&key[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(class_id));
	ScanKeyInit(&key[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(object));
	SysScanDesc scan = systable_beginscan(rel, DependDependerIndexId, true, nullptr, 2, key);

	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		auto *depend = reinterpret_cast<Form_pg_depend>(GETSTRUCT(tuple));

		found = depend->objsubid == 0 && depend->refclassid == on_class && depend->refobjid == on &&
				depend->refobjsubid == 0 && depend->deptype == DEPENDENCY_AUTO;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Records one AUTO dependency; true when it was missing. */
bool
LinkOne(Oid class_id, Oid object, Oid on, bool write)
{
	ObjectAddress depender;
	ObjectAddress referenced;

	if (!OidIsValid(object) || !OidIsValid(on) ||
		HasAutoDependency(class_id, object, RelationRelationId, on))
		return false;
	ObjectAddressSet(depender, class_id, object);
	ObjectAddressSet(referenced, RelationRelationId, on);
	if (write)
		recordDependencyOn(&depender, &referenced, DEPENDENCY_AUTO);
	return true;
}

/* Drops what a partial restore left of this verb's capture triggers on the source. */
void
DropLeftovers(const Definition &definition, const char *source)
{
	ListCell *cell;

	foreach (cell, FindCaptureTriggers(definition.source))
	{
		auto *set = static_cast<CaptureTriggers *>(lfirst(cell));
		ListCell *name;

		if (strcmp(NameStr(set->verb), NameStr(definition.verb)) == 0)
			foreach (name, set->names)
				Run(psprintf("DROP TRIGGER %s ON %s",
							 quote_identifier(static_cast<char *>(lfirst(name))), source));
	}
}

/* True when a domain, or one it is made from, refuses NULL. */
bool
DomainRefusesNull(Oid type)
{
	bool refuses = false;

	while (!refuses && get_typtype(type) == TYPTYPE_DOMAIN)
	{
		HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "type %u is gone", type);

		auto *form = reinterpret_cast<Form_pg_type>(GETSTRUCT(tuple));

		refuses = form->typnotnull;
		type = form->typbasetype;
		ReleaseSysCache(tuple);
	}
	return refuses;
}

Oid
OwnerOfRelation(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid owner = HeapTupleIsValid(tuple)
					? reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner
					: InvalidOid;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return owner;
}

Oid
OwnerOfFunction(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid owner = HeapTupleIsValid(tuple) ? reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->proowner
										: InvalidOid;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return owner;
}

/* The condition under which an update changes what is counted. */
char *
UpdateCondition(const Definition &definition)
{
	StringInfoData out;
	const char *post = quote_identifier(definition.post);

	initStringInfo(&out);
	appendStringInfo(&out, "old.%s IS DISTINCT FROM new.%s", post, post);
	if (definition.time != nullptr)
	{
		const char *time = quote_identifier(definition.time);

		appendStringInfo(&out, " OR old.%s IS DISTINCT FROM new.%s", time, time);
	}
	if (definition.only_where != nullptr)
		appendStringInfo(&out, " OR (%s) IS DISTINCT FROM (%s)",
						 DeparseOnlyWhere(definition.only_where, definition.source, "old"),
						 DeparseOnlyWhere(definition.only_where, definition.source, "new"));
	return out.data;
}
} // namespace

bool
IsWritable(Relation source, AttrNumber post, AttrNumber user, const char **why)
{
	TupleDesc desc = RelationGetDescr(source);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;

		bool is_key = att->attnum == post || att->attnum == user;
		bool computed = att->attgenerated != '\0' || att->attidentity == ATTRIBUTE_IDENTITY_ALWAYS;
		bool filled = computed || att->attidentity != '\0' || att->atthasdef ||
					  get_typdefault(att->atttypid) != nullptr;

		if (is_key ? computed : (att->attnotnull || DomainRefusesNull(att->atttypid)) && !filled)
		{
			*why = pstrdup(NameStr(att->attname));
			return false;
		}
	}
	return true;
}

Oid
MakeRowsView(const Definition &definition)
{
	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);
	const char *name = Quoted(definition, Part::kRows);
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql,
					 "CREATE VIEW %s WITH (security_invoker = true) AS SELECT s.%s AS post_id",
					 name, quote_identifier(definition.post));
	if (definition.user != nullptr)
		appendStringInfo(&sql, ", s.%s AS user_id", quote_identifier(definition.user));
	if (definition.time != nullptr)
		appendStringInfo(&sql, ", s.%s AS liked_at", quote_identifier(definition.time));
	/* Rows of an inheritance child fire no trigger of ours. */
	appendStringInfo(&sql, " FROM %s%s AS s", definition.partitioned ? "" : "ONLY ",
					 QualifiedName(definition.source));
	if (definition.only_where != nullptr)
		appendStringInfo(&sql, " WHERE %s",
						 DeparseOnlyWhere(definition.only_where, definition.source, "s"));

	SPI_connect();
	Run(sql.data);
	RevokeDefaults(name);
	GrantToOwner(definition, name);
	Comment("VIEW", name,
			psprintf("likecount: the definition of counter \"%s\", the rows that count",
					 NameStr(definition.verb)));
	SPI_finish();
	SwitchBack(saved);
	return get_relname_relid(NameOf(definition, Part::kRows), GetMembers()->schema);
}

void
MakeObjects(const Definition &definition, bool replace)
{
	Oid schema = GetMembers()->schema;
	UserSwitch saved = SwitchUser(GetMembers()->owner, RunAs::kExtensionOwner);

	SPI_connect();
	if (!OidIsValid(get_relname_relid(NameOf(definition, Part::kSlots), schema)))
		MakeSlots(definition);
	if (!OidIsValid(get_relname_relid(NameOf(definition, Part::kTotals), schema)))
		MakeTotals(definition);
	for (const Function &function : kFunctions)
		if (Wanted(function, definition) &&
			(replace || !OidIsValid(FunctionNamed(NameOf(definition, function.part), schema))))
			MakeFunction(function, definition);
	SPI_finish();
	SwitchBack(saved);
}

bool
ObjectsMissing(const Definition &definition)
{
	Oid schema = GetMembers()->schema;

	for (const Function &function : kFunctions)
		if (Wanted(function, definition) &&
			!OidIsValid(FunctionNamed(NameOf(definition, function.part), schema)))
			return true;
	return !OidIsValid(get_relname_relid(NameOf(definition, Part::kSlots), schema)) ||
		   !OidIsValid(get_relname_relid(NameOf(definition, Part::kTotals), schema));
}

bool
TakeOwnership(const Definition &definition)
{
	const Members *m = GetMembers();
	const char *owner = quote_identifier(GetUserNameFromId(m->owner, false));

	/* Nobody is waited for, nor made to wait: readers of the totals would queue behind a request for this lock. */
	for (Part part : kRelations)
	{
		Oid relation = get_relname_relid(NameOf(definition, part), m->schema);

		if (OidIsValid(relation) && OwnerOfRelation(relation) != m->owner &&
			!ConditionalLockRelationOid(relation, AccessExclusiveLock))
			return false;
	}

	UserSwitch saved = SwitchUser(m->owner, RunAs::kExtensionOwner);

	SPI_connect();
	for (Part part : kRelations)
	{
		Oid relation = get_relname_relid(NameOf(definition, part), m->schema);

		if (OidIsValid(relation) && OwnerOfRelation(relation) != m->owner)
			Run(psprintf("ALTER TABLE %s OWNER TO %s", Quoted(definition, part), owner));
	}
	for (const Function &function : kFunctions)
	{
		Oid oid = FunctionNamed(NameOf(definition, function.part), m->schema);

		if (OidIsValid(oid) && OwnerOfFunction(oid) != m->owner)
			Run(psprintf("ALTER FUNCTION %s OWNER TO %s", Quoted(definition, function.part),
						 owner));
	}
	SPI_finish();
	SwitchBack(saved);
	return true;
}

void
MakeTriggers(const Definition &definition, bool count_replicated)
{
	const char *source = QualifiedName(definition.source);
	int guc_level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	DropLeftovers(definition, source);
	for (const Event &event : kEventList)
	{
		bool row = (event.type & TRIGGER_TYPE_ROW) != 0;
		bool update = (event.type & TRIGGER_TYPE_UPDATE) != 0;
		char *name = psprintf("%s_capture_%s", NameStr(definition.verb), event.suffix);

		if (OidIsValid(get_trigger_oid(definition.source, name, true)))
			ereport(ERROR, errcode(ERRCODE_DUPLICATE_OBJECT),
					errmsg("trigger \"%s\" of table %s exists already", name, source),
					errhint("Rename the trigger, or pass another verb."));
		Run(psprintf("CREATE TRIGGER %s %s ON %s FOR EACH %s%s EXECUTE FUNCTION "
					 "likecount._capture(%s, %s, %s)",
					 quote_identifier(name), event.when, source, row ? "ROW" : "STATEMENT",
					 update ? psprintf(" WHEN (%s)", UpdateCondition(definition)) : "",
					 quote_literal_cstr(NameStr(definition.verb)),
					 quote_literal_cstr(NameStr(definition.past)),
					 quote_literal_cstr(ModeName(definition.mode))));
		if (count_replicated)
			Run(psprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s", source,
						 quote_identifier(name)));
		Comment("TRIGGER", psprintf("%s ON %s", quote_identifier(name), source),
				psprintf("likecount: captures what counter \"%s\" counts",
						 NameStr(definition.verb)));
	}
	SPI_finish();
	AtEOXact_GUC(false, guc_level);
}

void
SetTriggerMode(List *relations, const char *verb, Mode mode)
{
	Oid capture = FunctionNamed("_capture", GetMembers()->schema);
	Relation triggers = table_open(TriggerRelationId, RowExclusiveLock);
	ListCell *cell;

	foreach (cell, relations)
	{
		ScanKeyData key;
		HeapTuple tuple;

		ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(lfirst_oid(cell)));
		SysScanDesc scan =
			systable_beginscan(triggers, TriggerRelidNameIndexId, true, nullptr, 1, &key);

		while (HeapTupleIsValid(tuple = systable_getnext(scan)))
			SetModeOf(triggers, tuple, capture, verb, mode);
		systable_endscan(scan);
		CacheInvalidateRelcacheByRelid(lfirst_oid(cell));
	}
	table_close(triggers, RowExclusiveLock);
	CommandCounterIncrement();
}

List *
FindCaptureTriggers(Oid relation)
{
	List *sets = NIL;
	ScanKeyData key[2];
	HeapTuple tuple;
	Oid capture = FunctionNamed("_capture", GetMembers()->schema);
	Relation depends = table_open(DependRelationId, AccessShareLock);
	Relation triggers = table_open(TriggerRelationId, AccessShareLock);

	/* Through the dependencies on the function: pg_trigger has no index on it. */
	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(ProcedureRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(capture));
	SysScanDesc scan = systable_beginscan(depends, DependReferenceIndexId, true, nullptr, 2, key);

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		auto *depend = reinterpret_cast<Form_pg_depend>(GETSTRUCT(tuple));
		ScanKeyData by_oid;

		if (depend->classid != TriggerRelationId)
			continue;
		ScanKeyInit(&by_oid, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(depend->objid));
		SysScanDesc one =
			systable_beginscan(triggers, TriggerOidIndexId, true, nullptr, 1, &by_oid);
		HeapTuple trigger = systable_getnext(one);

		if (HeapTupleIsValid(trigger) &&
			(!OidIsValid(relation) ||
			 reinterpret_cast<Form_pg_trigger>(GETSTRUCT(trigger))->tgrelid == relation))
			sets = AddTrigger(sets, trigger, RelationGetDescr(triggers));
		systable_endscan(one);
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
	table_close(depends, AccessShareLock);
	return sets;
}

bool
Link(Oid rows_view, Oid source, const char *verb, const char *past, const CaptureTriggers *triggers,
	 bool write)
{
	Oid schema = GetMembers()->schema;
	Oid slots = get_relname_relid(ObjectName(Part::kSlots, verb, past), schema);
	Oid totals = get_relname_relid(ObjectName(Part::kTotals, verb, past), schema);
	bool missing = false;

	missing |= LinkOne(RelationRelationId, rows_view, source, write);
	missing |= LinkOne(RelationRelationId, slots, rows_view, write);
	missing |= LinkOne(RelationRelationId, totals, slots, write);
	for (const Function &function : kFunctions)
		missing |=
			LinkOne(ProcedureRelationId,
					FunctionNamed(ObjectName(function.part, verb, past), schema), rows_view, write);
	if (triggers != nullptr)
		for (Oid trigger : triggers->triggers)
			missing |= LinkOne(TriggerRelationId, trigger, rows_view, write);
	if (missing && write)
		CommandCounterIncrement();
	return missing;
}
} // namespace likecount
