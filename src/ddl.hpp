/*
 * ddl.hpp: the utility hook (see ddl.cpp).
 */
#pragma once

#include "pg.hpp"

namespace likecount
{
/* Installs the hook; called once from _PG_init when preloading. */
extern void DdlInit();
} // namespace likecount
