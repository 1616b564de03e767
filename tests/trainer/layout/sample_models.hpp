// Defines models for the tests of layouts and of the commit rule. These models have only names and shapes, and no tensors.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "trainer/layout/strategy_layout.hpp"

namespace ddprun::trainer {

inline constexpr StrategyKind kAllStrategies[] = {StrategyKind::kDdp, StrategyKind::kZero1, StrategyKind::kZero2,
                                                  StrategyKind::kFsdp, StrategyKind::kHybrid};

inline std::vector<OptimizerField> adamw_fields() {
  return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}, {.name = "step", .type = ElementType::kF32, .is_scalar = true}};
}

// Returns a model with `blocks` blocks. Each block has one weight of `elements` elements. The model is trained by AdamW, but
// its state has no step counts.
inline ModelShapes model_of_blocks(int blocks, std::int64_t elements) {
  ModelShapes shapes{.optimizer = {{.name = "exp_avg"}, {.name = "exp_avg_sq"}}};
  for (int i = 0; i < blocks; ++i) {
    shapes.tensors.push_back({.name = "block" + std::to_string(i) + ".weight", .shape = {elements}, .block = i});
  }
  return shapes;
}

// Returns a small random model with odd tensor sizes. It may have frozen, empty and half-precision tensors, a buffer and an
// average.
template <class Random>
ModelShapes random_model(Random& random, std::int64_t max_size = 9) {
  const auto chance = [&](int one_in) { return std::uniform_int_distribution(1, one_in)(random) == 1; };
  const auto size = [&] { return std::uniform_int_distribution<std::int64_t>(1, max_size)(random); };
  ModelShapes shapes{.optimizer = adamw_fields(), .average = chance(3)};
  if (chance(4)) shapes.optimizer.clear();
  const int tensors = std::uniform_int_distribution(1, 5)(random);
  int block = 0;
  for (int i = 0; i < tensors; ++i) {
    ModelTensor tensor{.name = "t" + std::to_string(i), .shape = {size(), size()}, .block = block};
    if (chance(6)) tensor.shape = {};
    if (chance(12)) tensor.shape = {0};
    if (chance(5)) tensor.type = ElementType::kBf16;
    if (chance(5)) tensor.trained = false;
    if (chance(8)) tensor.is_buffer = true;
    if (chance(2)) ++block;
    shapes.tensors.push_back(tensor);
  }
  return shapes;
}

// Returns the node of each rank. Each node has a random number of ranks, and ranks are in the order of the nodes.
template <class Random>
std::vector<int> random_nodes(Random& random, int world) {
  std::vector<int> nodes{0};
  while (static_cast<int>(nodes.size()) < world) {
    nodes.push_back(nodes.back() + (std::uniform_int_distribution(0, 2)(random) == 0 ? 1 : 0));
  }
  return nodes;
}

// Returns a random strategy that fits the number of ranks.
template <class Random>
Parallelism random_parallelism(Random& random, int world) {
  Parallelism parallelism{.strategy = kAllStrategies[std::uniform_int_distribution(0, 4)(random)],
                          .mirror = std::uniform_int_distribution(0, 3)(random) != 0};
  if (parallelism.strategy != StrategyKind::kHybrid) return parallelism;
  std::vector<int> divisors;
  for (int size = 1; size <= world; ++size) {
    if (world % size == 0) divisors.push_back(size);
  }
  parallelism.shard_size = divisors[std::uniform_int_distribution<std::size_t>(0, divisors.size() - 1)(random)];
  return parallelism;
}

inline StateLayout layout_for(const ModelShapes& shapes, const Parallelism& parallelism, const std::vector<int>& nodes,
                              std::int64_t alignment = kFlatAlignment) {
  return layout_of(shapes, parallelism, mesh_of(parallelism, nodes), nodes, alignment);
}

}  // namespace ddprun::trainer
