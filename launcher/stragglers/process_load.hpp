// Reads the kernel's counters of a worker since its start: how long its main thread ran, and how long it waited.
// straggler_monitor.cpp computes the differences between two readings. All counters come from /proc, so reading them never
// blocks on a disk.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace ddprun {

struct ProcessLoad {
  double ran_s = 0;     // time for which the main thread ran; scripts and ddptrain train in that thread
  double queued_s = 0;  // time in which the main thread was ready to run, but had no processor or no cgroup quota
  double disk_s = 0;    // time in which the main thread waited for a disk; 0 if the sysctl kernel.task_delayacct is off
};

// Reads the counters of a process. A counter is 0 if the process has ended or if this kernel does not count it.
ProcessLoad load_of_process(pid_t pid);

// Returns disk_s, parsed from the text of /proc/PID/stat; 0 if the text is incomplete.
double disk_seconds_of(std::string_view stat);

// Returns true if the main thread of the process, or of one of its child processes, waits for a disk at this moment. Such a
// child may be a DataLoader worker.
bool waits_for_disk(pid_t pid);

}  // namespace ddprun
