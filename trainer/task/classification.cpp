// Implementation of classification.hpp.
#include "trainer/task/classification.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "common/base/error.hpp"
#include "trainer/models/model.hpp"
#include "trainer/models/precision.hpp"

namespace ddprun::trainer {
namespace {

// The kernel of Python's F.cross_entropy: logits float [n, classes], labels int64 [n].
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, at::Reduction::Reduction reduction,
                         double label_smoothing) {
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, reduction, /*ignore_index=*/-100, label_smoothing);
}

class Classification : public Task {
 public:
  explicit Classification(const TrainConfig& config) : config_(config) {}

  std::shared_ptr<torch::nn::Module> make_module(const Description& samples, c10::Device device) const override {
    return make_model(config_.model, image_shape(config_.model, samples.tensors.at(0).sizes), config_.data.class_count(),
                      config_.seed, device);
  }

  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
    return cross_entropy(logits_of(module, batch), batch.tensors.at(1), at::Reduction::Mean, config_.label_smoothing);
  }

  std::vector<std::string> figures() const override { return {"loss", "accuracy"}; }

  // Without label smoothing.
  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    const at::Tensor& labels = batch.tensors.at(1);
    const at::Tensor logits = logits_of(module, batch);
    figures.add("loss", cross_entropy(logits, labels, at::Reduction::None, 0).sum(at::kDouble), batch.weight);
    figures.add("accuracy", logits.argmax(1).eq(labels).sum(), batch.weight);
  }

 private:
  at::Tensor logits_of(torch::nn::Module& module, const Batch& batch) const {
    auto* const model = dynamic_cast<Model*>(&module);
    if (model == nullptr) throw InternalError("classification: the module is none that it made");
    return forward(*model, batch.tensors.at(0), config_.channels_last);
  }

  TrainConfig config_;
};

}  // namespace

std::unique_ptr<Task> classification(const TrainConfig& config) {
  return std::make_unique<Classification>(config);
}

}  // namespace ddprun::trainer
