// Injects the faults of common/base/fault_injection.hpp into this process. Tests select faults with the variable
// DDPTRAIN_FAULT, and users with `ddprun --chaos`. A --chaos fault first creates a marker file in the run directory. After a
// restart the run repeats steps, and the marker file prevents the same fault from happening again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/base/fault_injection.hpp"

namespace ddprun::trainer {

class Faults {
 public:
  Faults() = default;
  // Activates the fault if it applies to this rank and this restart.
  Faults(const Fault& fault, int rank, int restart);
  // Activates the faults of --chaos that apply to this rank and this restart, and have no marker file in the folder `marks`.
  // Creates that folder.
  Faults(const std::vector<Fault>& faults, int rank, int restart, const std::filesystem::path& marks);

  // Returns true if a fault must be injected in `phase` of the step after `finished` steps. This check is fast.
  bool due(FaultPhase phase, std::int64_t finished) const;
  // Injects the faults that are due. For faults of kind kNan and kFlip, the caller uses poisons() and flips() instead.
  void at(FaultPhase phase, std::int64_t finished) const;
  // Returns true if the caller must set the training loss of the step after `finished` steps to NaN.
  bool poisons(std::int64_t finished) const;
  // Returns true if the caller must flip a bit of the weights after `finished` steps.
  bool flips(std::int64_t finished) const;
  // Call this before each forward pass with the pass's number of samples. Throws std::bad_alloc if a fault limits the number
  // of samples (above=) to a smaller number.
  void take(std::int64_t finished, std::int64_t samples) const;

 private:
  struct Armed {
    Fault fault;
    // The marker file, which is created when the fault is injected, so that the fault happens only once. If the path is empty,
    // the fault may happen again.
    std::filesystem::path mark;
  };
  bool fires(FaultKind kind, std::int64_t finished) const;
  static void write_mark(const Armed& armed);
  static void inject(const Armed& armed);
  std::vector<Armed> armed_;
};

}  // namespace ddprun::trainer
