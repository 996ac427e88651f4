/*
 * worker.hpp: the process that flushes one database (see worker.cpp).  Its entry point is found by name.
 */
#pragma once

#include "shmem.hpp"

namespace likecount
{
constexpr const char *kWorkerLibrary = "$libdir/likecount";
constexpr const char *kWorkerEntry = "likecount_worker_main";
constexpr const char *kWorkerType = "likecount worker";
constexpr const char *kLauncherType = "likecount launcher";
} // namespace likecount
