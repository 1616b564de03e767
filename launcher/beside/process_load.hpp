// What the kernel has counted of a worker since its start: how long its main thread ran and was kept from running.
// straggler_look.cpp compares two moments. It reads /proc, which waits for no disk.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace ddprun {

struct ProcessLoad {
  double ran_s = 0;     // the main thread, in which scripts and ddptrain train
  double queued_s = 0;  // likewise: ready, but the processors ran others or the cgroup's quota was used up
  double disk_s = 0;    // likewise: waited for a disk; stays 0 without the sysctl kernel.task_delayacct
};

// All 0 when the process is gone. What this machine does not count is 0.
ProcessLoad load_of_process(pid_t pid);

// disk_s, of what /proc/PID/stat says; 0 where that is not whole.
double disk_seconds_of(std::string_view stat);

// Whether its main thread, or that of a process which it has started, such as DataLoader's, waits for a disk at this moment.
bool waits_for_disk(pid_t pid);

}  // namespace ddprun
