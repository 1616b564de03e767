// The kernel's counters of a worker since its start: how long its main thread ran, and how long it was kept from running.
// straggler_look.cpp compares two readings. They come from /proc, which never waits for a disk.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace ddprun {

struct ProcessLoad {
  double ran_s = 0;     // of the main thread, in which scripts and ddptrain train
  double queued_s = 0;  // of the main thread: ready, but without a processor or without quota of its cgroup
  double disk_s = 0;    // of the main thread: waited for a disk; 0 without the sysctl kernel.task_delayacct
};

// All values are 0 if the process has ended. A value that this machine does not count is 0.
ProcessLoad load_of_process(pid_t pid);

// disk_s from the text of /proc/PID/stat; 0 if the text is incomplete.
double disk_seconds_of(std::string_view stat);

// True if the main thread of the process, or of a process that it has started (such as DataLoader's), waits for a disk at this
// moment.
bool waits_for_disk(pid_t pid);

}  // namespace ddprun
