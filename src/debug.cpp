/*
 * debug.cpp: places where a test can hold a backend.
 *
 * Between two steps that other sessions must be able to come in between stands LIKECOUNT_DEBUG_POINT("name").  In a
 * build with DEBUG=1 who passes there takes the advisory lock (0, hashtext('name')) in share mode and releases it at
 * once.  So a session that holds it by pg_advisory_lock(0, hashtext('name')) stops the others there, and the isolation
 * tester sees whom they wait for.  What a backend does there while nobody holds the lock, it does without the point, too:
 * no snapshot is taken, no transaction id assigned, no invalidation processed.
 *
 * A session can also have a statement of its own run at a point, as a callback of another extension would:
 *
 *     CREATE FUNCTION at_debug_point(point text, statement text) RETURNS void
 *         LANGUAGE c STRICT AS '$libdir/likecount', 'likecount_at_debug_point';
 *
 * The next pass of that point by the session runs the statement, once.
 */
#include "debug.hpp"

#ifdef LIKECOUNT_DEBUG
namespace likecount
{
namespace
{
/* Of at_debug_point, in TopMemoryContext; nullptr: none. */
char *chosen_point = nullptr;
char *chosen_statement = nullptr;
} // namespace

void
DebugPoint(const char *name)
{
	auto *bytes = reinterpret_cast<const unsigned char *>(name);
	LOCKTAG tag;

	/* The tag of pg_advisory_lock(integer, integer). */
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 0, hash_bytes(bytes, (int) strlen(name)), 2);
	(void) LockAcquire(&tag, ShareLock, false, false);
	LockRelease(&tag, ShareLock, false);

	if (chosen_point == nullptr || strcmp(chosen_point, name) != 0)
		return;

	char *statement = chosen_statement;

	pfree(chosen_point);
	chosen_point = chosen_statement = nullptr;
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	if (SPI_execute(statement, false, 0) < 0)
		elog(ERROR, "could not run \"%s\"", statement);
	SPI_finish();
	PopActiveSnapshot();
	pfree(statement);
}
} // namespace likecount

extern "C"
{
PG_FUNCTION_INFO_V1(likecount_at_debug_point);
PGDLLEXPORT Datum likecount_at_debug_point(PG_FUNCTION_ARGS);

Datum
likecount_at_debug_point(PG_FUNCTION_ARGS)
{
	using namespace likecount;
	MemoryContext caller = MemoryContextSwitchTo(TopMemoryContext);

	chosen_point = text_to_cstring(PG_GETARG_TEXT_PP(0));
	chosen_statement = text_to_cstring(PG_GETARG_TEXT_PP(1));
	MemoryContextSwitchTo(caller);
	PG_RETURN_VOID();
}
}
#endif
