/*
 * spi.hpp: SQL from C, with the result code checked and values bound (see spi.cpp).
 */
#pragma once

#include "pg.hpp"

namespace likecount
{
/* A statement's arguments. */
struct SpiArgs
{
	static constexpr int kMax = 16;
	int count;
	Oid types[kMax];
	Datum values[kMax];
	char nulls[kMax];

	void Add(Oid type, Datum value, bool isnull = false)
	{
		Assert(count < kMax);
		types[count] = type;
		values[count] = value;
		nulls[count] = isnull ? 'n' : ' ';
		count++;
	}
};

static_assert(kPlain<SpiArgs>);

/*
 * Runs one statement inside SPI_connect/SPI_finish of the caller and demands the SPI result code; an error names
 * the statement.  Returns SPI_processed.
 */
extern uint64 SpiExecute(const char *sql, const SpiArgs *args, int expect);
/* The same under a snapshot that the caller has registered: a read-only query, planned for its arguments. */
extern uint64 SpiQueryAt(const char *sql, const SpiArgs *args, Snapshot snapshot);
/* Column of the current SPI result. */
extern Datum SpiValue(uint64 row, int column, bool *isnull);

/* Becomes another user under restriction (EXACTNESS A1, SURFACE B3) with search_path pg_catalog, pg_temp; and back. */
struct UserSwitch
{
	Oid user;
	int context;
	int guc_level;
};

static_assert(kPlain<UserSwitch>);

/* kOwnerOfSource: security-restricted, row security off.  kExtensionOwner: to create or write our own objects. */
enum class RunAs : uint8
{
	kOwnerOfSource,
	kExtensionOwner,
};

extern UserSwitch SwitchUser(Oid user, RunAs how);
extern void SwitchBack(const UserSwitch &saved);
/* Sets a setting until SwitchBack(). */
extern void PinSetting(const char *name, const char *value);
} // namespace likecount
