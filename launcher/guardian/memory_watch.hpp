// Reads the kernel's counters about a worker that ended (launcher/events/memory_evidence.hpp). guardian.cpp calls it, since the
// guardian reaps the worker and so knows first. A counter that cannot be read is -1.
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

// The OOM kills in that cgroup; -1: it has no memory controller or cannot be read.
std::int64_t oom_kills_in(const std::filesystem::path& folder, CgroupVersion version);

// Keeps the counters of one moment; when a worker ends, it says by how much they have grown.
class MemoryWatch {
 public:
  // `proc` is /proc, or a folder like it in tests.
  MemoryWatch(CgroupFolders folders, std::filesystem::path proc = "/proc");
  void begin();  // later counts belong to the workers that start now
  // `worker_cgroup` is empty when the worker has none of its own. Of an end that is not by SIGKILL only the worker's own
  // counter is read, and nothing is `taken` unless that has grown: most ends are asked for, and the next workers wait for all
  // of them.
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

// Whether the kernel's log says that it killed this process for lack of memory, later than `since_us` (CLOCK_MONOTONIC). False
// when the log cannot be read.
bool kernel_log_names(pid_t pid, std::int64_t since_us);
// One record of /dev/kmsg: "6,1234,5678901,-;Out of memory: Killed process 4321 (python) total-vm:..."
bool names_oom_victim(const std::string& record, pid_t pid, std::int64_t since_us);

}  // namespace ddprun
