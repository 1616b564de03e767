// Reads from /proc about a process that a worker may have left behind, and about all its descendants: which worker it belongs
// to, whether it works for the job, and what it holds. The keeper calls it for each such process. It takes some tenths of a
// millisecond per process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::guardian {

// The marks by which processes of a worker are recognized.
struct WorkerMark {
  int number = -1;
  pid_t pid = 0;                       // also its session and its process group
  std::string rank{};                  // value of its variable RANK; empty: unknown
  std::vector<std::string> command{};  // the command line with which it was started
  int store_port = 0;                  // MASTER_PORT; 0: unknown
  pid_t speaker = 0;                   // the process that spoke on its channel; 0: none did
  std::uint64_t signals = 0;           // signals that end programs and were sent to its group; bit 0 is signal 1
  bool ordered = false;                // it got the order to stop on its channel
};
// Makes the mark from the command and the environment with which the worker is started. Their last element may be null.
WorkerMark mark_of(int number, const std::vector<char*>& command, const std::vector<char*>& environment);

struct LeftoverLook {
  int worker = -1;            // the number of the worker that left it; -1: unknown
  bool connected = false;     // to the job's store or channel
  bool same_program = false;  // runs the program of a worker
  bool holds = false;
  bool catches = false;
  bool reached = false;
  std::int64_t cpu_ticks = 0;  // of the process and all its descendants
  std::chrono::milliseconds age{0};
};
// `workers` are the workers of this round, including ended ones. Returns an empty look if the process has ended meanwhile.
LeftoverLook look_at_leftover(pid_t pid, const std::vector<WorkerMark>& workers);

// Returns for example "4711 python train.py": at most 160 bytes, printable.
std::string leftover_name(pid_t pid);

// ---- parts, for tests ----

// True if the command line `words` runs the program of a worker that was started by `command`. That is so if it ends in the
// same words, or has the same script.
bool runs_program(const std::vector<std::string>& words, const std::vector<std::string>& command);
// True if the process handles the signal, according to its /proc/PID/status: it has a handler, or blocks the signal and reads
// it.
bool handles(const std::string& status, int signal);
// True if the stop of a worker can have reached a process with this /proc/PID/status, so that it may be saving. A process with
// the default action for the signal would be dead, so the signal was sent before that process started.
bool was_reached(const WorkerMark& worker, const std::string& status);
// Returns the inodes of TCP sockets in the text of /proc/net/tcp or tcp6. `port` 0: listening sockets; otherwise connected
// sockets with that port at either end.
std::vector<std::string> tcp_inodes(const std::string& table, int port);

}  // namespace ddprun::guardian
