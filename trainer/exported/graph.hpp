// Runs a graph that torch.export traced, operator by operator through PyTorch's dispatcher, as eager Python runs the model it
// was traced from: autograd records what is run, gradients arrive one by one, and random numbers come from the default
// generator. Nothing is fused and nothing is compiled.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/exported/graph_text.hpp"

namespace ddprun::trainer {

class Graph {
 public:
  // What a run is given, in that order. The kind is one of the four that need no arguments.
  struct Input {
    GraphNode::Kind kind = GraphNode::Kind::kBatch;
    std::string name;
  };

  // Looks all operators up. Throws UsageError naming the file, and all operators that this LibTorch does not have, or the line
  // with an operator that a graph may not call (operator_rule.hpp) or with arguments that its operator does not take.
  explicit Graph(const GraphText& text);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) = delete;

  const std::vector<Input>& inputs() const;
  std::size_t result_count() const;
  // Sorted, each once.
  const std::vector<std::string>& operators() const;

  // Whatever device the graph was traced on, it makes its own tensors on this one. Safe from several threads. Throws what the
  // operators throw, with file and line added, and UsageError when a result is no tensor, a size is out of bounds or an
  // integer calculation overflows.
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs, c10::Device device) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

}  // namespace ddprun::trainer
