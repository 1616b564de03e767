// Injects the faults of common/base/fault.hpp into this process: that of DDPTRAIN_FAULT, for tests, and those of a rehearsal
// (ddprun --chaos). A rehearsal's fault leaves a mark in the run directory first. So it happens only once, even if its step is
// repeated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/base/fault.hpp"

namespace ddprun::trainer {

class Faults {
 public:
  Faults() = default;
  // Arms the fault only if it is meant for this rank and restart.
  Faults(const Fault& fault, int rank, int restart);
  // Arms the faults of a rehearsal that are meant for this rank and have no mark in the folder `marks`. Creates that folder.
  Faults(const std::vector<Fault>& faults, int rank, int restart, const std::filesystem::path& marks);

  // Whether a fault can still happen in that phase of the step after `finished` steps. Cheap.
  bool due(FaultPhase phase, std::int64_t finished) const;
  // Injects the fault if it is due. Does nothing for kNan and kFlip.
  void at(FaultPhase phase, std::int64_t finished) const;
  // Whether the loss of the step after `finished` steps must become NaN.
  bool poisons(std::int64_t finished) const;
  // Whether a bit of the weights must flip after `finished` steps.
  bool flips(std::int64_t finished) const;
  // Call with the number of samples in one pass of the model. Throws if the fault's limit is lower.
  void take(std::int64_t finished, std::int64_t samples) const;

 private:
  struct Armed {
    Fault fault;
    std::filesystem::path mark;  // empty: leaves no mark
  };
  bool takes_place(FaultKind kind, std::int64_t finished) const;
  static void leave_mark(const Armed& armed);
  static void strike(const Armed& armed);
  std::vector<Armed> armed_;
};

}  // namespace ddprun::trainer
