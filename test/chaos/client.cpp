/*
 * client.cpp: a connection that carries out its script and remembers what was acknowledged.
 *
 * Each connection has users of its own, so what becomes of a (post, user) is decided by one connection, one transaction
 * after the other, and is known for certain: as the last acknowledged transaction left it.  There are four
 * reasons not to know:
 *
 * - The connection was lost while the outcome was on its way.  What that transaction changed may be either way.
 * - It was acknowledged with synchronous_commit = off, and the server crashed before the same session had a synchronous commit
 *   acknowledged.
 * - A TRUNCATE or a cascading DELETE of anybody overlapped it in time.  What it was before is gone, what it became
 *   stays, and nobody can tell from outside which of the two came first.
 * - It is part of a prepared transaction.  Whether that still exists, the server tells; one that was acknowledged must.
 *
 * Every statement is chosen such that its answer tells the state it leaves, whatever the state before was.
 */
#include "chaos.hpp"

#include <algorithm>
#include <cstring>

namespace
{
/* Answers that a busy server may give to anybody. */
bool
Tolerated(const Op &op, const std::string &state)
{
	static const std::set<std::string> always = {
		"23505", /* INSERT of what is there */
		"23503", /* the post is gone for a moment */
		"25000", /* flush and recounts above READ COMMITTED */
		"40001", /* serialization */
		"40P01", /* deadlock: TRUNCATE against transactions with several statements */
		"55P03", /* lock_timeout */
		"55000", /* a frozen post; PREPARE after a flush */
		"55006", /* recount with pending triggers */
	};
	/* No counter, no functions: somebody has detached it. */
	static const std::set<std::string> detached = {"42883", "42704", "42710"};

	return always.count(state) > 0 || (op.table == kStars && detached.count(state) > 0);
}

std::string
TimeExpression(const Op &op)
{
	return "pg_catalog.clock_timestamp() - interval '" + std::to_string(op.age_ms) + " ms'";
}

int
FirstUser(int user)
{
	return user < kUsers ? 0 : user - (user - kUsers) % kUsersPerSlot;
}

int
UserCount(int user)
{
	return user < kUsers ? kUsers : kUsersPerSlot;
}

/* Another user, or the same. */
int
OtherUser(const Op &op)
{
	return FirstUser(op.user) + op.number - 1;
}
} // namespace

void
SyncNotice(void *arg, const PGresult *result)
{
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	/* The commit was acknowledged without the standby having it. */
	if (message != nullptr && std::strstr(message, "synchronous replication") != nullptr)
		static_cast<Client *>(arg)->sync_skipped = true;
}

Client::Client(World *world, int number) : world(world), number(number), pairs(kPairs) {}

void
Client::Note(const std::string &line)
{
	char head[64];

	std::snprintf(head, sizeof(head), "%9.3f c%d ", (double) (Now() - world->start) / 1e6, number);
	log.push_back(head + line);
}

void
Client::Violation(const std::string &what)
{
	Note("VIOLATION " + what);
	std::lock_guard<std::mutex> guard(world->mutex);
	world->violations.push_back("connection " + std::to_string(number) + ": " + what);
}

/* Connects, with patience; false: the round is over. */
bool
Client::Connect()
{
	while (conn == nullptr)
	{
		if (world->stop)
			return false;

		Server *server;
		{
			std::lock_guard<std::mutex> guard(world->mutex);
			server = world->server;
		}
		PGconn *fresh = server == nullptr ? nullptr : server->Connect(SyncNotice, this);

		if (fresh == nullptr)
		{
			SleepMs(20);
			continue;
		}
		{
			std::lock_guard<std::mutex> guard(conn_mutex);
			conn = fresh;
		}
		asynchronous = -1;
		Note("connected");

		Answer answer = Execute("SET lock_timeout = '1s'");
		std::set<std::string> gids;

		if (answer.ok)
			answer =
				Execute("SELECT pg_catalog.string_agg(gid, ' ') FROM pg_catalog.pg_prepared_xacts");
		if (!answer.ok)
		{
			Disconnected();
			continue;
		}
		for (size_t at = 0; at < answer.value.size();)
		{
			size_t end = std::min(answer.value.find(' ', at), answer.value.size());

			gids.insert(answer.value.substr(at, end - at));
			at = end + 1;
		}
		Resolve(gids);
	}
	return true;
}

/* The connection is gone, by a crash or because we left; what was not surely on disk may be lost. */
void
Client::Disconnected()
{
	{
		std::lock_guard<std::mutex> guard(conn_mutex);

		if (conn != nullptr)
			PQfinish(conn);
		conn = nullptr;
	}
	for (int pair : soft_pairs)
		pairs[pair].state = kEither;
	Note("disconnected");
}

int
Client::ServerPid()
{
	std::lock_guard<std::mutex> guard(conn_mutex);

	return conn == nullptr ? 0 : PQbackendPID(conn);
}

Client::Answer
Client::Execute(const std::string &sql, const std::string &copy_data)
{
	Answer answer;

	sync_skipped = false;
	PGresult *result = PQexec(conn, sql.c_str());

	if (PQresultStatus(result) == PGRES_COPY_IN)
	{
		PQclear(result);
		if (PQputCopyData(conn, copy_data.data(), (int) copy_data.size()) == 1)
			PQputCopyEnd(conn, nullptr);
		result = PQgetResult(conn);
		while (PGresult *more = PQgetResult(conn))
			PQclear(more);
	}

	ExecStatusType status = PQresultStatus(result);

	answer.ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	if (answer.ok)
	{
		answer.tag = PQcmdStatus(result);
		answer.tuples = PQntuples(result);
		if (answer.tuples > 0 && PQnfields(result) > 0)
			answer.value = PQgetvalue(result, 0, 0);
		answer.rows = std::atoll(PQcmdTuples(result));
	}
	else
	{
		const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

		/* Without one libpq itself reports; 57P01 and the like is the server's farewell. */
		answer.lost = PQstatus(conn) != CONNECTION_OK || state == nullptr ||
					  std::strncmp(state, "57P", 3) == 0;
		answer.state = state == nullptr ? "" : state;
		answer.value = PQresultErrorMessage(result);
	}
	PQclear(result);

	std::string shown = answer.lost ? "lost"
						: answer.ok ? answer.tag + " " + answer.value
									: answer.state + " " + answer.value.substr(0, 120);

	std::replace(shown.begin(), shown.end(), '\n', ' ');
	Note(sql + " -> " + shown);
	return answer;
}

/* The transaction leaves a pair in a state. */
void
Client::Set(int table, int post, int user, uint8_t state)
{
	levels.back()[PairIndex(table, post, user)] = state;
}

/* Recounts find nothing unless a crash or DDL is the reason. */
void
Client::CheckRecount(const Op &op, const Answer &answer)
{
	if (!answer.ok || op.table == kStars || world->crashed)
		return;
	if (op.what == Do::kReconcile ? answer.value != "0" : answer.tuples > 0)
		Violation("a recount found drift in " + std::string(kNames[op.table].table) +
				  " though nothing had crashed");
}

/* Carries out one statement, or a few that belong together.  False: it failed. */
bool
Client::RunOp(const Op &op, bool in_block, Answer *answer)
{
	const TableNames &names = kNames[op.table];
	const std::string table = names.table, verb = std::string("likecount.") + names.verb;
	const std::string undo = std::string("likecount.un") + names.verb;
	const std::string post = PostLiteral(op.table, op.post);
	const std::string other_post = PostLiteral(op.table, op.other_post);
	const std::string user = std::to_string(UserId(number, op.user));
	const std::string other_user = std::to_string(UserId(number, OtherUser(op)));
	const std::string columns =
		std::string("(") + names.post + ", " + names.user + ", " + names.time + ")";
	const std::string where =
		std::string(" WHERE ") + names.post + " = " + post + " AND " + names.user + " = ";
	const int first = FirstUser(op.user), count = UserCount(op.user);
	std::string sql;
	std::string data;

	switch (op.what)
	{
		case Do::kLike:
			sql = "SELECT " + verb + "(" + post + ", " + user + ")";
			break;
		case Do::kUnlike:
			sql = "SELECT " + undo + "(" + post + ", " + user + ")";
			break;
		case Do::kLikeMany:
		{
			std::string posts, users;

			for (int i = 0; i < op.number; i++)
			{
				const char *comma = i == 0 ? "" : ", ";

				posts += comma + PostLiteral(op.table, (op.post + i) % kPosts);
				users +=
					comma + std::to_string(UserId(number, first + (op.user - first + i) % count));
			}
			sql = "SELECT " + verb + "_many(ARRAY[" + posts + "], ARRAY[" + users + "])";
			break;
		}
		case Do::kInsert:
		case Do::kInsertPlain:
			sql = "INSERT INTO " + table + columns + " VALUES (" + post + ", " + user + ", " +
				  TimeExpression(op) + ")";
			if (op.what == Do::kInsert)
				sql += " ON CONFLICT DO NOTHING";
			break;
		case Do::kDelete:
			sql = "DELETE FROM " + table + where + user;
			break;
		case Do::kDeleteAll:
			sql = "DELETE FROM " + table + " WHERE " + names.post + " = " + post + " AND " +
				  names.user + " BETWEEN " + std::to_string(UserId(number, first)) + " AND " +
				  std::to_string(UserId(number, first + count - 1));
			break;
		case Do::kMove:
			sql = "UPDATE " + table + " SET " + names.post + " = " + other_post + where + user;
			break;
		case Do::kRedate:
			sql = "UPDATE " + table + " SET " + names.time + " = " + TimeExpression(op) + where +
				  user;
			break;
		case Do::kMergeIn:
		case Do::kMergeOut:
			sql = "MERGE INTO " + table + " t USING (VALUES (" + post + ", " + user +
				  ")) AS s(p, u) ON t." + names.post + " = s.p AND t." + names.user + " = s.u";
			if (op.what == Do::kMergeOut)
				sql += " WHEN MATCHED THEN DELETE";
			else
				sql += std::string(" WHEN MATCHED THEN UPDATE SET ") + names.time + " = " +
					   TimeExpression(op) + " WHEN NOT MATCHED THEN INSERT " + columns +
					   " VALUES (s.p, s.u, " + TimeExpression(op) + ")";
			break;
		case Do::kReplace:
			sql = "DELETE FROM " + table + where + user + "; INSERT INTO " + table + columns +
				  " VALUES (" + post + ", " + other_user + ", " + TimeExpression(op) +
				  ") ON CONFLICT DO NOTHING";
			break;
		case Do::kCopy:
			if (op.number % 2 == 0)
				sql = "DELETE FROM " + table + where.substr(0, where.size() - 3) + " BETWEEN " +
					  std::to_string(UserId(number, first)) + " AND " +
					  std::to_string(UserId(number, first + op.number - 1)) + "; ";
			sql += "COPY " + table + "(" + names.post + ", " + names.user + ") FROM STDIN";
			for (int i = 0; i < op.number; i++)
			{
				std::string name = post;

				name.erase(std::remove(name.begin(), name.end(), '\''), name.end());
				data += name + "\t" + std::to_string(UserId(number, first + i)) + "\n";
			}
			break;
		case Do::kException:
			sql = "DO $$ BEGIN PERFORM " + verb + "(" + post + ", " + user + "); BEGIN PERFORM " +
				  verb + "(" + other_post + ", " + other_user +
				  "); RAISE 'no'; EXCEPTION WHEN raise_exception THEN NULL; END;" +
				  " BEGIN PERFORM " + undo + "(" + post + ", " + other_user +
				  "); EXCEPTION WHEN division_by_zero THEN NULL; END; END $$";
			break;
		case Do::kRead:
			sql = "SELECT " + verb + "_count(" + post + ")";
			break;
		case Do::kSavepoint:
			sql = "SAVEPOINT s" + std::to_string(levels.size());
			break;
		case Do::kRollbackTo:
		case Do::kRelease:
			if (levels.size() < 2)
				return true;
			sql = (op.what == Do::kRelease ? "RELEASE s" : "ROLLBACK TO s") +
				  std::to_string(levels.size() - 1);
			break;
		case Do::kSleep:
			SleepMs(op.number);
			return true;
		case Do::kFlush:
			sql = "SELECT likecount.flush()";
			break;
		case Do::kReconcile:
			sql = "SELECT likecount.reconcile('" + table + "', " + post + ")";
			break;
		case Do::kReconcileRecent:
			sql = "SELECT * FROM likecount.reconcile_recent('" + table + "', '1 hour')";
			break;
		case Do::kReconcileAll:
			sql = "CALL likecount.reconcile_all('" + table + "', 100)";
			break;
		case Do::kCheck:
			sql = "SELECT * FROM likecount.check('" + table + "')";
			break;
		case Do::kFreeze:
			sql = "SELECT likecount.freeze('" + table + "', " + post + ")";
			break;
		case Do::kUnfreeze:
			sql = "SELECT likecount.unfreeze('" + table + "', " + post + ")";
			break;
		case Do::kForget:
			sql = "SELECT likecount.forget('" + table + "', " + post + ")";
			break;
		case Do::kTruncate:
			sql = "TRUNCATE " + table;
			break;
		case Do::kTruncatePartition:
			sql = op.post < kSplit ? "TRUNCATE reposts_low" : "TRUNCATE reposts_high";
			break;
		case Do::kDeletePost:
			sql = "DELETE FROM posts WHERE id = " + std::to_string(op.post) +
				  "; INSERT INTO posts VALUES (" + std::to_string(op.post) + ")";
			break;
		case Do::kAttach:
			sql = std::string("SELECT likecount.attach('stars', 'post', 'fan', 'at', mode => '") +
				  (op.number % 2 == 0 ? "direct" : "queued") + "', if_not_exists => true)";
			break;
		case Do::kDetach:
			sql = "SELECT likecount.detach('stars', if_exists => true)";
			break;
		case Do::kSetMode:
			/* It waits for transactions that are open, and likers wait for it. */
			sql = "SET lock_timeout = '300ms'; SELECT likecount.set_mode('" + table + "', '" +
				  (op.number % 2 == 0 ? "direct" : "queued") + "'); SET lock_timeout = '1s'";
			break;
		case Do::kFinishPrepared:
		case Do::kDisconnect:
			return true;
	}

	*answer = Execute(sql, data);
	if (op.what == Do::kFreeze && (answer->ok || answer->lost))
	{
		std::lock_guard<std::mutex> guard(world->mutex);

		world->frozen[{op.table, post}].insert(answer->lost ? -1
															: std::atoll(answer->value.c_str()));
	}
	if (answer->lost)
		return false;
	if (!answer->ok)
	{
		{
			std::lock_guard<std::mutex> guard(world->mutex);
			world->errors[answer->state]++;
		}
		if (!Tolerated(op, answer->state))
			Violation("unexpected error " + answer->state + ": " + answer->value + " in " + sql);
		/* One connection's users are nobody else's: a like of its own never waits for another. */
		if (op.what == Do::kLike && !in_block && answer->state == "40P01")
			Violation("a like in a transaction of its own was part of a deadlock");
		return false;
	}

	bool changed = answer->value == "t" || (answer->tuples == 0 && answer->rows > 0);

	switch (op.what)
	{
		case Do::kLike:
		case Do::kInsert:
		case Do::kInsertPlain:
		case Do::kMergeIn:
			Set(op.table, op.post, op.user, kPresent);
			break;
		case Do::kUnlike:
		case Do::kDelete:
		case Do::kMergeOut:
			Set(op.table, op.post, op.user, kAbsent);
			break;
		case Do::kLikeMany:
			for (int i = 0; i < op.number; i++)
				Set(op.table, (op.post + i) % kPosts, first + (op.user - first + i) % count,
					kPresent);
			changed = answer->value != "0";
			break;
		case Do::kDeleteAll:
			for (int i = 0; i < count; i++)
				Set(op.table, op.post, first + i, kAbsent);
			break;
		case Do::kMove:
			if (op.post == op.other_post)
				break;
			Set(op.table, op.post, op.user, kAbsent);
			if (answer->rows == 1)
				Set(op.table, op.other_post, op.user, kPresent);
			break;
		case Do::kReplace:
			Set(op.table, op.post, op.user, kAbsent);
			Set(op.table, op.post, OtherUser(op), kPresent);
			break;
		case Do::kCopy:
			for (int i = 0; i < op.number; i++)
				Set(op.table, op.post, first + i, kPresent);
			break;
		case Do::kException:
			Set(op.table, op.post, op.user, kPresent);
			Set(op.table, op.post, OtherUser(op), kAbsent);
			changed = false;
			break;
		case Do::kSavepoint:
			levels.emplace_back();
			break;
		case Do::kRollbackTo:
			levels.back().clear();
			break;
		case Do::kRelease:
		{
			std::map<int, uint8_t> top = levels.back();

			levels.pop_back();
			for (auto &[pair, state] : top)
				levels.back()[pair] = state;
			break;
		}
		case Do::kReconcile:
		case Do::kReconcileRecent:
		case Do::kCheck:
			CheckRecount(op, *answer);
			changed = false;
			break;
		case Do::kFreeze:
		case Do::kUnfreeze:
		case Do::kForget:
			changed = true;
			break;
		case Do::kSetMode:
			switches++;
			changed = true;
			break;
		default:
			changed = false;
			break;
	}
	wrote |= changed;
	return true;
}

/* Remembers what a transaction changed. */
void
Client::Apply(const std::map<int, uint8_t> &changes, int64_t began, bool unknown, bool soft,
			  int own_wipe)
{
	for (auto &[pair, state] : changes)
	{
		if (!unknown)
			((state & kPresent) != 0 ? likes : unlikes)++;
		pairs[pair] = {unknown ? kEither : state, began, Now(), own_wipe};
		/* One that merely found things as it wanted them has written nothing, so it leaves what it found in doubt. */
		if (soft)
			soft_pairs.insert(pair);
	}
	transactions += !unknown;
}

/*
 * The same for one that was prepared.  It has kept its rows locked since, but a like that was there already is none of its
 * rows, and a cascading DELETE may have taken it.
 */
void
Client::ApplyPrepared(const PreparedTx &slot, int64_t began, bool unknown, bool soft)
{
	std::map<int, uint8_t> changes = slot.changes;
	{
		std::lock_guard<std::mutex> guard(world->mutex);

		for (auto &[pair, state] : changes)
			if (world->wiped[pair / kAllUsers / kPosts] >= slot.began)
				state |= kAbsent;
	}
	Apply(changes, began, unknown, soft, -1);
}

/* After an acknowledged commit: true when it is surely on disk, and so is all that this session did before. */
bool
Client::Durable(bool asynchronous, bool wrote)
{
	if (asynchronous || sync_skipped)
		return false;
	if (wrote)
		soft_pairs.clear();
	return true;
}

void
Client::RunAuto(const Tx &tx)
{
	int64_t began = Now();
	Answer answer;
	bool good = RunOp(tx.ops[0], false, &answer);

	if (answer.lost)
	{
		/* Every pair that it names. */
		const Op &op = tx.ops[0];
		std::map<int, uint8_t> touched;
		int first = FirstUser(op.user), count = UserCount(op.user);

		for (int i = 0; i < count; i++)
		{
			bool all = op.what == Do::kDeleteAll || op.what == Do::kCopy;

			if (op.what == Do::kLikeMany)
				touched[PairIndex(op.table, (op.post + i) % kPosts,
								  first + (op.user - first + i) % count)] = kEither;
			else if (all || first + i == op.user || first + i == OtherUser(op))
				touched[PairIndex(op.table, op.post, first + i)] =
					touched[PairIndex(op.table, op.other_post, first + i)] = kEither;
		}
		if (op.what <= Do::kException)
			Apply(touched, began, true, false, -1);
		Disconnected();
	}
	else if (good)
		Apply(levels[0], began, false, !Durable(tx.asynchronous, wrote), -1);
}

void
Client::RunBlock(const Tx &tx)
{
	static const char *const isolations[] = {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"};
	int64_t began = Now();
	Answer answer = Execute(std::string("BEGIN ISOLATION LEVEL ") + isolations[tx.isolation]);

	if (answer.lost)
		return Disconnected();
	for (const Op &op : tx.ops)
	{
		if (world->stop && tx.end != End::kPrepare)
			break;
		if (RunOp(op, true, &answer))
			continue;
		if (!answer.lost && levels.size() > 1)
		{
			answer = Execute("ROLLBACK TO s" + std::to_string(levels.size() - 1));
			levels.back().clear();
			if (answer.ok)
				continue;
		}
		/* Nothing of it is there: it was not committed. */
		if (answer.lost)
			return Disconnected();
		answer = Execute("ROLLBACK");
		if (answer.lost)
			Disconnected();
		return;
	}

	std::map<int, uint8_t> changes;

	for (auto &level : levels)
		for (auto &[pair, state] : level)
			changes[pair] = state;

	if (tx.end == End::kRollback)
	{
		if (Execute("ROLLBACK").lost)
			Disconnected();
	}
	else if (tx.end == End::kPrepare)
	{
		PreparedTx &slot = prepared[tx.slot];

		slot = {PreparedTx::kNone,
				"c" + std::to_string(number) + "_" + std::to_string(prepared_count++), changes,
				began, false};
		answer = Execute("PREPARE TRANSACTION '" + slot.gid + "'");
		if (answer.lost)
		{
			slot.state = PreparedTx::kPrepareUnknown;
			Disconnected();
		}
		else if (answer.ok && answer.tag == "PREPARE TRANSACTION")
		{
			slot.state = PreparedTx::kPrepared;
			slot.soft = sync_skipped;
		}
		else if (!answer.ok && !Tolerated(Op(), answer.state))
			Violation("unexpected error at PREPARE " + answer.state + ": " + answer.value);
	}
	else
	{
		answer = Execute("COMMIT");
		if (answer.lost)
		{
			Apply(changes, began, true, false, -1);
			Disconnected();
		}
		else if (answer.ok && answer.tag == "COMMIT")
			Apply(changes, began, false, !Durable(tx.asynchronous, wrote), -1);
		else if (!answer.ok && !Tolerated(Op(), answer.state))
			Violation("unexpected error at COMMIT " + answer.state + ": " + answer.value);
	}
}

/* A TRUNCATE, or a DELETE of a post, with or without likes after it in the same transaction. */
void
Client::RunWipe(const Tx &tx)
{
	const Op &op = tx.ops[0];
	Wipe wipe = {op.table, 0, kPosts - 1, Now(), INT64_MAX, false};
	Answer answer;
	int index;

	if (op.what == Do::kTruncatePartition)
	{
		wipe.table = kReposts;
		wipe.first_post = op.post < kSplit ? 0 : kSplit;
		wipe.last_post = op.post < kSplit ? kSplit - 1 : kPosts - 1;
		/* No trigger of the source sees it; the counter is recounted. */
		world->crashed = true;
	}
	else if (op.what == Do::kDeletePost)
	{
		wipe.table = kReposts;
		wipe.first_post = wipe.last_post = op.post;
	}
	{
		std::lock_guard<std::mutex> guard(world->mutex);

		index = (int) world->wipes.size();
		world->wipes.push_back(wipe);
	}

	/* Only what commits for sure, or not at all, is known for sure: always with a synchronous commit. */
	Op like = {};

	like.what = Do::kLike;
	like.table = wipe.table;
	like.post = wipe.first_post;
	like.user = op.user;
	like.number = op.number;

	answer = Execute("BEGIN");
	bool good =
		answer.ok && RunOp(op, true, &answer) && (op.number % 2 == 0 || RunOp(like, true, &answer));
	bool committing = good;

	if (good)
	{
		answer = Execute(op.number % 5 == 0 ? "ROLLBACK" : "COMMIT");
		good = answer.ok && answer.tag == "COMMIT";
	}
	else if (!answer.lost)
		answer = Execute("ROLLBACK");
	{
		std::lock_guard<std::mutex> guard(world->mutex);

		if (good && !sync_skipped)
			world->wipes[index].ended = Now();
		world->wipes[index].failed = !good && !(answer.lost && committing);
		if (!world->wipes[index].failed)
			world->wiped[wipe.table] = Now();
	}
	if (good || (answer.lost && committing))
		Apply(levels[0], wipe.began, !good, good && !Durable(false, true), index);
	if (answer.lost)
		Disconnected();
}

void
Client::FinishPrepared(const Tx &tx)
{
	PreparedTx &slot = prepared[tx.slot];

	if (slot.state != PreparedTx::kPrepared)
		return;

	int64_t began = Now();
	Answer answer =
		Execute((tx.commit ? "COMMIT PREPARED '" : "ROLLBACK PREPARED '") + slot.gid + "'");

	if (answer.lost)
	{
		slot.state = tx.commit ? PreparedTx::kCommitUnknown : PreparedTx::kRollbackUnknown;
		Disconnected();
	}
	else if (!answer.ok)
		Violation("unexpected error " + answer.state + ": " + answer.value);
	else
	{
		slot.state = PreparedTx::kNone;
		if (tx.commit)
			ApplyPrepared(slot, began, false, !Durable(false, true));
	}
}

void
Client::Resolve(const std::set<std::string> &gids)
{
	for (PreparedTx &slot : prepared)
	{
		bool there = gids.count(slot.gid) > 0;

		switch (slot.state)
		{
			case PreparedTx::kNone:
				break;
			case PreparedTx::kPrepared:
				if (there)
					break;
				if (!slot.soft)
					Violation("the prepared transaction " + slot.gid + " is lost");
				slot.state = PreparedTx::kNone;
				break;
			case PreparedTx::kPrepareUnknown:
				slot.state = there ? PreparedTx::kPrepared : PreparedTx::kNone;
				break;
			case PreparedTx::kCommitUnknown:
				if (!there)
					ApplyPrepared(slot, slot.began, slot.soft, false);
				slot.state = there ? PreparedTx::kPrepared : PreparedTx::kNone;
				break;
			case PreparedTx::kRollbackUnknown:
				slot.state = there ? PreparedTx::kPrepared : PreparedTx::kNone;
				break;
		}
	}
}

void
Client::RunTx(const Tx &tx)
{
	Do what = tx.ops[0].what;
	bool wipes = what == Do::kTruncate || what == Do::kTruncatePartition || what == Do::kDeletePost;
	/* What must be known for sure afterwards is committed synchronously. */
	bool asynchronous_wanted =
		tx.asynchronous && !wipes && tx.end != End::kPrepare && what != Do::kFinishPrepared;

	levels.assign(1, {});
	wrote = false;
	if (what == Do::kDisconnect)
		return Disconnected();
	if (tx.end == End::kPrepare && prepared[tx.slot].state != PreparedTx::kNone)
		return;
	if (asynchronous != (int) asynchronous_wanted)
	{
		Answer answer = Execute(asynchronous_wanted ? "SET synchronous_commit = off"
													: "SET synchronous_commit = on");

		if (answer.lost)
			return Disconnected();
		asynchronous = asynchronous_wanted;
	}
	if (wipes)
		RunWipe(tx);
	else if (what == Do::kFinishPrepared)
		FinishPrepared(tx);
	else if (tx.end == End::kAuto)
		RunAuto(tx);
	else
		RunBlock(tx);
}

void
Client::Run(int round_number, const RoundPlan &plan)
{
	Script script(world->seed, round_number, number, plan);

	log.clear();
	while (!world->stop && Connect())
		RunTx(script.Next());
	{
		std::lock_guard<std::mutex> guard(conn_mutex);

		if (conn != nullptr)
			PQfinish(conn);
		conn = nullptr;
	}
}

uint8_t
Client::Expected(int index)
{
	const Pair &pair = pairs[index];
	int table = index / kAllUsers / kPosts, post = index / kAllUsers % kPosts;
	uint8_t state = pair.state;

	if (soft_pairs.count(index) > 0 && world->crashed)
		state = kEither;
	for (size_t i = 0; i < world->wipes.size(); i++)
	{
		const Wipe &wipe = world->wipes[i];

		if (wipe.failed || wipe.table != table || post < wipe.first_post || post > wipe.last_post ||
			(int) i == pair.own_wipe || wipe.ended < pair.began)
			continue;
		if (wipe.began > pair.ended && wipe.ended != INT64_MAX)
			state = kAbsent;
		else
			state |= kAbsent;
	}
	return state;
}

void
Client::Settle(int index, bool present)
{
	int64_t now = Now();

	pairs[index] = {present ? kPresent : kAbsent, now, now, -1};
	soft_pairs.erase(index);
}
