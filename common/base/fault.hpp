// Fault injection: one rank of ddptrain dies, fails or hangs at an exact point of a run. ddptrain reads it from DDPTRAIN_FAULT,
// in tests. ddprun reads it from --chaos, in rehearsals, and passes it on. One fault is specified as
//
//     KIND [rank=N|all] [step=N] [restart=N|any] [phase=PHASE] [above=SAMPLES]
//
// KIND: kill (SIGKILL to itself), segv, exit=CODE, oom (like an allocator that refuses), nan (the step's loss is not a number),
// hang (the training thread waits forever), loop (it computes forever), stop (SIGSTOP to its whole process), flip (one bit of
// one weight changes silently after that many steps), device (an uncorrectable memory error of a GPU, as CUDA reports it).
// `step` is the number of finished steps at the fault (default 0). `rank` is 0 by default. `restart` selects the process by its
// TORCHELASTIC_RESTART_COUNT. PHASE: joining (before the group is made), step (default; at the start of that step), backward
// (in the middle of its backward pass), optimizer (before its update), saving (in the middle of writing the first checkpoint of
// at least that step), evaluating, exit (at the very end). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

enum class FaultKind { kKill, kSegv, kExit, kOom, kNan, kHang, kLoop, kStop, kFlip, kDevice };
enum class FaultPhase { kJoining, kStep, kBackward, kOptimizer, kSaving, kEvaluating, kExit };

struct Fault {
  FaultKind kind = FaultKind::kKill;
  int exit_code = 1;
  std::optional<int> rank = 0;  // nullopt: all
  std::int64_t step = 0;
  std::optional<int> restart = 0;  // nullopt: any
  FaultPhase phase = FaultPhase::kStep;
  std::optional<std::int64_t> above{};  // kOom: from `step` on, fails whenever the model gets more samples than this at a time
};

// `where` is the name of the setting for the message. Throws UsageError with the expected syntax.
Fault parse_fault(std::string_view specification, const std::string& where = "DDPTRAIN_FAULT");

// Parses several faults with semicolons between them. Each happens in the first round that reaches its step, unless it has a
// `restart`.
std::vector<Fault> parse_faults(std::string_view specification, const std::string& where);

}  // namespace ddprun
