// The kernel's memory counters for a worker that ended. The guardian, the process that reaps workers, reads them
// (memory_watch.hpp). It sends them to the agent in a guardian::Notice, and oom_verdict.hpp evaluates them. -1 means that the
// value is not available on this machine.
#pragma once

#include <cstdint>

namespace ddprun {

struct MemoryEvidence {
  std::int64_t worker_kills = -1;   // OOM kills in the worker's own cgroup in this round
  std::int64_t job_kills = -1;      // OOM kills in the cgroup in which the agent was started, in this round
  std::int64_t machine_kills = -1;  // OOM kills on the whole machine in this round
  std::int64_t limit = -1;          // lowest memory limit of the worker's cgroup and its ancestors, in bytes; -1: none
  std::int64_t limit_usage = -1;    // bytes used in the cgroup that has this limit
  std::int64_t limit_peak = -1;
  std::int64_t available = -1;  // available memory of the machine in bytes
  std::int64_t total = -1;
  std::int64_t worker_peak = -1;   // peak resident bytes of the worker or of its largest child
  std::int32_t in_kernel_log = 0;  // 1: the kernel's log reports that this process was killed for memory
  std::int32_t taken = 0;          // 0: the counters were not read, since the worker was not killed by SIGKILL and did not fail
};

}  // namespace ddprun
