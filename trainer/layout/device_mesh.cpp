#include "trainer/layout/device_mesh.hpp"

#include <algorithm>
#include <map>

#include "common/base/check.hpp"
#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

// Returns the number of ranks per node. Throws UsageError if it differs between nodes.
int ranks_of_each_node(std::span<const int> nodes) {
  std::map<int, int> counts;
  for (const int node : nodes) ++counts[node];
  const auto [least, most] =
      std::minmax_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (least->second != most->second) {
    throw UsageError("\"parallel.strategy\": \"hybrid\" shards the state inside each node, but one node has " +
                     std::to_string(least->second) + " workers and another has " + std::to_string(most->second) +
                     "; set \"parallel.shard_size\" to a divisor of both");
  }
  return most->second;
}

}  // namespace

std::string name_of(StrategyKind strategy) {
  switch (strategy) {
    case StrategyKind::kDdp:
      return "ddp";
    case StrategyKind::kZero1:
      return "zero1";
    case StrategyKind::kZero2:
      return "zero2";
    case StrategyKind::kFsdp:
      return "fsdp";
    case StrategyKind::kHybrid:
      return "hybrid";
  }
  check_failed("a strategy has no name");
}

DeviceMesh::DeviceMesh(int world, int shard_size) : world_(world), shard_size_(shard_size) {
  check(world > 0, "a mesh has no ranks");
  if (shard_size <= 0) {
    throw UsageError("\"parallel.shard_size\" is " + std::to_string(shard_size) + "; expected 1 or more");
  }
  if (world % shard_size != 0) {
    throw UsageError("\"parallel.shard_size\" is " + std::to_string(shard_size) + ", which does not divide the " +
                     std::to_string(world) + " workers; start a multiple of " + std::to_string(shard_size) +
                     " workers, or change \"parallel.shard_size\"");
  }
}

int DeviceMesh::size(Axis axis) const {
  switch (axis) {
    case Axis::kReplica:
      return world_ / shard_size_;
    case Axis::kShard:
      return shard_size_;
    case Axis::kData:
      return world_;
  }
  check_failed("a mesh axis has no size");
}

int DeviceMesh::coordinate(Axis axis, int rank) const {
  check(rank >= 0 && rank < world_, "the mesh does not have that rank");
  switch (axis) {
    case Axis::kReplica:
      return rank / shard_size_;
    case Axis::kShard:
      return rank % shard_size_;
    case Axis::kData:
      return rank;
  }
  check_failed("a mesh axis has no coordinate");
}

std::vector<int> DeviceMesh::line(Axis axis, int rank) const {
  const int stride = axis == Axis::kReplica ? shard_size_ : 1;
  const int first = rank - coordinate(axis, rank) * stride;
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(size(axis)));
  for (int i = 0; i < size(axis); ++i) ranks.push_back(first + i * stride);
  return ranks;
}

DeviceMesh mesh_of(const Parallelism& parallelism, std::span<const int> nodes) {
  const int world = static_cast<int>(nodes.size());
  if (parallelism.strategy != StrategyKind::kHybrid && parallelism.shard_size != 0) {
    throw UsageError("\"parallel.shard_size\" is only for the strategy \"hybrid\", but \"parallel.strategy\" is \"" +
                     name_of(parallelism.strategy) + "\"; remove \"parallel.shard_size\"");
  }
  switch (parallelism.strategy) {
    case StrategyKind::kDdp:
      return {world, 1};
    case StrategyKind::kZero1:
    case StrategyKind::kZero2:
    case StrategyKind::kFsdp:
      return {world, world};
    case StrategyKind::kHybrid:
      return {world, parallelism.shard_size != 0 ? parallelism.shard_size : ranks_of_each_node(nodes)};
  }
  check_failed("a strategy has no mesh");
}

int world_unit(const Parallelism& parallelism, int ranks_per_node) {
  if (parallelism.strategy != StrategyKind::kHybrid) return 1;
  return parallelism.shard_size != 0 ? parallelism.shard_size : ranks_per_node;
}

}  // namespace ddprun::trainer
