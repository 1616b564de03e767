#include "tests/trainer/commit/simulated_values.hpp"

#include <utility>

namespace ddprun::trainer::simulation {

// Combines two hashes with the finalizer of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// 2014). The result is never 0, because 0 marks an absent element.
Hash mix(Hash a, Hash b) {
  Hash z = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) | 1;
}

Model::Model(std::vector<TensorSpec> tensors) : tensors_(std::move(tensors)) {
  for (const TensorSpec& tensor : tensors_) {
    bool updated = tensor.role == StateRole::kOptimizer || tensor.role == StateRole::kAverage;
    for (const TensorSpec& other : tensors_) {
      updated |= tensor.role == StateRole::kParameter && other.role == StateRole::kGradient && other.name == tensor.name;
    }
    updated_.push_back(updated);
  }
}

Values Model::absent() const {
  Values values;
  for (const TensorSpec& tensor : tensors_) values.emplace_back(static_cast<std::size_t>(tensor.elements()), 0);
  return values;
}

Hash Model::gradients(std::int64_t step, const Values& values) const {
  Hash digest = mix(1, static_cast<Hash>(step));
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!has_role(i, StateRole::kParameter) && !has_role(i, StateRole::kBuffer)) continue;
    for (const Hash value : values[i]) digest = mix(digest, value);
  }
  return digest;
}

void Model::forward(Values& values) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!has_role(i, StateRole::kBuffer)) continue;
    for (Hash& value : values[i]) value = mix(value, 2);
  }
}

Hash Model::agreed(Hash gradients) {
  return mix(gradients, 3);
}

Hash Model::updated(Hash value, std::size_t tensor, std::int64_t element, Hash gradients, Hash agreed) {
  const bool finite = (agreed >> 8) % 8 != 0;
  if (!finite) return value;
  return mix(mix(value, mix(tensor, static_cast<Hash>(element))), mix(gradients, agreed));
}

History::History(const Model& model) : model_(model) {
  Values first = model.absent();
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (model.has_role(i, StateRole::kGradient)) continue;
    for (std::size_t e = 0; e < first[i].size(); ++e) first[i][e] = mix(i, e);
  }
  states_.push_back(std::move(first));
}

void History::extend(std::int64_t step) {
  while (static_cast<std::int64_t>(states_.size()) <= step) {
    Values state = states_.back();
    const Hash gradients = model_.gradients(static_cast<std::int64_t>(states_.size()) - 1, state);
    const Hash agreed = Model::agreed(gradients);
    model_.forward(state);
    for (std::size_t i = 0; i < state.size(); ++i) {
      if (!model_.is_updated(i)) continue;
      for (std::size_t e = 0; e < state[i].size(); ++e) {
        state[i][e] = Model::updated(state[i][e], i, static_cast<std::int64_t>(e), gradients, agreed);
      }
    }
    states_.push_back(std::move(state));
    agreed_.push_back(agreed);
  }
}

const Values& History::after(std::int64_t step) {
  extend(step);
  return states_[static_cast<std::size_t>(step)];
}

Hash History::agreed(std::int64_t step) {
  extend(step);
  return agreed_[static_cast<std::size_t>(step)];
}

void copy_held(const StateLayout& layout, int rank, const Values& from, Values& to) {
  for_elements(
      layout, [&](const StatePiece& piece) { return layout.holds(piece, rank); },
      [&](const StatePiece& piece, std::size_t e) { to[piece.tensor][e] = from[piece.tensor][e]; });
}

std::string wrong_value(const StateLayout& layout, int rank, const Values& values, const Values& correct) {
  std::string first;
  for_elements(
      layout, [&](const StatePiece& piece) { return layout.holds(piece, rank); },
      [&](const StatePiece& piece, std::size_t e) {
        if (!first.empty() || values[piece.tensor][e] == correct[piece.tensor][e]) return;
        const auto element = static_cast<std::int64_t>(e);
        first = text_of(layout.tensor_of(piece), {element, element + 1});
      });
  return first;
}

}  // namespace ddprun::trainer::simulation
