/*
 * init.cpp: what happens when the library is loaded: settings, callbacks and, when it is preloaded,
 * shared memory, launcher and utility hook.
 *
 * Without shared_preload_libraries everything works but the worker: deltas go to the journal and
 * flush() moves them.
 */
#include "init.hpp"

#include "cache.hpp"
#include "capture.hpp"
#include "counter.hpp"
#include "ddl.hpp"
#include "flush.hpp"
#include "launcher.hpp"
#include "shmem.hpp"

extern "C"
{
PG_MODULE_MAGIC_EXT(.name = "likecount", .version = LIKECOUNT_VERSION);

PGDLLEXPORT void _PG_init(void);
}

namespace likecount
{
int guc_flush_interval = 1000;
int guc_flush_batch = 100000;
int guc_max_workers = 8;
int guc_idle_timeout = 60;
bool guc_worker = true;
int guc_node = 0;
int guc_max_slots = 64;
int guc_audit_rate = 10;
int guc_cache_size = 16 * 1024;

namespace
{
/* None can be set by a session: they govern a process that serves all of them. */
void
DefineSettings(bool preloading)
{
	/* To define a postmaster setting after the postmaster's start is a fatal error. */
	GucContext at_start = preloading ? PGC_POSTMASTER : PGC_SIGHUP;

	DefineCustomIntVariable(
		"likecount.flush_interval",
		"Sets how often the worker of a busy database moves likes into the totals.", nullptr,
		&guc_flush_interval, 1000, 10, 3600 * 1000, PGC_SIGHUP, GUC_UNIT_MS, nullptr, nullptr,
		nullptr);
	DefineCustomIntVariable("likecount.flush_batch",
							"Sets the largest number of deltas that one flush moves.",
							"It bounds memory and the length of the transaction.", &guc_flush_batch,
							100000, 100, 10000000, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
	DefineCustomIntVariable(
		"likecount.max_workers",
		"Sets the largest number of databases that are served at the same time.",
		"Each worker takes one of max_worker_processes, and the launcher takes one.",
		&guc_max_workers, 8, 1, kMaxDatabases, at_start, 0, nullptr, nullptr, nullptr);
	DefineCustomIntVariable("likecount.idle_timeout", "Sets how long a worker without work stays.",
							nullptr, &guc_idle_timeout, 60, 1, 24 * 3600, PGC_SIGHUP, GUC_UNIT_S,
							nullptr, nullptr, nullptr);
	DefineCustomBoolVariable(
		"likecount.worker", "Lets workers run.",
		"When off, likes are recorded but only flush() moves them into the totals.", &guc_worker,
		true, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
	DefineCustomIntVariable(
		"likecount.node", "Sets the number of this server among servers that count together.",
		"The totals' rows of a server carry it; changing it later makes new rows.", &guc_node, 0, 0,
		32767, at_start, 0, nullptr, nullptr, nullptr);
	DefineCustomIntVariable(
		"likecount.max_slots", "Sets into how many slots the total of a post may be split.",
		"For counters in direct mode; transactions that find all of them taken use the journal.",
		&guc_max_slots, 64, 1, kLargestSlot, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
	DefineCustomIntVariable(
		"likecount.audit_rate",
		"Sets how many recently changed posts a busy worker compares with the likes, per minute.",
		"0 turns the audit off.", &guc_audit_rate, 10, 0, kLargestAudit, PGC_SIGHUP, 0, nullptr,
		nullptr, nullptr);
	DefineCustomIntVariable("likecount.cache_size",
							"Sets the size of the shared memory that caches totals.",
							"Less than 4 kB turns the cache off.", &guc_cache_size, 16 * 1024, 0,
							INT_MAX / 1024, at_start, GUC_UNIT_KB, nullptr, nullptr, nullptr);
	MarkGUCPrefixReserved("likecount");
}
} // namespace
} // namespace likecount

extern "C" void
_PG_init(void)
{
	using namespace likecount;
	bool preloading = process_shared_preload_libraries_in_progress;

	DefineSettings(preloading);
	/* pg_upgrade brings the catalogs over; nothing may be captured, flushed or dropped meanwhile.
	 */
	if (IsBinaryUpgrade)
		return;

	CounterInit();
	CaptureInit();
	FlushInit();
	if (!preloading)
		return;
	ShmemInit();
	CacheInit();
	LauncherRegister();
	DdlInit();
}
