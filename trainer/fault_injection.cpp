#include "trainer/fault_injection.hpp"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <new>
#include <string>

#include "common/error.hpp"

namespace ddprun::trainer {
namespace {

[[noreturn]] void refuse(std::string_view word) {
  throw UsageError("DDPTRAIN_FAULT: '" + std::string(word) +
                   "' is not understood; expected: kill|segv|exit=CODE|oom|nan|hang|stop [rank=N|all] [step=N] [restart=N|any] "
                   "[phase=joining|step|backward|optimizer|saving|evaluating|exit]");
}

template <typename Integer>
Integer number(std::string_view word, std::string_view digits) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) refuse(word);
  return value;
}

FaultPhase phase_named(std::string_view word, std::string_view name) {
  if (name == "joining") return FaultPhase::kJoining;
  if (name == "step") return FaultPhase::kStep;
  if (name == "backward") return FaultPhase::kBackward;
  if (name == "optimizer") return FaultPhase::kOptimizer;
  if (name == "saving") return FaultPhase::kSaving;
  if (name == "evaluating") return FaultPhase::kEvaluating;
  if (name == "exit") return FaultPhase::kExit;
  refuse(word);
}

void read_kind(Fault& fault, std::string_view word) {
  if (word == "kill") {
    fault.kind = FaultKind::kKill;
  } else if (word == "segv") {
    fault.kind = FaultKind::kSegv;
  } else if (word == "oom") {
    fault.kind = FaultKind::kOom;
  } else if (word == "nan") {
    fault.kind = FaultKind::kNan;
  } else if (word == "hang") {
    fault.kind = FaultKind::kHang;
  } else if (word == "stop") {
    fault.kind = FaultKind::kStop;
  } else if (word.starts_with("exit=")) {
    fault.kind = FaultKind::kExit;
    fault.exit_code = number<int>(word, word.substr(5));
    if (fault.exit_code > 255) refuse(word);
  } else {
    refuse(word);
  }
}

void read_setting(Fault& fault, std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) refuse(word);
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (key == "rank") {
    fault.rank = value == "all" ? std::nullopt : std::optional<int>(number<int>(word, value));
  } else if (key == "step") {
    fault.step = number<std::int64_t>(word, value);
  } else if (key == "restart") {
    fault.restart = value == "any" ? std::nullopt : std::optional<int>(number<int>(word, value));
  } else if (key == "phase") {
    fault.phase = phase_named(word, value);
  } else {
    refuse(word);
  }
}

}  // namespace

Fault parse_fault(std::string_view specification) {
  Fault fault;
  bool kind_read = false;
  std::string_view rest = specification;
  while (true) {
    const std::size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    rest.remove_prefix(begin);
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    if (kind_read) {
      read_setting(fault, word);
    } else {
      read_kind(fault, word);
      kind_read = true;
    }
  }
  if (!kind_read) refuse(specification);
  return fault;
}

Faults::Faults(const Fault& fault, int rank, int restart) {
  if ((!fault.restart || *fault.restart == restart) && (!fault.rank || *fault.rank == rank)) fault_ = fault;
}

void Faults::strike() const {
  switch (fault_->kind) {
    case FaultKind::kKill:
      ::kill(::getpid(), SIGKILL);
      break;
    case FaultKind::kSegv:
      ::signal(SIGSEGV, SIG_DFL);
      ::raise(SIGSEGV);
      break;
    case FaultKind::kExit:
      ::_exit(fault_->exit_code);
    case FaultKind::kOom:
      throw std::bad_alloc();
    case FaultKind::kHang:
      while (true) ::pause();
    case FaultKind::kStop:
      ::kill(::getpid(), SIGSTOP);
      break;
    case FaultKind::kNan:
      break;
  }
}

}  // namespace ddprun::trainer
