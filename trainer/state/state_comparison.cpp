// Implementation of state_comparison.hpp. Each rank first sends one digest of its whole state. If these digests differ, the
// ranks also send a digest of each tensor, to find the tensors that differ.
#include "trainer/state/state_comparison.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

#include "trainer/parallel/state_digest.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::size_t kTensorsShown = 3;

std::vector<NamedTensor> compared_tensors(const TrainingState& state) {
  std::vector<NamedTensor> tensors;
  for (StateTensor& one : state_map(state)) {
    if (one.role == StateTensor::Role::kOptimizer) one.entry.name = "optimizer's " + one.entry.name;
    if (one.role == StateTensor::Role::kAverage) one.entry.name = "average's " + one.entry.name;
    tensors.push_back(std::move(one.entry));
  }
  for (const auto& [name, value] : state.values) tensors.push_back({name, at::scalar_tensor(value, at::kDouble)});
  return tensors;
}

StateDigest digest_of(const std::vector<NamedTensor>& tensors) {
  std::vector<at::Tensor> plain;
  for (const NamedTensor& entry : tensors) plain.push_back(entry.tensor);
  const auto halves = state_digest(plain);
  return {halves.at(0), halves.at(1)};
}

std::vector<StateDigest> digests_of_all(const StateDigest& own, const Peers& peers) {
  const std::vector<std::int64_t> halves = peers.from_all(own);
  std::vector<StateDigest> digests;
  for (std::size_t i = 0; i < halves.size(); i += 2) digests.push_back({halves[i], halves[i + 1]});
  return digests;
}

// All ranks must call this. Returns the names of the tensors that differ between ranks. A digest is equal on all ranks if its
// minimum equals its maximum. One exchange of minima yields both: ~ reverses the order, so the maximum is ~ of the minimum of
// ~digest.
std::vector<std::string> differing(const std::vector<NamedTensor>& tensors, const Peers& peers) {
  std::vector<std::int64_t> extremes;
  for (const NamedTensor& entry : tensors) {
    const std::int64_t digest = state_digest({entry.tensor}).back();
    extremes.insert(extremes.end(), {digest, ~digest});
  }
  peers.smallest_of_each(extremes);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (extremes[2 * i] != ~extremes[2 * i + 1]) names.push_back(tensors[i].name);
  }
  return names;
}

std::string all_ranks(int world) {
  if (world == 2) return "ranks 0 and 1";
  return "ranks 0 to " + std::to_string(world - 1);
}

}  // namespace

StateVerdict judge_states(std::span<const StateDigest> of_ranks, std::span<const int> witnesses) {
  std::map<StateDigest, std::size_t> votes;
  for (const int rank : witnesses) ++votes[of_ranks[static_cast<std::size_t>(rank)]];
  const auto most =
      std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  StateVerdict verdict;
  verdict.majority = most != votes.end() && 2 * most->second > witnesses.size();
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (!verdict.majority || of_ranks[rank] != most->first) verdict.corrupt.push_back(static_cast<int>(rank));
  }
  return verdict;
}

std::string corruption_text(const StateVerdict& verdict, int world, std::int64_t step, std::span<const std::string> tensors,
                            std::size_t all_tensors) {
  std::string where;
  for (std::size_t i = 0; i < std::min(tensors.size(), kTensorsShown); ++i) where += (i > 0 ? ", " : "") + tensors[i];
  if (tensors.size() > kTensorsShown) where += ", ...";
  where = " (" + std::to_string(tensors.size()) + " of " + std::to_string(all_tensors) + " tensors: " + where + ")";
  const std::string after = "after step " + std::to_string(step);
  if (!verdict.majority) {
    return "the training states of " + all_ranks(world) + " differ " + after + where +
           " although all ranks computed the same steps: a memory or processor error has silently changed one of them. The "
           "correct state is unknown, so none is kept";
  }
  const auto others = static_cast<std::size_t>(world) - verdict.corrupt.size();
  return "the training state of this rank differs " + after + " from that of " + std::to_string(others) + " other " +
         (others == 1 ? "rank" : "ranks") + where +
         " although all ranks computed the same steps: a memory or processor error on this machine has silently changed it";
}

void compare_states(const TrainingState& state, const Peers& peers, std::vector<int> witnesses) {
  if (peers.world() == 1) return;
  const at::NoGradGuard no_gradients;
  if (witnesses.empty()) {
    witnesses.resize(static_cast<std::size_t>(peers.world()));
    std::iota(witnesses.begin(), witnesses.end(), 0);
  }
  const std::vector<NamedTensor> tensors = compared_tensors(state);
  const StateVerdict verdict = judge_states(digests_of_all(digest_of(tensors), peers), witnesses);
  if (verdict.corrupt.empty()) return;

  const std::vector<std::string> names = differing(tensors, peers);
  if (std::find(verdict.corrupt.begin(), verdict.corrupt.end(), peers.rank()) != verdict.corrupt.end()) {
    throw CorruptStateError(corruption_text(verdict, peers.world(), state.step, names, tensors.size()), !verdict.majority);
  }
  // The corrupt ranks have exited without calling barrier(). So barrier() throws the error for a lost rank here.
  peers.barrier();
  throw InternalError("a rank whose state is corrupt continued after step " + std::to_string(state.step));
}

}  // namespace ddprun::trainer
