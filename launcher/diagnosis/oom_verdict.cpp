#include "launcher/diagnosis/oom_verdict.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include "launcher/events/printf_text.hpp"

namespace ddprun {
namespace {

constexpr double kFullFraction = 0.98;       // a limit counts as reached if at least this fraction of it is used
constexpr double kLowMemoryFraction = 0.05;  // memory counts as used up if less than this fraction is available

void append(std::string& text, const std::string& part) {
  if (!text.empty()) text += ", ";
  text += part;
}

std::string numbers(const MemoryEvidence& e) {
  std::string text;
  if (e.limit >= 0) append(text, "limit " + format_bytes(e.limit));
  if (e.limit >= 0 && e.limit_peak >= 0) append(text, "peak use " + format_bytes(e.limit_peak));
  if (e.limit >= 0 && e.limit_usage >= 0) append(text, format_bytes(e.limit_usage) + " now");
  if (e.worker_peak >= 0) append(text, "the worker's own peak " + format_bytes(e.worker_peak));
  if (e.available >= 0 && e.total >= 0) {
    append(text, format_bytes(e.available) + " of the machine's " + format_bytes(e.total) + " available");
  }
  return text;
}

std::string kills_counted(const MemoryEvidence& e) {
  std::string text;
  if (e.worker_kills >= 0) append(text, std::to_string(e.worker_kills) + " in the worker's cgroup");
  if (e.job_kills >= 0) append(text, std::to_string(e.job_kills) + " in the job's cgroup");
  if (e.machine_kills >= 0) append(text, std::to_string(e.machine_kills) + " on the machine");
  return text.empty() ? text : "OOM kills in this round: " + text;
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  const bool whole = value >= 100 || value == static_cast<double>(static_cast<int>(value));
  return printed(whole ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
}

OomVerdict judge_memory(const MemoryEvidence& e, const ExitStatus& status) {
  OomVerdict verdict;
  if (e.taken == 0 || !(status.by_sigkill() || e.worker_kills > 0)) return verdict;
  verdict.evidence = numbers(e);
  if (const std::string kills = kills_counted(e); !kills.empty()) append(verdict.evidence, kills);
  if (e.in_kernel_log != 0) append(verdict.evidence, "the kernel's log reports the kill");
  const std::string figures = numbers(e);
  const std::string tail = figures.empty() ? "" : "; " + figures;

  // An increase of the worker's own counter and an entry in the kernel's log are always proof. An increase of the job's counter
  // is proof only if the worker has no separate counter.
  const bool by_job = e.worker_kills < 0 && e.job_kills > 0 && status.by_sigkill();
  if (e.worker_kills > 0 || e.in_kernel_log != 0 || by_job) {
    verdict.proof = OomVerdict::Proof::kProven;
    verdict.message = (status.by_sigkill() ? "killed by the kernel: out of memory"
                                           : "the kernel killed a process of this worker: out of memory") +
                      tail;
    return verdict;
  }
  if (!status.by_sigkill() || e.worker_kills == 0) return verdict;
  const bool limit_reached =
      e.limit > 0 && e.limit_peak >= 0 && static_cast<double>(e.limit_peak) >= kFullFraction * static_cast<double>(e.limit);
  const bool machine_full =
      e.total > 0 && e.available >= 0 && static_cast<double>(e.available) < kLowMemoryFraction * static_cast<double>(e.total);
  if (e.machine_kills > 0 || limit_reached || machine_full) {
    verdict.proof = OomVerdict::Proof::kSuspected;
    verdict.message = "perhaps killed for lack of memory" + tail;
  }
  return verdict;
}

bool reports_out_of_memory(std::string_view line) {
  constexpr std::array<std::string_view, 9> kPhrases{
      "OutOfMemoryError",            // torch.OutOfMemoryError, torch.cuda.OutOfMemoryError
      "CUDA out of memory",          // from PyTorch versions without the type OutOfMemoryError
      "HIP out of memory",           // from PyTorch on ROCm
      "XPU out of memory",           // from PyTorch on Intel's GPUs
      "CUDA error: out of memory",   // cudaErrorMemoryAllocation
      "can't allocate memory",       // from PyTorch's DefaultCPUAllocator
      "CUBLAS_STATUS_ALLOC_FAILED",  // from cuBLAS
      "std::bad_alloc",              // C++
      "Cannot allocate memory",      // the text of ENOMEM
  };
  if (line.starts_with("MemoryError")) return true;
  if (line.starts_with("numpy") && line.find("MemoryError") != std::string_view::npos) return true;
  return std::any_of(kPhrases.begin(), kPhrases.end(),
                     [&](std::string_view words) { return line.find(words) != std::string_view::npos; });
}

std::uint16_t memory_requested_in(std::string_view line) {
  for (const std::string_view words : {"ried to allocate ", "nable to allocate "}) {
    const std::size_t at = line.find(words);
    if (at == std::string_view::npos) continue;
    std::string_view amount = line.substr(at + words.size());
    std::size_t end = amount.find(' ');                                               // end of the number, before the unit
    end = end == std::string_view::npos ? end : amount.find_first_of(" .", end + 1);  // end of the unit
    amount = amount.substr(0, end);
    std::uint32_t hash = 2166136261U;  // a hash of the amount, computed with FNV-1a
    for (const char c : amount) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    return static_cast<std::uint16_t>(1 + (hash ^ hash >> 16) % 0xFFFF);
  }
  return 0;
}

}  // namespace ddprun
