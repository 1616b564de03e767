#include "trainer/saved/text_generation.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/saved/generation.hpp"
#include "trainer/saved/saved_model.hpp"
#include "trainer/task/language_model.hpp"
#include "trainer/tokens/token_file.hpp"
#include "trainer/tokens/vocabulary.hpp"

namespace ddprun::trainer {
namespace {

std::vector<std::int64_t> prompt_of(const GenerateOptions& options, const Vocabulary* vocabulary, const TrainConfig& config) {
  std::vector<std::int64_t> tokens = options.prompt_tokens;
  if (tokens.empty()) {
    if (vocabulary == nullptr) {
      const bool synthetic = config.data.type == DataConfig::Type::kSynthetic;
      throw UsageError("the model was trained on " +
                       (synthetic ? "synthetic tokens" : "the tokens of " + config.data.train_tokens) +
                       ", so a text cannot be converted to its tokens; use --prompt-tokens N,N,..." +
                       (synthetic ? "" : ", or data.tokenizer=PATH"));
    }
    const auto encoded = vocabulary->encode(options.prompt.value_or("\n"));
    tokens.assign(encoded.begin(), encoded.end());
    if (tokens.empty()) throw UsageError("--prompt: expected a text to continue, found an empty text");
  }
  for (const std::int64_t token : tokens) {
    if (token < config.data.vocab_size) continue;
    throw UsageError((options.prompt_tokens.empty() ? "--prompt" : "--prompt-tokens") + std::string(" has token ") +
                     std::to_string(token) + "; the model has " + std::to_string(config.data.vocab_size) +
                     " tokens, numbered from 0 (data.vocab_size)");
  }
  return tokens;
}

// Prints the tokens on stdout: each token immediately, or all at the end as JSON.
class Output {
 public:
  Output(const GenerateOptions& options, const Vocabulary* vocabulary)
      : as_text_(vocabulary != nullptr && options.prompt_tokens.empty()), json_(options.model.json), vocabulary_(vocabulary) {}

  void add(std::int64_t token, bool of_prompt) {
    (of_prompt ? prompt_ : tokens_).push_back(token);
    if (vocabulary_ != nullptr) text_ += vocabulary_->bytes_of(token);
    if (json_) return;
    if (as_text_) {
      print(vocabulary_->bytes_of(token));
    } else {
      print((prompt_.size() + tokens_.size() > 1 ? " " : "") + std::to_string(token));
    }
  }

  void end() {
    if (json_) {
      nlohmann::ordered_json line{{"prompt_tokens", prompt_}, {"tokens", tokens_}};
      if (vocabulary_ != nullptr) line["text"] = text_;
      print(line.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace) + "\n");
    } else if (!as_text_ || !text_.ends_with('\n')) {
      print("\n");
    }
  }

 private:
  static void print(const std::string& bytes) {
    const bool all = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() && std::fflush(stdout) == 0;
    if (!all) throw InternalError("stdout cannot be written");
  }

  bool as_text_;
  bool json_;
  const Vocabulary* vocabulary_;
  std::string text_;
  std::vector<std::int64_t> prompt_;
  std::vector<std::int64_t> tokens_;
};

}  // namespace

void generate_text(const GenerateOptions& options) {
  const SavedModel saved = find_saved_model(options.model.from, options.model.config, options.model.overrides);
  const TrainConfig& config = saved.config;
  if (!config.model.is_language_model()) {
    throw UsageError("only a language model can generate text, but " + options.model.from.string() + " has another model.type");
  }
  const auto vocabulary = vocabulary_of(config.data);
  std::vector<std::int64_t> tokens = prompt_of(options, vocabulary.get(), config);
  use_determinism(config.deterministic);
  const auto [device, module] = load_model(saved, *language_model(config), describe_tokens(config.data));
  auto* const model = dynamic_cast<Gpt*>(module.get());
  if (model == nullptr) throw InternalError("expected language_model() to create a Gpt module, found another type of module");
  Generation generation(*model, config.data.block_size, device, config.precision,
                        {.temperature = options.temperature, .top_k = options.top_k, .seed = options.seed},
                        config.data.end_of_document);
  const std::optional<std::int64_t> stop = options.stop_token ? options.stop_token : config.data.end_of_document;
  Output output(options, vocabulary.get());
  for (const std::int64_t token : tokens) output.add(token, /*of_prompt=*/true);
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const std::int64_t token = generation.next(tokens);
    if (token == stop) break;
    tokens.push_back(token);
    output.add(token, /*of_prompt=*/false);
  }
  output.end();
}

}  // namespace ddprun::trainer
