/*
 * key.cpp: posts and users as values.
 *
 * Deltas of counters with different key types share one queue, so a post travels there as bytes.  An integer is
 * eight bytes, big-endian with the sign bit flipped, whatever its width; a uuid its sixteen bytes; a text its bytes
 * in the server's encoding.  Equal posts give equal bytes (only deterministic collations are accepted), and the
 * order of the bytes is the one order in which everybody touches slots of several posts.
 */
#include "key.hpp"

namespace likecount
{
namespace
{
constexpr uint64 kSignBit = UINT64CONST(1) << 63;

Key
IntegerKey(int64 value)
{
	Key key = {};
	uint64 bits = (uint64) value ^ kSignBit;

	key.len = sizeof(bits);
	for (int i = 0; i < 8; i++)
		key.bytes[i] = (uint8) (bits >> (56 - 8 * i));
	return key;
}

int64
IntegerOf(const uint8 *data)
{
	uint64 bits = 0;

	for (int i = 0; i < 8; i++)
		bits = bits << 8 | data[i];
	return (int64) (bits ^ kSignBit);
}

uint32
HashCounterKey(const void *key, Size)
{
	auto *k = static_cast<const CounterKey *>(key);

	return KeyHash(k->key) ^ ((uint32) k->counter * 0x9E3779B1u);
}

int
MatchCounterKey(const void *a, const void *b, Size)
{
	auto *x = static_cast<const CounterKey *>(a);
	auto *y = static_cast<const CounterKey *>(b);

	return x->counter == y->counter && KeyEqual(x->key, y->key) ? 0 : 1;
}
} // namespace

KeyKind
KeyKindOf(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return KeyKind::kInteger;
		case UUIDOID:
			return KeyKind::kUuid;
		case TEXTOID:
		case VARCHAROID:
			return KeyKind::kText;
		default:
			return KeyKind::kNone;
	}
}

Oid
KeyArgumentType(Oid column_type)
{
	switch (KeyKindOf(column_type))
	{
		case KeyKind::kInteger:
			return INT8OID;
		case KeyKind::kText:
			return TEXTOID;
		default:
			return column_type;
	}
}

bool
KeyFits(Oid column_type, Datum value)
{
	return KeyKindOf(column_type) != KeyKind::kText ||
		   VARSIZE_ANY_EXHDR(DatumGetTextPP(value)) <= kMaxTextKey;
}

Key
KeyFromDatum(Oid column_type, Datum value)
{
	Key key = {};

	switch (column_type)
	{
		case INT2OID:
			return IntegerKey(DatumGetInt16(value));
		case INT4OID:
			return IntegerKey(DatumGetInt32(value));
		case INT8OID:
			return IntegerKey(DatumGetInt64(value));
		case UUIDOID:
			key.len = UUID_LEN;
			memcpy(key.bytes, DatumGetUUIDP(value)->data, UUID_LEN);
			return key;
		case TEXTOID:
		case VARCHAROID:
		{
			text *t = DatumGetTextPP(value);

			key.len = VARSIZE_ANY_EXHDR(t);
			if (key.len > kMaxTextKey)
				ereport(ERROR, errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
						errmsg("post of %u bytes is too long to be counted", key.len),
						errdetail("A post of type text has at most %d bytes.", kMaxTextKey));
			if (key.len <= Key::kInline)
				memcpy(key.bytes, VARDATA_ANY(t), key.len);
			else
				key.more = reinterpret_cast<const uint8 *>(VARDATA_ANY(t));
			return key;
		}
		default:
			elog(ERROR, "type %u is no key type", column_type);
	}
	pg_unreachable();
}

Key
KeyFromBytes(const uint8 *data, uint32 len)
{
	Key key = {};

	key.len = len;
	if (len <= Key::kInline)
		memcpy(key.bytes, data, len);
	else
		key.more = data;
	return key;
}

Key
KeyCopy(MemoryContext context, const Key &key)
{
	Key copy = key;

	if (key.len > Key::kInline)
	{
		auto *bytes = static_cast<uint8 *>(MemoryContextAlloc(context, key.len));

		memcpy(bytes, key.more, key.len);
		copy.more = bytes;
	}
	return copy;
}

bool
KeyToDatum(Oid column_type, const uint8 *data, uint32 len, Datum *value)
{
	switch (KeyKindOf(column_type))
	{
		case KeyKind::kInteger:
			return len == 8 && KeyNarrow(column_type, Int64GetDatum(IntegerOf(data)), value);
		case KeyKind::kUuid:
		{
			if (len != UUID_LEN)
				return false;
			auto *uuid = palloc_object(pg_uuid_t);

			memcpy(uuid->data, data, UUID_LEN);
			*value = UUIDPGetDatum(uuid);
			return true;
		}
		case KeyKind::kText:
			if (len > kMaxTextKey)
				return false;
			*value = PointerGetDatum(
				cstring_to_text_with_len(reinterpret_cast<const char *>(data), (int) len));
			return true;
		case KeyKind::kNone:
			break;
	}
	return false;
}

char *
KeyToText(Oid column_type, const uint8 *data, uint32 len)
{
	Datum value;
	Oid output;
	bool varlena;

	if (!KeyToDatum(column_type, data, len, &value))
		return TextDatumGetCString(
			DirectFunctionCall2(binary_encode,
								PointerGetDatum(cstring_to_text_with_len(
									reinterpret_cast<const char *>(data), (int) len)),
								PointerGetDatum(cstring_to_text("hex"))));
	getTypeOutputInfo(column_type, &output, &varlena);
	return OidOutputFunctionCall(output, value);
}

bool
KeyNarrow(Oid column_type, Datum argument, Datum *value)
{
	int64 wide;

	switch (column_type)
	{
		case INT2OID:
			wide = DatumGetInt64(argument);
			*value = Int16GetDatum((int16) wide);
			return wide >= PG_INT16_MIN && wide <= PG_INT16_MAX;
		case INT4OID:
			wide = DatumGetInt64(argument);
			*value = Int32GetDatum((int32) wide);
			return wide >= PG_INT32_MIN && wide <= PG_INT32_MAX;
		case TEXTOID:
		case VARCHAROID:
			*value = argument;
			return KeyFits(column_type, argument);
		default:
			*value = argument;
			return true;
	}
}

bool
KeyEqual(const Key &a, const Key &b)
{
	return a.len == b.len && memcmp(a.Data(), b.Data(), a.len) == 0;
}

int
KeyCompare(const Key &a, const Key &b)
{
	int order = memcmp(a.Data(), b.Data(), Min(a.len, b.len));

	if (order != 0)
		return order;
	return a.len < b.len ? -1 : a.len > b.len ? 1 : 0;
}

uint32
KeyHash(const Key &key)
{
	return hash_bytes(key.Data(), (int) key.len);
}

HTAB *
CounterKeyHash(const char *name, long nelem, Size entry_size, MemoryContext context)
{
	HASHCTL control = {};

	control.keysize = sizeof(CounterKey);
	control.entrysize = entry_size;
	control.hash = HashCounterKey;
	control.match = MatchCounterKey;
	control.hcxt = context;
	return hash_create(name, nelem, &control,
					   HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
}
} // namespace likecount
