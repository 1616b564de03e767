// An exported model as a module: parameters and buffers under the names that they have in Python, in that order, tied and
// frozen as they are there. So checkpoints, optimizer, Reducer and digests treat it as any other model.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/source.hpp"
#include "trainer/exported/model_folder.hpp"

namespace ddprun::trainer {

class ExportedModule : public torch::nn::Module {
 public:
  // With its initial weights, on the device. Throws UsageError when init.safetensors is not what model.json says.
  ExportedModule(std::shared_ptr<const ModelFolder> folder, c10::Device device);

  // The loss of a batch, as the model has it in training. Changes the buffers that it changes.
  at::Tensor loss(const Batch& batch) const;
  // The outputs of model.json, as the model has them in evaluation.
  std::vector<at::Tensor> evaluate(const Batch& batch) const;

 private:
  // The input of a graph: a tensor, or the number of a batch's.
  struct Input {
    at::Tensor tensor{};
    std::size_t of_batch = 0;
  };

  void hold(const std::string& name, const at::Tensor& tensor, GraphNode::Kind kind, bool requires_grad);
  std::vector<Input> inputs_of(const Graph& graph) const;
  std::vector<at::Tensor> run(const Graph& graph, const std::vector<Input>& inputs, const Batch& batch) const;

  std::shared_ptr<const ModelFolder> folder_;
  c10::Device device_;
  std::map<std::pair<GraphNode::Kind, std::string>, at::Tensor> tensors_;
  std::vector<Input> train_inputs_;
  std::vector<Input> eval_inputs_;
};

}  // namespace ddprun::trainer
