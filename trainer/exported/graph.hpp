// Exported graphs: train a model that was written in PyTorch, with no Python and no compiler in the job.
//
// torch.export traces a model to a graph of operators. Something must run that graph in each step, with the bits of eager
// Python. It must also suit data parallelism: the Reducer starts an all-reduce as soon as a bucket is full. So gradients have
// to arrive one by one. And the folder with the graph may be a download, so the graph is untrusted input.
//
// We export the forward pass only and interpret it. A graph is text, one node a line:
//
//   %0 = parameter fc.weight
//   %1 = batch image
//   %2 = op aten::linear %1 %0 none
//   return %2
//
// The constructor looks up each operator in PyTorch's dispatcher and prepares its arguments by the schema. run() then makes one
// dispatcher call for each `op` line. Eager Python makes the same calls, so all that hangs on the dispatcher works as it does
// there: autograd records, hooks fire one by one, dropout draws from the default generator. Some details need care:
//
//   - Python passes a number for a tensor as a "wrapped number", which decides no type: half * 0.5 stays half. So do we.
//   - A value is released after its last use. Otherwise an evaluation would keep all activations.
//   - Code under torch.no_grad() stands between two `gradients` lines. run() restores the mode at its end, also after an error.
//   - Some kernels do not check their arguments. Weight norm with one magnitude for 400,000 slices caused a segmentation fault,
//     so run() checks that call. run() also limits the sizes that a graph may ask for.
//   - Operators that do more than compute are refused (operator_rule.hpp).
//
// Cost: nothing is fused or compiled, so the speed is that of eager PyTorch. On CPUs no cost over the built-in models was
// measurable. train() and eval() are fixed at the export, so a model has a graph for each.
//
// We tried two other forms, both of the whole step. AOTInductor compiles it, in 52 to 64 s. The result is bound to an ISA and
// to shapes. It differs from eager Python by 1e-7 to 6e-7 (mlp, cnn, gpt). nativert runs it with the right bits, but PyTorch
// 2.15 no longer has it. In both, all gradients arrive at the end, so no all-reduce overlaps with the backward pass. An export
// of both passes of a GPT had the right loss and no error. Its gradients were 3.8e4 times off. So the exporter compares
// gradients with eager Python. docs/internals/exported-models.md has the measurements.
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
  // A tensor that run() takes. `kind` is kParameter, kBuffer, kConstant or kBatch.
  struct Input {
    GraphNode::Kind kind = GraphNode::Kind::kBatch;
    std::string name;
  };

  // Looks up all operators and prepares their arguments. Throws UsageError with the file. The message lists all operators that
  // this LibTorch lacks, or names the line of another error: an operator that a graph may not call (operator_rule.hpp), or
  // arguments that the operator does not take.
  explicit Graph(const GraphText& text);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) = delete;

  // In the order in which run() takes them.
  const std::vector<Input>& inputs() const;
  std::size_t result_count() const;
  // Names of the operators, sorted and without duplicates.
  const std::vector<std::string>& operators() const;

  // Runs the graph once. New tensors are created on `device`, whatever device the graph was traced on. Safe from several
  // threads. Throws what the operators throw, and adds file and line to a c10::Error. Throws UsageError if a result is not a
  // tensor or lacks the element that the graph takes. The same holds for a size above its limit and for an integer overflow.
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs, c10::Device device) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

}  // namespace ddprun::trainer
