// Implementation of saved_options.hpp.
#include "trainer/surroundings/saved_options.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "common/base/error.hpp"
#include "trainer/surroundings/unknown_flag.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::array<std::string_view, 10> kGenerateFlags{"--prompt", "--prompt-tokens", "--max-tokens", "--temperature",
                                                          "--top-k",  "--seed",          "--stop-token", "--config",
                                                          "--json",   "--help"};

constexpr std::array<std::string_view, 3> kEvalFlags{"--config", "--json", "--help"};
constexpr std::array<std::string_view, 3> kPredictFlags{"--config", "--input", "--help"};
constexpr std::array<std::string_view, 1> kTokenizeFlags{"--help"};

void add_model_options(CLI::App& app, SavedModelOptions& options, std::string& from, std::string& config) {
  app.add_option("from", from, "a run directory (its newest valid checkpoint), a checkpoint's folder, or a safetensors file")
      ->type_name("RUN_DIR|CHECKPOINT|FILE")
      ->required();
  app.add_option("overrides", options.overrides, "key.path=value: replaces a value of the config, such as device=cpu")
      ->type_name("key=value");
  app.add_option("--config", config, "the model's train.json (default: the config.json of the run that FROM is in)")
      ->type_name("train.json");
}

void add_json_option(CLI::App& app, SavedModelOptions& options) {
  app.add_flag("--json", options.json, "print one line of JSON");
}

// Returns false if help was requested.
bool parsed(CLI::App& app, const std::vector<std::string>& arguments, std::span<const std::string_view> flags,
            std::string& help) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // the order that CLI11 expects
  try {
    app.parse(reversed);
    return true;
  } catch (const CLI::CallForHelp&) {
    help = app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    refuse_unknown_flag(arguments, flags, app.get_name() + " --help");
    throw UsageError(std::string(error.what()) + "; see " + app.get_name() + " --help");
  }
}

// Parses "12,7,300".
std::vector<std::int64_t> tokens_of(const std::string& text) {
  std::vector<std::int64_t> tokens;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int64_t token = -1;
    const auto [rest, error] = std::from_chars(at, end, token);
    if (error != std::errc() || token < 0 || (rest != end && *rest != ',')) {
      throw UsageError("--prompt-tokens: expected numbers of tokens with commas between them, such as 12,7,300, found '" +
                       text + "'");
    }
    tokens.push_back(token);
    if (rest == end) return tokens;
    at = rest + 1;
  }
}

}  // namespace

std::optional<GenerateOptions> parse_generate_options(const std::vector<std::string>& arguments, std::string& help) {
  GenerateOptions options;
  std::string from, config, prompt, prompt_tokens;
  std::int64_t stop_token = -1;
  CLI::App app("Lets a language model that is saved continue a text. The same seed gives the same text.");
  app.name("ddptrain generate");
  add_model_options(app, options.model, from, config);
  add_json_option(app, options.model);
  const auto* const by_text =
      app.add_option("--prompt", prompt, "the text to continue (default: a new line)")->type_name("TEXT");
  const auto* const by_tokens = app.add_option("--prompt-tokens", prompt_tokens,
                                               "tokens to continue, with commas between them; tokens are printed as well")
                                    ->type_name("N,N,...")
                                    ->excludes("--prompt");
  app.add_option("--max-tokens", options.max_tokens, "so many tokens are added at most")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
  app.add_option("--temperature", options.temperature, "logits are divided by it; 0: always the likeliest token")
      ->type_name("T")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));  // this check alone accepts NaN
  app.add_option("--top-k", options.top_k, "choose among the K likeliest tokens; 0: among all")
      ->type_name("K")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}));
  app.add_option("--seed", options.seed, "of the choices")->type_name("N")->capture_default_str();
  const auto* const stop = app.add_option("--stop-token", stop_token, "end when this token comes, which is not printed")
                               ->type_name("N")
                               ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}));
  if (!parsed(app, arguments, kGenerateFlags, help)) return std::nullopt;
  if (std::isnan(options.temperature)) throw UsageError("--temperature: expected a number from 0 to 1000000, found nan");
  options.model.from = from;
  options.model.config = config;
  if (by_text->count() > 0) options.prompt = prompt;
  if (by_tokens->count() > 0) options.prompt_tokens = tokens_of(prompt_tokens);
  if (stop->count() > 0) options.stop_token = stop_token;
  return options;
}

std::optional<SavedModelOptions> parse_eval_options(const std::vector<std::string>& arguments, std::string& help) {
  SavedModelOptions options;
  std::string from, config;
  CLI::App app("Measures a model that is saved on the test set of its config.");
  app.name("ddptrain eval");
  add_model_options(app, options, from, config);
  add_json_option(app, options);
  if (!parsed(app, arguments, kEvalFlags, help)) return std::nullopt;
  options.from = from;
  options.config = config;
  return options;
}

std::optional<PredictOptions> parse_predict_options(const std::vector<std::string>& arguments, std::string& help) {
  PredictOptions options;
  std::string from, config, input;
  CLI::App app("Asks a model that is saved: a line of JSON on stdout for each line of JSON.");
  app.name("ddptrain predict");
  add_model_options(app, options.model, from, config);
  app.add_option("--input", input, "where the lines come from (default: stdin)")->type_name("FILE");
  if (!parsed(app, arguments, kPredictFlags, help)) return std::nullopt;
  options.model.from = from;
  options.model.config = config;
  options.input = input;
  return options;
}

std::optional<TokenizeOptions> parse_tokenize_options(const std::vector<std::string>& arguments, std::string& help) {
  std::string vocabulary, text, to;
  CLI::App app("Makes a token file of a text, for \"data\": {\"type\": \"tokens\"}.");
  app.name("ddptrain tokenize");
  app.add_option("vocabulary", vocabulary, "a tokenizer.json, or a folder with it or with vocab.json and merges.txt")
      ->type_name("TOKENIZER")
      ->required();
  app.add_option("text", text, "what to read")->type_name("TEXT")->required();
  app.add_option("to", to, "what to write: tokens of 16 bits, or of 32 where there are more than 65536, behind llm.c's header")
      ->type_name("FILE.bin")
      ->required();
  if (!parsed(app, arguments, kTokenizeFlags, help)) return std::nullopt;
  return TokenizeOptions{.vocabulary = vocabulary, .text = text, .to = to};
}

}  // namespace ddprun::trainer
