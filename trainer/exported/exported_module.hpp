// An exported model as a torch::nn::Module. Parameters and buffers have the names and the order of the Python model; tied and
// frozen parameters are preserved. So checkpoints, optimizers, the Reducer and digests need no special case for exported
// models.
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
  // Loads the initial weights onto the device. Throws UsageError if init.safetensors does not match model.json.
  ExportedModule(std::shared_ptr<const ModelFolder> folder, c10::Device device);

  // Returns the training loss of a batch. Also updates buffers such as the running statistics of batch norm.
  at::Tensor loss(const Batch& batch) const;
  // Returns the outputs that model.json lists, computed in evaluation mode.
  std::vector<at::Tensor> evaluate(const Batch& batch) const;

 private:
  // One input of a graph. It is `tensor`, if defined. Otherwise it is the tensor with index `of_batch` in the batch.
  struct Input {
    at::Tensor tensor{};
    std::size_t of_batch = 0;
  };

  void register_tensor(const std::string& name, const at::Tensor& tensor, GraphNode::Kind kind, bool requires_grad);
  std::vector<Input> inputs_of(const Graph& graph) const;
  std::vector<at::Tensor> run(const Graph& graph, const std::vector<Input>& inputs, const Batch& batch) const;

  std::shared_ptr<const ModelFolder> folder_;
  c10::Device device_;
  std::map<std::pair<GraphNode::Kind, std::string>, at::Tensor> tensors_;
  std::vector<Input> train_inputs_;
  std::vector<Input> eval_inputs_;
};

}  // namespace ddprun::trainer
