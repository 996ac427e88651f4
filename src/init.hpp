/*
 * init.hpp: the settings (see init.cpp; docs/settings.md describes them).
 */
#pragma once

#include "pg.hpp"

namespace likecount
{
/* The largest audit_rate. */
constexpr int kLargestAudit = 1000;
/* The largest max_slots. */
constexpr int kLargestSlot = 1024;

extern int guc_flush_interval; /* ms */
extern int guc_flush_batch;	   /* deltas */
extern int guc_max_workers;
extern int guc_idle_timeout; /* s */
extern bool guc_worker;
extern int guc_node;
extern int guc_max_slots;
extern int guc_audit_rate; /* posts per minute */
extern int guc_cache_size; /* kB */
} // namespace likecount
