/*
 * spi.cpp: SQL from C.
 *
 * Statements on our own tables, and recounts, go through here: the result code is checked and an error shows which
 * statement it was.  Values are bound.  The user switch follows what the foreign-key triggers do: the
 * source's owner is never trusted with more than its own rights, and its row security must not filter a count
 * silently, so it is not forced, and whatever would still filter is an error (row_security = off).
 */
#include "spi.hpp"

namespace likecount
{
namespace
{
void
Check(const char *sql, int rc, int expect)
{
	if (rc != expect)
		elog(ERROR, "\"%s\" gave %s", sql, SPI_result_code_string(rc));
}
} // namespace

void
PinSetting(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

uint64
SpiExecute(const char *sql, const SpiArgs *args, int expect)
{
	SpiArgs none = {};

	if (args == nullptr)
		args = &none;
	int rc = SPI_execute_with_args(sql, args->count, const_cast<Oid *>(args->types),
								   const_cast<Datum *>(args->values), args->nulls, false, 0);

	Check(sql, rc, expect);
	return SPI_processed;
}

uint64
SpiQueryAt(const char *sql, const SpiArgs *args, Snapshot snapshot)
{
	SpiArgs none = {};

	if (args == nullptr)
		args = &none;

	/* One-shot by nature, but SPI_execute_snapshot wants a plan. */
	SPIPlanPtr plan = SPI_prepare(sql, args->count, const_cast<Oid *>(args->types));

	if (plan == nullptr)
		Check(sql, SPI_result, SPI_OK_SELECT);
	int rc = SPI_execute_snapshot(plan, const_cast<Datum *>(args->values), args->nulls, snapshot,
								  InvalidSnapshot, true, false, 0);

	Check(sql, rc, SPI_OK_SELECT);
	return SPI_processed;
}

Datum
SpiValue(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

UserSwitch
SwitchUser(Oid user, RunAs how)
{
	UserSwitch saved;
	int context = SECURITY_LOCAL_USERID_CHANGE;

	if (how == RunAs::kOwnerOfSource)
		context |= SECURITY_RESTRICTED_OPERATION | SECURITY_NOFORCE_RLS;
	GetUserIdAndSecContext(&saved.user, &saved.context);
	SetUserIdAndSecContext(user, saved.context | context);

	saved.guc_level = NewGUCNestLevel();
	PinSetting("search_path", "pg_catalog, pg_temp");
	if (how == RunAs::kOwnerOfSource)
		PinSetting("row_security", "off");
	else
		/* In a session that applies or loads as a replica our own triggers would discard our own rows. */
		PinSetting("session_replication_role", "origin");
	return saved;
}

void
SwitchBack(const UserSwitch &saved)
{
	AtEOXact_GUC(false, saved.guc_level);
	SetUserIdAndSecContext(saved.user, saved.context);
}
} // namespace likecount
