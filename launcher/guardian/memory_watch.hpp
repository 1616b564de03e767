// Reads the kernel's counters about a worker that ended (launcher/events/memory_evidence.hpp). guardian.cpp calls it, since the
// guardian reaps the worker and so knows first that it has ended. A counter that cannot be read is -1.
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

// Number of OOM kills in that cgroup; -1: it has no memory controller or cannot be read.
std::int64_t oom_kills_in(const std::filesystem::path& folder, CgroupVersion version);

// Keeps the counters from the start of a round, and returns their growth when a worker ends.
class MemoryWatch {
 public:
  // `proc` is /proc, or a folder like it in tests.
  MemoryWatch(CgroupFolders folders, std::filesystem::path proc = "/proc");
  void begin();  // later counts belong to the workers that start now
  // `worker_cgroup` is empty if the worker has no cgroup of its own. If the worker did not end by SIGKILL, only its own counter
  // is read, and nothing is `taken` unless that counter has grown. Most workers end on request, and the next round's workers
  // wait until all ends are handled.
  MemoryEvidence take(const ExitStatus& status, const std::filesystem::path& worker_cgroup,
                      std::int64_t worker_kills_before) const;

 private:
  struct Counts {
    std::int64_t job = -1;
    std::int64_t machine = -1;
  };
  Counts count() const;
  // The tree with the memory controller on this machine.
  const std::optional<CgroupFolder>& tree() const;
  CgroupVersion version() const { return folders_.memory ? CgroupVersion::kV1 : CgroupVersion::kV2; }

  CgroupFolders folders_;
  std::filesystem::path proc_;
  Counts before_;
};

// True if the kernel log reports an OOM kill of this process later than `since_us` (CLOCK_MONOTONIC). False if the log cannot
// be read.
bool kernel_log_names(pid_t pid, std::int64_t since_us);
// The same for one record of /dev/kmsg: "6,1234,5678901,-;Out of memory: Killed process 4321 (python) total-vm:..."
bool names_oom_victim(const std::string& record, pid_t pid, std::int64_t since_us);

}  // namespace ddprun
