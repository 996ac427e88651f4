/*
 * chaos.hpp: what the parts of the chaos test share.  chaos.cpp says what it does.
 */
#pragma once

#include <libpq-fe.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

/* Nanoseconds of a clock that never steps. */
int64_t Now();
void SleepMs(int64_t ms);

/* Numbers that depend on nothing but where they are drawn. */
class Rng
{
  public:
	Rng(uint64_t seed, uint64_t round, uint64_t stream);
	/* 0 .. n - 1 */
	int Below(int n);
	bool Percent(int percent);

  private:
	std::mt19937_64 engine;
};

/* ------------------------------------------------------------------------------------------------------------------
 * The data: three sources, few posts, and users of which each belongs to one connection.
 */
enum Table
{
	kLikes,	  /* made by create_counter: the fast insert */
	kReposts, /* partitioned, with a foreign key that cascades */
	kStars,	  /* attached and detached all the time, posts are text */
	kTables
};

/*
 * The first posts are hot.  Of the others each connection works on one for a while: a crash then finds posts at which
 * nobody but it has done anything lately, so nothing else leads repair to them.
 */
constexpr int kPosts = 300;
constexpr int kHotPosts = 3;
/* Posts below this are in the first partition of reposts. */
constexpr int kSplit = 150;
/* Users of a connection: those that it uses at any time, and those of each transaction that it may have prepared. */
constexpr int kUsers = 12;
constexpr int kPreparedSlots = 2;
constexpr int kUsersPerSlot = 3;
constexpr int kAllUsers = kUsers + kPreparedSlots * kUsersPerSlot;
constexpr int kPairs = kTables * kPosts * kAllUsers;

struct TableNames
{
	const char *table, *post, *user, *time, *verb;
};

extern const TableNames kNames[kTables];

/* A post as SQL literal, without a cast. */
std::string PostLiteral(int table, int post);
/* Number of a (table, post, user of this connection). */
inline int
PairIndex(int table, int post, int user)
{
	return (table * kPosts + post) * kAllUsers + user;
}
inline int64_t
UserId(int connection, int user)
{
	return 1000 * (connection + 1) + user;
}

/* ------------------------------------------------------------------------------------------------------------------
 * script.cpp: what a connection is going to do, drawn in advance and without regard to what comes of it.
 */
enum class Do
{
	kLike,
	kUnlike,
	kLikeMany,
	kInsert,	  /* ON CONFLICT DO NOTHING */
	kInsertPlain, /* fails when it is there */
	kDelete,
	kDeleteAll, /* of one post */
	kMove,		/* UPDATE of the post */
	kRedate,	/* UPDATE of the time */
	kMergeIn,
	kMergeOut,
	kReplace, /* DELETE and INSERT */
	kCopy,
	kException, /* a PL/pgSQL block that likes, and fails to like */
	kRead,
	kSavepoint,
	kRollbackTo,
	kRelease,
	kSleep,
	kFlush,
	kReconcile,
	kReconcileRecent,
	kCheck,
	kFreeze,
	kUnfreeze,
	kForget, /* of a post without rows, else it fails */
	/* alone in their transaction */
	kReconcileAll,
	kTruncate,
	kTruncatePartition,
	kDeletePost,
	kAttach,
	kDetach,
	kSetMode,
	kFinishPrepared,
	kDisconnect,
};

struct Op
{
	Do what;
	int table, post, other_post, user, number;
	int age_ms; /* of a back-dated like */
};

enum class End
{
	kAuto, /* one statement, its own transaction */
	kCommit,
	kRollback,
	kPrepare,
};

struct Tx
{
	End end;
	int isolation;	   /* 0 read committed, 1 repeatable read, 2 serializable */
	bool asynchronous; /* synchronous_commit = off */
	int slot;		   /* of a prepared transaction */
	bool commit;	   /* when a prepared one is finished */
	std::vector<Op> ops;
};

/* What a whole round is like. */
struct RoundPlan
{
	int flush_interval_ms;
	int flush_batch;
	bool recounts; /* connections recount; else nothing can put right what is wrong */
	bool standby;  /* ends with a promotion */
	int async_percent;
	bool direct[kTables]; /* begins in direct mode */
	int max_slots;
};

RoundPlan PlanRound(uint64_t seed, int round, int promote_every);

class Script
{
  public:
	Script(uint64_t seed, int round, int connection, const RoundPlan &plan);
	Tx Next();

  private:
	Op Draw(bool in_block, int first_user, int users);
	Rng rng;
	int cold_post;
	bool asynchronous = false;
	const RoundPlan plan;
};

std::string Describe(const Tx &tx);

/* ------------------------------------------------------------------------------------------------------------------
 * server.cpp: servers of our own making.
 */
struct Settings
{
	std::string bindir;
	std::string work;		   /* everything that we make is below it */
	std::string conf;		   /* lines for postgresql.conf */
	std::string socket_prefix; /* short, for sockets' paths */
};

class Server
{
  public:
	Server(const Settings &settings, int number);

	void Init();
	/* Makes a standby of another server out of a base backup, and starts it. */
	void InitStandby(const Server &primary);
	void Start(); /* until it accepts connections */
	void StopFast();
	void StopImmediate();
	void KillPostmaster();
	void KillChild(pid_t pid, int signal);
	/* Removes the data directory of a server that does not run. */
	void Remove();

	bool Running() const
	{
		return postmaster > 0;
	}
	std::string Conninfo() const;
	/* nullptr: not now. */
	PGconn *Connect(PQnoticeReceiver receiver = nullptr, void *arg = nullptr) const;
	/* The same, but it waits. */
	PGconn *ConnectWait() const;
	std::string LogFile() const
	{
		return log;
	}

  private:
	void Spawn();
	void Reap();

	const Settings &settings;
	std::string data, socket, log;
	pid_t postmaster = 0;
};

/* Ends the program; servers are stopped by an exit handler. */
[[noreturn]] void Die(const std::string &message);

/* A query's rows, and the first value of the first; dies on an error. */
std::vector<std::vector<std::string>> Query(PGconn *conn, const std::string &sql);
std::string QueryOne(PGconn *conn, const std::string &sql);

/* ------------------------------------------------------------------------------------------------------------------
 * client.cpp: a connection, and what it remembers.
 */
constexpr uint8_t kAbsent = 1, kPresent = 2, kEither = 3;

/* A TRUNCATE, or a DELETE that cascades: it takes the rows of everybody. */
struct Wipe
{
	int table, first_post, last_post;
	int64_t began, ended; /* ended: INT64_MAX while it runs or when its outcome is unknown */
	bool failed;
};

/* What is known of a (post, user): possible states, and when the transaction that made it so ran. */
struct Pair
{
	uint8_t state = kAbsent;
	int64_t began = 0, ended = 0;
	int own_wipe = -1; /* was made after this wipe, by the same transaction */
};

/* Shared by the connections of a run. */
struct World
{
	uint64_t seed;
	std::mutex mutex;
	/* under the mutex */
	Server *server = nullptr;	 /* to which to connect */
	std::vector<Wipe> wipes;	 /* of this round */
	int64_t wiped[kTables] = {}; /* when the last one ended that may have succeeded, of any round */
	std::vector<std::string> violations;
	std::map<std::string, int> errors; /* SQLSTATEs that were answered */
	/* By table and post as SQL has it: the counts that freeze() returned, -1 for an answer that was lost. */
	std::map<std::pair<int, std::string>, std::set<int64_t>> frozen;

	/* set by the controller */
	volatile bool stop = false;
	volatile bool crashed = false; /* drift is possible until everything has settled */
	volatile int64_t start = 0;
};

struct PreparedTx
{
	enum State
	{
		kNone,
		kPrepared,
		kPrepareUnknown,
		kCommitUnknown,
		kRollbackUnknown,
	} state = kNone;
	std::string gid;
	std::map<int, uint8_t> changes;
	int64_t began = 0;
	bool soft = false; /* the standby may not have it */
};

class Client
{
  public:
	Client(World *world, int number);
	/* One round. */
	void Run(int round, const RoundPlan &plan);
	/* Finds out what became of prepared transactions whose outcome was unknown. */
	void Resolve(const std::set<std::string> &gids);
	/* What the states are now that nothing runs; and what they turned out to be. */
	uint8_t Expected(int pair);
	void Settle(int pair, bool present);

	int ServerPid();

	std::vector<std::string> log; /* of this round */
	int64_t likes = 0, unlikes = 0, transactions = 0, switches = 0;

  private:
	struct Answer
	{
		bool ok = false;
		bool lost = false; /* the connection, and with it the outcome */
		std::string state; /* SQLSTATE */
		std::string tag;
		std::string value;
		int64_t rows = 0;
		int tuples = 0;
	};

	bool Connect();
	void Disconnected();
	Answer Execute(const std::string &sql, const std::string &copy_data = "");
	void Note(const std::string &line);
	void Violation(const std::string &what);

	void RunTx(const Tx &tx);
	void RunAuto(const Tx &tx);
	void RunBlock(const Tx &tx);
	void RunWipe(const Tx &tx);
	void FinishPrepared(const Tx &tx);
	bool RunOp(const Op &op, bool in_block, Answer *answer);
	void Apply(const std::map<int, uint8_t> &changes, int64_t began, bool unknown, bool soft,
			   int own_wipe);
	void ApplyPrepared(const PreparedTx &slot, int64_t began, bool unknown, bool soft);
	void CheckRecount(const Op &op, const Answer &answer);
	void Set(int table, int post, int user, uint8_t state);
	bool Durable(bool asynchronous, bool wrote);

	World *world;
	const int number;
	std::mutex conn_mutex;
	PGconn *conn = nullptr;
	int asynchronous = -1;	   /* the session's setting, -1: unknown */
	bool sync_skipped = false; /* by the server, in the last statement */
	int prepared_count = 0;
	std::vector<Pair> pairs;
	std::set<int> soft_pairs; /* acknowledged, but not known to be on disk */
	PreparedTx prepared[kPreparedSlots];
	std::vector<std::map<int, uint8_t>> levels; /* changes of the transaction, by savepoint */
	bool wrote = false;							/* the transaction changed something */

	friend void SyncNotice(void *arg, const PGresult *result);
};
