// A cgroup for each worker, if the system allows it. It lies below the cgroup in which the job was started, in version 1's
// memory tree or in version 2. Each worker so gets its own out-of-memory counter, and a kill that a fork cannot escape. The
// guardian owns it, so that the folders are removed even if the agent dies. If no cgroup can be made, all functions here do
// nothing: process groups, the subreaper and the sweep are enough to leave no process behind.
//
// Note: workers are moved into their cgroups 0.2 s after their start (guardian.cpp). The first move of a process between
// cgroups waits for a quiet point of every CPU, 10 ms on an idle machine. Short jobs should not pay for that.
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

  // Moves the process and all its descendants that are still in the cgroup in which the agent started them. A process that was
  // moved to another cgroup meanwhile (by cgexec, systemd-run, a scheduler or the script itself) stays there, since that
  // cgroup's limits apply. False: the process stays where it is.
  bool place(int worker, pid_t pid);
  // The cgroup folder of this round's worker: the one in which it was placed, or the one to which another program had moved it
  // by then. Empty if neither is known.
  std::filesystem::path folder_of(int worker) const;
  std::int64_t kills_before(int worker) const;  // the folder's OOM kills when the worker was placed
  // Sends SIGKILL to every process in these folders.
  void kill() const;
  // The worker has ended; its replacement is placed separately.
  void forget(int worker) { placed_.erase(worker); }
  void end_round() { placed_.clear(); }
  // Removes all folders. Call it when no process lives in them.
  void remove();

 private:
  bool make_top();
  // The current folder of a process in the tree in which workers are placed.
  std::filesystem::path folder_now(pid_t pid) const;
  bool move(pid_t pid, const std::filesystem::path& to) const;
  std::filesystem::path folder(int worker) const { return top_ / ("worker-" + std::to_string(worker)); }

  std::filesystem::path parent_;  // empty: no folder can be made
  bool v2_ = false;
  std::filesystem::path top_;  // ddprun-<pid> or ddprun-<pid>-<n>, used by this guardian only; empty until it is made
  struct Place {
    std::filesystem::path folder;
    std::int64_t kills_before = -1;
  };
  std::map<int, Place> placed_;
  std::map<int, bool> made_;
};

}  // namespace ddprun
