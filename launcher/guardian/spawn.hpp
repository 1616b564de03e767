// Starts one worker process: the request as a value, its encoding for the guardian, and the fork itself. The encoded request is
// sent as bytes in the message, or in a memfd if arguments and environment are large. guardian_link.cpp packs the request.
// guardian.cpp unpacks it and forks, so the guardian is the workers' parent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>

namespace ddprun {

inline constexpr int kWorkerChannelFd = 3;  // descriptor number of the channel in a worker

// What to run. Its descriptors are sent separately: stdout and stderr are pipes or files, the channel is a socket.
struct SpawnRequest {
  std::vector<std::string> arguments;    // arguments[0] is the path of the executable
  std::vector<std::string> environment;  // NAME=value, complete
  std::vector<int> cpus{};               // the only CPUs it may run on; empty: the CPUs of the guardian
  bool spare = false;                    // it waits and belongs to no round: sweeps ignore it until kEmploy
  bool shares_input = false;  // it inherits the guardian's stdin, which is the agent's; otherwise its stdin is /dev/null
};

// Moves a descriptor to a number above 3, since dup2 places a worker's descriptors at 0..3 in the child.
int move_up(int fd);

struct SpawnDescriptors {
  int standard_input = -1;  // -1: /dev/null
  int standard_output = -1;
  int standard_error = -1;
  int channel = -1;  // -1: none
};

// An error in the child before its program ran. It is written atomically to a pipe, since it is smaller than PIPE_BUF.
struct SpawnError {
  enum class Stage : std::int32_t { kParentGone, kDescriptors, kCpus, kExec };
  std::int32_t worker = 0;
  Stage stage = Stage::kExec;
  std::int32_t error = 0;  // errno
};

std::string describe(const SpawnError& error, const std::string& program);

// oom_score_adj of a worker whose parent has `inherited`. It is raised so that the OOM killer chooses a worker before the
// agent. A higher value stays, since lowering it needs a capability. A value below 0 stays too, since it protects the job from
// the OOM killer (a Guaranteed pod has -997).
constexpr long worker_oom_score(long inherited) {
  constexpr long kWorker = 500;  // the maximum is 1000
  return inherited < 0 || inherited > kWorker ? inherited : kWorker;
}

// The request in the form that exec takes.
struct UnpackedRequest {
  std::vector<char> bytes;         // the pointers point into it
  std::vector<char*> arguments;    // ends with a null
  std::vector<char*> environment;  // ends with a null too
  std::vector<int> cpus;
};

// Encodes the request as bytes.
std::string pack(const SpawnRequest& request);
// Returns a memfd with CLOEXEC that contains the bytes. Throws std::system_error.
int memfd_of(std::string_view bytes);
// Throws std::runtime_error for a damaged request.
UnpackedRequest unpack(std::vector<char> bytes);
// Reads the bytes of a memfd, which stays open. Throws std::system_error.
std::vector<char> bytes_of(int memfd);

// Makes a child that becomes the worker. The child has its own session and process group, and the kernel kills it if its parent
// dies. It blocks no signal and ignores the same signals as this process. It gets the given limits, a raised oom_score_adj, and
// only its own descriptors. Returns the pid. The child reports errors as a SpawnError through `error_pipe` before it exits with
// 127. Throws std::system_error if no process can be made. Call it while this process has one thread.
pid_t spawn_worker(int worker, const UnpackedRequest& request, const SpawnDescriptors& descriptors, int error_pipe,
                   const rlimit& open_files);

}  // namespace ddprun
