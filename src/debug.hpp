/*
 * debug.hpp: places where a test can hold a backend (see debug.cpp); a build without DEBUG=1 has none.
 */
#pragma once

#include "pg.hpp"

#ifdef LIKECOUNT_DEBUG
#define LIKECOUNT_DEBUG_POINT(name) ::likecount::DebugPoint(name)

namespace likecount
{
extern void DebugPoint(const char *name);
} // namespace likecount
#else
#define LIKECOUNT_DEBUG_POINT(name) ((void) 0)
#endif
