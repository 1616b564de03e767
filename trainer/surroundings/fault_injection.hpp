// Lets the faults of common/base/fault.hpp happen in this process: the one of DDPTRAIN_FAULT, for tests, and those of a
// rehearsal (ddprun --chaos), each of which happens once in a run directory, whatever comes to its step again: a mark is left
// before it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/base/fault.hpp"

namespace ddprun::trainer {

class Faults {
 public:
  Faults() = default;
  // Keeps the fault only when it is meant for this rank and restart.
  Faults(const Fault& fault, int rank, int restart);
  // Those of a rehearsal that are meant for this rank and have left no mark in that folder, which is made.
  Faults(const std::vector<Fault>& faults, int rank, int restart, const std::filesystem::path& marks);

  // Whether anything can still happen in that phase of the step that comes after `finished` ones. Cheap.
  bool due(FaultPhase phase, std::int64_t finished) const;
  // Lets it happen if it is due; kNan and kFlip have no effect here.
  void at(FaultPhase phase, std::int64_t finished) const;
  // Whether the loss of the step after `finished` ones is to become NaN.
  bool poisons(std::int64_t finished) const;
  // Whether a bit of the weights is to change when `finished` steps are.
  bool flips(std::int64_t finished) const;
  // So many samples go through the model at once: throws when that is more than fits.
  void take(std::int64_t finished, std::int64_t samples) const;

 private:
  struct Armed {
    Fault fault;
    std::filesystem::path mark;  // empty: leaves none
  };
  bool takes_place(FaultKind kind, std::int64_t finished) const;
  static void leave_mark(const Armed& armed);
  static void strike(const Armed& armed);
  std::vector<Armed> armed_;
};

}  // namespace ddprun::trainer
