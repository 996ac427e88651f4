/*
 * launcher.hpp: the process that starts workers (see launcher.cpp).
 */
#pragma once

#include "shmem.hpp"

namespace likecount
{
/* Registers the launcher with the postmaster; called once from _PG_init when preloading. */
extern void LauncherRegister();

/* Asks the launcher for a worker in a database.  Cannot fail. */
extern void RequestWorker(Oid database);

/*
 * Keeps workers out of a database until LetWorkerBack, or, once it is dropped, ForgetDatabase. None
 * of the three can fail.  False: there is no worker and no room to note the bar, so there is
 * nothing to take back.
 */
extern bool BarWorker(Oid database);
extern void LetWorkerBack(Oid database);
extern void ForgetDatabase(Oid database);
/* Stops the worker of a barred database and waits until it is gone. */
extern void AwaitNoWorker(Oid database);

/*
 * Notes that a worker ended with an error after it ran that long, and when to start the next.
 * RegistryLock() held.
 */
extern void NoteFailure(DatabaseShared *entry, int64 ran_ms);
} // namespace likecount
