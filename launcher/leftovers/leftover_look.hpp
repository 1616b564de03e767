// What /proc says of a process that a worker may have left behind, and of all processes below it: whose it is, whether it works
// for the job, what it holds. The keeper calls it for each such process; it takes some tenths of a millisecond a process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::guardian {

// What marks the processes of a worker.
struct WorkerMark {
  int number = -1;
  pid_t pid = 0;                       // also its session and its process group
  std::string rank{};                  // its variable RANK; empty: unknown
  std::vector<std::string> command{};  // as it was started
  int store_port = 0;                  // MASTER_PORT; 0: unknown
  pid_t speaker = 0;                   // the process that spoke on its channel; 0: none did
  bool reached = false;                // a signal that ends programs was sent to its group
  bool interrupted = false;            // SIGINT or SIGQUIT was, which a shell lets its background processes ignore
};
// From the environment and command that the worker is started with. Their last element may be null.
WorkerMark mark_of(int number, const std::vector<char*>& command, const std::vector<char*>& environment);

struct LeftoverLook {
  int worker = -1;            // the number of the worker that left it; -1: unknown
  bool connected = false;     // to the job's store or channel
  bool same_program = false;  // runs the program of a worker
  bool holds = false;
  bool catches = false;
  bool reached = false;
  std::int64_t cpu_ticks = 0;  // of the process and all below it
  std::chrono::milliseconds age{0};
};
// `workers` are those of this round, ended ones included. A process that is gone meanwhile gives an empty look.
LeftoverLook look_at_leftover(pid_t pid, const std::vector<WorkerMark>& workers);

// "4711 python train.py": at most 160 bytes, printable.
std::string leftover_name(pid_t pid);

// ---- parts, for tests ----

// Whether a command line runs the program of a worker that was started by `command`: the same words at its end, or the same
// script.
bool runs_program(const std::vector<std::string>& words, const std::vector<std::string>& command);
// Whether /proc/PID/status says that the process has a handler for SIGTERM.
bool catches_sigterm(const std::string& status);
bool ignores_sigint(const std::string& status);
// The inodes of TCP sockets in the text of /proc/net/tcp or tcp6. `port` 0: of listening ones; else of connected ones with that
// port at either end.
std::vector<std::string> tcp_inodes(const std::string& table, int port);

}  // namespace ddprun::guardian
