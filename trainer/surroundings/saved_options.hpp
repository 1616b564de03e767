// The options of four commands: `ddptrain generate` writes text with a saved model, `ddptrain eval` evaluates one, and
// `ddptrain predict` answers single samples. `ddptrain tokenize` makes a token file from a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::trainer {

// Saved-model options that the commands share: trainer/saved/saved_model.hpp.
struct SavedModelOptions {
  std::filesystem::path from;
  std::filesystem::path config;        // empty: the run's config
  std::vector<std::string> overrides;  // key.path=value
  bool json = false;
};

struct GenerateOptions {
  SavedModelOptions model;
  std::optional<std::string> prompt;
  std::vector<std::int64_t> prompt_tokens;  // if not empty, used instead of a text prompt
  std::int64_t max_tokens = 200;
  double temperature = 1;  // 0: always the likeliest token
  std::int64_t top_k = 0;  // 0: no limit
  std::uint64_t seed = 0;
  std::optional<std::int64_t> stop_token;
};

struct PredictOptions {
  SavedModelOptions model;      // its `json` is not used
  std::filesystem::path input;  // empty: stdin
};

struct TokenizeOptions {
  std::filesystem::path vocabulary;  // trainer/tokens/vocabulary_file.hpp
  std::filesystem::path text;
  std::filesystem::path to;
};

// `arguments`: those after the command's name. If they request help, sets `help` and returns nullopt. Throws UsageError.
std::optional<GenerateOptions> parse_generate_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<SavedModelOptions> parse_eval_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<PredictOptions> parse_predict_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<TokenizeOptions> parse_tokenize_options(const std::vector<std::string>& arguments, std::string& help);

}  // namespace ddprun::trainer
