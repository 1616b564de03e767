#include "trainer/layout/state_layout.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

[[noreturn]] void broken(const std::string& rule) {
  throw InternalError("the layout of the training state is broken: " + rule);
}

void check_holder_set(const HolderSet& set, int world) {
  if (set.ranks.empty()) broken("a holder set has no rank");
  std::set<int> seen;
  for (const int rank : set.ranks) {
    if (rank < 0 || rank >= world) broken("a holder set lists rank " + std::to_string(rank));
    if (!seen.insert(rank).second) broken("a holder set lists rank " + std::to_string(rank) + " twice");
  }
}

bool listed(const HolderSet& set, int rank) {
  return std::find(set.ranks.begin(), set.ranks.end(), rank) != set.ranks.end();
}

// Returns true if each piece can still be computed after the loss of the ranks whose entry in `lost` is true. At least one rank
// must remain, since pieces that all ranks compute are not checked.
bool is_covered(const StateLayout& layout, const std::vector<bool>& lost) {
  return std::all_of(layout.holder_sets.begin(), layout.holder_sets.end(), [&](const HolderSet& set) {
    if (set.others == OtherRanks::kMake) return true;
    return std::any_of(set.ranks.begin(), set.ranks.end(), [&](int rank) { return !lost[static_cast<std::size_t>(rank)]; });
  });
}

}  // namespace

std::string name_of(StateRole role) {
  switch (role) {
    case StateRole::kParameter:
      return "parameter";
    case StateRole::kBuffer:
      return "buffer";
    case StateRole::kGradient:
      return "gradient";
    case StateRole::kOptimizer:
      return "optimizer";
    case StateRole::kAverage:
      return "average";
  }
  check_failed("a role of the state has no name");
}

std::int64_t TensorSpec::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count))
      broken("the shape of " + name + " has a negative size or too many elements");
  }
  return count;
}

std::int64_t StateLayout::bytes_of_piece(const StatePiece& piece) const {
  return piece.range.size() * bytes_of(tensor_of(piece).type);
}

bool StateLayout::makes(const StatePiece& piece, int rank) const {
  const HolderSet& set = holder_sets[piece.holders];
  return set.others == OtherRanks::kMake || listed(set, rank);
}

bool StateLayout::holds(const StatePiece& piece, int rank) const {
  const HolderSet& set = holder_sets[piece.holders];
  return set.others != OtherRanks::kHoldNothing || listed(set, rank);
}

std::vector<int> StateLayout::holders_of(const StatePiece& piece) const {
  const HolderSet& set = holder_sets[piece.holders];
  std::vector<int> all = set.ranks;
  if (set.others == OtherRanks::kHoldNothing) return all;
  std::vector<bool> has(nodes.size(), false);
  for (const int rank : set.ranks) has[static_cast<std::size_t>(rank)] = true;
  for (int rank = 0; rank < world(); ++rank) {
    if (!has[static_cast<std::size_t>(rank)]) all.push_back(rank);
  }
  return all;
}

std::optional<int> StateLayout::second_holder(const StatePiece& piece) const {
  const HolderSet& set = holder_sets[piece.holders];
  if (set.ranks.size() > 1) return set.ranks[1];
  if (set.others != OtherRanks::kMake || world() == 1) return std::nullopt;
  return set.ranks.front() == 0 ? 1 : 0;
}

void check_layout(const StateLayout& layout) {
  if (layout.nodes.empty()) broken("it has no rank");
  for (const HolderSet& set : layout.holder_sets) check_holder_set(set, layout.world());
  std::set<std::pair<StateRole, std::string>> names;
  for (const TensorSpec& tensor : layout.tensors) {
    if (!names.emplace(tensor.role, tensor.name).second) broken("two tensors have the name " + tensor.name);
  }
  std::vector<std::int64_t> covered(layout.tensors.size(), 0);
  std::size_t previous = 0;
  for (const StatePiece& piece : layout.pieces) {
    if (piece.tensor >= layout.tensors.size() || piece.holders >= layout.holder_sets.size())
      broken("a piece has an unknown index");
    const std::string text = text_of(layout.tensor_of(piece), piece.range);
    if (piece.tensor < previous) broken(text + " is listed after a piece of a later tensor");
    previous = piece.tensor;
    if (piece.range.size() <= 0) broken(text + " is an empty piece");
    if (piece.range.begin != covered[piece.tensor]) broken(text + " leaves a gap or overlaps the previous piece");
    covered[piece.tensor] = piece.range.end;
  }
  for (std::size_t i = 0; i < layout.tensors.size(); ++i) {
    if (covered[i] != layout.tensors[i].elements()) broken("the pieces of " + layout.tensors[i].name + " do not cover it");
  }
}

std::int64_t bytes_on(const StateLayout& layout, int rank) {
  std::int64_t bytes = 0;
  for (const StatePiece& piece : layout.pieces) {
    if (layout.holds(piece, rank)) bytes += layout.bytes_of_piece(piece);
  }
  return bytes;
}

std::int64_t bytes_on(const StateLayout& layout, int rank, StateRole role) {
  std::int64_t bytes = 0;
  for (const StatePiece& piece : layout.pieces) {
    if (layout.tensor_of(piece).role == role && layout.holds(piece, rank)) bytes += layout.bytes_of_piece(piece);
  }
  return bytes;
}

std::vector<std::size_t> pieces_written_by(const StateLayout& layout, int rank) {
  std::vector<std::size_t> written;
  for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
    const StatePiece& piece = layout.pieces[i];
    if (layout.tensor_of(piece).role != StateRole::kGradient && layout.first_holder(piece) == rank) written.push_back(i);
  }
  return written;
}

std::vector<ComparedPieces> compared_pieces(const StateLayout& layout) {
  std::vector<ComparedPieces> by_set(layout.holder_sets.size());
  for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
    const StatePiece& piece = layout.pieces[i];
    if (layout.tensor_of(piece).role == StateRole::kGradient) continue;
    ComparedPieces& group = by_set[piece.holders];
    if (group.pieces.empty()) group.holders = layout.holders_of(piece);
    group.pieces.push_back(i);
  }
  std::erase_if(by_set, [](const ComparedPieces& group) { return group.holders.size() < 2; });
  return by_set;
}

Coverage coverage_of(const StateLayout& layout) {
  Coverage coverage{.any_rank = layout.world() > 1, .any_node = std::set(layout.nodes.begin(), layout.nodes.end()).size() > 1};
  for (std::size_t rank = 0; rank < layout.nodes.size() && (coverage.any_rank || coverage.any_node); ++rank) {
    std::vector<bool> one(layout.nodes.size(), false);
    one[rank] = true;
    coverage.any_rank = coverage.any_rank && is_covered(layout, one);
    std::vector<bool> its_node(layout.nodes.size(), false);
    for (std::size_t i = 0; i < layout.nodes.size(); ++i) its_node[i] = layout.nodes[i] == layout.nodes[rank];
    coverage.any_node = coverage.any_node && is_covered(layout, its_node);
  }
  return coverage;
}

std::string text_of(const TensorSpec& tensor, const ElementRange& range) {
  return "elements " + std::to_string(range.begin) + " to " + std::to_string(range.end - 1) + " of " + tensor.name + " (" +
         name_of(tensor.role) + ")";
}

}  // namespace ddprun::trainer
