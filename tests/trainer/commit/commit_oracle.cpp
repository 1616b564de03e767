#include "tests/trainer/commit/commit_oracle.hpp"

#include <algorithm>

namespace ddprun::trainer::simulation {
namespace {

// Returns the newest step that must not be lost, according to the state of this rank. This is the step for which the rank has
// the agreed values (gradient norm, learning rate). If gradients are not kept, this is the last step whose update the rank has
// finished.
std::int64_t committed_on(const World& world, const SimulatedRank& rank) {
  return world.keeps_gradients || rank.truth().next ? rank.agreed().step : rank.truth().made;
}

// Returns true if the rank can provide its own pieces of the state at step `step`: it has these pieces at that step, or it can
// complete the step from its gradients.
bool can_make(const World& world, const SimulatedRank::Truth& truth, std::int64_t step) {
  return truth.made == step || (world.keeps_gradients && truth.made == step - 1 && truth.gradients == step);
}

bool listed_in(const StateLayout& layout, const LayoutPlace& place, std::size_t tensor, std::int64_t element,
               bool makers_only) {
  for (const StatePiece& piece : layout.pieces) {
    if (piece.tensor != tensor || element < piece.range.begin || element >= piece.range.end) continue;
    return makers_only ? layout.makes(piece, place.rank) : layout.holds(piece, place.rank);
  }
  return false;
}

bool has_element(const World& world, const SimulatedRank& rank, std::size_t tensor, std::int64_t element, std::int64_t step) {
  const SimulatedRank::Truth& truth = rank.truth();
  if (truth.place && can_make(world, truth, step)) {
    const StateLayout& layout = *world.layouts[static_cast<std::size_t>(truth.place->layout_number)];
    if (listed_in(layout, *truth.place, tensor, element, /*makers_only=*/true)) return true;
  }
  if (!truth.next || rank.agreed().step != step) return false;
  const StateLayout& layout = *world.layouts[static_cast<std::size_t>(truth.next->layout_number)];
  return listed_in(layout, *truth.next, tensor, element, /*makers_only=*/false);
}

bool every_element_has_a_holder(const World& world, const std::vector<std::unique_ptr<SimulatedRank>>& ranks,
                                std::int64_t step) {
  const std::vector<TensorSpec>& tensors = world.model->tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].role == StateRole::kGradient) continue;
    for (std::int64_t element = 0; element < tensors[i].elements(); ++element) {
      const bool held = std::any_of(ranks.begin(), ranks.end(),
                                    [&](const auto& rank) { return has_element(world, *rank, i, element, step); });
      if (!held) return false;
    }
  }
  return true;
}

}  // namespace

void judge_decision(World& world, const std::vector<std::unique_ptr<SimulatedRank>>& ranks, const CommitDecision& decision) {
  if (!world.violation.empty()) return;
  std::int64_t step = kNoStep;
  for (const auto& rank : ranks) step = std::max(step, committed_on(world, *rank));
  if (decision.outcome == CommitOutcome::kCheckpoint) {
    if (step != kNoStep && every_element_has_a_holder(world, ranks, step)) {
      world.violation = "returns to the checkpoint, although each element of step " + std::to_string(step) +
                        " has a holder: " + decision.reason;
    }
    return;
  }
  if (decision.step != step) {
    world.violation =
        "continues after step " + std::to_string(decision.step) + ", but step " + std::to_string(step) + " is committed";
    return;
  }
  const auto evaluated = [&](const SimulatedRank& rank) { return rank.agreed().step == step && rank.agreed().evaluated; };
  const bool any_evaluated = std::any_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return evaluated(*rank); });
  for (std::size_t i = 0; i < ranks.size() && any_evaluated; ++i) {
    const bool gets_it = std::count(decision.values_to.begin(), decision.values_to.end(), static_cast<int>(i)) > 0;
    if (evaluated(*ranks[i]) || gets_it) continue;
    world.violation = "rank " + std::to_string(i) + " does not get the evaluation after step " + std::to_string(step);
  }
}

}  // namespace ddprun::trainer::simulation
