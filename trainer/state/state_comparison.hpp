// Whether all ranks hold the same training state. Ranks that do the same steps hold the same bits, so a difference means that
// something changed a state silently: memory, a processor, a bug. Digests of weights, buffers and moments are exchanged, and
// the ranks that are not with the majority end as corrupt. trainer/loop/train.cpp asks at a step's end, when rank 0's buffers
// have been sent to all; trainer/life/state_source.cpp asks when a lost rank was replaced.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/state/training_state.hpp"

namespace ddprun::trainer {

// This rank's state is not that of the others. Exit 88, but other than a loss that is not a number it may be tried again.
class CorruptStateError : public DivergedError {
 public:
  CorruptStateError(const std::string& message, bool others_suspect)
      : DivergedError(message), others_suspect_(others_suspect) {}
  // Without a majority nobody knows whose state is right.
  bool others_suspect() const noexcept { return others_suspect_; }

 private:
  bool others_suspect_;
};

using StateDigest = std::array<std::int64_t, 2>;

struct StateVerdict {
  std::vector<int> corrupt;  // ranks; empty: all are equal. Without a majority: all ranks
  bool majority = true;
};

// Who differs, by the digests of all ranks. Only witnesses have a vote: a rank that was sent its state is no second opinion on
// it, but is corrupt as its source is. More than half of them must agree. Pure.
StateVerdict judge_states(std::span<const StateDigest> of_ranks, std::span<const int> witnesses);

// For people: what rank `own` has to say for itself. `tensors`: those that differ, of `all_tensors`. Pure.
std::string corruption_text(const StateVerdict& verdict, int world, std::int64_t step, std::span<const std::string> tensors,
                            std::size_t all_tensors);

// Collective; returns when all are equal. Otherwise throws CorruptStateError on the corrupt ranks, and on the others what the
// process group throws for a lost peer, once the corrupt ones are gone. No witnesses: all are.
void compare_states(const TrainingState& state, const Peers& peers, std::vector<int> witnesses = {});

}  // namespace ddprun::trainer
