// Reads the kernel's memory counters when a worker has ended, as evidence of an OOM kill (launcher/events/memory_evidence.hpp).
// The guardian calls it (guardian_loop.cpp), because it reaps the worker and so detects the exit first. A counter that cannot
// be read is -1.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/failure/exit_status.hpp"
#include "launcher/events/memory_evidence.hpp"
#include "launcher/machine/cgroup_folders.hpp"

namespace ddprun {

enum class CgroupVersion { kV1, kV2 };

// Returns the number of OOM kills in this cgroup; -1 if the cgroup has no memory controller or cannot be read.
std::int64_t oom_kills_in(const std::filesystem::path& folder, CgroupVersion version);

// The cgroup in which a worker runs.
struct WorkerCgroup {
  std::filesystem::path folder;  // empty if the worker is not in its own cgroup
  // The cgroup's number of OOM kills at the time when the worker was moved into it; -1: unknown.
  std::int64_t kills_before = -1;
};

// Stores the counters at the start of a round and returns their increase when a worker ends.
class MemoryWatch {
 public:
  // `proc` is /proc. Tests pass a copy of it.
  MemoryWatch(CgroupFolders folders, std::filesystem::path proc = "/proc");
  void begin();  // call this at the start of a round; later increases of the counters then belong to that round
  // Returns the evidence about a worker that has exited. After SIGKILL all counters are read. After any other end only the
  // counter of the worker's cgroup is read. The other counters are read only if that counter has increased. This keeps
  // restarts fast: most workers exit on request, and the next round starts only after all exits are handled.
  MemoryEvidence take(const ExitStatus& status, const WorkerCgroup& cgroup) const;
  // The argument of evidence_of(), which returns the result of take() together with the worker's peak memory. If the counters
  // do not show which process was killed, it also reads the kernel log.
  struct EndedWorker {
    ExitStatus status{};
    pid_t pid = 0;
    std::int64_t started_us = 0;  // time of the start, on CLOCK_MONOTONIC
    std::int64_t peak_bytes = 0;
  };
  MemoryEvidence evidence_of(const EndedWorker& worker, const WorkerCgroup& cgroup) const;

 private:
  struct Counts {
    std::int64_t job = -1;
    std::int64_t machine = -1;
  };
  Counts count() const;
  // Returns this process's cgroup in the hierarchy with the memory controller: cgroup v1 if it is mounted, otherwise v2.
  const std::optional<CgroupFolder>& tree() const;
  CgroupVersion version() const { return folders_.memory ? CgroupVersion::kV1 : CgroupVersion::kV2; }

  CgroupFolders folders_;
  std::filesystem::path proc_;
  Counts before_;
};

// Returns true if the kernel log reports an OOM kill of this process after `since_us` (CLOCK_MONOTONIC). Returns false if the
// log cannot be read.
bool kernel_log_names(pid_t pid, std::int64_t since_us);
// Does the same check for one record of /dev/kmsg, such as "6,1234,5678901,-;Out of memory: Killed process 4321 (python)
// total-vm:..."
bool names_oom_victim(const std::string& record, pid_t pid, std::int64_t since_us);

}  // namespace ddprun
