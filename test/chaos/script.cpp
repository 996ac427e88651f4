/*
 * script.cpp: the scripts of the connections, and the plan of a round.
 *
 * Both are drawn from (seed, round, connection) alone; results and timing never draw.  So the same seed gives the same
 * script, and a failing round replays as far as the scheduler plays along.
 */
#include "chaos.hpp"

#include <chrono>
#include <thread>

const TableNames kNames[kTables] = {
	{"likes", "post_id", "user_id", "liked_at", "like"},
	{"reposts", "post_id", "user_id", "reposted_at", "repost"},
	{"stars", "post", "fan", "at", "star"},
};

int64_t
Now()
{
	return std::chrono::duration_cast<std::chrono::nanoseconds>(
			   std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

void
SleepMs(int64_t ms)
{
	std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

std::string
PostLiteral(int table, int post)
{
	return table == kStars ? "'s" + std::to_string(post) + "'" : std::to_string(post);
}

Rng::Rng(uint64_t seed, uint64_t round, uint64_t stream)
{
	std::seed_seq sequence{(uint32_t) seed, (uint32_t) (seed >> 32), (uint32_t) round,
						   (uint32_t) stream};

	engine.seed(sequence);
}

int
Rng::Below(int n)
{
	return (int) (engine() % (uint64_t) n);
}

bool
Rng::Percent(int percent)
{
	return Below(100) < percent;
}

RoundPlan
PlanRound(uint64_t seed, int round, int promote_every)
{
	Rng rng(seed, (uint64_t) round, 1000);
	RoundPlan plan;

	/* A long interval keeps rows in the queue for a crash to lose; a small batch splits what one flush would take. */
	plan.flush_interval_ms = rng.Percent(40) ? 2000 : 10 + rng.Below(41);
	plan.flush_batch = rng.Percent(plan.flush_interval_ms == 2000 ? 70 : 20) ? 100 : 100000;
	plan.recounts = rng.Percent(50);
	plan.standby = promote_every > 0 && round % promote_every == promote_every / 2;
	plan.async_percent = rng.Percent(50) && !plan.standby ? 0 : 40;
	for (bool &direct : plan.direct)
		direct = rng.Percent(50);
	/* With few slots many likes of a hot post find none, and take the journal. */
	plan.max_slots = rng.Percent(30) ? 1 + rng.Below(3) : 64;
	return plan;
}

Script::Script(uint64_t seed, int round, int connection, const RoundPlan &plan)
	: rng(seed, (uint64_t) round, (uint64_t) connection), cold_post(kHotPosts), plan(plan)
{
	asynchronous = rng.Percent(plan.async_percent);
}

namespace
{
/* Of 16 six freeze, eight unfreeze, and never a hot post, or nobody would like any. */
void
DrawFreeze(Op *op, int which)
{
	if (op->post < kHotPosts)
		op->post = kHotPosts + op->other_post % (kPosts - kHotPosts);
	op->what = which < 6 ? Do::kFreeze : which < 14 ? Do::kUnfreeze : Do::kForget;
}
} // namespace

Op
Script::Draw(bool in_block, int first_user, int users)
{
	struct Weight
	{
		Do what;
		int weight;
	};
	static const Weight weights[] = {
		{Do::kLike, 30},	   {Do::kUnlike, 14},	{Do::kLikeMany, 6},	 {Do::kInsert, 10},
		{Do::kInsertPlain, 3}, {Do::kDelete, 6},	{Do::kDeleteAll, 2}, {Do::kMove, 5},
		{Do::kRedate, 5},	   {Do::kMergeIn, 3},	{Do::kMergeOut, 2},	 {Do::kReplace, 4},
		{Do::kCopy, 3},		   {Do::kException, 3}, {Do::kRead, 4},
	};
	/* Around the 60 s that the watermark trails the clock by, and around what a scratch build makes of them. */
	static const int ages[] = {0,	  0,	 0,		 0,			 50,	90,
							   110,	  200,	 1000,	 20000,		 55000, 59900,
							   60100, 65000, 300000, 1000000000, -5000, -120000};
	Op op = {};
	int table = rng.Below(100);
	int sum = 0;

	op.table = table < 60 ? kLikes : table < 85 ? kReposts : kStars;
	if (rng.Percent(25))
		cold_post = kHotPosts + rng.Below(kPosts - kHotPosts);
	op.post = rng.Percent(40) ? rng.Below(kHotPosts) : cold_post;
	op.other_post =
		rng.Percent(30) ? rng.Below(kHotPosts) : kHotPosts + rng.Below(kPosts - kHotPosts);
	/* On a cold post few users, who meet again soon. */
	if (op.post == cold_post)
		users = users < 3 ? users : 3;
	op.user = first_user + rng.Below(users);
	op.number = 1 + rng.Below(users);
	op.age_ms = ages[rng.Below((int) (sizeof(ages) / sizeof(ages[0])))];

	for (const Weight &weight : weights)
		sum += weight.weight;

	int draw = rng.Below(sum);

	for (const Weight &weight : weights)
	{
		op.what = weight.what;
		if ((draw -= weight.weight) < 0)
			break;
	}

	int special = rng.Below(1000);

	if (in_block)
	{
		if (special < 120)
			op.what = Do::kSavepoint;
		else if (special < 190)
			op.what = Do::kRollbackTo;
		else if (special < 240)
			op.what = Do::kRelease;
		else if (special < 250)
			op.what = Do::kFlush;
		else if (special < 260 && plan.recounts)
			op.what = Do::kReconcile;
		else if (special < 270)
			op.what = Do::kCheck;
		else if (special < 286)
			DrawFreeze(&op, special - 270);
	}
	else
	{
		if (special < 6)
			op.what = Do::kFlush;
		else if (special < 12 && plan.recounts)
			op.what = Do::kReconcile;
		else if (special < 14 && plan.recounts)
			op.what = Do::kReconcileRecent;
		else if (special < 15 && plan.recounts)
			op.what = Do::kReconcileAll;
		else if (special < 18)
			op.what = Do::kCheck;
		else if (special < 50)
			DrawFreeze(&op, (special - 18) / 2);
	}
	return op;
}

Tx
Script::Next()
{
	Tx tx = {};
	int draw = rng.Below(1000);

	/* A session stays with one setting for a while. */
	if (rng.Percent(8))
		asynchronous = rng.Percent(plan.async_percent);
	tx.asynchronous = asynchronous;
	tx.slot = rng.Below(kPreparedSlots);
	tx.commit = rng.Percent(60);
	if (draw < 560)
	{
		tx.end = End::kAuto;
		tx.ops.push_back(Draw(false, 0, kUsers));
	}
	else if (draw < 880)
	{
		int length = 1 + rng.Below(8);
		bool slow = rng.Percent(6);
		int isolation = rng.Below(10);

		tx.end = rng.Percent(75) ? End::kCommit : End::kRollback;
		tx.isolation = isolation < 8 ? 0 : isolation - 7;
		for (int i = 0; i < length; i++)
		{
			tx.ops.push_back(Draw(true, 0, kUsers));
			if (slow && rng.Percent(50))
			{
				Op sleep = {};

				sleep.what = Do::kSleep;
				sleep.number = 20 + rng.Below(rng.Percent(20) ? 1200 : 150);
				tx.ops.push_back(sleep);
			}
		}
	}
	else if (draw < 930)
	{
		int length = 1 + rng.Below(5);

		tx.end = End::kPrepare;
		for (int i = 0; i < length; i++)
			tx.ops.push_back(Draw(true, kUsers + tx.slot * kUsersPerSlot, kUsersPerSlot));
	}
	else
	{
		Op op = Draw(false, 0, kUsers);

		tx.end = End::kAuto;
		if (draw < 980)
			op.what = Do::kFinishPrepared;
		else if (draw < 984)
			op.what = Do::kDeletePost;
		else if (draw < 986)
			op.what = Do::kTruncate;
		else if (draw < 987)
			op.what = Do::kTruncatePartition;
		else if (draw < 990)
			op.what = Do::kAttach;
		else if (draw < 991)
			op.what = Do::kDetach;
		else if (draw < 995)
			op.what = Do::kDisconnect;
		else if (draw < 999)
			op.what = Do::kSetMode;
		tx.ops.push_back(op);
	}
	return tx;
}

std::string
Describe(const Tx &tx)
{
	static const char *const ends[] = {"auto", "commit", "rollback", "prepare"};
	std::string text = ends[(int) tx.end];

	text += " isolation=" + std::to_string(tx.isolation) +
			" async=" + std::to_string(tx.asynchronous) + " slot=" + std::to_string(tx.slot) +
			" commit=" + std::to_string(tx.commit) + ":";
	for (const Op &op : tx.ops)
		text += " " + std::to_string((int) op.what) + "(" + kNames[op.table].table + "," +
				std::to_string(op.post) + "," + std::to_string(op.other_post) + "," +
				std::to_string(op.user) + "," + std::to_string(op.number) + "," +
				std::to_string(op.age_ms) + ")";
	return text;
}
