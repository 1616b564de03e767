// Judges the limits of this process and its cgroup: open files, locked memory, processes, memory, CPUs, /dev/shm, the clock.
// Each of them can end a job after hours of training, with a message that does not name the limit. Also judges the kernel's
// rule for debuggers. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/doctor/verdicts/check.hpp"
#include "launcher/doctor/verdicts/job_needs.hpp"

namespace ddprun::doctor {

// nullopt means that there is no limit, or that the limit is unknown.
struct LimitFacts {
  std::optional<std::uint64_t> open_files{};       // soft limit; the workers inherit it
  std::optional<std::uint64_t> open_files_hard{};  // hard limit; ddprun raises its own soft limit to this value
  std::optional<std::uint64_t> locked_bytes{};
  bool may_lock_all = false;  // CAP_IPC_LOCK: the limit on locked memory does not apply
  bool has_infiniband = false;
  std::optional<std::uint64_t> processes_left{};  // processes that can be added before the tightest pids.max is reached
  std::optional<std::uint64_t> user_processes{};  // RLIMIT_NPROC; nullopt if it is unlimited or does not apply to this user
  std::optional<std::uint64_t> memory_bytes{};    // the tightest cgroup limit
};
Checks judge_limits(const LimitFacts& facts, const JobNeeds& needs);

struct CpuFacts {
  int affinity = 1;
  double quota = 0;                          // in CPUs; 0: no quota
  std::optional<std::string> omp_threads{};  // OMP_NUM_THREADS
};
Checks judge_cpus(const CpuFacts& facts, const JobNeeds& needs);

struct SharedMemoryFacts {
  bool exists = true;
  bool is_writable = true;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};
Checks judge_shared_memory(const SharedMemoryFacts& facts, const JobNeeds& needs);

struct ClockFacts {
  std::int64_t unix_seconds = 0;
  bool is_synchronised = true;  // adjtimex(2): a time service corrects the kernel's clock
};
Checks judge_clock(const ClockFacts& facts, const JobNeeds& needs);

struct TraceFacts {
  std::optional<int> yama_scope{};  // /proc/sys/kernel/yama/ptrace_scope
  bool may_trace_all = false;       // CAP_SYS_PTRACE
};
Checks judge_tracing(const TraceFacts& facts);

}  // namespace ddprun::doctor
