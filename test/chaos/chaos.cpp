/*
 * chaos.cpp: likecount's oracle.  Connections like, unlike and do everything else to a few posts, a controller
 * crashes the server under them, and after each round the totals must be exact again, by themselves.
 *
 * A round: the connections run their scripts (script.cpp) and remember what was acknowledged (client.cpp) while the
 * controller does its worst (server.cpp); then they stop.  Nobody calls flush or reconcile now.  The controller only
 * looks, until nothing is pending and nothing is being recounted, and then demands:
 *
 *   every acknowledged like is there, and no other, unless its outcome is not known;
 *   for each post of each counter, total = count(*), and the total is not negative;
 *   likecount.check() finds nothing; no delta was set aside; no process ended on a signal of its own.
 *
 * Everything is drawn from the seed, so a seed and the number of a round say what to replay; only the scheduler's part
 * differs.  Usage: README.md.
 */
#include "chaos.hpp"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

namespace
{
/* How long it may take to be exact again. */
constexpr int64_t kPatience = 60'000'000'000;

enum Kind
{
	kImmediateStop,
	kKillPostmaster,
	kKillBackend,
	kKillWorker,
	kFreezeAndKillWorker,
	kStallBackends,
	kLockSlots,
	kStallCommits,
	kStallStandby,
	kPromotion,
	kFreezeWorker,
	kEndWorker,
	kRestart,
	kCheckpoint,
	kKinds,
};

/* Those up to here lose the queue. */
constexpr int kCrashes = kPromotion + 1;

const char *const kKindNames[kKinds] = {
	"immediate stop",
	"kill -9 of the postmaster",
	"kill -9 of a backend",
	"kill -9 of the worker",
	"SIGSTOP, then kill -9 of the worker",
	"SIGSTOP of backends, then the same",
	"lock on slots, then kill -9",
	"commits without a standby, then kill -9",
	"SIGSTOP of the standby, then the same",
	"promotion of a standby",
	"SIGSTOP and SIGCONT of the worker",
	"SIGTERM of the worker",
	"clean restart",
	"checkpoint",
};

struct Options
{
	Settings settings;
	uint64_t seed = 1;
	int rounds = 20;
	int first = 1;
	int connections = 8;
	int promote_every = 10;
	int milliseconds = 2500;
	int demand = 0; /* crashes, and one promotion, without which the run does not count */
	bool script = false;
	bool logs = false; /* of every round, not only of those that fail */
};

struct Totals
{
	int rounds = 0;
	int kinds[kKinds] = {};
	int64_t repaired = 0; /* drift that repairs removed */
	int drift = 0;		  /* posts that were wrong when everything had settled */
	int frozen = 0;		  /* posts that were frozen then */
	int slots = 0;		  /* slots above 0 that were open then */
	int most_slots = 0;	  /* of one post */
	int switches = 0;
	double longest = 0;
	int longest_round = 0;
};

class Chaos
{
  public:
	explicit Chaos(const Options &options);
	bool Run();

  private:
	void SetUp();
	bool RunRound(int round);
	void Configure(const RoundPlan &plan);
	void MakeStandby();
	bool Strike(Kind kind, Rng *rng);
	bool KillAndSee(PGconn *conn, pid_t pid);
	bool Kill(PGconn *conn, pid_t worker, int number);
	std::string Flushes(PGconn *conn);
	std::string OwnLikes(int table, int where);
	void KeepBusy(PGconn *conn, int pause_ms);
	bool StrikeWorker(Kind kind, int number, int pause_ms);
	void Promote(Rng *rng);
	pid_t WorkerPid();
	double WaitSettled(int round);
	void Verify(PGconn *conn);
	void CheckRows(PGconn *conn);
	void CheckTotals(PGconn *conn);
	void CheckFrozen(int table, const std::vector<std::string> &row);
	void UnfreezeAll(PGconn *conn);
	void CheckLog(const Server &server);
	void Fail(const std::string &what);
	std::string WriteLog(int round);
	void Report(int round);
	void Summary(bool good);
	int Crashes() const;
	void PointTo(Server *server);

	Options options;
	World world;
	Totals totals;
	std::vector<std::unique_ptr<Server>> servers;
	Server *primary = nullptr, *standby = nullptr;
	std::vector<std::unique_ptr<Client>> clients;
	std::vector<std::string> log; /* the controller's, of this round */
	std::string kinds_of_round;
	int own_likes = 0; /* statements of the controller's own */
	std::map<std::string, std::streamoff> log_read;
};

Chaos::Chaos(const Options &options) : options(options)
{
	world.seed = options.seed;
	for (int i = 0; i < options.connections; i++)
		clients.push_back(std::make_unique<Client>(&world, i));
}

void
Chaos::PointTo(Server *server)
{
	std::lock_guard<std::mutex> guard(world.mutex);
	world.server = server;
}

void
Chaos::Fail(const std::string &what)
{
	std::lock_guard<std::mutex> guard(world.mutex);
	world.violations.push_back(what);
}

void
Chaos::SetUp()
{
	servers.push_back(std::make_unique<Server>(this->options.settings, 0));
	primary = servers.back().get();
	primary->Init();
	primary->Start();

	PGconn *conn = primary->ConnectWait();

	Query(conn, "CREATE EXTENSION likecount");
	Query(conn, "SELECT likecount.create_counter('likes')");
	Query(conn, "CREATE TABLE posts (id bigint PRIMARY KEY)");
	Query(conn, "INSERT INTO posts SELECT pg_catalog.generate_series(0, " +
					std::to_string(kPosts - 1) + ")");
	Query(conn, "CREATE TABLE reposts (post_id bigint NOT NULL REFERENCES posts ON DELETE CASCADE, "
				"user_id bigint NOT NULL,"
				" reposted_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(), PRIMARY "
				"KEY (post_id, user_id))"
				" PARTITION BY RANGE (post_id)");
	Query(conn, "CREATE TABLE reposts_low PARTITION OF reposts FOR VALUES FROM (MINVALUE) TO (" +
					std::to_string(kSplit) + ")");
	Query(conn, "CREATE TABLE reposts_high PARTITION OF reposts FOR VALUES FROM (" +
					std::to_string(kSplit) + ") TO (MAXVALUE)");
	Query(conn, "CREATE INDEX ON reposts (reposted_at)");
	Query(conn, "SELECT likecount.attach('reposts', 'post_id', 'user_id', 'reposted_at')");
	Query(conn, "CREATE TABLE stars (post text, fan bigint, at timestamptz NOT NULL DEFAULT "
				"pg_catalog.clock_timestamp(),"
				" PRIMARY KEY (post, fan))");
	Query(conn, "CREATE INDEX ON stars USING brin (at)");
	Query(conn, "SELECT likecount.attach('stars', 'post', 'fan', 'at')");
	Query(conn, "CREATE TABLE durable (n bigint)");
	Query(conn, "INSERT INTO durable VALUES (0)");
	PQfinish(conn);
	PointTo(primary);
}

void
Chaos::Configure(const RoundPlan &plan)
{
	PGconn *conn = primary->ConnectWait();

	Query(conn,
		  "ALTER SYSTEM SET likecount.flush_interval = " + std::to_string(plan.flush_interval_ms));
	Query(conn, "ALTER SYSTEM SET likecount.flush_batch = " + std::to_string(plan.flush_batch));
	Query(conn, "ALTER SYSTEM SET likecount.max_slots = " + std::to_string(plan.max_slots));
	Query(conn, "SELECT pg_catalog.pg_reload_conf()");
	Query(conn, "SET lock_timeout = '1s'");
	/* A prepared transaction may be in the way, and the stars may be detached: then the mode stays. */
	for (int table = 0; table < kTables; table++)
	{
		std::string sql = std::string("SELECT likecount.set_mode('") + kNames[table].table +
						  "', '" + (plan.direct[table] ? "direct" : "queued") + "')";
		PGresult *result = PQexec(conn, sql.c_str());

		totals.switches += PQresultStatus(result) == PGRES_TUPLES_OK;
		PQclear(result);
	}
	PQfinish(conn);
}

/* A standby that every synchronous commit from now on waits for. */
void
Chaos::MakeStandby()
{
	servers.push_back(std::make_unique<Server>(this->options.settings, (int) servers.size()));
	standby = servers.back().get();
	standby->InitStandby(*primary);
	standby->Start();

	PGconn *conn = primary->ConnectWait();
	int64_t until = Now() + kPatience;

	Query(conn, "ALTER SYSTEM SET synchronous_standby_names = '*'");
	Query(conn, "SELECT pg_catalog.pg_reload_conf()");
	while (QueryOne(conn, "SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication WHERE "
						  "sync_state = 'sync'") != "1")
	{
		if (Now() > until)
			Die("the standby does not follow, see " + standby->LogFile());
		SleepMs(20);
	}
	PQfinish(conn);
}

pid_t
Chaos::WorkerPid()
{
	PGconn *conn = primary->Connect();
	pid_t pid = 0;

	if (conn == nullptr)
		return 0;
	PGresult *result =
		PQexec(conn,
			   "SELECT pid FROM pg_catalog.pg_stat_activity WHERE backend_type = 'likecount worker'"
			   " AND datname = pg_catalog.current_database()");

	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
		pid = std::atoi(PQgetvalue(result, 0, 0));
	PQclear(result);
	PQfinish(conn);
	return pid;
}

/* The primary is lost, and the standby takes over. */
void
Chaos::Promote(Rng *rng)
{
	Server *old = primary;
	PGconn *conn = standby->ConnectWait();
	int way = rng->Below(3);

	/* Totals are readable there. */
	Query(
		conn,
		"SELECT likecount.like_count(1), (SELECT pg_catalog.count(*) FROM likecount.like_totals)");
	PointTo(nullptr);
	if (way == 0)
		old->StopFast();
	else if (way == 1)
		old->StopImmediate();
	else
		old->KillPostmaster();
	if (QueryOne(conn, "SELECT pg_catalog.pg_promote(true, 60)") != "t")
		Die("the standby was not promoted, see " + standby->LogFile());
	PQfinish(conn);
	primary = standby;
	standby = nullptr;
	PointTo(primary);
	CheckLog(*old);
	old->Remove();
}

/*
 * Kills a process of the server, and waits until the server has seen that: it throws everybody out, and so the given
 * connection, which is closed.
 */
bool
Chaos::KillAndSee(PGconn *conn, pid_t pid)
{
	bool seen = false;

	primary->KillChild(pid, SIGKILL);
	for (int i = 0; !seen && i < 1000; i++, SleepMs(10))
	{
		PQclear(PQexec(conn, "SELECT"));
		seen = PQstatus(conn) != CONNECTION_OK;
	}
	PQfinish(conn);
	return seen;
}

/* Kills the worker, or, for some numbers, the postmaster, which has to be started again. */
bool
Chaos::Kill(PGconn *conn, pid_t worker, int number)
{
	if (number % 4 < 2)
		return KillAndSee(conn, worker);
	PQfinish(conn);
	primary->KillPostmaster();
	primary->Start();
	return true;
}

/* How many flushes there have been, empty: something is locked. */
std::string
Chaos::Flushes(PGconn *conn)
{
	PGresult *result = PQexec(conn, "SELECT flushes FROM likecount.status");
	std::string flushes = PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : "";

	PQclear(result);
	return flushes;
}

/*
 * Likes of the controller's own, of posts at which hardly anybody else does something.  No connection knows these
 * users, so nobody has to know whether the likes are there, only whether they count.
 */
std::string
Chaos::OwnLikes(int table, int where)
{
	std::string posts, users;

	own_likes++;
	for (int i = 0; i < 20; i++)
	{
		const char *comma = i == 0 ? "" : ", ";

		posts += comma + PostLiteral(table, kHotPosts + (where + 7 * i) % (kPosts - kHotPosts));
		users += comma + std::to_string(UserId((int) clients.size(), own_likes % 1000));
	}
	return std::string("SELECT likecount.") + kNames[table].verb + "_many(ARRAY[" + posts +
		   "], ARRAY[" + users + "])";
}

/*
 * Sees to it that there is something to flush for a while, whoever else stands still, and that it is flushed.  What
 * is locked is left.
 */
void
Chaos::KeepBusy(PGconn *conn, int pause_ms)
{
	std::string user = std::to_string(UserId((int) clients.size(), 0)), before;
	int64_t start = Now();

	for (int i = 0;; i++, SleepMs(10))
	{
		std::string un = i / 2 % 2 == 0 ? "" : "un";

		PQclear(
			PQexec(conn,
				   ("SELECT likecount." + un + kNames[i % 2].verb + "(0, " + user + ")").c_str()));
		if (Now() - start < pause_ms * INT64_C(1'000'000))
			continue;

		std::string flushes = Flushes(conn);

		if (before.empty())
			before = flushes;
		else if (flushes != before || Now() - start > 3'000'000'000)
			break;
	}
}

/* An event that concerns the worker. */
bool
Chaos::StrikeWorker(Kind kind, int number, int pause_ms)
{
	/* Connected before anybody is stopped, who may hold a lock that a new connection needs. */
	PGconn *conn = primary->ConnectWait();
	pid_t worker = 0;
	std::vector<pid_t> stalled;

	Query(conn, "SET synchronous_commit = local; SET lock_timeout = '100ms'");
	for (int i = 0; worker == 0 && i < 200; i++, SleepMs(10))
		worker = WorkerPid();
	if (worker == 0 || kind == kFreezeWorker || kind == kEndWorker)
		PQfinish(conn);
	if (worker == 0)
		return false;

	switch (kind)
	{
		case kStallBackends:
			/*
			 * Most backends stand still, some of them in the middle of a commit, while flushes go on for the others.
			 * Then they finish, and no flush sees what they did.
			 */
			for (size_t i = 2; i < clients.size(); i++)
				if (pid_t pid = clients[(number + i) % clients.size()]->ServerPid())
				{
					stalled.push_back(pid);
					primary->KillChild(pid, SIGSTOP);
				}
			/* Nothing here asks the server: whoever was stopped may hold what everybody needs. */
			SleepMs(250 + pause_ms);
			primary->KillChild(worker, SIGSTOP);
			for (pid_t pid : stalled)
				primary->KillChild(pid, SIGCONT);
			SleepMs(5 + pause_ms / 8);
			return KillAndSee(conn, worker);
		case kLockSlots:
		{
			/*
			 * Deltas of one counter stay where they are, since somebody has locked its slots, while flushes go on for
			 * the others: the watermark must not pass what is left.
			 */
			PGconn *holder = primary->ConnectWait();
			int table = number % 2 == 0 ? kLikes : kReposts;

			Query(holder, "BEGIN");
			Query(holder, std::string("LOCK TABLE likecount.") + kNames[table].verb +
							  "_slots IN SHARE MODE");
			PQclear(PQexec(conn, OwnLikes(table, pause_ms).c_str()));
			KeepBusy(conn, 200 + pause_ms);
			bool seen = Kill(conn, worker, number);

			PQfinish(holder);
			return seen;
		}
		case kStallCommits:
		{
			/*
			 * Commits that wait for a standby, which does not exist, are durable, but no snapshot sees them yet, while
			 * flushes go on for others: the watermark must not pass them.  The crash makes all of it visible.
			 */
			PGconn *waiting = primary->ConnectWait();

			Query(conn, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
			Query(conn, "SELECT pg_catalog.pg_reload_conf()");
			/* Until one has to wait: the server takes its time to notice. */
			for (int i = 0; i < 20 && PQsendQuery(waiting, OwnLikes(kLikes, pause_ms).c_str()) == 1;
				 i++)
			{
				SleepMs(50);
				PQconsumeInput(waiting);
				if (PQisBusy(waiting))
					break;
				while (PGresult *result = PQgetResult(waiting))
					PQclear(result);
			}
			KeepBusy(conn, 200 + pause_ms);
			/* For the server that comes back: this one goes on waiting. */
			Query(conn, "ALTER SYSTEM RESET synchronous_standby_names");
			bool seen = Kill(conn, worker, number);

			PQfinish(waiting);
			conn = primary->ConnectWait();
			Query(conn, "SELECT pg_catalog.pg_reload_conf()");
			PQfinish(conn);
			return seen;
		}
		case kStallStandby:
		{
			/* The same for all synchronous commits, and then they become visible before the crash. */
			PGconn *other = standby->ConnectWait();
			pid_t receiver = std::atoi(
				QueryOne(other, "SELECT pid FROM pg_catalog.pg_stat_wal_receiver").c_str());

			PQfinish(other);
			standby->KillChild(receiver, SIGSTOP);
			KeepBusy(conn, 300 + pause_ms);
			primary->KillChild(worker, SIGSTOP);
			standby->KillChild(receiver, SIGCONT);
			SleepMs(5 + pause_ms / 8);
			return KillAndSee(conn, worker);
		}
		case kFreezeAndKillWorker:
			primary->KillChild(worker, SIGSTOP);
			SleepMs(200 + pause_ms);
			return KillAndSee(conn, worker);
		case kKillWorker:
			/* Half of the time between two flushes that follow each other, when the first one's batch was full. */
			if (pause_ms % 2 == 0)
			{
				std::string before = Flushes(conn);

				for (int64_t until = Now() + 2'500'000'000;
					 Now() < until && Flushes(conn) == before;)
					SleepMs(1);
			}
			return KillAndSee(conn, worker);
		case kFreezeWorker:
			primary->KillChild(worker, SIGSTOP);
			SleepMs(200 + pause_ms);
			primary->KillChild(worker, SIGCONT);
			return true;
		default:
			primary->KillChild(worker, SIGTERM);
			return true;
	}
}

/* One event.  What it kills is a server of ours or a process of it.  False: there was no such process. */
bool
Chaos::Strike(Kind kind, Rng *rng)
{
	int number = rng->Below((int) clients.size());
	int pause_ms = rng->Below(400);

	if (kind < kCrashes)
		world.crashed = true;
	switch (kind)
	{
		case kImmediateStop:
			primary->StopImmediate();
			SleepMs(pause_ms / 4);
			primary->Start();
			break;
		case kKillPostmaster:
			primary->KillPostmaster();
			primary->Start();
			break;
		case kKillBackend:
		{
			PGconn *conn = primary->ConnectWait();
			pid_t pid = 0;

			/* One that is connected: at the end of a recovery nobody may be. */
			for (int i = 0; pid == 0 && i < 200; i++, SleepMs(10))
				pid = clients[(number + i) % clients.size()]->ServerPid();
			if (pid != 0)
				return KillAndSee(conn, pid);
			PQfinish(conn);
			return false;
		}
		case kKillWorker:
		case kFreezeAndKillWorker:
		case kStallBackends:
		case kLockSlots:
		case kStallCommits:
		case kStallStandby:
		case kFreezeWorker:
		case kEndWorker:
			return StrikeWorker(kind, number, pause_ms);
		case kPromotion:
			Promote(rng);
			break;
		case kRestart:
			primary->StopFast();
			primary->Start();
			break;
		case kCheckpoint:
			if (PGconn *conn = primary->Connect())
			{
				PQclear(PQexec(conn, "CHECKPOINT"));
				PQfinish(conn);
			}
			break;
		case kKinds:
			break;
	}
	return true;
}

/* Waits until there is nothing left to do for likecount; returns how long that took, in seconds. */
double
Chaos::WaitSettled(int round)
{
	static const char sql[] =
		"SELECT s.ready, s.queue_rows + s.journal_rows AS pending, s.unadopted,"
		" (SELECT pg_catalog.count(*) FROM likecount._request) AS requests,"
		" (SELECT pg_catalog.count(*) FROM likecount._repair_todo t JOIN likecount.counters c ON "
		"c.id = t.counter) AS todo,"
		" (SELECT pg_catalog.count(*) FROM likecount.counters c WHERE c.state <> 'active'"
		" OR c.mode LIKE 'switching%') AS busy,"
		" (SELECT pg_catalog.count(*) FROM likecount.counters c WHERE NOT EXISTS"
		"   (SELECT FROM likecount._sentinel n WHERE n.counter = c.id)) AS unseen"
		" FROM likecount.status s";
	int64_t start = Now();
	std::string state;

	while (Now() - start < kPatience)
	{
		PGconn *conn = primary->ConnectWait();

		for (;; SleepMs(20))
		{
			PGresult *result = PQexec(conn, sql);
			bool good = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;

			state = good ? "" : PQerrorMessage(conn);
			for (int i = 0; good && i < PQnfields(result); i++)
				state += std::string(i == 0 ? "" : ", ") + PQfname(result, i) + " " +
						 PQgetvalue(result, 0, i);
			PQclear(result);
			if (good &&
				state == "ready t, pending 0, unadopted 0, requests 0, todo 0, busy 0, unseen 0")
			{
				PQfinish(conn);
				return (double) (Now() - start) / 1e9;
			}
			if (PQstatus(conn) != CONNECTION_OK || Now() - start >= kPatience)
				break;
		}
		PQfinish(conn);
	}
	Fail("round " + std::to_string(round) + " does not settle: " + state);

	PGconn *conn = primary->ConnectWait();

	for (auto &row :
		 Query(conn, "SELECT pg_catalog.concat_ws(', ', verb, state, reason, last_error,"
					 " 'locked by ' || locked_by) FROM likecount.counters"))
		Fail("counter " + row[0]);
	PQfinish(conn);
	return (double) kPatience / 1e9;
}

/* The rows of the sources are those that were acknowledged. */
void
Chaos::CheckRows(PGconn *conn)
{
	std::vector<std::vector<bool>> there(clients.size(), std::vector<bool>(kPairs));

	for (int table = 0; table < kTables; table++)
	{
		const TableNames &names = kNames[table];
		auto rows = Query(conn, std::string("SELECT ") + names.post + ", " + names.user + " FROM " +
									names.table);

		for (auto &row : rows)
		{
			int post = std::atoi(row[0].c_str() + (table == kStars));
			int user = std::atoi(row[1].c_str());
			int client = user / 1000 - 1;

			/* The last ones are the controller's own. */
			if (post >= 0 && post < kPosts && client == (int) clients.size())
				continue;
			if (post < 0 || post >= kPosts || client < 0 || client > (int) clients.size() ||
				user % 1000 >= kAllUsers)
				Fail(std::string(names.table) + " has a row that nobody wrote: " + row[0] + ", " +
					 row[1]);
			else
				there[client][PairIndex(table, post, user % 1000)] = true;
		}
	}
	for (size_t client = 0; client < clients.size(); client++)
		for (int pair = 0; pair < kPairs; pair++)
		{
			uint8_t expected = clients[client]->Expected(pair);
			bool present = there[client][pair];

			if ((expected & (present ? kPresent : kAbsent)) == 0)
				Fail(std::string(present ? "a like that was not acknowledged is there: "
										 : "an acknowledged like is lost: ") +
					 kNames[pair / kAllUsers / kPosts].table + " post " +
					 std::to_string(pair / kAllUsers % kPosts) + " user " +
					 std::to_string(UserId((int) client, pair % kAllUsers)));
			clients[client]->Settle(pair, present);
		}
	world.wipes.clear();
}

/* The totals are the numbers of rows. */
/* A frozen post is displayed with what a freeze stored, and below that it is counted like any other. */
void
Chaos::CheckFrozen(int table, const std::vector<std::string> &row)
{
	std::string post = table == kStars ? "'" + row[0] + "'" : row[0];
	std::lock_guard<std::mutex> guard(world.mutex);
	const std::set<int64_t> &stored = world.frozen[{table, post}];
	std::string what = std::string(kNames[table].verb) + ", frozen post " + row[0] + ": ";

	totals.frozen++;
	if (stored.count(std::atoll(row[2].c_str())) == 0 && stored.count(-1) == 0)
		world.violations.push_back(what + "total " + row[2] + " was stored by no freeze");
	if (row[2] != row[3])
		world.violations.push_back(what + "total " + row[2] + ", count " + row[3]);
	if (row[1] != row[5])
	{
		totals.drift++;
		world.violations.push_back(what + row[1] + " rows, counted as " + row[5]);
	}
}

/* Every other round: what is frozen in one has to last through the crashes of the next. */
void
Chaos::UnfreezeAll(PGconn *conn)
{
	for (auto &counter : Query(conn, "SELECT source FROM likecount.counters WHERE frozen > 0"))
		Query(conn, "SELECT likecount.unfreeze('" + counter[0] +
						"', post) FROM likecount.frozen('" + counter[0] + "')");
	std::lock_guard<std::mutex> guard(world.mutex);
	world.frozen.clear();
}

void
Chaos::CheckTotals(PGconn *conn)
{
	for (auto &counter : Query(conn, "SELECT id, verb, source, drift_posts, rejected, "
									 "coalesce(last_error, '') FROM likecount.counters"))
	{
		const std::string &verb = counter[1], &source = counter[2];
		const TableNames *names = nullptr;

		for (const TableNames &candidate : kNames)
			if (verb == candidate.verb)
				names = &candidate;
		if (names == nullptr)
		{
			Fail("a counter that nobody made: " + verb);
			continue;
		}
		for (auto &row : Query(
				 conn,
				 std::string("SELECT coalesce(t.post_id::text, r.post::text), coalesce(r.rows, 0),"
							 " coalesce(t.total, 0), likecount.") +
					 verb +
					 "_count(coalesce(t.post_id, r.post)), coalesce(t.frozen, false),"
					 " coalesce(t.counted, 0) FROM (SELECT post AS post_id, pg_catalog.sum(value) "
					 "AS total,"
					 " pg_catalog.bool_or(slot < 0) AS frozen,"
					 " pg_catalog.sum(value) FILTER (WHERE slot >= 0) AS counted FROM likecount." +
					 verb + "_slots GROUP BY 1) t FULL JOIN (SELECT " + names->post +
					 " AS post, pg_catalog.count(*) AS rows FROM " + source +
					 " GROUP BY 1) r ON r.post = t.post_id"))
		{
			if (row[4] == "t")
			{
				CheckFrozen((int) (names - kNames), row);
				continue;
			}
			if (row[1] == row[2] && row[2] == row[3])
				continue;
			totals.drift++;
			Fail(verb + ", post " + row[0] + ": " + row[1] + " rows, total " + row[2] + ", " +
				 verb + "_count " + row[3]);
		}
		for (auto &row : Query(conn, "SELECT * FROM likecount.check('" + source + "')"))
			Fail("check of " + verb + " finds post " + row[0] + ": " + row[1] + " instead of " +
				 row[2]);
		if (counter[3] != "0")
			Fail("the audit found drift in " + counter[3] + " posts of " + verb);
		if (counter[4] != "0")
			Fail(verb + " has rejected deltas: " + counter[4]);
		if (!counter[5].empty())
			Fail(verb + " has an error: " + counter[5]);
	}
}

/* Nobody died of itself; and what repairs had to do. */
void
Chaos::CheckLog(const Server &server)
{
	static const char *const bad[] = {"PANIC:",
									  "TRAP:",
									  "terminated by signal 11",
									  "terminated by signal 6",
									  "terminated by signal 7",
									  "terminated by signal 8",
									  "XX000"};
	std::ifstream file(server.LogFile());
	std::streamoff &read = log_read[server.LogFile()];
	std::string line;
	bool repair = false;

	file.seekg(read);
	while (std::getline(file, line))
	{
		read += (std::streamoff) line.size() + 1;

		/* A detail of the line before; the backfill of a new counter is none. */
		size_t removed = line.find("drift removed: ");

		if (removed != std::string::npos && repair)
			totals.repaired +=
				std::abs(std::atoll(line.c_str() + removed + std::strlen("drift removed: ")));
		repair = line.find("exact again after its repair") != std::string::npos;
		for (const char *word : bad)
			if (line.find(word) != std::string::npos)
				Fail("server log: " + line);
	}
}

void
Chaos::Verify(PGconn *conn)
{
	std::set<std::string> gids;

	for (auto &row : Query(conn, "SELECT gid FROM pg_catalog.pg_prepared_xacts"))
		gids.insert(row[0]);
	for (auto &client : clients)
		client->Resolve(gids);
	CheckRows(conn);
	CheckTotals(conn);
	if (totals.rounds % 2 == 1)
	{
		UnfreezeAll(conn);
		CheckTotals(conn);
	}
	for (auto &row : Query(conn, "SELECT pg_catalog.sum(slots), pg_catalog.max(slots) FROM "
								 "likecount.hot_posts"))
	{
		totals.slots += std::atoi(row[0].c_str());
		totals.most_slots = std::max(totals.most_slots, std::atoi(row[1].c_str()));
	}
	CheckLog(*primary);
	/* What was committed asynchronously until now is not to be forgotten any more. */
	Query(conn, "UPDATE durable SET n = n + 1");
}

/* Every statement of a round with its answer, as the connections noted it. */
std::string
Chaos::WriteLog(int round)
{
	std::string name = options.settings.work + "/round" + std::to_string(round) + ".log";
	std::ofstream file(name);

	for (auto &line : log)
		file << line << "\n";
	for (auto &client : clients)
		for (auto &line : client->log)
			file << line << "\n";
	return name;
}

/* What is needed to find out why. */
void
Chaos::Report(int round)
{
	std::string name = WriteLog(round);
	size_t shown = 0;

	std::printf("round %d failed:\n", round);
	for (auto &violation : world.violations)
		if (shown++ < 20)
			std::printf("  %s\n", violation.c_str());
	if (world.violations.size() > 20)
		std::printf("  and %zu more\n", world.violations.size() - 20);
	std::printf("seed %llu, round %d; what the connections did is in %s\n",
				(unsigned long long) options.seed, round, name.c_str());
	std::printf("the same again: make chaos SEED=%llu ROUNDS=%d, this round alone: with FIRST=%d\n",
				(unsigned long long) options.seed, round, round);
	std::fflush(stdout);
}

bool
Chaos::RunRound(int round)
{
	RoundPlan plan = PlanRound(options.seed, round, options.promote_every);
	Rng rng(options.seed, (uint64_t) round, 2000);
	std::vector<std::thread> threads;
	int64_t likes = 0;

	world.crashed = false;
	world.stop = false;
	world.start = Now();
	log.clear();
	kinds_of_round.clear();
	Configure(plan);
	if (plan.standby)
		MakeStandby();

	/* One or two crashes, or some lesser evil before one. */
	std::vector<Kind> kinds;
	bool lesser = rng.Percent(35);
	Kind first = (Kind) (lesser ? kFreezeWorker + rng.Below(kKinds - kFreezeWorker)
								: rng.Below(plan.standby ? kStallCommits : kStallStandby));
	Kind last = (Kind) rng.Below(kStallStandby);

	if (plan.standby && rng.Percent(50))
		first = kStallStandby;
	if (plan.standby || rng.Percent(75))
		kinds.push_back(first);
	kinds.push_back(plan.standby ? kPromotion : last);

	for (auto &client : clients)
	{
		likes -= client->likes;
		threads.emplace_back([&client, round, &plan] {
			client->Run(round, plan);
		});
	}

	int share = options.milliseconds / (int) (kinds.size() + 1);

	for (Kind kind : kinds)
	{
		SleepMs(share / 2 + rng.Below(share));

		char when[64];

		std::snprintf(when, sizeof(when),
					  "%9.3f controller: ", (double) (Now() - world.start) / 1e6);
		log.push_back(when + std::string(kKindNames[kind]));
		bool struck = Strike(kind, &rng);

		totals.kinds[kind] += struck;
		kinds_of_round += (kinds_of_round.empty() ? "" : ", ") + std::string(kKindNames[kind]) +
						  (struck ? "" : " (there was none)");
	}
	/* Some rounds end right after the crash, so that nothing that comes later can help. */
	if (rng.Percent(70))
		SleepMs(share / 2 + rng.Below(share));
	world.stop = true;
	for (auto &thread : threads)
		thread.join();
	for (auto &client : clients)
		likes += client->likes;

	double seconds = WaitSettled(round);
	int64_t repaired = totals.repaired;

	/* One that does not settle may have locks that a check would wait for. */
	if (seconds < kPatience / 1e9)
	{
		PGconn *conn = primary->ConnectWait();

		Verify(conn);
		PQfinish(conn);
	}
	totals.rounds++;
	if (seconds > totals.longest)
	{
		totals.longest = seconds;
		totals.longest_round = round;
	}
	std::printf("round %d: %s; interval %d ms; %lld likes acknowledged; drift of %lld repaired; "
				"exact after %.2f s\n",
				round, kinds_of_round.c_str(), plan.flush_interval_ms, (long long) likes,
				(long long) (totals.repaired - repaired), seconds);
	std::fflush(stdout);
	if (options.logs)
		(void) WriteLog(round);
	if (world.violations.empty())
		return true;
	Report(round);
	return false;
}

int
Chaos::Crashes() const
{
	int crashes = 0;

	for (int kind = 0; kind < kCrashes; kind++)
		crashes += totals.kinds[kind];
	return crashes;
}

void
Chaos::Summary(bool good)
{
	int64_t likes = 0, unlikes = 0, transactions = 0, switches = totals.switches;

	for (auto &client : clients)
	{
		switches += client->switches;
		likes += client->likes;
		unlikes += client->unlikes;
		transactions += client->transactions;
	}
	std::printf("\nseed                   %llu\n", (unsigned long long) options.seed);
	std::printf("rounds                 %d\n", totals.rounds);
	std::printf("crashes                %d\n", Crashes());
	for (int kind = 0; kind < kKinds; kind++)
		std::printf("  %-38s %d\n", kKindNames[kind], totals.kinds[kind]);
	std::printf("transactions           %lld\n", (long long) transactions);
	std::printf("likes acknowledged     %lld, taken back %lld\n", (long long) likes,
				(long long) unlikes);
	std::printf("drift repaired         %lld\n", (long long) totals.repaired);
	std::printf("drift found            %d\n", totals.drift);
	std::printf("frozen posts checked   %d\n", totals.frozen);
	std::printf("open slots checked     %d, at most %d of a post\n", totals.slots,
				totals.most_slots);
	std::printf("modes switched         %lld\n", (long long) switches);
	std::printf("longest time to exact  %.2f s (round %d)\n", totals.longest, totals.longest_round);
	std::printf("errors answered       ");
	for (auto &[state, count] : world.errors)
		std::printf(" %s:%d", state.c_str(), count);
	std::printf("\n%d rounds exact, %d failed\n", totals.rounds - !good, (int) !good);
	std::fflush(stdout);
}

bool
Chaos::Run()
{
	bool good = true;

	SetUp();
	(void) WaitSettled(0);
	good = world.violations.empty();
	for (int round = options.first; good && round < options.first + options.rounds; round++)
		good = RunRound(round);
	Summary(good);
	if (good && options.demand > 0 && (Crashes() < options.demand || totals.kinds[kPromotion] == 0))
	{
		std::printf("that was less than the %d crashes and the promotion that were asked for\n",
					options.demand);
		good = false;
	}
	if (primary->Running())
		primary->StopFast();
	return good;
}

/* Prints what connections are going to do, without doing it. */
void
PrintScript(const Options &options)
{
	for (int round = options.first; round < options.first + options.rounds; round++)
	{
		RoundPlan plan = PlanRound(options.seed, round, options.promote_every);

		for (int client = 0; client < options.connections; client++)
		{
			Script script(options.seed, round, client, plan);

			for (int i = 0; i < 100; i++)
				std::printf("%d c%d %s\n", round, client, Describe(script.Next()).c_str());
		}
	}
}
} // namespace

int
main(int argc, char **argv)
{
	Options options;
	std::string conf;

	for (int i = 1; i < argc; i++)
	{
		std::string name = argv[i];

		if (name == "--script" || name == "--logs")
		{
			(name == "--script" ? options.script : options.logs) = true;
			continue;
		}
		if (i + 1 == argc)
			Die("no value for " + name);

		std::string value = argv[++i];

		if (name == "--bindir")
			options.settings.bindir = value;
		else if (name == "--work")
			options.settings.work = value;
		else if (name == "--conf")
		{
			std::ifstream file(value);
			std::stringstream text;

			text << file.rdbuf();
			options.settings.conf += text.str();
		}
		else if (name == "--seed")
			options.seed = std::strtoull(value.c_str(), nullptr, 10);
		else if (name == "--rounds")
			options.rounds = std::atoi(value.c_str());
		else if (name == "--first")
			options.first = std::atoi(value.c_str());
		else if (name == "--connections")
			options.connections = std::atoi(value.c_str());
		else if (name == "--promote-every")
			options.promote_every = std::atoi(value.c_str());
		else if (name == "--milliseconds")
			options.milliseconds = std::atoi(value.c_str());
		else if (name == "--demand-crashes")
			options.demand = std::atoi(value.c_str());
		else
			Die("unknown option " + name);
	}
	if (options.script)
	{
		PrintScript(options);
		return 0;
	}
	if (options.settings.bindir.empty() || options.settings.work.empty())
		Die("usage: chaos --bindir DIRECTORY --work DIRECTORY [--conf FILE]... [--seed N] "
			"[--rounds N] [--first N]"
			" [--connections N] [--promote-every N] [--milliseconds N] [--demand-crashes N] "
			"[--script] [--logs]");
	signal(SIGPIPE, SIG_IGN);
	/* Whoever ends us ends the servers, too.  Blocked here, the signals come to this thread alone. */
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &ends, nullptr);
	std::thread([ends] {
		int number;

		sigwait(&ends, &number);
		Die("interrupted");
	}).detach();
	options.settings.conf +=
		"\nmax_connections = 40\nmax_prepared_transactions = 40\nfsync = off\nshared_buffers = "
		"16MB\n"
		"wal_writer_delay = 5s\ndeadlock_timeout = 200ms\nmax_wal_senders = 4\n"
		"wal_retrieve_retry_interval = 100ms\nlog_line_prefix = '%m %p %b %e '\n"
		"autovacuum_naptime = 1s\nlikecount.idle_timeout = 1s\nlog_checkpoints = off\n"
		"statement_timeout = '30s'\n";
	return Chaos(options).Run() ? 0 : 1;
}
