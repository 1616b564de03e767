#include "trainer/surroundings/saved_options.hpp"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>

#include "common/base/error.hpp"
#include "trainer/surroundings/parse_arguments.hpp"

namespace ddprun::trainer {
namespace {

void add_model_options(CLI::App& app, SavedModelOptions& options) {
  app.add_option("from", options.from,
                 "a run directory (its newest valid checkpoint), a checkpoint's folder, or a safetensors file")
      ->type_name("RUN_DIR|CHECKPOINT|FILE")
      ->required();
  app.add_option("overrides", options.overrides, "key.path=value: replaces a value in the config, such as device=cpu")
      ->type_name("key=value");
  app.add_option("--config", options.config,
                 "train.json of the model (default: the config.json in the run directory of the first argument)")
      ->type_name("train.json");
}

void add_json_option(CLI::App& app, SavedModelOptions& options) {
  app.add_flag("--json", options.json, "print one line of JSON");
}

// Parses token IDs separated by commas, such as "12,7,300". Throws UsageError.
std::vector<std::int64_t> tokens_of(const std::string& text) {
  std::vector<std::int64_t> tokens;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t token = -1;
    const auto [rest, error] = std::from_chars(at, end, token);
    if (error != std::errc() || token < 0 || (rest != end && *rest != ',')) {
      throw UsageError("--prompt-tokens: expected token IDs separated by commas, such as 12,7,300, found '" + text + "'");
    }
    tokens.push_back(token);
    if (rest == end) return tokens;
    at = rest + 1;
  }
}

}  // namespace

std::optional<GenerateOptions> parse_generate_options(const std::vector<std::string>& arguments, std::string& help) {
  GenerateOptions options;
  std::optional<std::string> prompt_tokens;
  CLI::App app("Continues a text with a saved language model. The same seed gives the same text.");
  app.name("ddptrain generate");
  add_model_options(app, options.model);
  add_json_option(app, options.model);
  app.add_option("--prompt", options.prompt, "the text to continue (default: a new line)")->type_name("TEXT");
  app.add_option("--prompt-tokens", prompt_tokens,
                 "token IDs to continue, separated by commas; the output is token IDs as well")
      ->type_name("N,N,...")
      ->excludes("--prompt");
  app.add_option("--max-tokens", options.max_tokens, "maximum number of tokens to add")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  app.add_option("--temperature", options.temperature,
                 "number by which the logits are divided; 0: always choose the most likely token")
      ->type_name("T")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));  // CLI::Range accepts NaN, which is refused below
  app.add_option("--top-k", options.top_k, "choose among the K most likely tokens; 0: among all tokens")
      ->type_name("K")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}));
  app.add_option("--seed", options.seed, "seed of the random choices")->type_name("N")->capture_default_str();
  app.add_option("--stop-token", options.stop_token, "stop at this token, which is not printed")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}));
  if (!parse_arguments(app, arguments, help)) return std::nullopt;
  if (std::isnan(options.temperature)) throw UsageError("--temperature: expected a number from 0 to 1000000, found nan");
  if (prompt_tokens) options.prompt_tokens = tokens_of(*prompt_tokens);
  return options;
}

std::optional<SavedModelOptions> parse_eval_options(const std::vector<std::string>& arguments, std::string& help) {
  SavedModelOptions options;
  CLI::App app("Evaluates a saved model on the test set of its config.");
  app.name("ddptrain eval");
  add_model_options(app, options);
  add_json_option(app, options);
  if (!parse_arguments(app, arguments, help)) return std::nullopt;
  return options;
}

std::optional<PredictOptions> parse_predict_options(const std::vector<std::string>& arguments, std::string& help) {
  PredictOptions options;
  CLI::App app("Computes predictions with a saved model: reads lines of JSON, and writes one line of JSON to stdout for each.");
  app.name("ddptrain predict");
  add_model_options(app, options.model);
  app.add_option("--input", options.input, "file with the lines of JSON (default: stdin)")->type_name("FILE");
  if (!parse_arguments(app, arguments, help)) return std::nullopt;
  return options;
}

std::optional<TokenizeOptions> parse_tokenize_options(const std::vector<std::string>& arguments, std::string& help) {
  TokenizeOptions options;
  CLI::App app("Converts a text to a token file, for \"data\": {\"type\": \"tokens\"}.");
  app.name("ddptrain tokenize");
  app.add_option("vocabulary", options.vocabulary,
                 "a tokenizer.json, or a folder that contains tokenizer.json or both vocab.json and merges.txt")
      ->type_name("TOKENIZER")
      ->required();
  app.add_option("text", options.text, "the text file to read")->type_name("TEXT")->required();
  app.add_option(
         "to", options.to,
         "the output file: a header in the format of llm.c, then 16-bit tokens (32-bit if the vocabulary has more than 65536)")
      ->type_name("FILE.bin")
      ->required();
  if (!parse_arguments(app, arguments, help)) return std::nullopt;
  return options;
}

}  // namespace ddprun::trainer
