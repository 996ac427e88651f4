/*
 * guard.hpp: work on a counter's source that must not harm anybody else (see guard.cpp).
 */
#pragma once

#include "counter.hpp"

namespace likecount
{
/* Posts in the first step of a process, and after an error. */
constexpr int64 kFirstChunk = 1000;

/* How this process gets on with one counter: the size of its steps, and its patience with errors. */
struct Pace
{
	int32 counter;
	int64 limit; /* posts in the next step */
	int limit_ms;
	int failures;
	TimestampTz not_before;
};

extern Pace *PaceOf(int32 counter);

/* A step of work on a counter's source. */
struct Step
{
	const Counter *counter;
	const char *what; /* for messages: "backfill" */
	Pace *pace;
	const void *arg;
	bool more; /* out: there is more to do */
};

static_assert(kPlain<Pace> && kPlain<Step>);

/* Runs inside SPI_connect.  False: a lock was not to be had, or the step gives up; what it wrote is undone. */
using StepFunction = bool (*)(Step *step);

/* Runs a step in a subtransaction with a time limit, as the extension's owner.  True: it was done. */
extern bool Guard(Step *step, StepFunction function);
} // namespace likecount
