/*
 * key.hpp: posts and users as values: the supported types, and a post as a binary key (see key.cpp).
 */
#pragma once

#include "pg.hpp"

namespace likecount
{
/* The families of types that can be counted by.  kNone: not supported. */
enum class KeyKind : uint8
{
	kNone,
	kInteger, /* smallint, integer, bigint: functions take bigint */
	kUuid,
	kText, /* text, varchar */
};

/* A text key is at most this many bytes long. */
constexpr int kMaxTextKey = 1000;

/*
 * A post as bytes: equal posts have equal bytes, and byte order is one total order on them.  Short keys
 * (every integer and uuid) live inside, longer ones point to memory that somebody else keeps.
 */
struct Key
{
	static constexpr uint32 kInline = 16;

	uint32 len;
	uint8 bytes[kInline];
	const uint8 *more;

	const uint8 *Data() const
	{
		return len <= kInline ? bytes : more;
	}
};

static_assert(kPlain<Key>);

/* The family of a type; kNone when it is not supported. */
extern KeyKind KeyKindOf(Oid type);
/* The type that generated functions take for a column of this type: bigint for every integer. */
extern Oid KeyArgumentType(Oid column_type);
/* False for a text that is too long to be a key. */
extern bool KeyFits(Oid column_type, Datum value);
/* Encodes a value of the column's type.  A long text key points into the datum: copy it to keep it. */
extern Key KeyFromDatum(Oid column_type, Datum value);
/* A key over encoded bytes; long ones are not copied. */
extern Key KeyFromBytes(const uint8 *data, uint32 len);
/* Copies what the key points to into the context. */
extern Key KeyCopy(MemoryContext context, const Key &key);
/* Decodes into the column's type; false when the bytes are no key of that type. */
extern bool KeyToDatum(Oid column_type, const uint8 *data, uint32 len, Datum *value);
/* The key as text, for views and messages, in the current memory context. */
extern char *KeyToText(Oid column_type, const uint8 *data, uint32 len);
/* Turns an argument of a generated function into the column's type; false when it is out of its range. */
extern bool KeyNarrow(Oid column_type, Datum argument, Datum *value);

extern bool KeyEqual(const Key &a, const Key &b);
extern int KeyCompare(const Key &a, const Key &b);
extern uint32 KeyHash(const Key &key);

/* A key as an element of a dynahash: the hash table's key is {counter, Key}. */
struct CounterKey
{
	int32 counter;
	Key key;
};

/* Creates a hash table in the context whose entries start with a CounterKey. */
extern HTAB *CounterKeyHash(const char *name, long nelem, Size entry_size, MemoryContext context);
} // namespace likecount
