// Starts one worker process. This file contains the request, its encoding and the fork. guardian_link.cpp encodes the request
// in the agent. guardian_loop.cpp decodes it and forks, so that the guardian is the parent of the workers. The encoded request
// follows the message as bytes. If arguments and environment are large, it is in a memfd.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>

#include "common/system/descriptor.hpp"

namespace ddprun {

inline constexpr int kWorkerChannelFd = 3;  // descriptor number of the worker channel in each worker

// The program to run. Its descriptors are sent separately: pipes, terminals or files for stdout and stderr, and a socket for
// the channel.
struct SpawnRequest {
  std::vector<std::string> arguments;    // arguments[0] is the path of the executable
  std::vector<std::string> environment;  // the complete environment, as NAME=value
  std::vector<int> cpus{};               // CPUs that the worker may use, or empty if it may use the same CPUs as the guardian
  bool spare = false;         // true: a spare interpreter. It belongs to no round until kActivate, so a sweep does not end it.
  bool shares_input = false;  // true: the worker inherits the agent's stdin through the guardian; false: its stdin is /dev/null
};

// Moves a descriptor to a number above 3. A worker's descriptors get the numbers 0 to 3, and dup2() would overwrite any other
// descriptor there.
int move_up(int fd);

struct SpawnDescriptors {
  int standard_input = -1;  // -1: /dev/null
  int standard_output = -1;
  int standard_error = -1;
  int channel = -1;  // -1: none
};

// An error in the child before its program was executed. The struct is smaller than PIPE_BUF, so the write to the error pipe is
// atomic.
struct SpawnError {
  enum class Stage : std::int32_t { kParentGone, kDescriptors, kCpus, kExec };
  std::int32_t worker = 0;
  Stage stage = Stage::kExec;
  std::int32_t error = 0;  // errno
};

std::string describe(const SpawnError& error, const std::string& program);

// Returns oom_score_adj for a worker whose parent has the value `inherited`. The value is raised so that the OOM killer
// chooses a worker before the agent. A value above kWorker is not changed, since lowering it needs a capability. A negative
// value is not changed either: it protects the job from the OOM killer (-997 in a Guaranteed Kubernetes pod).
constexpr long worker_oom_score(long inherited) {
  constexpr long kWorker = 500;  // value of oom_score_adj for workers; the maximum is 1000
  return inherited < 0 || inherited > kWorker ? inherited : kWorker;
}

// A decoded request in the form that execve() takes.
struct UnpackedRequest {
  std::vector<char> bytes;         // memory to which the pointers below point
  std::vector<char*> arguments;    // ends with a null pointer
  std::vector<char*> environment;  // ends with a null pointer
  std::vector<int> cpus;
};

// Encodes the request as bytes. unpack() decodes them.
std::string pack(const SpawnRequest& request);
// Returns a new memfd (CLOEXEC) that contains the bytes. Throws std::system_error.
Descriptor memfd_of(std::string_view bytes);
// Decodes the bytes from pack(). Throws std::runtime_error if they are not a valid request.
UnpackedRequest unpack(std::vector<char> bytes);
// Returns all bytes of a memfd, which stays open. Throws std::system_error.
std::vector<char> bytes_of(int memfd);

// Creates the child process of a worker and returns its pid. The child has its own session and process group, and the kernel
// kills it if its parent dies. The child gets the given limits, a raised oom_score_adj and only its own descriptors. No signal
// is blocked, and the same signals as in this process are ignored. If the program cannot be executed, the child writes a
// SpawnError to `error_pipe` and exits with 127. Throws std::system_error if no process can be created. Call this while this
// process has one thread.
pid_t spawn_worker(int worker, const UnpackedRequest& request, const SpawnDescriptors& descriptors, int error_pipe,
                   const rlimit& open_files);

}  // namespace ddprun
