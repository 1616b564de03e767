// Computes the values of a simulated training run. Each element of the state is a hash of its history. A step that is lost,
// made twice, or made from wrong weights, gradients or agreed values therefore gives a different hash. The class History
// computes the correct values of all steps in a single place. Each simulated rank computes the same values from the elements
// that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/layout/state_layout.hpp"

namespace ddprun::trainer::simulation {

using Hash = std::uint64_t;
// The value of each element of each tensor. 0 means that the rank does not have the element.
using Values = std::vector<std::vector<Hash>>;

Hash mix(Hash a, Hash b);

class Model {
 public:
  explicit Model(std::vector<TensorSpec> tensors);

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  Values absent() const;  // all elements are 0
  bool has_role(std::size_t tensor, StateRole role) const { return tensors_[tensor].role == role; }
  // Returns true if the optimizer's step changes this tensor.
  bool is_updated(std::size_t tensor) const { return updated_[tensor]; }

  // Returns the summed gradients of the step after `step`. `values` must have all weights and buffers.
  Hash gradients(std::int64_t step, const Values& values) const;
  // Changes the buffers in the same way as the forward passes of a step.
  void forward(Values& values) const;
  // Returns the values that the collective agree() exchanges (gradient norm, finite flag and learning rate) as one hash.
  static Hash agreed(Hash gradients);
  // Returns the new value of an element. If the gradients are not finite, the value does not change, but the step still counts.
  static Hash updated(Hash value, std::size_t tensor, std::int64_t element, Hash gradients, Hash agreed);

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<bool> updated_;
};

class History {
 public:
  explicit History(const Model& model);
  // Returns the whole state after this number of steps.
  const Values& after(std::int64_t step);
  // Returns the agreed values of a step (see agreed(Hash)); 0 for step 0.
  Hash agreed(std::int64_t step);

 private:
  void extend(std::int64_t step);

  const Model& model_;
  std::vector<Values> states_;
  std::vector<Hash> agreed_{0};
};

// Calls `each(piece, element)` for all elements of the pieces for which `holds` returns true. Pieces of gradients are
// skipped.
template <class Holds, class Each>
void for_elements(const StateLayout& layout, const Holds& holds, const Each& each) {
  for (const StatePiece& piece : layout.pieces) {
    if (layout.tensor_of(piece).role == StateRole::kGradient || !holds(piece)) continue;
    for (std::int64_t e = piece.range.begin; e < piece.range.end; ++e) each(piece, static_cast<std::size_t>(e));
  }
}

// Copies the elements that the layout assigns to this rank.
void copy_held(const StateLayout& layout, int rank, const Values& from, Values& to);
// Returns the name of the first element of this rank whose value is not correct, or an empty string if all are correct.
std::string wrong_value(const StateLayout& layout, int rank, const Values& values, const Values& correct);

}  // namespace ddprun::trainer::simulation
