/*
 * call.cpp: the beginning of every call of a counter's functions.
 *
 * The generated functions are one-line wrappers that inline, so what runs is
 * likecount._add('like', post, user) and its siblings.  Anybody may call those by hand, with
 * arguments of any type; each call compares the types that the parser resolved with the counter's
 * before it looks at a value.
 */
#include "call.hpp"

namespace likecount
{
constexpr int kMaxArguments = 3;

/* The types of the arguments, as the parser resolved them. */
struct CallSite
{
	Oid types[kMaxArguments];
};

static_assert(kPlain<CallSite>);

namespace
{
const CallSite *
SiteOf(FunctionCallInfo fcinfo)
{
	FmgrInfo *flinfo = fcinfo->flinfo;

	if (flinfo->fn_extra == nullptr)
	{
		auto *site =
			static_cast<CallSite *>(MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(CallSite)));

		Assert(PG_NARGS() <= kMaxArguments);
		/* InvalidOid when nobody knows, which is no counter's type. */
		for (int i = 0; i < PG_NARGS(); i++)
			site->types[i] = get_fn_expr_argtype(flinfo, i);
		flinfo->fn_extra = site;
	}
	return static_cast<CallSite *>(flinfo->fn_extra);
}

const char *
GeneratedName(Generated function, const char *verb, const char *past)
{
	switch (function)
	{
		case Generated::kLike:
			return psprintf("likecount.%s()", verb);
		case Generated::kUnlike:
			return psprintf("likecount.un%s()", verb);
		case Generated::kLiked:
			return psprintf("likecount.%s()", past);
		case Generated::kLikeMany:
			return psprintf("likecount.%s_many()", verb);
		case Generated::kLikeCount:
			return psprintf("likecount.%s_count()", verb);
		case Generated::kLikeCountNow:
			return psprintf("likecount.%s_count_now()", verb);
		case Generated::kLikeCounts:
			return psprintf("likecount.%s_counts()", verb);
		case Generated::kLikedPosts:
			return psprintf("likecount.%s_posts()", past);
	}
	pg_unreachable();
}

int
CompareWanted(const void *a, const void *b)
{
	auto *x = static_cast<const Wanted *>(a);
	auto *y = static_cast<const Wanted *>(b);
	int order = KeyCompare(x->key, y->key);

	return order != 0 ? order : x->position - y->position;
}
} // namespace

const char *
NameOf(const Call &call)
{
	return GeneratedName(call.function, call.verb, NameStr(call.counter.past));
}

void
BeginCall(Call *call, FunctionCallInfo fcinfo, Generated function)
{
	call->fcinfo = fcinfo;
	call->site = SiteOf(fcinfo);
	call->function = function;

	if (PG_ARGISNULL(0))
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"verb\" must not be null"));

	/* Into the frame, not the heap.  A longer text is nobody's verb, cut off or not. */
	text *verb = PG_GETARG_TEXT_PP(0);
	Size len = Min(VARSIZE_ANY_EXHDR(verb), NAMEDATALEN - 1);

	memcpy(call->verb, VARDATA_ANY(verb), len);
	call->verb[len] = '\0';

	if (XactReadOnly && (function == Generated::kLike || function == Generated::kUnlike ||
						 function == Generated::kLikeMany))
		PreventCommandIfReadOnly(GeneratedName(function, call->verb, ""));

	/*
	 * Neither a lock that the transaction has already nor a total that comes from the cache lets them in, and what others have
	 * committed, a REVOKE or a detach, is to be known.
	 */
	AcceptInvalidationMessages();
	call->counter = *GetCounter(call->verb);
}

void
NeedUser(const Call &call, bool writes)
{
	if (call.counter.user_att == InvalidAttrNumber)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("counter \"%s\" has no user column", call.verb),
				errdetail("It counts rows, and cannot tell whose they are."));
	if (writes && call.counter.has_where)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("counter \"%s\" counts only rows under a condition", call.verb),
				errhint("Write to table %s.", QualifiedName(call.counter.source)));
}

void
CheckType(const Call &call, int argument, Oid column_type, bool array)
{
	Oid wanted = KeyArgumentType(column_type);
	Oid given = call.site->types[argument];

	if (array && OidIsValid(given))
		given = get_element_type(given);

	if (given != wanted)
		ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("argument %d has type %s, but counter \"%s\" takes %s", argument + 1,
					   format_type_be(call.site->types[argument]), call.verb,
					   format_type_be(array ? get_array_type(wanted) : wanted)),
				errhint("Call %s.", NameOf(call)));
}

void
CheckNotNull(const Call &call, int argument, const char *name)
{
	if (call.fcinfo->args[argument].isnull)
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"%s\" of %s must not be null", name, NameOf(call)));
}

void
CheckKeys(const Call &call, bool writes)
{
	NeedUser(call, writes);
	CheckType(call, 1, call.counter.post_type, false);
	CheckType(call, 2, call.counter.user_type, false);
	CheckNotNull(call, 1, "post_id");
	CheckNotNull(call, 2, "user_id");
}

Datum
NarrowOrFail(const Call &call, Datum given, const char *name, Oid column_type)
{
	Datum value;

	if (KeyNarrow(column_type, given, &value))
		return value;
	if (KeyKindOf(column_type) == KeyKind::kText)
		ereport(ERROR, errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
				errmsg("argument \"%s\" of %s is too long", name, NameOf(call)),
				errdetail("A key of type text has at most %d bytes.", kMaxTextKey));
	ereport(ERROR, errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			errmsg("argument \"%s\" of %s is out of range", name, NameOf(call)),
			errdetail("Value " INT64_FORMAT " does not fit into a column of type %s.",
					  DatumGetInt64(given), format_type_be(column_type)));
	pg_unreachable();
}

ArrayType *
ArrayArgument(const Call &call, int argument, const char *name)
{
	ArrayType *array = DatumGetArrayTypeP(call.fcinfo->args[argument].value);

	if (ARR_NDIM(array) > 1)
		ereport(ERROR, errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				errmsg("argument \"%s\" of %s must be one-dimensional", name, NameOf(call)),
				errdetail("The array has %d dimensions.", ARR_NDIM(array)));
	if (array_contains_nulls(array))
		ereport(ERROR, errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("argument \"%s\" of %s must not contain nulls", name, NameOf(call)));
	return array;
}

int
ArrayLength(const ArrayType *array)
{
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

Datum *
ReadKeys(const Call &call, ArrayType *array, const char *name, Oid column_type)
{
	int16 len;
	bool byval;
	char align;
	Datum *keys;
	bool *nulls;
	int count;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &keys, &nulls, &count);
	for (int i = 0; i < count; i++)
		keys[i] = NarrowOrFail(call, keys[i], name, column_type);
	return keys;
}

WantedList
ReadWanted(const Call &call, int argument)
{
	ArrayType *array = ArrayArgument(call, argument, "post_ids");
	Oid column_type = call.counter.post_type;
	WantedList list = {};
	int16 len;
	bool byval;
	char align;
	bool *nulls;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, byval, align, &list.given, &nulls,
					  &list.count);
	list.sorted = static_cast<Wanted *>(
		MemoryContextAllocHuge(CurrentMemoryContext, list.count * sizeof(Wanted)));
	for (int i = 0; i < list.count; i++)
	{
		Wanted *wanted = &list.sorted[list.sorted_count];

		if (!KeyNarrow(column_type, list.given[i], &wanted->value))
			continue;
		wanted->key = KeyFromDatum(column_type, wanted->value);
		wanted->position = i;
		list.sorted_count++;
	}
	qsort(list.sorted, list.sorted_count, sizeof(Wanted), CompareWanted);
	return list;
}

int
FirstWanted(const WantedList &list, const Key &key)
{
	int low = 0;
	int high = list.sorted_count;

	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (KeyCompare(list.sorted[middle].key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < list.sorted_count && KeyEqual(list.sorted[low].key, key) ? low : -1;
}
} // namespace likecount
