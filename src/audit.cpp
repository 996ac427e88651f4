/*
 * audit.cpp: the continuous check of a few posts.
 *
 * Nothing in the server tells anybody that a superuser disabled the capture triggers, or loaded rows under
 * session_replication_role = replica.  So a worker that is busy compares, once a minute, a few of the posts that
 * it has lately flushed with the source: a uniform sample, likecount.audit_rate of them.  What is wrong is corrected
 * by the recount itself, reported as a WARNING with post and numbers, and added to the state row, where the views
 * counters and status show it.
 *
 * It has to stay cheap: posts with very many likes are left out, as counting one of them reads all its rows.
 */
#include "audit.hpp"

#include "guard.hpp"
#include "init.hpp"
#include "reconcile.hpp"
#include "shmem.hpp"
#include "slots.hpp"
#include "spi.hpp"

namespace likecount
{
namespace
{
constexpr int64 kRoundMs = 60 * 1000;
/* Posts with a larger total are not counted by the audit. */
constexpr int64 kLargestTotal = 100000;

struct Sample
{
	CounterKey key;
	uint8 bytes[kMaxTextKey]; /* of a long key */
};

/* A sample of what this process has flushed since the last round. */
Sample *samples = nullptr;
int sample_count = 0;
int64 flushed = 0;
TimestampTz next_round = 0;

void
KeepSample(int i, int32 counter, const Key &post)
{
	Sample *sample = &samples[i];

	sample->key = {counter, post};
	if (post.len > Key::kInline)
	{
		memcpy(sample->bytes, post.more, post.len);
		sample->key.key.more = sample->bytes;
	}
}

/* The posts of one counter in the sample, the very large ones left out; nullptr: none. */
ArrayType *
SampledPosts(const Counter *counter)
{
	auto *posts = palloc_array(Datum, sample_count);
	SlotReader reader;
	int count = 0;

	SlotReaderOpen(&reader, counter, GetActiveSnapshot());
	for (int i = 0; i < sample_count; i++)
	{
		const Key &key = samples[i].key.key;

		if (samples[i].key.counter == counter->id &&
			KeyToDatum(counter->post_type, key.Data(), key.len, &posts[count]) &&
			SlotReaderTotal(&reader, posts[count], nullptr) <= kLargestTotal)
			count++;
	}
	SlotReaderClose(&reader);
	return count == 0 ? nullptr : PostArray(counter, posts, count);
}

void
Report(const Recount *recount)
{
	const Counter *counter = recount->counter;
	SpiArgs args = {};
	ListCell *cell;

	foreach (cell, recount->findings)
	{
		auto *finding = static_cast<Finding *>(lfirst(cell));

		ereport(
			WARNING, errhidestmt(true),
			errmsg("counter \"%s\" was wrong about post %s: " INT64_FORMAT
				   " instead of " INT64_FORMAT,
				   NameStr(counter->verb),
				   KeyToText(counter->post_type, finding->post.Data(), finding->post.len),
				   finding->was, finding->now),
			errdetail("The audit has corrected it."),
			errhint("Rows of table %s came or went without its capture triggers. If posts beside"
					" this one may be concerned, call likecount.reconcile_all().",
					QualifiedName(counter->source)));
	}
	args.Add(INT4OID, Int32GetDatum(counter->id));
	args.Add(INT8OID, Int64GetDatum(recount->wrong));
	args.Add(INT8OID, Int64GetDatum(recount->drift));
	SpiExecute("UPDATE likecount._counter SET drift_posts = drift_posts + $2,"
			   " drift_found = drift_found + $3 WHERE id = $1",
			   &args, SPI_OK_UPDATE);
}

/* The source could be read: an error of an earlier round is over. */
void
ForgetError(int32 counter)
{
	SpiArgs args = {};

	args.Add(INT4OID, Int32GetDatum(counter));
	SpiExecute("UPDATE likecount._counter SET last_error = NULL, last_error_at = NULL"
			   " WHERE id = $1 AND last_error IS NOT NULL",
			   &args, SPI_OK_UPDATE);
}

bool
AuditStep(Step *step)
{
	Recount recount = {};

	recount.counter = step->counter;
	recount.append = true;
	if (!ConditionalLockRelationOid(step->counter->slots, AccessShareLock))
		return false;
	recount.posts = SampledPosts(step->counter);
	if (recount.posts == nullptr)
		return true;
	if (!Reconcile(&recount))
		return false;
	ForgetError(step->counter->id);
	if (recount.wrong > 0)
		Report(&recount);
	step->more = recount.wrong > 0;
	return true;
}
} // namespace

void
NoteFlushed(int32 counter, const Key &post)
{
	if (!IsWorker() || guc_audit_rate == 0)
		return;
	if (samples == nullptr)
		samples = static_cast<Sample *>(
			MemoryContextAlloc(TopMemoryContext, sizeof(Sample) * kLargestAudit));

	/* Reservoir sampling: every post that was flushed has the same chance. */
	flushed++;
	if (sample_count < guc_audit_rate)
		KeepSample(sample_count++, counter, post);
	else
	{
		uint64 i = pg_prng_uint64_range(&pg_global_prng_state, 0, (uint64) flushed - 1);

		if (i < (uint64) guc_audit_rate)
			KeepSample((int) i, counter, post);
	}
}

bool
AuditDue()
{
	return sample_count > 0 && GetCurrentTimestamp() >= next_round;
}

bool
Audit()
{
	List *counters = AllCounters();
	ListCell *cell;
	bool corrected = false;

	next_round = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), kRoundMs);
	sample_count = Min(sample_count, guc_audit_rate);
	foreach (cell, counters)
	{
		auto *counter = static_cast<Counter *>(lfirst(cell));
		Step step = {counter, "audit", PaceOf(counter->id), nullptr, false};

		/* The others are being recounted anyway, or counted elsewhere. */
		if (counter->state == State::kActive && !SlotsAreReplicated(counter))
		{
			(void) Guard(&step, AuditStep);
			corrected |= step.more;
		}
	}
	sample_count = 0;
	flushed = 0;
	return corrected;
}
} // namespace likecount
