// Collects facts from /proc about a process that a worker may have left behind, and about all its descendants: which worker
// started it, whether it works for the job, and whether it uses a device or a port. LeftoverSweeper calls it for each such
// process. The probe of one process takes a few tenths of a millisecond.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/leftovers/sweep_state.hpp"

namespace ddprun::guardian {

// The data about a worker by which the processes that it started are recognized.
struct WorkerMark {
  int number = -1;
  pid_t pid = 0;                       // pid of the worker; also the id of its session and its process group
  std::string rank{};                  // value of the worker's variable RANK; empty if unknown
  std::vector<std::string> command{};  // the command line with which the worker was started
  int store_port = 0;                  // value of the worker's variable MASTER_PORT; 0 if unknown
  pid_t channel_pid = 0;               // the process that has sent messages on the worker's channel; 0: no process has
  // Signals that end programs by default and were sent to the worker's process group; bit 0 is signal 1.
  std::uint64_t signals = 0;
  bool ordered = false;  // the worker has received the stop request on its channel
};
// Creates the WorkerMark from the command and the environment with which the worker is started. The last pointer in each list
// may be null.
WorkerMark mark_of(int number, const std::vector<char*>& command, const std::vector<char*>& environment);

// Collects the facts about process `pid`, except `busy`. `workers` are the workers of this round, including ended ones. If the
// process has ended in the meantime, only the pid is set.
SweepState::Observation probe_leftover(pid_t pid, const std::vector<WorkerMark>& workers);

// Returns a text such as "4711 python train.py". The text has at most 160 bytes and only printable characters.
std::string leftover_name(pid_t pid);

// ---- parts, for tests ----

// Returns true if the command line `words` runs the program of a worker that was started by `command`. This is so if both
// command lines end in the same words, or contain the same script.
bool runs_program(const std::vector<std::string>& words, const std::vector<std::string>& command);
// Returns true if the process has a handler for the signal or blocks it. `status` is the text of its /proc/PID/status. A
// process that blocks the signal counts, since it may read the signal with sigwait() or a signalfd.
bool handles(const std::string& status, int signal);
// Returns true if a process may have received the stop signal of its worker, and may be saving now. `status` is the text of its
// /proc/PID/status. If a live process has the default action for the signal, it cannot have received the signal, which would
// have ended the process.
bool was_reached(const WorkerMark& worker, const std::string& status);

}  // namespace ddprun::guardian
