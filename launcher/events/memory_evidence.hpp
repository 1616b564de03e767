// What the kernel's counters say about a worker that ended. The guardian reads them (memory_watch.hpp), a guardian::Notice
// carries them to the agent, and oom_verdict.hpp judges them. Plain numbers; -1: the machine does not tell.
#pragma once

#include <cstdint>

namespace ddprun {

struct MemoryEvidence {
  std::int64_t worker_kills = -1;   // by the OOM killer, in the worker's own cgroup, since the round began
  std::int64_t job_kills = -1;      // the same in the cgroup that the agent was started in
  std::int64_t machine_kills = -1;  // the same on the whole machine
  std::int64_t limit = -1;          // bytes: the smallest limit above the worker; -1: none
  std::int64_t limit_usage = -1;    // of the cgroup with that limit: now, and at most
  std::int64_t limit_peak = -1;
  std::int64_t available = -1;  // bytes of the machine's memory
  std::int64_t total = -1;
  std::int64_t worker_peak = -1;   // the most resident bytes, of the worker or the largest of its children
  std::int32_t in_kernel_log = 0;  // 1: the kernel's log says that it killed this very process for memory
  std::int32_t taken = 0;          // 0: the counters were not read, since the worker neither died of SIGKILL nor failed
};

}  // namespace ddprun
