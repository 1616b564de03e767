// Checks that all ranks have the same training state. Ranks that make the same steps have the same bits. So a difference means
// that memory, a processor or a bug silently changed a state. The ranks exchange digests of weights, buffers and moments. Ranks
// outside of the majority end as corrupt. trainer/loop/train.cpp calls it at the end of a step, when all ranks have rank 0's
// buffers. trainer/life/state_source.cpp calls it when a lost rank was replaced.
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

// This rank's state differs from that of the others. It has exit code 88, like a NaN loss, but may be tried again.
class CorruptStateError : public DivergedError {
 public:
  CorruptStateError(const std::string& message, bool others_suspect)
      : DivergedError(message), others_suspect_(others_suspect) {}
  // True without a majority: it is unknown then which states are correct.
  bool others_suspect() const noexcept { return others_suspect_; }

 private:
  bool others_suspect_;
};

using StateDigest = std::array<std::int64_t, 2>;

struct StateVerdict {
  std::vector<int> corrupt;  // ranks; empty if all are equal; all ranks without a majority
  bool majority = true;
};

// Finds the ranks that differ, by the digests of all ranks. Only witnesses vote: a rank that received its state from another
// one adds no independent evidence, but is corrupt if its source is. More than half of the witnesses must agree. Pure.
StateVerdict judge_states(std::span<const StateDigest> of_ranks, std::span<const int> witnesses);

// The message of a corrupt rank. `tensors` are those of `all_tensors` that differ. Pure.
std::string corruption_text(const StateVerdict& verdict, int world, std::int64_t step, std::span<const std::string> tensors,
                            std::size_t all_tensors);

// Collective; returns if all states are equal. Otherwise throws CorruptStateError on the corrupt ranks. The others throw the
// process group's error for a lost peer once the corrupt ranks have ended. If `witnesses` is empty, all ranks are witnesses.
void compare_states(const TrainingState& state, const Peers& peers, std::vector<int> witnesses = {});

}  // namespace ddprun::trainer
