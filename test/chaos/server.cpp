/*
 * server.cpp: servers that live below one directory, and the ways in which they die.
 *
 * A postmaster is our child, started without pg_ctl, so its pid is known and is reused by nobody before we have
 * waited for it.  Any other process is signalled only after /proc has said that it is a child of that postmaster.
 */
#include "chaos.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

extern char **environ;

namespace
{
/* Postmasters to stop when the program ends, however it does. */
std::mutex alive_mutex;
std::set<pid_t> alive;

void
StopAll()
{
	for (pid_t pid : alive)
	{
		kill(pid, SIGQUIT);
		waitpid(pid, nullptr, 0);
	}
}

/* Starts a program with its output appended to a file. */
pid_t
SpawnProgram(const std::vector<std::string> &command, const std::string &output)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	std::vector<char *> arguments;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND,
									 0644);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	/* A group of its own: a Ctrl-C is for us, and we stop the servers. */
	posix_spawnattr_init(&attributes);
	sigemptyset(&none);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setpgroup(&attributes, 0);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	for (const std::string &argument : command)
		arguments.push_back(const_cast<char *>(argument.c_str()));
	arguments.push_back(nullptr);
	if (posix_spawn(&pid, arguments[0], &actions, &attributes, arguments.data(), environ) != 0)
		Die("could not start " + command[0]);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return pid;
}

void
RunProgram(const std::vector<std::string> &command, const std::string &output)
{
	int status;
	pid_t pid = SpawnProgram(command, output);

	if (waitpid(pid, &status, 0) != pid || status != 0)
		Die(command[0] + " failed, see " + output);
}

void
IgnoreNotice(void *, const PGresult *)
{
}

/* The parent of a process, 0: it is gone. */
pid_t
ParentOf(pid_t pid)
{
	std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
	std::string line;

	if (!std::getline(file, line))
		return 0;
	/* pid (name) state ppid; the name may hold anything */
	size_t end = line.rfind(')');

	if (end == std::string::npos)
		return 0;
	std::istringstream rest(line.substr(end + 1));
	char state;
	pid_t parent = 0;

	rest >> state >> parent;
	return parent;
}
} // namespace

void
Die(const std::string &message)
{
	std::fflush(stdout);
	std::fprintf(stderr, "chaos: %s\n", message.c_str());
	std::fflush(stderr);
	StopAll();
	_exit(2);
}

Server::Server(const Settings &settings, int number)
	: settings(settings), data(settings.work + "/data" + std::to_string(number)),
	  socket(settings.work + "/s" + std::to_string(number)),
	  log(settings.work + "/server" + std::to_string(number) + ".log")
{
	static bool registered = false;

	if (!registered)
		std::atexit(StopAll);
	registered = true;
	std::filesystem::create_directories(socket);
}

void
Server::Init()
{
	RunProgram({settings.bindir + "/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N",
				"-E", "UTF8", "--locale=C.UTF-8"},
			   settings.work + "/initdb.log");
	std::ofstream(data + "/postgresql.conf", std::ios::app) << settings.conf;
}

void
Server::InitStandby(const Server &primary)
{
	RunProgram({settings.bindir + "/pg_basebackup", "-D", data, "-d", primary.Conninfo(), "-R",
				"-X", "stream", "-c", "fast", "--no-sync"},
			   settings.work + "/basebackup.log");
}

std::string
Server::Conninfo() const
{
	return "host=" + socket + " user=postgres dbname=postgres";
}

void
Server::Spawn()
{
	postmaster = SpawnProgram({settings.bindir + "/postgres", "-D", data, "-c",
							   "unix_socket_directories=" + socket, "-c", "listen_addresses="},
							  log);
	std::lock_guard<std::mutex> guard(alive_mutex);
	alive.insert(postmaster);
}

/* Waits for the end of the postmaster. */
void
Server::Reap()
{
	int status;

	waitpid(postmaster, &status, 0);
	std::lock_guard<std::mutex> guard(alive_mutex);
	alive.erase(postmaster);
	postmaster = 0;
}

PGconn *
Server::Connect(PQnoticeReceiver receiver, void *arg) const
{
	PGconn *conn = PQconnectStart(Conninfo().c_str());
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	int64_t until = Now() + 10'000'000'000;

	/* Step by step, since a server that goes down says so before there is a connection to set a receiver for. */
	PQsetNoticeReceiver(conn, receiver == nullptr ? IgnoreNotice : receiver, arg);
	while (PQstatus(conn) != CONNECTION_BAD && status != PGRES_POLLING_OK &&
		   status != PGRES_POLLING_FAILED && Now() < until)
	{
		struct pollfd poll_for = {PQsocket(conn),
								  (short) (status == PGRES_POLLING_READING ? POLLIN : POLLOUT), 0};

		if (poll(&poll_for, 1, 100) > 0)
			status = PQconnectPoll(conn);
	}
	if (status == PGRES_POLLING_OK && PQstatus(conn) == CONNECTION_OK)
		return conn;
	PQfinish(conn);
	return nullptr;
}

PGconn *
Server::ConnectWait() const
{
	for (int64_t until = Now() + 60'000'000'000; Now() < until; SleepMs(10))
		if (PGconn *conn = Connect())
			return conn;
	Die("the server does not accept connections, see " + log);
}

void
Server::Start()
{
	for (int64_t until = Now() + 60'000'000'000; Now() < until; SleepMs(20))
	{
		if (postmaster == 0)
			Spawn();
		if (PGconn *conn = Connect())
		{
			PQfinish(conn);
			return;
		}
		/* It gives up while processes of its predecessor are still there. */
		if (waitpid(postmaster, nullptr, WNOHANG) == postmaster)
		{
			std::lock_guard<std::mutex> guard(alive_mutex);

			alive.erase(postmaster);
			postmaster = 0;
		}
	}
	Die("the server did not start, see " + log);
}

void
Server::StopFast()
{
	kill(postmaster, SIGINT);
	Reap();
}

void
Server::StopImmediate()
{
	kill(postmaster, SIGQUIT);
	Reap();
}

void
Server::KillPostmaster()
{
	kill(postmaster, SIGKILL);
	Reap();
}

void
Server::KillChild(pid_t pid, int signal)
{
	if (pid > 0 && postmaster > 0 && ParentOf(pid) == postmaster)
		kill(pid, signal);
}

void
Server::Remove()
{
	std::error_code error;

	/* Processes of a killed postmaster may still write a file. */
	for (int i = 0; i < 100; i++, SleepMs(20))
	{
		std::filesystem::remove_all(data, error);
		if (!error && !std::filesystem::exists(data))
			break;
	}
}

std::vector<std::vector<std::string>>
Query(PGconn *conn, const std::string &sql)
{
	PGresult *result = PQexec(conn, sql.c_str());
	ExecStatusType status = PQresultStatus(result);
	std::vector<std::vector<std::string>> rows;

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		Die(sql + ": " + PQerrorMessage(conn));
	for (int i = 0; i < PQntuples(result); i++)
	{
		rows.emplace_back();
		for (int j = 0; j < PQnfields(result); j++)
			rows.back().push_back(PQgetvalue(result, i, j));
	}
	PQclear(result);
	return rows;
}

std::string
QueryOne(PGconn *conn, const std::string &sql)
{
	auto rows = Query(conn, sql);

	return rows.empty() ? "" : rows[0][0];
}
