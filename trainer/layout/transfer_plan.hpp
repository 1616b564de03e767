// Plans which rank sends which elements to which rank, so that each rank gets its pieces of a new layout. One function serves
// four cases: a rank was lost, a gather was interrupted, the job grows or shrinks, or a checkpoint of another strategy or
// number of ranks is loaded. The code is pure: all ranks compute the same plan from the same arguments.
//
// The problem. After such a change, the tensors are cut at different elements, and each rank lacks some elements. If one rank
// sent everything, its network link would be the bottleneck. If each rank of a node received the same bytes over the network,
// or read them from disk, the node would transfer them several times.
//
// The idea. Cut each tensor at the edges of all pieces, old and new. Within each resulting range, all elements are stored on
// the same ranks and needed by the same ranks. Three rules choose the sender and the receiver of a range:
//
//  1. If a rank of the receiver's node has the range, that rank is the sender.
//  2. If no rank of that node has the range, one rank of the node receives it from another node, and sends it to the other
//     ranks of its node (hop 1). So each byte enters a node once.
//  3. Of several possible senders, the one with the fewest bytes to send so far is chosen. Of several ranks that could receive
//     a range for their node, the one with the fewest received bytes so far is chosen. Longer ranges are split into ranges of
//     at most kMaxTransfer bytes, so the loads differ by about that much.
//
// Example: zero1 with mirrors. Ranks 0 and 1 are on node A, ranks 2 and 3 on node B, and rank 3 was replaced. The new rank 3
// receives its own slice from the mirror, rank 1. It also mirrors the slice of rank 1, which it receives from rank 1. Rank 2
// is on the same node and has all other weights, so it sends these weights.
//
// A checkpoint is a source with one sender, kFromCheckpoint. Rule 2 then means that each node reads each byte once.
//
// The cost. Time and memory are proportional to the number of ranges times the number of ranks. If only one rank has a range,
// that rank sends it to each node that needs it. Forwarding from node to node in a tree would be faster, but is not
// implemented.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/layout/state_layout.hpp"

namespace ddprun::trainer {

inline constexpr int kFromCheckpoint = -1;
inline constexpr std::int64_t kMaxTransfer = std::int64_t{64} << 20;  // bytes

// The pieces of one layout, and the ranks that can send valid values of each piece.
struct StateSource {
  const StateLayout* layout = nullptr;  // must outlive the source
  // For each piece of `layout`: the ranks that can send it, numbered as in the new layout, or kFromCheckpoint.
  std::vector<std::vector<int>> holders{};
};

// Describes a rank of the former layout: its rank in the new layout, and the step of its pieces.
struct HolderProgress {
  std::optional<int> rank_now{};  // rank in the new layout; nullopt if the rank was lost or has left
  std::int64_t step = -1;         // step of all pieces of the rank; -1 if they are not usable
};

// Returns a source with the pieces of those ranks that are at `step`. `progress` has one entry for each rank of `before`.
StateSource source_at(const StateLayout& before, std::span<const HolderProgress> progress, std::int64_t step);
// Returns the largest step among the remaining ranks; -1 if no rank remains.
std::int64_t most_advanced(std::span<const HolderProgress> progress);
// Returns a source whose pieces are all in a checkpoint of layout `saved`.
StateSource source_in_checkpoint(const StateLayout& saved);

struct StateTransfer {
  std::size_t tensor = 0;  // index in the tensors of the new layout
  ElementRange range{};
  int from = 0;  // rank in the new layout, or kFromCheckpoint
  int to = 0;
  // 1 if `from` must first receive these elements in a transfer with hop 0; otherwise 0.
  int hop = 0;
  bool operator==(const StateTransfer&) const = default;
};

struct MissingElements {
  std::size_t tensor = 0;  // index in the tensors of the new layout
  ElementRange range{};
};

struct TransferPlan {
  // All transfers with hop 0, then those with hop 1. Each rank can execute its own transfers one after another in this order.
  std::vector<StateTransfer> transfers{};
  // The first elements that a rank needs but no source has; nullopt if no elements are missing. If it is set, `transfers` is
  // empty.
  std::optional<MissingElements> missing{};
};

// Plans the transfers after which each rank has its pieces of `now`. A rank that already has elements according to `sources`
// keeps them and does not receive them. Gradients are not sent. Throws UsageError, which names the tensor, if no source has a
// tensor of that name, or if its shape or type differs. `max_transfer` is in bytes.
TransferPlan plan_transfers(std::span<const StateSource> sources, const StateLayout& now,
                            std::int64_t max_transfer = kMaxTransfer);

// Plans the transfers from one former layout, where the ranks at the most advanced step are the senders. Throws UsageError,
// which names the first elements that no rank has.
std::vector<StateTransfer> plan_transfers(const StateLayout& before, std::span<const HolderProgress> progress,
                                          const StateLayout& now);

// Returns the transfers by which the ranks of `now` load a checkpoint.
std::vector<StateTransfer> plan_loading(const StateLayout& saved, const StateLayout& now);

}  // namespace ddprun::trainer
