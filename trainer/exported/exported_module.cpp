#include "trainer/exported/exported_module.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

using InputKind = GraphNode::Kind;

constexpr const char* kInitialWeights = "init.safetensors";

// Returns the module that contains the tensor `name`, and cuts `name` to its last part: "layer1.0.weight" becomes "weight" of
// "layer1.0".
torch::nn::Module* module_for(torch::nn::Module* root, std::string& name) {
  for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
    const std::string part = name.substr(0, dot);
    name.erase(0, dot + 1);
    auto children = root->named_children();
    if (auto* const child = children.find(part)) {
      root = child->get();
    } else {
      root = root->register_module(part, std::make_shared<torch::nn::Module>()).get();
    }
  }
  return root;
}

}  // namespace

ExportedModule::ExportedModule(std::shared_ptr<const ModelFolder> folder, c10::Device device)
    : torch::nn::Module("exported"), folder_(std::move(folder)), device_(device) {
  const std::map<std::string, at::Tensor> stored = read_tensors_of(folder_->path, kInitialWeights);
  const auto initial = [&](const char* kind, const ExportedTensor& tensor) {
    return tensor_like(stored, folder_->path / kInitialWeights, std::string(kind) + "." + tensor.name, tensor.type,
                       tensor.sizes)
        .to(device);
  };
  for (const ExportedTensor& parameter : folder_->parameters) {
    const at::Tensor value =
        parameter.tied.empty() ? initial("parameter", parameter) : tensors_.at({InputKind::kParameter, parameter.tied});
    register_tensor(parameter.name, value, InputKind::kParameter, parameter.requires_grad);
  }
  for (const ExportedTensor& buffer : folder_->buffers)
    register_tensor(buffer.name, initial("buffer", buffer), InputKind::kBuffer, false);
  for (const ExportedTensor& constant : folder_->constants) {
    tensors_[{InputKind::kConstant, constant.name}] = initial("constant", constant);
  }
  train_inputs_ = inputs_of(folder_->train);
  eval_inputs_ = inputs_of(folder_->eval);
}

void ExportedModule::register_tensor(const std::string& name, const at::Tensor& tensor, GraphNode::Kind kind,
                                     bool requires_grad) {
  std::string last = name;
  try {
    torch::nn::Module* const module = module_for(this, last);
    tensors_[{kind, name}] = kind == InputKind::kBuffer ? module->register_buffer(last, tensor)
                                                        : module->register_parameter(last, tensor, requires_grad);
  } catch (const c10::Error& error) {  // thrown if the name is empty or already used
    throw UsageError((folder_->path / "model.json").string() + ": invalid tensor name '" + name +
                     "': " + error.what_without_backtrace());
  }
}

std::vector<ExportedModule::Input> ExportedModule::inputs_of(const Graph& graph) const {
  std::vector<Input> inputs;
  for (const Graph::Input& input : graph.inputs()) {
    if (input.kind != InputKind::kBatch) {
      inputs.push_back({.tensor = tensors_.at({input.kind, input.name})});
      continue;
    }
    const auto found = std::ranges::find(folder_->batch, input.name, &ExportedTensor::name);
    inputs.push_back({.of_batch = static_cast<std::size_t>(found - folder_->batch.begin())});
  }
  return inputs;
}

std::vector<at::Tensor> ExportedModule::run(const Graph& graph, const std::vector<Input>& inputs, const Batch& batch) const {
  std::vector<at::Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const Input& input : inputs) tensors.push_back(input.tensor.defined() ? input.tensor : batch.tensors.at(input.of_batch));
  return graph.run(tensors, device_);
}

at::Tensor ExportedModule::loss(const Batch& batch) const {
  return run(folder_->train, train_inputs_, batch).front();
}

std::vector<at::Tensor> ExportedModule::evaluate(const Batch& batch) const {
  return run(folder_->eval, eval_inputs_, batch);
}

}  // namespace ddprun::trainer
