#include "trainer/exported/exported_task.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/exported/checked_batch.hpp"
#include "trainer/exported/exported_module.hpp"

namespace ddprun::trainer {
namespace {

bool takes(const ExportedTensor& tensor, const TensorDescription& sample) {
  return tensor.type == sample.type && tensor.sizes == sample.sizes;
}

class ExportedTask : public Task {
 public:
  explicit ExportedTask(const TrainConfig& config)
      : folder_(std::make_shared<const ModelFolder>(read_model_folder(config.model.path))),
        fingerprint_(fingerprint_of_folder(config.model.path)) {}

  std::shared_ptr<torch::nn::Module> make_module(const Description& samples, c10::Device device) const override {
    if (!std::ranges::equal(folder_->batch, samples.tensors, takes)) {
      throw UsageError(folder_->path.string() + ": the model takes " + batch_text(folder_->batch) +
                       ", but a sample of the data is " + batch_text(samples) + ". Export the model with a batch of this data");
    }
    std::call_once(checked_, [&] { check_exported_model(folder_, device); });
    return std::make_shared<ExportedModule>(folder_, device);
  }

  // Refuses a batch that is too small for the model's batch norm. Python's batch norm module has the same check. The operator
  // in the graph lacks it, and computes NaN statistics from a single value per channel.
  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
    const std::int64_t samples = batch.tensors.front().size(0);
    if (!batch.stand_in && samples < folder_->smallest_batch) {
      throw UsageError(
          folder_->path.string() + ": the model needs at least " + std::to_string(folder_->smallest_batch) +
          " samples in a training pass, but this worker's part of a batch has " + std::to_string(samples) +
          "; choose another batch_size or micro_batch_size, or set data.train_samples to a multiple of batch_size");
    }
    return own(module).loss(batch);
  }

  std::int64_t smallest_batch(const Description& /*samples*/) const override { return folder_->smallest_batch; }

  std::vector<std::string> figures() const override { return folder_->outputs; }

  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    const std::vector<at::Tensor> results = own(module).evaluate(batch);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].dim() != 0) {
        throw UsageError(folder_->path.string() + ": the metric '" + folder_->outputs[i] + "' is not a scalar");
      }
      figures.add(folder_->outputs[i], results[i].to(at::kDouble).mul(batch.weight), batch.weight);
    }
  }

  std::string fingerprint() const override { return fingerprint_; }

 private:
  static ExportedModule& own(torch::nn::Module& module) {
    auto* const exported = dynamic_cast<ExportedModule*>(&module);
    if (exported == nullptr)
      throw InternalError("expected a module created by the exported model's task, found a module created by another task");
    return *exported;
  }

  std::shared_ptr<const ModelFolder> folder_;
  std::string fingerprint_;
  mutable std::once_flag checked_;
};

}  // namespace

std::unique_ptr<Task> exported_task(const TrainConfig& config) {
  return std::make_unique<ExportedTask>(config);
}

}  // namespace ddprun::trainer
