#include "trainer/layout/transfer_plan.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

std::string shape_text(const TensorSpec& tensor) {
  std::string text = std::string(name_of(tensor.type)) + " [";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  return text + "]";
}

// A piece in a source of the transfers. `holders` are the ranks that can send the piece.
struct HeldPiece {
  ElementRange range{};
  const std::vector<int>* holders = nullptr;
};

// The pieces of all sources, grouped by the tensors of the new layout.
class HeldPieces {
 public:
  HeldPieces(std::span<const StateSource> sources, const StateLayout& now) : by_tensor_(now.tensors.size()) {
    std::map<std::pair<StateRole, std::string>, std::size_t> index;
    for (std::size_t i = 0; i < now.tensors.size(); ++i) index.emplace(std::pair{now.tensors[i].role, now.tensors[i].name}, i);
    std::vector<bool> known(now.tensors.size(), false);
    for (const StateSource& source : sources) {
      const StateLayout& layout = *source.layout;
      check(source.holders.size() == layout.pieces.size(),
            "a state source does not list the holders of each piece in its layout");
      std::vector<std::optional<std::size_t>> in_now;
      for (const TensorSpec& tensor : layout.tensors) {
        const auto found = index.find({tensor.role, tensor.name});
        in_now.push_back(found == index.end() ? std::nullopt : std::optional(found->second));
        if (found == index.end()) continue;
        require_same(tensor, now.tensors[found->second]);
        known[found->second] = true;
      }
      for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
        const StatePiece& piece = layout.pieces[i];
        if (const auto tensor = in_now[piece.tensor]) by_tensor_[*tensor].push_back({piece.range, &source.holders[i]});
      }
    }
    for (std::size_t i = 0; i < known.size(); ++i) {
      const TensorSpec& tensor = now.tensors[i];
      if (known[i] || tensor.role == StateRole::kGradient || tensor.elements() == 0) continue;
      throw UsageError("the saved or received training state has no " + name_of(tensor.role) + " named '" + tensor.name +
                       "'; expected " + shape_text(tensor) + ". The state belongs to another model or optimizer");
    }
  }

  // Returns the ends of the range, and the edges of source pieces within it, in ascending order. Within each interval, all
  // elements have the same holders.
  std::vector<std::int64_t> edges(std::size_t tensor, const ElementRange& range) const {
    std::vector<std::int64_t> edges{range.begin, range.end};
    for (const HeldPiece& held : by_tensor_[tensor]) {
      for (const std::int64_t edge : {held.range.begin, held.range.end}) {
        if (edge > range.begin && edge < range.end) edges.push_back(edge);
      }
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    return edges;
  }

  // Returns the ranks that can send a range, in ascending order. No edge of a source piece may lie within the range.
  std::vector<int> holders(std::size_t tensor, const ElementRange& range) const {
    std::vector<int> all;
    for (const HeldPiece& held : by_tensor_[tensor]) {
      if (held.range.begin > range.begin || held.range.end < range.end) continue;
      all.insert(all.end(), held.holders->begin(), held.holders->end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

 private:
  static void require_same(const TensorSpec& before, const TensorSpec& now) {
    if (before.shape == now.shape && before.type == now.type) return;
    throw UsageError("the saved or received training state has the " + name_of(now.role) + " '" + now.name + "' as " +
                     shape_text(before) + "; expected " + shape_text(now) + ". The state belongs to another model");
  }

  std::vector<std::vector<HeldPiece>> by_tensor_;
};

// Chooses senders and receivers by the rules at the top of transfer_plan.hpp.
class Planner {
 public:
  explicit Planner(const StateLayout& now) : now_(now), sent_(now.nodes.size(), 0), entered_(now.nodes.size(), 0) {}

  void send(std::size_t tensor, const ElementRange& range, const std::vector<int>& holders, const std::vector<int>& needing) {
    bytes_ = range.size() * bytes_of(now_.tensors[tensor].type);
    std::map<int, std::vector<int>> by_node;
    for (const int rank : needing) by_node[node_of(rank)].push_back(rank);
    for (const auto& [node, ranks] : by_node) {
      std::vector<int> local;
      for (const int rank : holders) {
        if (rank != kFromCheckpoint && node_of(rank) == node) local.push_back(rank);
      }
      if (!local.empty()) {
        for (const int rank : ranks) add(tensor, range, least(local, sent_), rank, 0);
        continue;
      }
      const int entry = least(ranks, entered_);
      add(tensor, range, holders.front() == kFromCheckpoint ? kFromCheckpoint : least(holders, sent_), entry, 0);
      entered_[static_cast<std::size_t>(entry)] += bytes_;
      for (const int rank : ranks) {
        if (rank != entry) add(tensor, range, entry, rank, 1);
      }
    }
  }

  std::vector<StateTransfer> take() && {
    std::stable_sort(transfers_.begin(), transfers_.end(), [](const auto& a, const auto& b) { return a.hop < b.hop; });
    return std::move(transfers_);
  }

 private:
  int node_of(int rank) const { return now_.nodes[static_cast<std::size_t>(rank)]; }

  static int least(const std::vector<int>& ranks, const std::vector<std::int64_t>& loads) {
    const auto load = [&](int rank) { return std::pair(loads[static_cast<std::size_t>(rank)], rank); };
    return *std::min_element(ranks.begin(), ranks.end(), [&](int a, int b) { return load(a) < load(b); });
  }

  void add(std::size_t tensor, const ElementRange& range, int from, int to, int hop) {
    transfers_.push_back({.tensor = tensor, .range = range, .from = from, .to = to, .hop = hop});
    if (from != kFromCheckpoint) sent_[static_cast<std::size_t>(from)] += bytes_;
  }

  const StateLayout& now_;
  std::vector<std::int64_t> sent_;     // bytes that each rank sends; indexed by rank
  std::vector<std::int64_t> entered_;  // bytes that each rank receives from outside its node; indexed by rank
  std::int64_t bytes_ = 0;             // number of bytes of the range that send() currently plans
  std::vector<StateTransfer> transfers_;
};

// Returns the ranks of `holders_now` that do not have the elements yet. `have` is sorted.
std::vector<int> ranks_without(const std::vector<int>& holders_now, const std::vector<int>& have) {
  std::vector<int> needing;
  for (const int rank : holders_now) {
    if (!std::binary_search(have.begin(), have.end(), rank)) needing.push_back(rank);
  }
  return needing;
}

std::vector<StateTransfer> complete_plan(const StateSource& source, const StateLayout& now) {
  TransferPlan plan = plan_transfers(std::span(&source, 1), now);
  if (plan.missing) {
    throw UsageError("no rank and no file has " + text_of(now.tensors[plan.missing->tensor], plan.missing->range));
  }
  return std::move(plan.transfers);
}

}  // namespace

StateSource source_at(const StateLayout& before, std::span<const HolderProgress> progress, std::int64_t step) {
  check(progress.size() == before.nodes.size(), "expected one progress report for each rank of the previous layout");
  StateSource source{.layout = &before};
  for (const StatePiece& piece : before.pieces) {
    std::vector<int>& holders = source.holders.emplace_back();
    for (const int rank : before.holders_of(piece)) {
      const HolderProgress& its = progress[static_cast<std::size_t>(rank)];
      if (its.rank_now && its.step == step && step >= 0) holders.push_back(*its.rank_now);
    }
  }
  return source;
}

std::int64_t most_advanced(std::span<const HolderProgress> progress) {
  std::int64_t most = -1;
  for (const HolderProgress& its : progress) {
    if (its.rank_now) most = std::max(most, its.step);
  }
  return most;
}

StateSource source_in_checkpoint(const StateLayout& saved) {
  return {.layout = &saved, .holders = std::vector(saved.pieces.size(), std::vector{kFromCheckpoint})};
}

TransferPlan plan_transfers(std::span<const StateSource> sources, const StateLayout& now, std::int64_t max_transfer) {
  const HeldPieces held(sources, now);
  Planner planner(now);
  for (const StatePiece& piece : now.pieces) {
    const TensorSpec& tensor = now.tensor_of(piece);
    if (tensor.role == StateRole::kGradient) continue;
    const std::vector<int> holders_now = now.holders_of(piece);
    const std::int64_t longest = std::max<std::int64_t>(1, max_transfer / bytes_of(tensor.type));
    const std::vector<std::int64_t> edges = held.edges(piece.tensor, piece.range);
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
      const std::vector<int> have = held.holders(piece.tensor, {edges[i], edges[i + 1]});
      const std::vector<int> needing = ranks_without(holders_now, have);
      if (needing.empty()) continue;
      if (have.empty()) return {.missing = MissingElements{piece.tensor, {edges[i], edges[i + 1]}}};
      for (std::int64_t begin = edges[i]; begin < edges[i + 1]; begin += longest) {
        planner.send(piece.tensor, {begin, std::min(begin + longest, edges[i + 1])}, have, needing);
      }
    }
  }
  return {.transfers = std::move(planner).take()};
}

std::vector<StateTransfer> plan_transfers(const StateLayout& before, std::span<const HolderProgress> progress,
                                          const StateLayout& now) {
  return complete_plan(source_at(before, progress, most_advanced(progress)), now);
}

std::vector<StateTransfer> plan_loading(const StateLayout& saved, const StateLayout& now) {
  return complete_plan(source_in_checkpoint(saved), now);
}

}  // namespace ddprun::trainer
