#include "trainer/surroundings/fault_injection.hpp"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <system_error>

namespace ddprun::trainer {
namespace {

// This function is never inlined, so that its name appears in a stack trace of the hanging process.
[[noreturn, gnu::noinline]] void spin_endlessly() {
  for (volatile std::uint64_t turns = 0;;) turns = turns + 1;
}

bool applies_to(const Fault& fault, int rank, int restart) {
  return (!fault.restart || *fault.restart == restart) && (!fault.rank || *fault.rank == rank);
}

// Returns true for faults that the training loop itself injects, by changing its tensors.
bool targets_tensors(FaultKind kind) {
  return kind == FaultKind::kNan || kind == FaultKind::kFlip;
}

bool is_due(const Fault& fault, FaultPhase phase, std::int64_t finished) {
  if (fault.phase != phase || fault.above) return false;
  const bool exact = phase == FaultPhase::kStep || phase == FaultPhase::kBackward || phase == FaultPhase::kOptimizer;
  return exact ? finished == fault.step : finished >= fault.step;
}

}  // namespace

Faults::Faults(const Fault& fault, int rank, int restart) {
  if (applies_to(fault, rank, restart)) armed_.push_back({fault, {}});
}

Faults::Faults(const std::vector<Fault>& faults, int rank, int restart, const std::filesystem::path& marks) {
  std::error_code error;
  std::filesystem::create_directories(marks, error);
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const auto mark = marks / ("fault-" + std::to_string(i) + "-rank-" + std::to_string(rank));
    if (applies_to(faults[i], rank, restart) && !std::filesystem::exists(mark, error)) armed_.push_back({faults[i], mark});
  }
}

bool Faults::due(FaultPhase phase, std::int64_t finished) const {
  return std::any_of(armed_.begin(), armed_.end(), [&](const Armed& a) { return is_due(a.fault, phase, finished); });
}

void Faults::at(FaultPhase phase, std::int64_t finished) const {
  for (const Armed& armed : armed_)
    if (is_due(armed.fault, phase, finished) && !targets_tensors(armed.fault.kind)) inject(armed);
}

bool Faults::poisons(std::int64_t finished) const {
  return fires(FaultKind::kNan, finished);
}

bool Faults::flips(std::int64_t finished) const {
  return fires(FaultKind::kFlip, finished);
}

bool Faults::fires(FaultKind kind, std::int64_t finished) const {
  for (const Armed& armed : armed_) {
    if (armed.fault.kind != kind || armed.fault.step != finished) continue;
    std::error_code error;
    if (!armed.mark.empty() && std::filesystem::exists(armed.mark, error)) continue;  // the fault was injected before
    write_mark(armed);
    return true;
  }
  return false;
}

void Faults::take(std::int64_t finished, std::int64_t samples) const {
  for (const Armed& armed : armed_)
    if (armed.fault.above && samples > *armed.fault.above && finished >= armed.fault.step) throw std::bad_alloc();
}

void Faults::write_mark(const Armed& armed) {
  if (armed.mark.empty()) return;
  const int fd = ::open(armed.mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) ::close(fd);
}

void Faults::inject(const Armed& armed) {
  write_mark(armed);
  switch (armed.fault.kind) {
    case FaultKind::kKill:
      ::kill(::getpid(), SIGKILL);
      break;
    case FaultKind::kSegv:
      ::signal(SIGSEGV, SIG_DFL);
      ::raise(SIGSEGV);
      break;
    case FaultKind::kExit:
      ::_exit(armed.fault.exit_code);
    case FaultKind::kOom:
      throw std::bad_alloc();
    case FaultKind::kHang:
      while (true) ::pause();
    case FaultKind::kLoop:
      spin_endlessly();
    case FaultKind::kStop:
      ::kill(::getpid(), SIGSTOP);
      break;
    case FaultKind::kDevice:  // throws the same exception as c10 throws for a CUDA error
      throw c10::AcceleratorError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, 214,
                                  "CUDA error: uncorrectable ECC error encountered");
    case FaultKind::kNan:
    case FaultKind::kFlip:
      break;
  }
}

}  // namespace ddprun::trainer
