// The layout of a training state: which rank stores which elements of which tensor. Ranks never send a layout to each other:
// all ranks compute the same layout from the same shapes, mesh and nodes. After a rank was lost, they can also compute the
// former layout. The code that sends, loads, saves or compares the state takes the list of pieces from the layout.
// strategy_layout.hpp computes the layouts of the sharding strategies. transfer_plan.hpp plans the transfers from one layout to
// another. Several threads may read a layout. The code is pure: no I/O, no clock.
//
// The problem. Code that assumes that each rank stores every tensor in full must change for each new sharding strategy. Code
// that iterates over a list of pieces stays the same.
//
// The idea. A tensor is cut into pieces, and each piece has holders: the ranks that store it. A piece is a range of elements of
// the flattened tensor. Example: zero1 on 3 ranks with mirrors, and a weight of shape [5, 2]. The first holder of a piece is
// its owner, and the second is its mirror:
//
//     tensor                role         elements   first   second   other ranks
//     fc.weight             parameter    0 to 3     0       1        receive it after each update
//     fc.weight             parameter    4 to 7     1       2        receive it after each update
//     fc.weight             parameter    8 to 9     2       0        receive it after each update
//     fc.weight.exp_avg     optimizer    0 to 3     0       1        hold nothing
//     ...
//
// Makers and receivers. A rank makes a piece if it computes the new values of the piece itself in each step. A rank receives a
// piece if the makers send it the new values after each update. The layout distinguishes the two, because only a maker can
// complete a piece after an interrupted step (trainer/commit/commit_rule.hpp).
//
// Why pieces are ranges of flattened elements and not rows. A collective needs slices of equal size in one buffer, but the
// number of rows is rarely a multiple of the number of ranks. A tensor of shape [10, 4096] on 8 ranks would be padded to 16
// rows, which needs 60 % more memory. Checkpoints (trainer/checkpoint/pieces.hpp) also store ranges of flattened elements, and
// the fused optimizers work element by element. For an optimizer that needs whole matrices, each piece would be a whole matrix
// on one rank. The same list can express this.
//
// Sizes that are not multiples of the number of ranks. The buffers of a strategy are padded (FlatBlock in strategy_layout.hpp).
// The padding is not part of the state: no piece contains it, and it is neither sent nor saved.
//
// Not implemented: parity instead of mirrors. Parity would be another HolderSet, whose ranks store the parity of several
// pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/layout/element_type.hpp"

namespace ddprun::trainer {

// Gradients exist only during a step, so they are not sent, saved or compared. The layout has pieces for them, because
// bytes_on() counts their memory.
enum class StateRole { kParameter, kBuffer, kGradient, kOptimizer, kAverage };

std::string name_of(StateRole role);

// The elements from `begin` to `end` - 1 of a flattened tensor.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

struct TensorSpec {
  std::string name;  // unique within its role
  StateRole role = StateRole::kParameter;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape{};  // shape of the whole tensor; empty for a scalar
  std::int64_t elements() const;
  bool operator==(const TensorSpec&) const = default;
};

// The role of those ranks that HolderSet::ranks does not list.
enum class OtherRanks {
  kHoldNothing,
  kReceive,  // they store the piece; the ranks in HolderSet::ranks send its new values in each step
  kMake,     // they store the piece and compute its new values themselves
};

struct HolderSet {
  std::vector<int> ranks;  // the ranks that compute the piece, with the owner first
  OtherRanks others = OtherRanks::kHoldNothing;
  bool operator==(const HolderSet&) const = default;
};

struct StatePiece {
  std::size_t tensor = 0;  // index in StateLayout::tensors
  ElementRange range{};
  std::size_t holders = 0;  // index in StateLayout::holder_sets; several pieces can have the same set
  bool operator==(const StatePiece&) const = default;
};

struct StateLayout {
  std::vector<int> nodes;  // node of each rank; the size is the number of ranks
  std::vector<TensorSpec> tensors{};
  std::vector<HolderSet> holder_sets{};
  std::vector<StatePiece> pieces{};  // sorted by tensor, then by element; no piece is empty

  int world() const { return static_cast<int>(nodes.size()); }
  const TensorSpec& tensor_of(const StatePiece& piece) const { return tensors[piece.tensor]; }
  std::int64_t bytes_of_piece(const StatePiece& piece) const;
  bool makes(const StatePiece& piece, int rank) const;
  bool holds(const StatePiece& piece, int rank) const;
  // Returns all ranks that store the piece: first the ranks in HolderSet::ranks, in their order, then the other ranks.
  std::vector<int> holders_of(const StatePiece& piece) const;
  // Returns the owner of the piece, which writes it to a checkpoint.
  int first_holder(const StatePiece& piece) const { return holder_sets[piece.holders].ranks.front(); }
  // Returns the second rank that computes the piece; nullopt if only the owner computes it.
  std::optional<int> second_holder(const StatePiece& piece) const;
  bool operator==(const StateLayout&) const = default;
};

// Throws InternalError, which names the violated rule, unless all of these rules hold:
//  - The pieces of a tensor cover each of its elements exactly once, in ascending order.
//  - Tensor names are unique within a role.
//  - Each holder set lists at least one rank, no rank twice, and only ranks below the world size.
void check_layout(const StateLayout& layout);

// These functions return the bytes that a rank stores, for all roles or for one role. Padding is not counted. The table in
// strategy_layout.hpp lists the results for fp32 AdamW.
std::int64_t bytes_on(const StateLayout& layout, int rank);
std::int64_t bytes_on(const StateLayout& layout, int rank, StateRole role);

// Returns the pieces that this rank writes to a checkpoint, as indices in StateLayout::pieces. These are the pieces of which
// this rank is the first holder, except gradients.
std::vector<std::size_t> pieces_written_by(const StateLayout& layout, int rank);

// Pieces that the same ranks store. These ranks must have identical values. To check this, they compare one digest over all of
// these pieces (trainer/state/state_comparison.hpp).
struct ComparedPieces {
  std::vector<int> holders;  // the ranks that store these pieces; at least two
  std::vector<std::size_t> pieces{};
};
std::vector<ComparedPieces> compared_pieces(const StateLayout& layout);

// Describes which ranks can be lost at the same time so that no checkpoint must be loaded. The job continues without a
// checkpoint if each piece still has a rank that computes it.
struct Coverage {
  bool any_rank = false;  // true if the job survives the loss of any single rank
  bool any_node = false;  // true if the job survives the loss of any single node with all its ranks; false on one node
  bool operator==(const Coverage&) const = default;
};
Coverage coverage_of(const StateLayout& layout);

// Returns a text for messages, such as "elements 4 to 7 of fc.weight (parameter)".
std::string text_of(const TensorSpec& tensor, const ElementRange& range);

}  // namespace ddprun::trainer
