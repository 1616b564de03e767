// The command lines of `ddptrain generate`, which lets a model that is saved write text, `ddptrain eval`, which measures one,
// `ddptrain predict`, which asks one, and `ddptrain tokenize`, which makes a token file of a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::trainer {

// What both are told of the model: trainer/saved/saved_model.hpp.
struct SavedModelOptions {
  std::filesystem::path from;
  std::filesystem::path config;        // empty: that of the run
  std::vector<std::string> overrides;  // key.path=value
  bool json = false;
};

struct GenerateOptions {
  SavedModelOptions model;
  std::optional<std::string> prompt;
  std::vector<std::int64_t> prompt_tokens;  // not empty: instead of a prompt
  std::int64_t max_tokens = 200;
  double temperature = 1;  // 0: always the likeliest token
  std::int64_t top_k = 0;  // 0: of all tokens
  std::uint64_t seed = 0;
  std::optional<std::int64_t> stop_token;
};

struct PredictOptions {
  SavedModelOptions model;      // its `json` is not asked for
  std::filesystem::path input;  // empty: stdin
};

struct TokenizeOptions {
  std::filesystem::path vocabulary;  // trainer/tokens/vocabulary_file.hpp
  std::filesystem::path text;
  std::filesystem::path to;
};

// `arguments` follow the command's name. Where they ask for help, that is put into `help` and nothing is returned. Throw
// UsageError.
std::optional<GenerateOptions> parse_generate_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<SavedModelOptions> parse_eval_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<PredictOptions> parse_predict_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<TokenizeOptions> parse_tokenize_options(const std::vector<std::string>& arguments, std::string& help);

}  // namespace ddprun::trainer
