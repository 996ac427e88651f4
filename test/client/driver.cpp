/*
 * driver.cpp: what client libraries do, done with libpq: parameters without types, prepared statements, text and
 * binary format, arrays, clients that break off and try again, double taps from many connections.  Prints TAP.
 *
 * Connects as libpq's environment variables say, to a database of its own that has the extension.
 */
#include <libpq-fe.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace
{
constexpr Oid kInt2 = 21, kInt4 = 23, kInt8 = 20, kText = 25, kVarchar = 1043, kBool = 16,
			  kUuid = 2950, kInt8Array = 1016;

int tests = 0;
int failures = 0;

void
Ok(bool good, const std::string &name)
{
	tests++;
	failures += !good;
	std::printf("%sok %d - %s\n", good ? "" : "not ", tests, name.c_str());
	std::fflush(stdout);
}

template <typename T>
void
Is(const T &have, const T &want, const std::string &name)
{
	Ok(have == want, name);
	if (!(have == want))
	{
		if constexpr (std::is_same_v<T, std::string>)
			std::printf("#   have: %s\n#   want: %s\n", have.c_str(), want.c_str());
		else
			std::printf("#   have: %lld\n#   want: %lld\n", (long long) have, (long long) want);
	}
}

/* A parameter: its bytes, in text or binary format, and the type that the client claims, 0: none. */
struct Param
{
	std::string bytes;
	bool binary = false;
	Oid type = 0;
	bool null = false;
};

Param
Text(const std::string &value, Oid type = 0)
{
	return {value, false, type, false};
}

Param
Null()
{
	return {"", false, 0, true};
}

/* An integer of the given width as the binary protocol has it. */
Param
Binary(int64_t value, int width, Oid type = 0)
{
	std::string bytes;

	for (int i = width - 1; i >= 0; i--)
		bytes.push_back((char) ((uint64_t) value >> (8 * i)));
	return {bytes, true, type, false};
}

struct Connection
{
	PGconn *conn;

	Connection() : conn(PQconnectdb(""))
	{
		if (PQstatus(conn) != CONNECTION_OK)
		{
			std::printf("Bail out! %s", PQerrorMessage(conn));
			std::exit(1);
		}
	}
	~Connection()
	{
		PQfinish(conn);
	}
	Connection(const Connection &) = delete;

	/* The first value of a result as text, a binary boolean as t or f, an error as its SQLSTATE. */
	static std::string Value(PGresult *res)
	{
		std::string value;

		if (PQresultStatus(res) != PGRES_TUPLES_OK && PQresultStatus(res) != PGRES_COMMAND_OK)
		{
			const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

			value = state == nullptr ? PQresultErrorMessage(res) : state;
		}
		else if (PQntuples(res) > 0)
		{
			value.assign(PQgetvalue(res, 0, 0), PQgetlength(res, 0, 0));
			if (PQfformat(res, 0) == 1 && PQftype(res, 0) == kBool)
				value = value[0] != 0 ? "t" : "f";
		}
		PQclear(res);
		return value;
	}

	std::string Simple(const std::string &sql)
	{
		return Value(PQexec(conn, sql.c_str()));
	}

	PGresult *
	Run(const std::string &sql, const std::vector<Param> &params, bool binary_result, bool prepared)
	{
		std::vector<Oid> types;
		std::vector<const char *> values;
		std::vector<int> lengths, formats;
		bool typed = false;

		for (const Param &p : params)
		{
			types.push_back(p.type);
			typed |= p.type != 0;
			values.push_back(p.null ? nullptr : p.bytes.data());
			lengths.push_back((int) p.bytes.size());
			formats.push_back(p.binary ? 1 : 0);
		}
		if (prepared)
			return PQexecPrepared(conn, sql.c_str(), (int) params.size(), values.data(),
								  lengths.data(), formats.data(), binary_result);
		return PQexecParams(conn, sql.c_str(), (int) params.size(), typed ? types.data() : nullptr,
							values.data(), lengths.data(), formats.data(), binary_result);
	}

	std::string
	Params(const std::string &sql, const std::vector<Param> &params, bool binary_result = false)
	{
		return Value(Run(sql, params, binary_result, false));
	}

	std::string
	Prepared(const std::string &name, const std::vector<Param> &params, bool binary_result = false)
	{
		return Value(Run(name, params, binary_result, true));
	}

	/* The parameter types that the server chose for a statement prepared without any. */
	std::string Prepare(const std::string &name, const std::string &sql)
	{
		std::string state = Value(PQprepare(conn, name.c_str(), sql.c_str(), 0, nullptr));

		if (!state.empty())
			return state;

		PGresult *res = PQdescribePrepared(conn, name.c_str());
		std::string types;

		for (int i = 0; i < PQnparams(res); i++)
			types += (i > 0 ? " " : "") + std::to_string(PQparamtype(res, i));
		PQclear(res);
		return types;
	}
};

std::string
Types(Oid first, Oid second)
{
	return std::to_string(first) + " " + std::to_string(second);
}

/* A counter whose keys are integers of some width; its functions take bigint. */
void
Integers(Connection &c, const std::string &verb)
{
	std::string like = "SELECT likecount." + verb + "($1, $2)";
	std::string liked = "SELECT likecount." + verb + "d($1, $2)";
	std::string count = "SELECT likecount." + verb + "_count($1)";

	Is<std::string>(c.Params(like, {Text("1"), Text("1")}), "t",
					verb + ": parameters without types, as text");
	Is<std::string>(c.Params(like, {Text("1"), Text("1")}), "f", verb + ": the same like again");
	Is<std::string>(c.Params(like, {Binary(1, 8), Binary(2, 8)}, true), "t",
					verb + ": parameters without types, binary");
	Is<std::string>(c.Params(like, {Binary(1, 8, kInt8), Binary(3, 8, kInt8)}, true), "t",
					verb + ": bigint");
	Is<std::string>(c.Params(like, {Binary(1, 4, kInt4), Binary(4, 4, kInt4)}, true), "t",
					verb + ": integer");
	Is<std::string>(c.Params(like, {Binary(1, 2, kInt2), Binary(5, 2, kInt2)}, true), "t",
					verb + ": smallint");
	Is<std::string>(c.Params(like, {Binary(1, 4, kInt4), Text("6")}), "t",
					verb + ": one with a type, one without");
	Is<std::string>(c.Simple("SELECT likecount." + verb + "('1', '7')"), "t",
					verb + ": the simple protocol, quoted");
	Is<std::string>(c.Simple("SELECT likecount." + verb + "(1, 8)"), "t",
					verb + ": and not quoted");
	Is<std::string>(c.Params(liked, {Text("1"), Text("8")}), "t", verb + ": asked for as text");
	Is<std::string>(c.Params(liked, {Binary(1, 8), Binary(9, 8)}, true), "f",
					verb + ": asked for, binary");

	/* A type that is none of the counter's is an error, never a silent no. */
	Is<std::string>(c.Params(like, {Text("1", kText), Text("9", kText)}), "42883", verb + ": text");
	Is<std::string>(c.Params(like, {Text("1", kVarchar), Text("9", kVarchar)}), "42883",
					verb + ": varchar");
	Is<std::string>(c.Params(like, {Text("a"), Text("9")}), "22P02", verb + ": no number");
	Is<std::string>(c.Params(like, {Null(), Text("9")}), "22004", verb + ": a null post");
	Is<std::string>(c.Params(like, {Text("9"), Null()}), "22004", verb + ": a null user");
	Is<std::string>(c.Params(count, {Null()}), "", verb + ": the total of null");

	Is(c.Prepare(verb, like), Types(kInt8, kInt8), verb + ": prepared, the parameters are bigint");
	/* past the point where the server may turn to a generic plan */
	for (int i = 0; i < 8; i++)
		Is<std::string>(c.Prepared(verb, {Binary(2, 8), Text(std::to_string(i))}, i % 2 == 1), "t",
						verb + ": executed");
	Is<std::string>(c.Prepared(verb, {Text("2"), Text("3")}), "f",
					verb + ": executed for a like that is there");

	Is(c.Prepare(verb + "_many", "SELECT likecount." + verb + "_many($1, $2)"),
	   Types(kInt8Array, kInt8Array), verb + ": arrays, prepared");
	Is<std::string>(c.Prepared(verb + "_many", {Text("{3,3,4,3}"), Text("{1,2,1,1}")}), "3",
					verb + ": arrays");
	Is<std::string>(c.Prepared(verb + "_many", {Text("{3,NULL}"), Text("{1,2}")}), "22004",
					verb + ": an array with null");
	Is<std::string>(c.Prepared(verb + "_many", {Text("{3}"), Text("{1,2}")}), "2202E",
					verb + ": arrays of two lengths");

	c.Simple("SELECT likecount.flush()");
	Is<std::string>(c.Params(count, {Text("1")}), "8", verb + ": the total");
	Is<std::string>(c.Params(count, {Binary(2, 8)}), "8",
					verb + ": the total, asked for in binary");

	PGresult *res =
		c.Run("SELECT * FROM likecount." + verb + "_counts($1)", {Text("{4,5,3}")}, false, false);
	std::string rows;

	for (int i = 0; i < PQntuples(res); i++)
		rows += std::string(PQgetvalue(res, i, 0)) + "=" + PQgetvalue(res, i, 1) + " ";
	Is<std::string>(rows, "4=1 5=0 3=2 ", verb + ": totals");
	Is(Types(PQftype(res, 0), PQftype(res, 1)), Types(kInt8, kInt8), verb + ": as bigint");
	PQclear(res);
	Is<std::string>(c.Params("SELECT string_agg(p::text, ',') FROM likecount." + verb +
								 "d_posts($1, $2) p",
							 {Text("1"), Text("{4,1,99,3}")}),
					"4,1,3", verb + ": liked posts");
}

void
Uuids(Connection &c)
{
	const std::string a = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
					  b = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";
	Param binary = {std::string(16, (char) 0xaa), true, 0, false};
	const std::string like = "SELECT likecount.uuidlike($1, $2)";

	Is<std::string>(c.Params(like, {Text(a), Text(b)}), "t",
					"uuid: parameters without types, as text");
	Is<std::string>(c.Params(like, {binary, Text(b)}, true), "f", "uuid: the same, binary");
	Is<std::string>(c.Params(like, {binary, binary}, true), "t", "uuid: another, binary");
	Is<std::string>(c.Params(like, {Text("a"), Text(b)}), "22P02", "uuid: no uuid");
	Is(c.Prepare("uuid", like), Types(kUuid, kUuid), "uuid: prepared");
	Is<std::string>(c.Prepared("uuid", {Text(b), binary}, true), "t", "uuid: executed");
	c.Simple("SELECT likecount.flush()");
	Is<std::string>(c.Params("SELECT likecount.uuidlike_count($1)", {binary}), "2",
					"uuid: the total");
	Is<std::string>(c.Params("SELECT likecount.uuidlike_count_now($1)", {binary}), "2",
					"uuid: the total as of now");
	Is<std::string>(
		c.Params("SELECT string_agg(total::text, ',') FROM likecount.uuidlike_counts($1)",
				 {Text("{" + b + "," + a + "}")}),
		"1,2", "uuid: totals");
}

void
Texts(Connection &c)
{
	const std::string like = "SELECT likecount.textlike($1, $2)";

	Is<std::string>(c.Params(like, {Text("post"), Text("ann")}), "t",
					"text: parameters without types, as text");
	Is<std::string>(c.Params(like, {{"post", true, 0, false}, {"ann", true, 0, false}}, true), "f",
					"text: the same, binary");
	Is<std::string>(c.Params(like, {Text("post", kText), Text("bob", kVarchar)}), "t",
					"text: text and varchar");
	Is<std::string>(c.Simple("SELECT likecount.textlike('p%', 'cy')"), "t",
					"text: the simple protocol");
	Is(c.Prepare("text", like), Types(kText, kText), "text: prepared");
	Is<std::string>(c.Prepared("text", {Text(""), Text("ann")}), "t", "text: an empty key is one");
	c.Simple("SELECT likecount.flush()");
	Is<std::string>(c.Params("SELECT likecount.textlike_count($1)", {Text("post")}), "2",
					"text: the total");
}

/* Clients that break off after they sent the like, and try again on another connection. */
void
Retries(Connection &c)
{
	constexpr int kPosts = 100;

	for (int post = 1; post <= kPosts; post++)
	{
		std::string sql = "SELECT likecount.tap(" + std::to_string(post) + ", 1)";

		{
			Connection gone;

			PQsendQuery(gone.conn, sql.c_str());
		}
		std::string answer = c.Simple(sql);

		if (answer != "t" && answer != "f")
			Is<std::string>(answer, "t or f", "a like that is tried again");
	}
	while (c.Simple("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
					" AND datname = current_database() AND pid <> pg_backend_pid()") != "0")
		continue;
	c.Simple("SELECT likecount.flush()");
	Is(c.Simple("SELECT count(*) FROM taps WHERE user_id = 1"), std::to_string(kPosts),
	   "tried again, each like is there once");
	Is(c.Simple("SELECT count(*) FROM likecount.tap_totals WHERE total = 1"),
	   std::to_string(kPosts), "and counted once");
}

/* One user's like, switched on and off from many connections at once. */
void
DoubleTaps(Connection &c)
{
	constexpr int kThreads = 8, kCalls = 200;
	std::atomic<int> liked{0}, unliked{0}, errors{0};
	std::vector<std::thread> threads;

	for (int i = 0; i < kThreads; i++)
		threads.emplace_back([&, i] {
			Connection mine;

			for (int n = 0; n < kCalls; n++)
			{
				bool like = (i + n) % 2 == 0;
				std::string answer = mine.Simple(like ? "SELECT likecount.tap(777, 1)"
													  : "SELECT likecount.untap(777, 1)");

				if (answer == "t")
					(like ? liked : unliked)++;
				else if (answer != "f")
					errors++;
			}
		});
	for (std::thread &thread : threads)
		thread.join();
	c.Simple("SELECT likecount.flush()");
	Is(errors.load(), 0, "likes and unlikes of one pair at once: no error");
	Is(c.Simple("SELECT count(*) FROM taps WHERE post_id = 777"), std::to_string(liked - unliked),
	   "the answers add up to the rows");
	Is(c.Simple("SELECT likecount.tap_count(777)"), std::to_string(liked - unliked),
	   "and to the total");
}
} // namespace

int
main()
{
	Connection c;

	c.Simple("SET client_min_messages = warning");
	c.Simple("CREATE TABLE shorts (p smallint, u integer, at timestamptz NOT NULL DEFAULT "
			 "clock_timestamp(), PRIMARY KEY (p, u))");
	Is<std::string>(c.Simple(
						"SELECT likecount.attach('shorts', 'p', 'u', 'at', verb => 'shortlike')"),
					"", "a counter of smallint and integer");
	Is<std::string>(c.Simple("SELECT likecount.create_counter('longs', 'longlike')"), "longs",
					"of bigint");
	Is<std::string>(c.Simple("SELECT likecount.create_counter('uuids', 'uuidlike', post_type => "
							 "'uuid', user_type => 'uuid')"),
					"uuids", "of uuid");
	Is<std::string>(c.Simple("SELECT likecount.create_counter('texts', 'textlike', post_type => "
							 "'text', user_type => 'text')"),
					"texts", "of text");
	Is<std::string>(c.Simple("SELECT likecount.create_counter('taps', 'tap', 'tapped')"), "taps",
					"and one to tap on");

	Integers(c, "shortlike");
	Integers(c, "longlike");
	Uuids(c);
	Texts(c);
	Retries(c);
	DoubleTaps(c);

	std::printf("1..%d\n", tests);
	return failures == 0 ? 0 : 1;
}
