// Detects silent corruption: compares the training states of all ranks. With data parallelism, all ranks apply the same updates
// to the same state, so their weights, buffers and moments are bit-identical. A difference means that defective memory, a
// defective processor or a bug changed the state of a rank without an error. Training would continue with wrong weights.
//
// The ranks exchange digests of their states, and the majority decides. For example, with the digests A, A, B the state of rank
// 2 is corrupt. That rank exits, and a replacement receives the state of another rank. With A, B there is no majority, so no
// state can be trusted, and all ranks exit. The cost is one pass over the state and one small exchange.
//
// trainer/loop calls compare_states() at the end of a step, when all ranks have the buffers of rank 0.
// trainer/life/state_source.cpp calls it after a lost rank was replaced.
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

// Thrown if the state of this rank is corrupt. The exit code is 88, as for a NaN loss, but here the launcher may restart the
// worker.
class CorruptStateError : public DivergedError {
 public:
  CorruptStateError(const std::string& message, bool others_suspect)
      : DivergedError(message), others_suspect_(others_suspect) {}
  // Returns true if there is no majority. It is then unknown which states are correct, so no rank may keep its state.
  bool others_suspect() const noexcept { return others_suspect_; }

 private:
  bool others_suspect_;
};

using StateDigest = std::array<std::int64_t, 2>;

struct StateVerdict {
  // Ranks whose state is wrong. Empty if all states are equal. Contains all ranks if there is no majority.
  std::vector<int> corrupt;
  bool majority = true;
};

// Finds the corrupt ranks by the digests of all ranks. `witnesses` are the ranks that vote. A rank that received its state
// from another rank must not vote, because it has no independent copy. A rank is corrupt if its digest differs from the digest
// of the majority. A majority is more than half of the witnesses. The function is pure.
StateVerdict judge_states(std::span<const StateDigest> of_ranks, std::span<const int> witnesses);

// Returns the error message for a corrupt rank. `tensors` are the names of the tensors that differ, and `all_tensors` is the
// number of tensors in the state. The function is pure.
std::string corruption_text(const StateVerdict& verdict, int world, std::int64_t step, std::span<const std::string> tensors,
                            std::size_t all_tensors);

// All ranks must call this. If the states of all ranks are equal, the call returns. If not, the corrupt ranks throw
// CorruptStateError. The other ranks wait until the corrupt ranks have exited, and then throw the process group's error for a
// lost rank. If `witnesses` is empty, all ranks vote.
void compare_states(const TrainingState& state, const Peers& peers, std::vector<int> witnesses = {});

}  // namespace ddprun::trainer
