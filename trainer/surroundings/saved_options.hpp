// The options of ddptrain's commands. `ddptrain generate` writes text with a saved model, `ddptrain eval` evaluates a saved
// model, and `ddptrain predict` predicts single samples with a saved model. `ddptrain tokenize` converts a text to a token
// file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::trainer {

// The common options of the commands that load a saved model (trainer/saved/saved_model.hpp).
struct SavedModelOptions {
  std::filesystem::path from;
  std::filesystem::path config;        // if empty, the config of the run that wrote the model
  std::vector<std::string> overrides;  // key.path=value
  bool json = false;
};

struct GenerateOptions {
  SavedModelOptions model;
  std::optional<std::string> prompt;
  std::vector<std::int64_t> prompt_tokens;  // replaces the text prompt if not empty
  std::int64_t max_tokens = 200;
  double temperature = 1;  // divisor of the logits; if 0, the most likely token is always chosen
  std::int64_t top_k = 0;  // samples only from the top_k most likely tokens; if 0, from all tokens
  std::uint64_t seed = 0;
  std::optional<std::int64_t> stop_token;
};

struct PredictOptions {
  SavedModelOptions model;      // the member `json` is not used here
  std::filesystem::path input;  // file with one sample per line; stdin if empty
};

struct TokenizeOptions {
  std::filesystem::path vocabulary;  // tokenizer file or folder (trainer/tokens/vocabulary_file.hpp)
  std::filesystem::path text;
  std::filesystem::path to;
};

// These functions parse the arguments after the command's name. If the arguments request help, the functions set `help` and
// return nullopt. They throw UsageError.
std::optional<GenerateOptions> parse_generate_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<SavedModelOptions> parse_eval_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<PredictOptions> parse_predict_options(const std::vector<std::string>& arguments, std::string& help);
std::optional<TokenizeOptions> parse_tokenize_options(const std::vector<std::string>& arguments, std::string& help);

}  // namespace ddprun::trainer
