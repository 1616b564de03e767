#include "trainer/task/language_model.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "common/base/error.hpp"
#include "trainer/models/gpt.hpp"

namespace ddprun::trainer {
namespace {

class LanguageModel : public Task {
 public:
  explicit LanguageModel(const TrainConfig& config) : config_(config) {}

  std::shared_ptr<torch::nn::Module> make_module(const Description& samples, c10::Device device) const override {
    return make_language_model(config_.model, config_.data.vocab_size, samples.tensors.at(0).sizes.at(0), config_.seed, device);
  }

  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
    return next_token_loss(module, batch, at::Reduction::Mean, config_.label_smoothing);
  }

  std::vector<std::string> figures() const override { return {"loss"}; }

  // Label smoothing applies only to the training loss, and not to the loss of an evaluation.
  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    figures.add("loss", next_token_loss(module, batch, at::Reduction::None, 0).sum(at::kDouble), batch.weight);
  }

 private:
  at::Tensor next_token_loss(torch::nn::Module& module, const Batch& batch, at::Reduction::Reduction reduction,
                             double label_smoothing) const {
    auto* const model = dynamic_cast<Gpt*>(&module);
    if (model == nullptr)
      throw InternalError("expected a module created by the language model task, found a module created by another task");
    const at::Tensor& tokens = batch.tensors.at(0);
    const at::Tensor logits = model->forward(tokens, context_of(tokens, config_.data));
    return at::cross_entropy_loss(logits.flatten(0, 1), batch.tensors.at(1).flatten(), /*weight=*/{}, reduction,
                                  /*ignore_index=*/kNotPredicted, label_smoothing);
  }

  TrainConfig config_;
};

}  // namespace

TextContext context_of(const at::Tensor& tokens, const DataConfig& config) {
  return config.end_of_document ? packed_texts(tokens, *config.end_of_document) : TextContext{};
}

std::unique_ptr<Task> language_model(const TrainConfig& config) {
  return std::make_unique<LanguageModel>(config);
}

}  // namespace ddprun::trainer
