/*
 * names.cpp: verbs, and the names that they make in schema likecount.
 *
 * The verb is a counter's identity: trigger arguments and function bodies carry it, and the names of its objects are
 * made from it and from its past form.  A name of ours must never become an overload: with two candidates, the
 * untyped parameters that every driver sends resolve to neither.  So a verb is refused as soon as one of its names,
 * of this version or a planned one, exists in the schema with whatever arguments, or is a name of the extension's
 * own, of this version or a planned one: a counter `settle` of today would break the update that brings
 * likecount.settle().
 */
#include "names.hpp"

#include "registration.hpp"

namespace likecount
{
namespace
{
/* The longest suffixes, _count_now and _capture_trunc, must fit a name after the verb. */
constexpr int kMaxVerb = 48;
/* The past form of the longest verb. */
constexpr int kMaxPast = kMaxVerb + 2;

static_assert(kMaxVerb + sizeof("_capture_trunc") <= NAMEDATALEN);
static_assert(kMaxPast + sizeof("_posts") <= NAMEDATALEN);

struct Pattern
{
	const char *prefix;
	bool of_past;
	const char *suffix;
};

/* First the names of enum Part, in its order; then what belongs to them or is planned. */
constexpr Pattern kPatterns[] = {
	{"", false, ""},
	{"un", false, ""},
	{"", true, ""},
	{"", false, "_many"},
	{"", false, "_count"},
	{"", false, "_count_now"},
	{"", false, "_counts"},
	{"", true, "_posts"},
	{"", false, "_totals"},
	{"", false, "_rows"},
	{"", false, "_slots"},
	{"", false, "_slots_frozen"},
	{"", false, "_slots_open"},
	{"", false, "_slots_pkey"},
	{"un", false, "_many"},
	{"set_", false, ""},
};

/*
 * Names of the extension's own, present and planned.  The one list; whoever adds a public name to the extension
 * looks whether it stands here.  `count` would take over count(column) for whoever has the schema on the search_path.
 */
constexpr const char *kReserved[] = {
	"_add",
	"_add_many",
	"_capture",
	"_counter",
	"_counter_facts",
	"_counter_id",
	"_discard",
	"_frozen_posts",
	"_has",
	"_hot_posts",
	"_mode",
	"_open_slots",
	"_pending",
	"_posts_of",
	"_progress",
	"_reconcile_chunk",
	"_rejected",
	"_remove",
	"_repair_todo",
	"_request",
	"_sentinel",
	"_status",
	"_total",
	"_total_now",
	"_totals",
	"_watermark",
	"abbreviate",
	"adopt",
	"attach",
	"audit",
	"backfill",
	"bump",
	"check",
	"count",
	"counter",
	"counters",
	"create_counter",
	"detach",
	"drift",
	"feed",
	"flush",
	"forget",
	"freeze",
	"frozen",
	"hot_posts",
	"import",
	"journal",
	"lag",
	"likers",
	"mirror",
	"mirrors",
	"move",
	"node",
	"nodes",
	"notify",
	"pause",
	"pending",
	"post_counts",
	"post_totals",
	"progress",
	"queue",
	"reconcile",
	"reconcile_all",
	"reconcile_recent",
	"refresh",
	"rejected",
	"repair",
	"requests",
	"reset_stats",
	"resume",
	"seed",
	"set_mode",
	"set_node",
	"settle",
	"slots",
	"status",
	"sum",
	"top",
	"totals",
	"trending",
	"unfreeze",
	"unmirror",
	"version",
	"worker",
	"workers",
};

bool
IsReserved(const char *name)
{
	for (const char *reserved : kReserved)
		if (strcmp(name, reserved) == 0)
			return true;
	return false;
}

char *
Compose(const Pattern &pattern, const char *verb, const char *past)
{
	return psprintf("%s%s%s", pattern.prefix, pattern.of_past ? past : verb, pattern.suffix);
}

bool
IsWellFormed(const char *text)
{
	if (!((*text >= 'a' && *text <= 'z') || *text == '_'))
		return false;
	for (const char *c = text; *c != '\0'; c++)
		if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_'))
			return false;
	return true;
}

void
CheckForm(const char *text, const char *what, int max)
{
	if (!IsWellFormed(text))
		ereport(ERROR, errcode(ERRCODE_INVALID_NAME),
				errmsg("%s \"%s\" is not a valid name", what, text),
				errdetail(
					"It becomes part of function names and consists of lower-case letters a to "
					"z, digits and underscores, and starts with no digit."));
	if ((int) strlen(text) > max)
		ereport(ERROR, errcode(ERRCODE_NAME_TOO_LONG), errmsg("%s \"%s\" is too long", what, text),
				errdetail("It may be at most %d bytes long, so that the names made from it fit.",
						  max));
}

/* Refuses a name that an existing object of the schema has. */
void
CheckFree(const char *name, const char *verb, Oid schema)
{
	const char *kind = nullptr;

	if (OidIsValid(FunctionNamed(name, schema)))
		kind = "function";
	else if (OidIsValid(get_relname_relid(name, schema)))
		kind = "relation";
	else if (SearchSysCacheExists2(TYPENAMENSP, CStringGetDatum(name), ObjectIdGetDatum(schema)))
		kind = "type";
	if (kind != nullptr)
		ereport(ERROR, errcode(ERRCODE_DUPLICATE_OBJECT),
				errmsg("verb \"%s\" cannot be used: %s %s exists already", verb, kind,
					   quote_qualified_identifier(kSchema, name)),
				errhint("Pass another verb."));
}

/* Refuses names that an existing counter has, or gets in a planned version. */
void
CheckAgainst(const StateRow &counter, const char *verb, const char *past)
{
	if (strcmp(NameStr(counter.verb), verb) == 0)
		ereport(ERROR, errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("verb \"%s\" is in use", verb),
				errdetail("Its counter counts table %s.",
						  QualifiedName(SourceOfRowsView(counter.rows_view))),
				errhint("Pass another verb: it is unique in a database."));
	for (const Pattern &mine : kPatterns)
	{
		char *name = Compose(mine, verb, past);

		for (const Pattern &theirs : kPatterns)
			if (strcmp(name, Compose(theirs, NameStr(counter.verb), NameStr(counter.past))) == 0)
				ereport(ERROR, errcode(ERRCODE_DUPLICATE_OBJECT),
						errmsg("verb \"%s\" cannot be used: name \"%s\" belongs to counter \"%s\"",
							   verb, name, NameStr(counter.verb)),
						errhint("Pass another verb or past form."));
	}
}
} // namespace

char *
ObjectName(Part part, const char *verb, const char *past)
{
	return Compose(kPatterns[static_cast<int>(part)], verb, past);
}

void
CheckVerb(const char *verb)
{
	CheckForm(verb, "verb", kMaxVerb);
}

void
CheckPast(const char *past)
{
	CheckForm(past, "past form", kMaxPast);
}

void
DeriveVerb(const char *table, NameData *verb)
{
	int len = (int) strlen(table);
	char *name = pstrdup(table);
	auto ends = [&](const char *suffix) {
		int n = (int) strlen(suffix);

		return len > n && strcmp(name + len - n, suffix) == 0;
	};

	if (ends("ies"))
		strcpy(name + len - 3, "y");
	else if (ends("s") && !ends("ss") && !ends("us"))
		name[len - 1] = '\0';

	if (!IsWellFormed(name) || (int) strlen(name) > kMaxVerb)
		ereport(ERROR, errcode(ERRCODE_INVALID_NAME),
				errmsg("no verb can be derived from the table name \"%s\"", table),
				errdetail("A verb consists of at most %d lower-case letters a to z, digits and "
						  "underscores, and starts with no digit.",
						  kMaxVerb),
				errhint("Pass the argument verb."));
	namestrcpy(verb, name);
}

void
DerivePast(const char *verb, NameData *past)
{
	int len = (int) strlen(verb);

	namestrcpy(past, psprintf("%s%s", verb, verb[len - 1] == 'e' ? "d" : "ed"));
}

void
CheckNamesFree(const char *verb, const char *past)
{
	const Members *m = GetMembers();
	ListCell *cell;

	if (IsReserved(verb))
		ereport(ERROR, errcode(ERRCODE_RESERVED_NAME), errmsg("verb \"%s\" is reserved", verb),
				errdetail("Schema %s has, or will have, an object of this name.", kSchema),
				errhint("Pass another verb."));
	for (const Pattern &pattern : kPatterns)
	{
		char *name = Compose(pattern, verb, past);

		if (IsReserved(name))
			ereport(ERROR, errcode(ERRCODE_RESERVED_NAME),
					errmsg("verb \"%s\" with past form \"%s\" needs the reserved name \"%s\"", verb,
						   past, name),
					errhint("Pass another verb or past form."));
		for (const Pattern *other = &pattern + 1; other < kPatterns + lengthof(kPatterns); other++)
			if (strcmp(name, Compose(*other, verb, past)) == 0)
				ereport(ERROR, errcode(ERRCODE_INVALID_NAME),
						errmsg("verb \"%s\" with past form \"%s\" needs the name \"%s\" twice",
							   verb, past, name),
						errhint("Pass another past form."));
	}

	foreach (cell, ReadStateRows())
		CheckAgainst(*static_cast<const StateRow *>(lfirst(cell)), verb, past);
	for (const Pattern &pattern : kPatterns)
		CheckFree(Compose(pattern, verb, past), verb, m->schema);
}

Oid
FunctionNamed(const char *name, Oid schema)
{
	ScanKeyData key;
	Relation rel = table_open(ProcedureRelationId, AccessShareLock);
	Oid found = InvalidOid;
	HeapTuple tuple;

	ScanKeyInit(&key, Anum_pg_proc_proname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum(name));
	SysScanDesc scan = systable_beginscan(rel, ProcedureNameArgsNspIndexId, true, nullptr, 1, &key);

	while (!OidIsValid(found) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		auto *form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));

		if (form->pronamespace == schema)
			found = form->oid;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}
} // namespace likecount
