#include "launcher/doctor/verdicts/judge_limits.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "common/base/split.hpp"

namespace ddprun::doctor {
namespace {

std::string text_of(const std::optional<std::uint64_t>& limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

std::string text_of_workers(int workers) {
  return std::to_string(workers) + (workers == 1 ? " worker" : " workers");
}

// Returns the number of descriptors that the agent itself needs: pipes and sockets of each worker, connections of each node,
// and its own files.
std::uint64_t descriptors_of_agent(const JobNeeds& needs) {
  return 40 + 16 * static_cast<std::uint64_t>(needs.workers) +
         (needs.many_nodes() ? 4 * static_cast<std::uint64_t>(needs.nodes) : 0);
}

void judge_open_files(Checks& checks, const LimitFacts& facts, const JobNeeds& needs) {
  constexpr std::uint64_t kUsual = 1024;  // the usual soft limit of Linux, with which PyTorch's data loader normally works
  const std::uint64_t needed = descriptors_of_agent(needs);
  const std::string name = "open-files";
  const auto text = [](std::uint64_t limit, const char* kind, std::uint64_t expected) {
    return "the " + std::string(kind) + " limit is " + std::to_string(limit) + ", expected at least " +
           std::to_string(expected);
  };
  if (facts.open_files_hard && *facts.open_files_hard < needed) {
    checks.push_back(
        error(name, text(*facts.open_files_hard, "hard", needed) + " for " + text_of_workers(needs.workers),
              "raise the limit: LimitNOFILE= in a service, --ulimit nofile= for a container, or nofile in limits.conf"));
  } else if (facts.open_files && *facts.open_files < kUsual) {
    checks.push_back(warning(name, text(*facts.open_files, "soft", kUsual) + ": a data loader opens hundreds of files",
                             "run ulimit -n " +
                                 std::to_string(std::min<std::uint64_t>(65536, facts.open_files_hard.value_or(65536))) +
                                 " before the start"));
  } else {
    checks.push_back(ok(name, text_of(facts.open_files) + ", hard limit " + text_of(facts.open_files_hard)));
  }
}

// InfiniBand adapters read and write only locked memory. If the machine has no such adapter, no part of a job locks much
// memory.
void judge_locked_memory(Checks& checks, const LimitFacts& facts, const JobNeeds& needs) {
  constexpr std::uint64_t kEnough = 1024 * kMebibyte, kLittle = 64 * kMebibyte;
  if (!facts.has_infiniband) return;
  const std::string name = "locked-memory";
  if (!facts.locked_bytes || facts.may_lock_all || *facts.locked_bytes >= kEnough) {
    checks.push_back(ok(name, facts.locked_bytes && !facts.may_lock_all ? text_of_bytes(*facts.locked_bytes) : "unlimited"));
    return;
  }
  const std::string found =
      "the limit is " + text_of_bytes(*facts.locked_bytes) + ", but this machine has InfiniBand, which needs locked memory";
  const std::string remedy =
      "set the limit to unlimited: LimitMEMLOCK=infinity in a service, --ulimit memlock=-1 for a container, or memlock in "
      "limits.conf";
  const bool fails = *facts.locked_bytes < kLittle && needs.many_nodes();
  checks.push_back(fails ? error(name, found, remedy) : warning(name, found, remedy));
}

void judge_processes(Checks& checks, const LimitFacts& facts, const JobNeeds& needs) {
  // Threads count as processes. A worker with LibTorch starts several dozen threads, and a data loader adds processes.
  const std::uint64_t usual = 64 * static_cast<std::uint64_t>(needs.workers);
  const std::uint64_t least = 12 * static_cast<std::uint64_t>(needs.workers) + 8;
  const std::string name = "processes";
  const auto judge = [&](std::uint64_t left, const std::string& found, const std::string& remedy) {
    const std::string text =
        found + ", and " + text_of_workers(needs.workers) + " with threads may need " + std::to_string(usual);
    if (left < least) {
      checks.push_back(error(name, text, remedy));
    } else if (left < usual) {
      checks.push_back(warning(name, text, remedy));
    } else {
      return false;
    }
    return true;
  };
  if (facts.processes_left &&
      judge(*facts.processes_left, "the cgroup allows " + std::to_string(*facts.processes_left) + " more processes",
            "raise pids.max: TasksMax= in a service, or --pids-limit for a container")) {
    return;
  }
  if (facts.user_processes && judge(*facts.user_processes, "the user's limit is " + std::to_string(*facts.user_processes),
                                    "raise the limit with ulimit -u, or nproc in limits.conf")) {
    return;
  }
  std::string found = "limit " + text_of(facts.user_processes);
  if (facts.processes_left) found += ", " + std::to_string(*facts.processes_left) + " left in the cgroup";
  checks.push_back(ok(name, found));
}

void judge_memory(Checks& checks, const LimitFacts& facts, const JobNeeds& needs) {
  constexpr std::uint64_t kUsual = 512 * kMebibyte;  // LibTorch and Python's torch alone take several hundred MiB
  constexpr std::uint64_t kLeast = 128 * kMebibyte;
  const auto workers = static_cast<std::uint64_t>(needs.workers);
  const std::string name = "memory";
  if (!facts.memory_bytes) {
    checks.push_back(ok(name, "no cgroup limit"));
    return;
  }
  const std::string found = "the cgroup allows " + text_of_bytes(*facts.memory_bytes);
  if (*facts.memory_bytes >= kUsual * workers) {
    checks.push_back(ok(name, found));
    return;
  }
  const std::string text =
      found + " for " + text_of_workers(needs.workers) + ", expected at least " + text_of_bytes(kUsual * workers);
  const std::string remedy =
      "raise the limit of the container, service or Slurm job (--mem), or start fewer workers: the kernel kills a worker when "
      "the limit is reached";
  const bool any_program = needs.work == JobNeeds::Work::kProgram;  // an arbitrary program may need little memory
  checks.push_back(*facts.memory_bytes < kLeast * workers && !any_program ? error(name, text, remedy)
                                                                          : warning(name, text, remedy));
}

// Returns true for a positive number, or for a list of such numbers for nested parallel regions ("4,2"). Sets `outermost` to
// the first number.
bool is_thread_count(std::string_view text, int& outermost) {
  bool is_first = true;
  for (std::string_view entry : split(text, ',')) {
    entry = without_spaces_around(entry);
    int number = 0;
    const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    if (error != std::errc() || stop != entry.data() + entry.size() || number < 1) return false;
    if (is_first) outermost = number;
    is_first = false;
  }
  return true;
}

}  // namespace

Checks judge_limits(const LimitFacts& facts, const JobNeeds& needs) {
  Checks checks;
  judge_open_files(checks, facts, needs);
  judge_locked_memory(checks, facts, needs);
  judge_processes(checks, facts, needs);
  judge_memory(checks, facts, needs);
  return checks;
}

Checks judge_cpus(const CpuFacts& facts, const JobNeeds& needs) {
  char quota[32];
  std::snprintf(quota, sizeof quota, "%.4g", facts.quota);
  const std::string found = std::to_string(facts.affinity) + " by affinity, " +
                            (facts.quota > 0 ? std::string(quota) + " by cgroup quota" : std::string("no cgroup quota"));
  Checks checks;
  if (facts.quota > 0 && facts.quota < 1) {
    checks.push_back(warning("cpus", found + ": less than one CPU, so the kernel often pauses ddprun and its workers",
                             "give the container or service at least one CPU for each worker"));
  } else {
    checks.push_back(ok("cpus", found));
  }
  if (!facts.omp_threads) return checks;
  const std::string text = "OMP_NUM_THREADS=" + *facts.omp_threads;
  int threads = 0;
  if (!is_thread_count(*facts.omp_threads, threads)) {
    checks.push_back(warning("threads", text + " is not a number of threads: OpenMP ignores it, and each worker uses all CPUs",
                             "set OMP_NUM_THREADS to the number of CPUs for each worker, or remove it"));
    return checks;
  }
  const int cpus = facts.quota > 0 ? std::clamp(static_cast<int>(facts.quota), 1, facts.affinity) : facts.affinity;
  if (threads > 1 && static_cast<long>(threads) * needs.workers > 2L * cpus) {
    checks.push_back(warning("threads",
                             text + " with " + text_of_workers(needs.workers) + ", but only " + std::to_string(cpus) +
                                 " usable CPUs: the threads wait for each other",
                             "set OMP_NUM_THREADS to " + std::to_string(std::max(1, cpus / std::max(1, needs.workers)))));
  } else {
    checks.push_back(ok("threads", text));
  }
  return checks;
}

Checks judge_shared_memory(const SharedMemoryFacts& facts, const JobNeeds& needs) {
  using Work = JobNeeds::Work;
  // The processes of PyTorch's data loader use /dev/shm, and so does NCCL between the GPUs of one machine.
  const bool by_loader = needs.work == Work::kPython;
  const bool by_nccl = needs.gpus == JobNeeds::Gpus::kRequired && needs.workers > 1;
  const bool is_used = by_loader || by_nccl;
  constexpr std::uint64_t kContainerDefault = 64 * kMebibyte;  // the default of Docker and Kubernetes
  constexpr std::uint64_t kLittle = 16 * kMebibyte;
  const std::string name = "shared-memory";
  const std::string remedy =
      "enlarge /dev/shm: --shm-size 8g for a container, or in Kubernetes a volume with emptyDir {medium: Memory} at /dev/shm";
  const auto fault = [&](const std::string& found) {
    return Checks{is_used ? error(name, found, remedy) : warning(name, found, remedy)};
  };
  if (!facts.exists) return fault("/dev/shm does not exist");
  if (!facts.is_writable) return fault("/dev/shm is not writable");
  const std::string found = "/dev/shm has " + text_of_bytes(facts.free_bytes) + " free of " + text_of_bytes(facts.total_bytes);
  if (facts.free_bytes < kLittle) return fault(found);
  const bool is_small = facts.total_bytes <= kContainerDefault;
  if (is_small && is_used)
    return {warning(name, found + ": a data loader or NCCL may need more, and a worker then ends with SIGBUS", remedy)};
  return {ok(name, found)};
}

Checks judge_clock(const ClockFacts& facts, const JobNeeds& needs) {
  constexpr std::int64_t kYear2025 = 1'735'689'600;
  if (facts.unix_seconds < kYear2025) {
    const std::string found = "the clock shows a time before 2025";
    const std::string remedy = "set the clock: certificates and file times depend on it";
    return {needs.many_nodes() ? error("clock", found, remedy) : warning("clock", found, remedy)};
  }
  if (needs.many_nodes() && !facts.is_synchronised) {
    return {warning("clock", "no time service corrects the clock, so the logs of the nodes cannot be compared",
                    "start chrony or systemd-timesyncd, on the host if this is a container: timedatectl")};
  }
  return {ok("clock", facts.is_synchronised ? "synchronised"
                                            : "not synchronised, but a job on one node does not need a synchronised clock")};
}

Checks judge_tracing(const TraceFacts& facts) {
  if (!facts.yama_scope) return {};
  const std::string found = "kernel.yama.ptrace_scope is " + std::to_string(*facts.yama_scope);
  const bool forbidden = *facts.yama_scope >= 3 || (*facts.yama_scope == 2 && !facts.may_trace_all);
  if (!forbidden) return {ok("tracing", found)};
  return {warning("tracing", found + ": the stacks of a hung worker cannot be read, so its report lacks the cause",
                  "set kernel.yama.ptrace_scope to 1 or less with sysctl, or run ddprun with CAP_SYS_PTRACE")};
}

}  // namespace ddprun::doctor
