// Starting one worker process: its request as a value, the way it travels to the guardian (as bytes in the message, or in
// a memfd where arguments and environment are large), and the fork itself. guardian_link.cpp packs the request. guardian.cpp
// unpacks it and forks, so the guardian is the workers' parent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>

namespace ddprun {

inline constexpr int kWorkerChannelFd = 3;  // where a worker finds its channel

// What to run. Its descriptors are sent beside it: stdout and stderr are pipes or files, the channel is a socket.
struct SpawnRequest {
  std::vector<std::string> arguments;    // arguments[0] is the path of the executable
  std::vector<std::string> environment;  // NAME=value, complete
  std::vector<int> cpus{};               // the only CPUs it may run on; empty: the guardian's
  bool spare = false;                    // it waits and belongs to no round: sweeps pass it by until it is employed
  bool shares_input = false;             // it inherits the guardian's standard input, which is the agent's; else /dev/null
};

// The descriptor under a number that no worker's descriptor has, since dup2 places those at 0..3 in the child.
int move_up(int fd);

struct SpawnDescriptors {
  int standard_input = -1;  // -1: /dev/null
  int standard_output = -1;
  int standard_error = -1;
  int channel = -1;  // -1: none
};

// The error of a child before its program ran, written as a whole to a pipe (it is smaller than PIPE_BUF).
struct SpawnError {
  enum class Stage : std::int32_t { kParentGone, kDescriptors, kCpus, kExec };
  std::int32_t worker = 0;
  Stage stage = Stage::kExec;
  std::int32_t error = 0;  // errno
};

std::string describe(const SpawnError& error, const std::string& program);

// oom_score_adj of a worker whose parent has `inherited`: the OOM killer should take it before the agent. A higher value stays,
// as lowering needs a capability. A value below 0 protects the job from the OOM killer (a Guaranteed pod has -997), and stays.
constexpr long worker_oom_score(long inherited) {
  constexpr long kWorker = 500;  // of 1000
  return inherited < 0 || inherited > kWorker ? inherited : kWorker;
}

// The request in the form that exec takes.
struct UnpackedRequest {
  std::vector<char> bytes;         // the pointers point into it
  std::vector<char*> arguments;    // with a null at the end
  std::vector<char*> environment;  // as well
  std::vector<int> cpus;
};

// The request as bytes.
std::string pack(const SpawnRequest& request);
// The bytes in a memfd with CLOEXEC. Throws std::system_error.
int memfd_of(std::string_view bytes);
// Throws std::runtime_error for a damaged request.
UnpackedRequest unpack(std::vector<char> bytes);
// The bytes of a memfd, which stays open. Throws std::system_error.
std::vector<char> bytes_of(int memfd);

// Makes a child that becomes the worker: session and group of its own, killed with its parent, no signal blocked, ignored ones
// as in this process, limits as given, oom_score_adj raised, no descriptor but its own. Returns the pid; errors of the child
// come as a SpawnError through `error_pipe` before it exits with 127. Throws std::system_error when no process can be made.
// Call with one thread alive.
pid_t spawn_worker(int worker, const UnpackedRequest& request, const SpawnDescriptors& descriptors, int error_pipe,
                   const rlimit& open_files);

}  // namespace ddprun
