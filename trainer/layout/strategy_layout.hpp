// The layouts of the sharding strategies: which rank computes, receives and stores which slice of a model's state (see
// state_layout.hpp). `ddprun plan` computes a layout from names and shapes, without a model. The code is pure: no I/O, no
// clock.
//
// The problem. A slice must be one contiguous range of a buffer, so that a collective needs no copy. The tensors of the model
// must still be accessible by name, even if they are frozen or tied, or have mixed types or low-rank updates. The size of a
// tensor is rarely a multiple of the number of ranks.
//
// The idea. The tensors of a block, such as one transformer layer, lie in one flat buffer, which is cut into equal chunks. A
// block has a separate buffer for each element type, and separate buffers for trained and frozen tensors. Each tensor starts
// at a multiple of 64 bytes, like memory from LibTorch. Kernels select code paths by alignment, so a different alignment could
// change the bits of a result. Example: two float tensors of 20 and 30 elements on 2 ranks.
//
//     flat buffer   | a: 0 to 19 | padding: 20 to 31 | b: 32 to 61 | padding: 62 to 63 |
//     chunks        | rank 0: 0 to 31                | rank 1: 32 to 63                |
//     pieces        rank 0 owns elements 0 to 19 of a, rank 1 owns elements 0 to 29 of b
//
// Gradients, optimizer state and averages are cut at the same elements as their parameters. A rank can therefore update its
// slice without values from other ranks.
//
// Mirrors. Each rank also computes the slice of one other rank, so the loss of a single rank loses no step. Each rank mirrors
// exactly one slice, so all ranks have the same additional work. The ranks are sorted by node, and the mirror of a rank is N
// positions later, where N is the number of ranks on the largest node. If no node has more than half of the ranks, each mirror
// is then on a different node from its owner. Otherwise some mirrors are on the node of their owner, and coverage_of() reports
// that. On one node the mirror is the next rank. Hybrid has no mirrors if it has several replicas, which are the second
// holders.
//
// If one node has more than half of the ranks, a rank on another node could mirror several slices, so that the loss of any node
// is covered. That rank would need more memory than the others. We do not do this, because the rank that needs the most memory
// limits the size of the model.
//
// The cost. Bytes on each rank for fp32 AdamW, P parameters and W ranks. The table excludes padding, the gathered block of fsdp
// and the bucket of zero2, because these are not state.
//
//     strategy   without mirror    the mirror adds
//     ddp        16 P
//     zero1       8 P +  8 P / W    8 P / W
//     zero2       4 P + 12 P / W   12 P / W
//     fsdp               16 P / W  12 P / W + 4 P / W for its gradients
//     hybrid             16 P / S                      S: shard_size
//
// Parameters, gradients, and each of the two moments take 4 P bytes. Sources: ZeRO (arXiv:1910.02054, section 5), FSDP
// (arXiv:2304.11277). The padding of a block is at most 64 bytes for each tensor and each rank.
//
// Alternative considered: cut each tensor by rows, as FSDP2 does. state_layout.hpp explains why this needs more memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/layout/device_mesh.hpp"
#include "trainer/layout/state_layout.hpp"

namespace ddprun::trainer {

struct ModelTensor {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape{};
  // number of the block to which the tensor belongs; the tensors of a block are gathered, reduced and released together
  int block = 0;
  bool is_buffer = false;  // true for a buffer, which every rank stores and computes
  bool trained = true;     // false for a frozen parameter, which has no gradient, no optimizer state and no average
};

// A tensor that the optimizer keeps for each trained parameter. The tensor is called "<parameter>.<field>".
struct OptimizerField {
  std::string name;                   // PyTorch's name, for example "exp_avg"
  std::optional<ElementType> type{};  // nullopt means the type of the parameter
  bool is_scalar = false;             // true for a tensor with one element, such as "step": every rank stores and computes it
};

struct ModelShapes {
  std::vector<ModelTensor> tensors{};       // in the model's order; a tied parameter is listed only under its first name
  std::vector<OptimizerField> optimizer{};  // for AdamW: exp_avg, exp_avg_sq and step
  bool average = false;  // true if the state has an average of each trained parameter, with the parameter's type
};

inline constexpr std::int64_t kFlatAlignment = 64;  // bytes

struct FlatTensor {
  std::size_t tensor = 0;   // index in ModelShapes::tensors
  std::int64_t offset = 0;  // index of the tensor's first element in the buffer
};

// One flat buffer. Of the `shards` ranks, rank i owns elements i * chunk to (i + 1) * chunk - 1 of the buffer, padding
// included.
struct FlatBlock {
  int block = 0;
  ElementType type = ElementType::kF32;
  bool trained = true;
  std::vector<FlatTensor> tensors{};
  std::int64_t chunk = 0;     // size of a chunk in elements; a multiple of the alignment
  std::int64_t elements = 0;  // size of the buffer: chunk * shards
};

// Returns the flat buffers of a model's parameters, in the order of their first tensors. `alignment` is in bytes, and must be a
// multiple of the size of each element type. Throws InternalError if `shards` or `alignment` is not positive.
std::vector<FlatBlock> flat_blocks(const ModelShapes& shapes, int shards, std::int64_t alignment = kFlatAlignment);

// Returns the mirror of each rank: the second rank that computes the same slice. `nodes` has the node of each rank, for at
// least two ranks.
std::vector<int> mirrors_of(std::span<const int> nodes);

// Returns the layout of a strategy. `mesh` must be the result of mesh_of() for the same nodes. The order of the tensors is:
// parameters, buffers, gradients, optimizer, averages. Throws UsageError if two parameters or two buffers have the same name.
// Only tests set `alignment`.
StateLayout layout_of(const ModelShapes& shapes, const Parallelism& parallelism, const DeviceMesh& mesh,
                      std::span<const int> nodes, std::int64_t alignment = kFlatAlignment);

}  // namespace ddprun::trainer
