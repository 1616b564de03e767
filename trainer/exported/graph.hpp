// Exported graphs: train a model that was written in PyTorch, with no Python and no compiler in the job.
//
// torch.export traces a model to a graph of operators. The trainer must run that graph in each step, with results that are
// bit-identical to eager Python. For data parallelism, the gradients must become ready one by one: the Reducer starts an
// all-reduce as soon as a bucket is full. The folder with the graph may have been downloaded, so the graph is untrusted input.
//
// We export only the forward pass, and interpret it. A graph is text with one node per line:
//
//   %0 = parameter fc.weight
//   %1 = batch image
//   %2 = op aten::linear %1 %0 none
//   return %2
//
// The constructor looks up each operator in PyTorch's dispatcher and prepares its arguments according to the operator's schema.
// run() then makes one dispatcher call for each `op` line. Eager Python makes the same calls, so all features of the dispatcher
// work as in Python: autograd records the operators, gradient hooks run one by one, and dropout uses the default random number
// generator. Some details need care:
//
//   - If an operator takes a tensor and gets a number, Python passes it as a "wrapped number". Such a number does not affect
//     the type of the result: half * 0.5 stays half. We do the same.
//   - A value is released after its last use. Otherwise an evaluation would keep all activations.
//   - Code under torch.no_grad() is enclosed in two `gradients` lines. run() restores the mode at its end, even after an error.
//   - Some kernels do not check their arguments. Weight norm with one magnitude for 400,000 slices caused a segmentation fault,
//     so run() checks that call. run() also limits the sizes that a graph may request.
//   - Operators that do more than compute, for example read a file, are refused (operator_rule.hpp).
//
// Cost: nothing is fused or compiled, so the speed is the same as in eager PyTorch. On CPUs an exported model was not
// measurably slower than a built-in one. An export is either in train() or in eval() mode, so a model has a graph for each
// mode.
//
// We tried two alternatives, which both export the whole step. AOTInductor compiles the step, in 52 to 64 s. The compiled code
// is bound to an ISA and to tensor shapes. Its results differ from eager Python by 1e-7 to 6e-7 (mlp, cnn, gpt). nativert runs
// the step with bit-identical results, but PyTorch 2.15 has removed nativert. With both alternatives, all gradients become
// ready at the end of the step, so no all-reduce overlaps with the backward pass. An export of both passes of a GPT ran without
// an error and had the right loss, but its gradients were off by a factor of 3.8e4. So the exporter compares gradients with
// eager Python. docs/internals/exported-models.md has the measurements.
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
  // Describes one input tensor of run(). `kind` is kParameter, kBuffer, kConstant or kBatch.
  struct Input {
    GraphNode::Kind kind = GraphNode::Kind::kBatch;
    std::string name;
  };

  // Looks up all operators and prepares their arguments. Throws UsageError. The message names the file, and lists all operators
  // that this LibTorch lacks. For any other error it names the line: an operator that a graph may not call (operator_rule.hpp),
  // or arguments that an operator does not accept.
  explicit Graph(const GraphText& text);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) = delete;

  // Returns the inputs of run(), in order.
  const std::vector<Input>& inputs() const;
  std::size_t result_count() const;
  // Returns the names of the operators that the graph calls, sorted and without duplicates.
  const std::vector<std::string>& operators() const;

  // Runs the graph once. New tensors are created on `device`, even if the graph was traced on another device. Several threads
  // may call run() at the same time. Rethrows exceptions of operators, and adds file and line to a c10::Error. Throws
  // UsageError if a result is not a tensor, if an operator has fewer results than the graph uses, if a tensor would be too
  // large, or after an integer overflow.
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs, c10::Device device) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

}  // namespace ddprun::trainer
