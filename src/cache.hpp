/*
 * cache.hpp: totals in shared memory, so that most reads need no look into the slots (see cache.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
struct CacheEntry;

/* Where a total that was not in the cache may be put, once it has been read. */
struct CachePlace
{
	CacheEntry *entry; /* nullptr: it must not be */
	uint64 changes;
	TimestampTz found_at;
};

static_assert(kPlain<CachePlace>);

/* How much shared memory the cache takes, and its creation in it. */
extern Size CacheShmemSize();
extern void CacheShmemStartup();
/* Registers the transaction callback; called once from _PG_init when preloading. */
extern void CacheInit();

/* True when totals are of now: what the cache lacks is then to be read with a new snapshot, too. */
extern bool CacheServes();
/*
 * Finds the total of a post.  False: read it, with a snapshot taken after this call if place has an entry, and
 * then store it there.
 */
extern bool CacheFind(const Counter &counter, const Key &post, int64 *total, CachePlace *place);
extern void
CacheStore(const CachePlace &place, const Counter &counter, const Key &post, int64 total);
/* To be called by a transaction that changes a post's slots, before it commits. */
extern void CacheChanging(const Counter &counter, Datum post);
/* After a database was dropped. */
extern void CacheForget(Oid database);
} // namespace likecount
