#include "trainer/task/classification.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <vector>

#include "common/base/error.hpp"
#include "trainer/models/model.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/table_network/table_network.hpp"

namespace ddprun::trainer {
namespace {

// Computes the same as Python's F.cross_entropy. `logits` are float [n, classes]. `labels` are classes, int64 [n], or
// probabilities with the shape of the logits.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, at::Reduction::Reduction reduction,
                         double label_smoothing) {
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, reduction, /*ignore_index=*/-100, label_smoothing);
}

class Classification : public Task {
 public:
  explicit Classification(const TrainConfig& config) : config_(config) {}

  std::shared_ptr<torch::nn::Module> make_module(const Description& samples, c10::Device device) const override {
    if (samples.table) return make_table_network(config_.model, *samples.table, config_.seed, device);
    return make_model(config_.model, image_shape(config_.model, samples.tensors.at(0).sizes), config_.data.class_count(),
                      config_.seed, device);
  }

  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
    if (!batch.partners.empty()) return mixed_loss(module, batch);
    return cross_entropy(logits_of(module, batch), batch.tensors.at(1), at::Reduction::Mean, config_.label_smoothing);
  }

  bool mixes() const override { return true; }

  std::int64_t smallest_batch(const Description& samples) const override {
    return smallest_batch_of(config_.model, image_shape(config_.model, samples.tensors.at(0).sizes));
  }

  std::vector<std::string> figures() const override {
    if (config_.data.type == DataConfig::Type::kTable) return {"loss", "accuracy", "baseline_accuracy"};
    return {"loss", "accuracy"};
  }

  // Label smoothing applies only to the training loss, and not to the loss of an evaluation.
  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    const at::Tensor& labels = batch.tensors.at(1);
    const at::Tensor logits = logits_of(module, batch);
    figures.add("loss", cross_entropy(logits, labels, at::Reduction::None, 0).sum(at::kDouble), batch.weight);
    figures.add("accuracy", logits.argmax(1).eq(labels).sum(), batch.weight);
    if (const TargetPlan* const target = model_in(module).table_target()) {
      figures.add("baseline_accuracy", labels.eq(target->most_frequent).sum(), batch.weight);
    }
  }

 private:
  static Model& model_in(torch::nn::Module& module) {
    auto* const model = dynamic_cast<Model*>(&module);
    if (model == nullptr)
      throw InternalError("expected a module created by the classification task, found a module created by another task");
    return *model;
  }
  at::Tensor logits_of(torch::nn::Module& module, const Batch& batch) const { return logits_of(module, batch.tensors.at(0)); }
  at::Tensor logits_of(torch::nn::Module& module, const at::Tensor& images) const {
    return forward(model_in(module), images, config_.channels_last);
  }

  // Returns the training loss for mixed images, as in torchvision's MixUp: each image is mixed with a partner, another image.
  // Labels are mixed with the same weights, so a mixed label is a probability for each class.
  at::Tensor mixed_loss(torch::nn::Module& module, const Batch& batch) const {
    const at::Tensor& images = batch.tensors.at(0);
    const at::Tensor own = batch.own_part.view({-1, 1}), other = 1 - own;
    const auto of_images = [&](const at::Tensor& part) {
      std::vector<std::int64_t> sizes(static_cast<std::size_t>(images.dim()), 1);
      sizes.front() = images.size(0);
      return part.view(sizes);
    };
    const at::Tensor logits = logits_of(module, images * of_images(own) + batch.partners.at(0) * of_images(other));
    // The one-hot labels are computed by comparison, because one_hot() would copy the labels to the host, and so wait for the
    // GPU.
    const at::Tensor classes = at::arange(logits.size(1), batch.tensors.at(1).options());
    const auto certain = [&](const at::Tensor& labels) { return labels.unsqueeze(1).eq(classes).to(at::kFloat); };
    const at::Tensor targets = certain(batch.tensors.at(1)) * own + certain(batch.partners.at(1)) * other;
    return cross_entropy(logits, targets, at::Reduction::Mean, config_.label_smoothing);
  }

  TrainConfig config_;
};

}  // namespace

std::unique_ptr<Task> classification(const TrainConfig& config) {
  return std::make_unique<Classification>(config);
}

}  // namespace ddprun::trainer
