#include "trainer/commit/commit_rule.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.hpp"

namespace ddprun::trainer {
namespace {

// Returns true if the rank will update its pieces from `step` - 1 to `step` during this regroup, from the gradients that the
// rank has kept.
bool completes(const StepReport& report, std::int64_t step) {
  return report.place && !report.next && report.made == step - 1 && report.gradients == step;
}

// Returns true if the pieces that the rank computes will be at `step` when the transfers start.
bool has_made(const StepReport& report, std::int64_t step) {
  return report.made == step || completes(report, step);
}

std::int64_t last_agreed(std::span<const StepReport> reports) {
  std::int64_t last = kNoStep;
  for (const StepReport& report : reports) last = std::max(last, report.agreed);
  return last;
}

// Returns the rank with the newest agreed values. Prefers a rank that has evaluated this step, because that rank sends the
// result of the evaluation with the values. If another rank sent the values, the result would be lost.
int source_of_values(std::span<const StepReport> reports) {
  const auto best = std::max_element(reports.begin(), reports.end(), [](const StepReport& a, const StepReport& b) {
    return std::pair(a.agreed, a.evaluated) < std::pair(b.agreed, b.evaluated);
  });
  return static_cast<int>(best - reports.begin());
}

// Adds the rank as a source of each piece of layout `layout_number` that the rank will have at `step`.
void add_pieces(StateSource& source, const StepReport& report, int rank, std::int64_t step, std::int64_t layout_number) {
  const StateLayout& layout = *source.layout;
  const bool is_next = report.next && report.next->layout_number == layout_number;
  const bool is_place = report.place && report.place->layout_number == layout_number;
  if (!is_next && !is_place) return;
  const int rank_there = is_next ? report.next->rank : report.place->rank;
  const bool makes = is_next ? report.agreed == step : has_made(report, step);
  const bool receives = is_next ? report.agreed == step : report.received == step;
  for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
    const StatePiece& piece = layout.pieces[i];
    const bool has = layout.makes(piece, rank_there) ? makes : receives && layout.holds(piece, rank_there);
    if (has) source.holders[i].push_back(rank);
  }
}

std::vector<StateSource> sources_of(std::span<const StepReport> reports, std::span<const NumberedLayout> known,
                                    std::int64_t step) {
  std::vector<StateSource> sources;
  for (const NumberedLayout& one : known) {
    StateSource& source = sources.emplace_back(StateSource{.layout = one.layout});
    source.holders.resize(one.layout->pieces.size());
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      add_pieces(source, reports[rank], static_cast<int>(rank), step, one.layout_number);
    }
  }
  return sources;
}

void require_known(std::span<const StepReport> reports, std::span<const NumberedLayout> known) {
  for (const StepReport& report : reports) {
    for (const std::optional<LayoutPlace>& place : {report.place, report.next}) {
      const bool is_known = !place || std::any_of(known.begin(), known.end(), [&](const NumberedLayout& one) {
        return one.layout_number == place->layout_number && place->rank >= 0 && place->rank < one.layout->world();
      });
      check(is_known, "a step report contains an unknown layout");
    }
  }
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

// Returns the reason for a kCheckpoint decision: the missing elements, and the lost ranks that had them. These ranks are taken
// from the newest layout that a survivor reports.
std::string reason_text(const TensorSpec& tensor, const ElementRange& range, std::span<const StepReport> reports,
                        std::span<const NumberedLayout> known, std::int64_t step) {
  std::int64_t newest = -1;
  for (const StepReport& report : reports) {
    if (report.place) newest = std::max(newest, report.place->layout_number);
  }
  std::string text = "no remaining rank has " + text_of(tensor, range) + " at step " + std::to_string(step);
  for (const NumberedLayout& one : known) {
    if (one.layout_number != newest) continue;
    for (const StatePiece& piece : one.layout->pieces) {
      const TensorSpec& its = one.layout->tensor_of(piece);
      if (its.role != tensor.role || its.name != tensor.name || piece.range.begin > range.begin ||
          piece.range.end < range.end) {
        continue;
      }
      const HolderSet& set = one.layout->holder_sets[piece.holders];
      return text +
             (set.others == OtherRanks::kMake ? ", which every rank had" : ", which only " + ranks_text(set.ranks) + " had");
    }
  }
  return text;
}

}  // namespace

CommitDecision decide_commit(std::span<const StepReport> reports, std::span<const NumberedLayout> known,
                             const StateLayout& now) {
  check(reports.size() == now.nodes.size(), "expected one step report for each rank of the new group");
  require_known(reports, known);
  const std::int64_t step = last_agreed(reports);
  const bool any_place =
      std::any_of(reports.begin(), reports.end(), [](const StepReport& one) { return one.place.has_value(); });
  if (step == kNoStep || !any_place) return {.reason = "no remaining rank has a training state"};

  const std::vector<StateSource> sources = sources_of(reports, known, step);
  TransferPlan plan = plan_transfers(sources, now);
  if (plan.missing) {
    return {.reason = reason_text(now.tensors[plan.missing->tensor], plan.missing->range, reports, known, step)};
  }

  CommitDecision decision{.outcome = CommitOutcome::kReturn, .step = step, .values_from = source_of_values(reports)};
  const StepReport& best = reports[static_cast<std::size_t>(decision.values_from)];
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const StepReport& report = reports[i];
    const int rank = static_cast<int>(i);
    if (report.agreed < step || report.evaluated < best.evaluated) decision.values_to.push_back(rank);
    const bool is_behind = report.place && !report.next && report.made == step - 1;
    if (!is_behind) continue;
    decision.outcome = CommitOutcome::kComplete;
    (completes(report, step) ? decision.complete : decision.receive_aside).push_back(rank);
  }
  decision.transfers = std::move(plan.transfers);
  return decision;
}

}  // namespace ddprun::trainer
