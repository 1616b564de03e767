// The ranks of a job as a grid, as in PyTorch's DeviceMesh. The sharding strategies use the grid to find the ranks of each
// collective. Code that divides the data among ranks (seeds, metrics, micro-batch weights, sampler) must use the data axis of
// the grid, not rank and world size. All ranks build the same grid. Several threads may read it. The code is pure: no I/O, no
// clock.
//
// Example: 8 ranks on 2 nodes under hybrid with shard_size 4.
//
//                     shard 0   shard 1   shard 2   shard 3
//         replica 0   rank 0    rank 1    rank 2    rank 3     the ranks of a row hold different slices of one state
//         replica 1   rank 4    rank 5    rank 6    rank 7     the ranks of a column hold the same slice
//
// With sharding, each rank still trains on its own samples of each batch. The data axis therefore combines the other two axes:
// in the example its size is 8, and the coordinate of rank 5 is 5. Tensor and pipeline parallelism are not implemented. Their
// axes would vary fastest and would not belong to the data axis, since the ranks along such an axis train on the same samples.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddprun::trainer {

// kReplica and kShard are the dimensions of the grid. kData is the flattened grid, in which the replica index varies slowest.
enum class Axis { kReplica, kShard, kData };

enum class StrategyKind { kDdp, kZero1, kZero2, kFsdp, kHybrid };

// The settings in the section "parallel" of a train.json.
struct Parallelism {
  StrategyKind strategy = StrategyKind::kDdp;
  bool mirror = true;  // a second rank also stores each slice, if there are at least two ranks and no replicas
  // Only for hybrid: the number of ranks that share one copy of the state. 0 means all ranks of a node.
  int shard_size = 0;
};

// Returns the strategy's name in a train.json.
std::string name_of(StrategyKind strategy);

class DeviceMesh {
 public:
  // Makes a grid with one row of `shard_size` ranks per replica. Throws UsageError if `shard_size` is not positive or does not
  // divide `world`, the number of ranks.
  DeviceMesh(int world, int shard_size);

  int world() const { return world_; }
  int size(Axis axis) const;
  int coordinate(Axis axis, int rank) const;
  // Returns the ranks of the row (kShard) or column (kReplica) that contains `rank`, or all ranks (kData), in ascending order.
  std::vector<int> line(Axis axis, int rank) const;
  // Returns a number N: the world size must be a multiple of N.
  int unit() const { return shard_size_; }

 private:
  int world_;
  int shard_size_;
};

// Returns the mesh of a strategy: ddp has one column; zero1, zero2 and fsdp have one row; and hybrid has one row per
// shard_size ranks. `nodes` has the node of every rank. Throws UsageError, which names the key, if shard_size is set for a
// strategy other than hybrid, is negative, or does not divide the world size. Also throws it under hybrid if shard_size is 0
// and the nodes have different numbers of ranks.
DeviceMesh mesh_of(const Parallelism& parallelism, std::span<const int> nodes);

// Returns a number N: the world size must be a multiple of N. The launcher calls this before a mesh exists. `ranks_per_node`
// is used only for hybrid without shard_size.
int world_unit(const Parallelism& parallelism, int ranks_per_node);

}  // namespace ddprun::trainer
