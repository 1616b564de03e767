// What the kernel's counters say about a worker that ended: taken by the guardian (memory_watch.hpp), carried to the agent in a
// Notice, judged by oom_verdict.hpp. Plain numbers; -1 where the machine does not tell.
#pragma once

#include <cstdint>

namespace ddprun {

struct MemoryEvidence {
  std::int64_t worker_kills = -1;   // by the kernel's out-of-memory killer, in the worker's own cgroup, since the round began
  std::int64_t job_kills = -1;      // the same in the cgroup that the agent was started in
  std::int64_t machine_kills = -1;  // the same on the whole machine
  std::int64_t limit = -1;          // bytes: the smallest limit above the worker; -1: none
  std::int64_t limit_usage = -1;    // of the cgroup with that limit: now, and at most
  std::int64_t limit_peak = -1;
  std::int64_t available = -1;  // bytes of the machine's memory
  std::int64_t total = -1;
  std::int64_t worker_peak = -1;   // resident, at most; of its children as well when one of them was larger
  std::int32_t in_kernel_log = 0;  // the log says that this very process was killed for memory
  std::int32_t taken = 0;          // 0: nobody looked, since it did not end by SIGKILL or a failure
};

}  // namespace ddprun
