// The kernel's memory counters for a worker that ended. The guardian reads them (memory_watch.hpp), a guardian::Notice carries
// them to the agent, and oom_verdict.hpp evaluates them. Plain numbers; -1: not available on this machine.
#pragma once

#include <cstdint>

namespace ddprun {

struct MemoryEvidence {
  std::int64_t worker_kills = -1;   // OOM kills in the worker's own cgroup since the round began
  std::int64_t job_kills = -1;      // the same in the cgroup that the agent was started in
  std::int64_t machine_kills = -1;  // the same on the whole machine
  std::int64_t limit = -1;          // bytes: the lowest limit among the worker's ancestors; -1: none
  std::int64_t limit_usage = -1;    // usage of the cgroup with that limit: current and peak
  std::int64_t limit_peak = -1;
  std::int64_t available = -1;  // available memory of the machine in bytes
  std::int64_t total = -1;
  std::int64_t worker_peak = -1;   // peak resident bytes of the worker or of its largest child
  std::int32_t in_kernel_log = 0;  // 1: the kernel's log reports that this process was killed for memory
  std::int32_t taken = 0;          // 0: the counters were not read, since the worker neither died of SIGKILL nor failed
};

}  // namespace ddprun
