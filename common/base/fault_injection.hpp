// Fault injection: a rank of ddptrain is killed, fails or hangs at an exact point of a run. In tests, ddptrain reads the fault
// from the environment variable DDPTRAIN_FAULT. Users rehearse failures with ddprun --chaos, which passes the faults to
// ddptrain. The syntax of a fault is:
//
//     KIND [rank=N|all] [step=N] [restart=N|any] [phase=PHASE] [above=SAMPLES]
//
// KIND is one of:
//   kill       SIGKILL to its own process
//   segv       a segmentation fault
//   exit=CODE  an exit with the code CODE
//   oom        an out-of-memory error, like the error of an allocator
//   nan        the training loss of the step is NaN
//   hang       the training thread sleeps without end
//   loop       the training thread computes without end
//   stop       SIGSTOP to its own process
//   flip       one bit of one weight changes after `step` steps, without an error
//   device     an uncorrectable memory error of a GPU, as CUDA reports it
//
// `step` is the number of finished steps at the fault (default 0). `rank` is 0 by default. `restart` selects the process by its
// TORCHELASTIC_RESTART_COUNT. PHASE is one of:
//   joining     before the process group is created
//   step        at the start of the step (default)
//   backward    in the middle of the step's backward pass
//   optimizer   before the step's update
//   saving      while the first checkpoint of at least this step is written
//   evaluating  in an evaluation
//   exit        at the end of the process
//
// The code is pure: no I/O, no clock.
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
  std::optional<int> rank = 0;  // nullopt: all ranks
  std::int64_t step = 0;
  std::optional<int> restart = 0;  // nullopt: any value of TORCHELASTIC_RESTART_COUNT
  FaultPhase phase = FaultPhase::kStep;
  // Only for kOom: throws std::bad_alloc for each batch with more samples than this, once `step` steps have finished.
  std::optional<std::int64_t> above{};
};

// Parses one fault. `where` is the name of the setting, for the error message. Throws UsageError with the expected syntax.
Fault parse_fault(std::string_view specification, const std::string& where = "DDPTRAIN_FAULT");

// Parses several faults, separated by semicolons. A fault without `restart` occurs only once: when its step is reached for the
// first time.
std::vector<Fault> parse_faults(std::string_view specification, const std::string& where);

}  // namespace ddprun
