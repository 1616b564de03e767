// A cgroup for each worker, where one can be made: below the one that the job was started in, in version 1's memory tree or in
// version 2. It gives each worker an out-of-memory count of its own and a kill that no fork outruns. The guardian owns it, so
// that the folders go whatever becomes of the agent. Where none can be made everything here does nothing: process groups, the
// subreaper and the sweep are enough to leave nothing behind.
//
// Note: workers are placed a moment after their start (guardian.cpp). The first move of a process between cgroups waits for
// every CPU to have passed a quiet point, 10 ms on an idle machine: a job that is over by then should not have paid for it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>

#include "launcher/machine/cgroup_folders.hpp"

namespace ddprun {

class WorkerCgroups {
 public:
  explicit WorkerCgroups(const CgroupFolders& folders);

  // Moves the process and all its descendants that are still where the agent started them. A process that somebody has put into
  // another cgroup (cgexec, systemd-run, a scheduler, the script itself) stays there, and that cgroup's limits apply. False:
  // the process stays where it is.
  bool place(int worker, pid_t pid);
  // The folder of this round's worker: where it was placed, or where somebody else had put it by then; empty when neither is
  // known.
  std::filesystem::path folder_of(int worker) const;
  std::int64_t kills_before(int worker) const;  // its OOM kills when it was placed
  // Sends SIGKILL to every process in these folders.
  void kill() const;
  // The worker has ended; its replacement is placed separately.
  void forget(int worker) { placed_.erase(worker); }
  void end_round() { placed_.clear(); }
  // Removes all folders. Call it when no process lives in them.
  void remove();

 private:
  bool make_top();
  // The present folder of a process, in the tree in which workers are placed.
  std::filesystem::path folder_now(pid_t pid) const;
  bool move(pid_t pid, const std::filesystem::path& to) const;
  std::filesystem::path folder(int worker) const { return top_ / ("worker-" + std::to_string(worker)); }

  std::filesystem::path parent_;  // empty: no folder can be made
  bool v2_ = false;
  std::filesystem::path top_;  // ddprun-<pid> or ddprun-<pid>-<n>, ours alone; empty until the first is made
  struct Place {
    std::filesystem::path folder;
    std::int64_t kills_before = -1;
  };
  std::map<int, Place> placed_;
  std::map<int, bool> made_;
};

}  // namespace ddprun
