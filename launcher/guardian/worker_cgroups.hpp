// Creates a cgroup for each worker, below the cgroup in which the job was started (cgroup v1 with the memory controller, or
// cgroup v2). So each worker has its own counter of OOM kills. A kill of the cgroup also reaches processes that are just being
// forked. The guardian owns the cgroups, so that they are removed even if the agent dies. If no cgroup can be created, the
// functions of this class do nothing. The guardian still ends every process: through process groups, as the subreaper, and by
// the sweep.
//
// Note: workers are moved into their cgroups 0.2 s after their start (guardian_loop.cpp). The first move of a process between
// cgroups waits for an RCU grace period of the kernel. This takes 10 ms on an idle machine. Jobs that are shorter than 0.2 s
// avoid this delay.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>

#include "launcher/guardian/memory_watch.hpp"
#include "launcher/machine/cgroup_folders.hpp"

namespace ddprun {

class WorkerCgroups {
 public:
  explicit WorkerCgroups(const CgroupFolders& folders);

  // Moves the worker and its descendants into the worker's cgroup. If another program has already moved a process (cgexec,
  // systemd-run, a scheduler), the process is not moved. The limits of its new cgroup must stay in effect. Returns false if
  // the worker itself was not moved.
  bool place(int worker, pid_t pid);
  // Returns the cgroup of this round's worker: the worker's own cgroup, or the cgroup into which another program has moved the
  // worker. The folder is empty if the cgroup is unknown.
  WorkerCgroup cgroup_of(int worker) const;
  // Sends SIGKILL to all processes in the workers' cgroups.
  void kill() const;
  // Call this when the worker has ended. Its replacement has the same number, but needs its own call of place().
  void forget(int worker) { placed_.erase(worker); }
  void end_round() { placed_.clear(); }
  // Removes all folders. Call this when they contain no process.
  void remove();

 private:
  bool make_top();
  // Returns the current cgroup folder of a process, in the hierarchy that this class uses.
  std::filesystem::path folder_now(pid_t pid) const;
  bool move(pid_t pid, const std::filesystem::path& to) const;
  std::filesystem::path folder(int worker) const { return top_ / ("worker-" + std::to_string(worker)); }

  std::filesystem::path parent_;  // folder in which the job was started; empty if no folder can be created there
  bool v2_ = false;
  std::filesystem::path top_;  // ddprun-<pid> or ddprun-<pid>-<n> of this guardian; empty until it is created
  std::map<int, WorkerCgroup> placed_;
  std::map<int, bool> made_;
};

}  // namespace ddprun
