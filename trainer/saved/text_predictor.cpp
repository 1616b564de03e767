// Implementation of text_predictor() in predictor.hpp. The model runs on one text at a time, since texts differ in length.
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/saved/predictor.hpp"
#include "trainer/task/language_model.hpp"
#include "trainer/tokens/token_file.hpp"
#include "trainer/tokens/vocabulary.hpp"

namespace ddprun::trainer {
namespace {

using Json = nlohmann::json;

class TextPredictor : public Predictor {
 public:
  explicit TextPredictor(const SavedModel& saved)
      : config_(saved.config),
        vocabulary_(vocabulary_of(config_.data)),
        model_(load_model(saved, *language_model(config_), describe_tokens(config_.data))) {}

  void take(const Json& sample) override {
    std::vector<std::int64_t> tokens = tokens_of(sample);
    if (tokens.empty() || std::cmp_greater(tokens.size(), config_.data.block_size)) {
      throw UsageError("expected 1 to " + std::to_string(config_.data.block_size) + " tokens (data.block_size), found " +
                       std::to_string(tokens.size()));
    }
    taken_.push_back(std::move(tokens));
  }

  std::vector<nlohmann::ordered_json> answers() override {
    std::vector<nlohmann::ordered_json> answers;
    for (const std::vector<std::int64_t>& tokens : std::exchange(taken_, {})) answers.push_back(answer(tokens));
    return answers;
  }

 private:
  std::vector<std::int64_t> tokens_of(const Json& sample) const {
    if (const auto text = sample.find("text"); text != sample.end() && text->is_string() && vocabulary_) {
      const auto encoded = vocabulary_->encode(text->get_ref<const std::string&>());
      const auto largest = std::ranges::max_element(encoded);
      if (largest != encoded.end() && std::cmp_greater_equal(*largest, config_.data.vocab_size)) {
        throw UsageError("\"text\" has token " + std::to_string(*largest) + "; the model has " +
                         std::to_string(config_.data.vocab_size) + " tokens, numbered from 0 (data.vocab_size)");
      }
      return {encoded.begin(), encoded.end()};
    }
    const auto tokens = sample.find("tokens");
    const auto is_token = [&](const Json& value) {
      return value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() < config_.data.vocab_size;
    };
    if (tokens == sample.end() || !tokens->is_array() || !std::all_of(tokens->begin(), tokens->end(), is_token)) {
      throw UsageError(std::string("expected ") + (vocabulary_ ? "\"text\" with a string, or " : "") +
                       "\"tokens\" with integers below " + std::to_string(config_.data.vocab_size) + " (data.vocab_size)");
    }
    return tokens->get<std::vector<std::int64_t>>();
  }

  nlohmann::ordered_json answer(const std::vector<std::int64_t>& tokens) const {
    const at::NoGradGuard no_gradients;
    const auto count = static_cast<std::int64_t>(tokens.size());
    auto* const model = dynamic_cast<Gpt*>(model_.module.get());
    if (model == nullptr) throw InternalError("expected language_model() to create a Gpt module, found another type of module");
    const Autocast precision(config_.precision, model_.device.type());
    const at::Tensor on_device = at::tensor(tokens, at::kLong).to(model_.device), window = on_device.unsqueeze(0);
    const at::Tensor logits = model->forward(window, context_of(window, config_.data)).to(at::kFloat).squeeze(0);
    const at::Tensor last = at::softmax(logits.select(0, count - 1), 0);
    require_numbers(logits);
    const auto next = last.argmax().item<std::int64_t>();
    nlohmann::ordered_json line{{"tokens", count}, {"loss", nullptr}};
    at::Tensor targets = on_device.slice(0, 1, count);
    if (const auto end = config_.data.end_of_document) {
      targets = targets.masked_fill(on_device.slice(0, 0, count - 1).eq(*end), kNotPredicted);
    }
    if (targets.ne(kNotPredicted).any().item<bool>()) {
      line["loss"] = at::cross_entropy_loss(logits.slice(0, 0, count - 1), targets, /*weight=*/{}, at::Reduction::Mean,
                                            /*ignore_index=*/kNotPredicted)
                         .item<double>();
    }
    line["next_token"] = next;
    line["probability"] = last[next].item<double>();
    return line;
  }

  TrainConfig config_;
  std::shared_ptr<const Vocabulary> vocabulary_;  // null if the data has token IDs without a vocabulary
  LoadedModel model_;
  std::vector<std::vector<std::int64_t>> taken_;
};

}  // namespace

std::unique_ptr<Predictor> text_predictor(const SavedModel& saved) {
  return std::make_unique<TextPredictor>(saved);
}

}  // namespace ddprun::trainer
