#include "trainer/layout/strategy_layout.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

std::int64_t rounded_up(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

std::int64_t elements_of(const ModelTensor& tensor) {
  return TensorSpec{.name = tensor.name, .shape = tensor.shape}.elements();
}

// Returns true if the tensors of this role are divided among the ranks of the shard axis.
bool is_sharded(StateRole role, StrategyKind strategy) {
  switch (strategy) {
    case StrategyKind::kDdp:
      return false;
    case StrategyKind::kZero1:
      return role == StateRole::kOptimizer || role == StateRole::kAverage;
    case StrategyKind::kZero2:
      return role != StateRole::kParameter;
    case StrategyKind::kFsdp:
    case StrategyKind::kHybrid:
      return true;
  }
  check_failed("a strategy does not define what it shards");
}

class LayoutBuilder {
 public:
  LayoutBuilder(const ModelShapes& shapes, const Parallelism& parallelism, const DeviceMesh& mesh, std::span<const int> nodes,
                std::int64_t alignment)
      : shapes_(shapes), strategy_(parallelism.strategy), mesh_(mesh), blocks_of_(shapes.tensors.size()) {
    layout_.nodes.assign(nodes.begin(), nodes.end());
    blocks_ = flat_blocks(shapes, mesh.size(Axis::kShard), alignment);
    for (const FlatBlock& block : blocks_) {
      for (const FlatTensor& entry : block.tensors) blocks_of_[entry.tensor] = {&block, entry.offset};
    }
    const bool mirrored = parallelism.mirror && mesh.size(Axis::kReplica) == 1 && mesh.world() > 1;
    if (mirrored) mirrors_ = mirrors_of(nodes);
  }

  StateLayout build() && {
    for (const ModelTensor& tensor : shapes_.tensors) {
      if (!tensor.is_buffer) add_cut(tensor, tensor.name, StateRole::kParameter, tensor.type);
    }
    for (const ModelTensor& tensor : shapes_.tensors) {
      if (tensor.is_buffer) add_whole({tensor.name, StateRole::kBuffer, tensor.type, tensor.shape});
    }
    for_each_trained([&](const ModelTensor& tensor) { add_cut(tensor, tensor.name, StateRole::kGradient, tensor.type); });
    for_each_trained([&](const ModelTensor& tensor) {
      for (const OptimizerField& field : shapes_.optimizer) {
        const std::string name = tensor.name + "." + field.name;
        const ElementType type = field.type.value_or(tensor.type);
        if (field.is_scalar) {
          add_whole({name, StateRole::kOptimizer, type, {}});
        } else {
          add_cut(tensor, name, StateRole::kOptimizer, type);
        }
      }
    });
    if (shapes_.average) {
      for_each_trained([&](const ModelTensor& tensor) { add_cut(tensor, tensor.name, StateRole::kAverage, tensor.type); });
    }
    return std::move(layout_);
  }

 private:
  struct Place {
    const FlatBlock* block = nullptr;
    std::int64_t offset = 0;
  };

  template <class Each>
  void for_each_trained(const Each& each) const {
    for (const ModelTensor& tensor : shapes_.tensors) {
      if (!tensor.is_buffer && tensor.trained) each(tensor);
    }
  }

  std::size_t holder_set(HolderSet set) {
    const auto [found, is_new] = known_sets_.try_emplace({set.others, set.ranks}, layout_.holder_sets.size());
    if (is_new) layout_.holder_sets.push_back(std::move(set));
    return found->second;
  }

  // Returns the ranks that compute the new values of a chunk: one rank in each replica, or one rank and its mirror.
  std::vector<int> owners_of(int shard) const {
    std::vector<int> owners = mesh_.line(Axis::kReplica, shard);
    if (!mirrors_.empty()) owners.push_back(mirrors_[static_cast<std::size_t>(shard)]);
    return owners;
  }

  HolderSet holders_of(int shard, StateRole role, bool trained) const {
    if (strategy_ == StrategyKind::kDdp) return {.ranks = {0}, .others = OtherRanks::kMake};
    if (is_sharded(role, strategy_)) return {.ranks = owners_of(shard)};
    // All ranks compute the gradients under zero1. All ranks also store the frozen parameters, which never change. The first
    // holder is a different rank for each chunk, so that each rank writes a part of the frozen parameters to a checkpoint.
    if (role == StateRole::kGradient || !trained) return {.ranks = {shard}, .others = OtherRanks::kMake};
    return {.ranks = owners_of(shard), .others = OtherRanks::kReceive};
  }

  // Adds a tensor with the shape of `parameter`, and cuts it at the same elements as the parameter.
  void add_cut(const ModelTensor& parameter, const std::string& name, StateRole role, ElementType type) {
    const Place& place = blocks_of_[static_cast<std::size_t>(&parameter - shapes_.tensors.data())];
    const std::int64_t elements = elements_of(parameter);
    const std::size_t tensor = layout_.tensors.size();
    layout_.tensors.push_back({name, role, type, parameter.shape});
    const std::int64_t chunk = place.block->chunk;
    for (std::int64_t begin = 0; begin < elements;) {
      const int shard = static_cast<int>((place.offset + begin) / chunk);
      const bool is_cut = strategy_ != StrategyKind::kDdp;
      const std::int64_t end = is_cut ? std::min(elements, (shard + 1) * chunk - place.offset) : elements;
      const std::size_t holders = holder_set(holders_of(shard, role, parameter.trained));
      layout_.pieces.push_back({.tensor = tensor, .range = {begin, end}, .holders = holders});
      begin = end;
    }
  }

  void add_whole(TensorSpec tensor) {
    const std::int64_t elements = tensor.elements();
    const std::size_t index = layout_.tensors.size();
    layout_.tensors.push_back(std::move(tensor));
    if (elements == 0) return;
    const std::size_t holders = holder_set({.ranks = {0}, .others = OtherRanks::kMake});
    layout_.pieces.push_back({.tensor = index, .range = {0, elements}, .holders = holders});
  }

  const ModelShapes& shapes_;
  StrategyKind strategy_;
  const DeviceMesh& mesh_;
  std::vector<FlatBlock> blocks_;
  std::vector<Place> blocks_of_;  // place of each model tensor in a FlatBlock; unused for buffers
  std::vector<int> mirrors_;      // the mirror of each rank, indexed by rank; empty if there are no mirrors
  StateLayout layout_;
  std::map<std::pair<OtherRanks, std::vector<int>>, std::size_t> known_sets_;
};

void require_unique_names(const ModelShapes& shapes) {
  std::set<std::pair<bool, std::string>> names;
  for (const ModelTensor& tensor : shapes.tensors) {
    if (!names.emplace(tensor.is_buffer, tensor.name).second) {
      throw UsageError("the model has two " + std::string(tensor.is_buffer ? "buffers" : "parameters") + " called '" +
                       tensor.name + "'; expected unique names");
    }
  }
}

}  // namespace

std::vector<FlatBlock> flat_blocks(const ModelShapes& shapes, int shards, std::int64_t alignment) {
  check(shards > 0 && alignment > 0, "a flat buffer needs at least 1 shard and an alignment of at least 1 byte");
  std::vector<FlatBlock> blocks;
  std::map<std::tuple<int, ElementType, bool>, std::size_t> by_kind;
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const ModelTensor& tensor = shapes.tensors[i];
    if (tensor.is_buffer) continue;
    const auto [found, is_new] = by_kind.try_emplace({tensor.block, tensor.type, tensor.trained}, blocks.size());
    if (is_new) blocks.push_back({.block = tensor.block, .type = tensor.type, .trained = tensor.trained});
    FlatBlock& block = blocks[found->second];
    const std::int64_t unit = std::max<std::int64_t>(1, alignment / bytes_of(tensor.type));
    block.tensors.push_back({.tensor = i, .offset = block.elements});
    block.elements += rounded_up(elements_of(tensor), unit);
  }
  for (FlatBlock& block : blocks) {
    const std::int64_t unit = std::max<std::int64_t>(1, alignment / bytes_of(block.type));
    block.chunk = rounded_up((block.elements + shards - 1) / shards, unit);
    block.elements = block.chunk * shards;
  }
  return blocks;
}

std::vector<int> mirrors_of(std::span<const int> nodes) {
  const std::size_t world = nodes.size();
  check(world > 1, "a mirror is assigned in a group of one rank");
  std::vector<int> ordered(world);
  std::iota(ordered.begin(), ordered.end(), 0);
  const auto node_of = [&](int rank) { return nodes[static_cast<std::size_t>(rank)]; };
  std::stable_sort(ordered.begin(), ordered.end(), [&](int a, int b) { return node_of(a) < node_of(b); });
  std::map<int, std::size_t> ranks_of_node;
  for (const int node : nodes) ++ranks_of_node[node];
  std::size_t shift = 1;
  if (ranks_of_node.size() > 1) {
    for (const auto& [node, count] : ranks_of_node) shift = std::max(shift, count);
  }
  std::vector<int> mirrors(world);
  for (std::size_t i = 0; i < world; ++i) mirrors[static_cast<std::size_t>(ordered[i])] = ordered[(i + shift) % world];
  return mirrors;
}

StateLayout layout_of(const ModelShapes& shapes, const Parallelism& parallelism, const DeviceMesh& mesh,
                      std::span<const int> nodes, std::int64_t alignment) {
  check(mesh.world() == static_cast<int>(nodes.size()),
        "expected the same number of ranks in the device mesh and in the list of nodes");
  require_unique_names(shapes);
  return LayoutBuilder(shapes, parallelism, mesh, nodes, alignment).build();
}

}  // namespace ddprun::trainer
