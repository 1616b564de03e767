// An exported model as a module. Parameters and buffers have the names and the order of the Python model; tied and frozen
// parameters are preserved. So checkpoints, optimizer, Reducer and digests treat it like any other model.
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
  // Loads the initial weights to the device. Throws UsageError if init.safetensors does not match model.json.
  ExportedModule(std::shared_ptr<const ModelFolder> folder, c10::Device device);

  // Returns the training loss of a batch. Updates the buffers that training updates.
  at::Tensor loss(const Batch& batch) const;
  // Returns the outputs that model.json lists, computed in evaluation mode.
  std::vector<at::Tensor> evaluate(const Batch& batch) const;

 private:
  // The input of a graph: a tensor, or the index of a tensor in the batch.
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
