// Faults on order, for tests: DDPTRAIN_FAULT makes one rank die, fail or hang at an exact point of a run. The specification is
//
//     KIND [rank=N|all] [step=N] [restart=N|any] [phase=PHASE]
//
// KIND: kill (SIGKILL to itself), segv, exit=CODE, oom (as an allocator that refuses), nan (the step's loss is not a number),
// hang (of the training thread), stop (SIGSTOP to itself: of the whole process). `step` counts finished steps when it happens
// (default 0), `rank` is 0 by default, and it happens only in the process whose TORCHELASTIC_RESTART_COUNT is `restart`
// (default 0). PHASE: joining (before the group is made), step (default; at the start of that step), backward (in the middle of
// its backward pass), optimizer (before its update), saving (in the middle of writing the first checkpoint of at least that
// step), evaluating, exit (at the very end).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddprun::trainer {

enum class FaultKind { kKill, kSegv, kExit, kOom, kNan, kHang, kStop };
enum class FaultPhase { kJoining, kStep, kBackward, kOptimizer, kSaving, kEvaluating, kExit };

struct Fault {
  FaultKind kind = FaultKind::kKill;
  int exit_code = 1;
  std::optional<int> rank = 0;  // nullopt: all
  std::int64_t step = 0;
  std::optional<int> restart = 0;  // nullopt: any
  FaultPhase phase = FaultPhase::kStep;
};

// Throws UsageError that says what was expected.
Fault parse_fault(std::string_view specification);

// The fault of this process, if any.
class Faults {
 public:
  Faults() = default;
  // Keeps the fault only when it is meant for this rank and restart.
  Faults(const Fault& fault, int rank, int restart);

  // Whether anything can still happen in that phase of the step that comes after `finished` ones. Cheap.
  bool due(FaultPhase phase, std::int64_t finished) const {
    if (!fault_ || fault_->phase != phase) return false;
    const bool exact = phase == FaultPhase::kStep || phase == FaultPhase::kBackward || phase == FaultPhase::kOptimizer;
    return exact ? finished == fault_->step : finished >= fault_->step;
  }
  // Lets it happen if it is due; kNan has no effect here.
  void at(FaultPhase phase, std::int64_t finished) const {
    if (due(phase, finished)) strike();
  }
  // Whether the loss of the step after `finished` ones is to become NaN.
  bool poisons(std::int64_t finished) const { return fault_ && fault_->kind == FaultKind::kNan && finished == fault_->step; }

 private:
  void strike() const;
  std::optional<Fault> fault_;
};

}  // namespace ddprun::trainer
