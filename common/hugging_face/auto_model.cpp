#include "common/hugging_face/auto_model.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/hugging_face/model_facts.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

Json::json_pointer pointer_to(const std::string& key) {
  std::string pointer = "/" + key;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return Json::json_pointer(pointer);
}

// Returns the value of a key in a train.json; null if the key is missing.
Json value_of(const Json& train, const std::string& key) {
  const Json::json_pointer pointer = pointer_to(key);
  return train.contains(pointer) ? train.at(pointer) : Json();
}

// Returns true for keys whose value 0 means that the real value follows from other keys.
bool is_automatic(const std::string& key, const Json& value) {
  const bool has_automatic = key == "model.n_kv_head" || key == "model.n_inner" || key == "model.head_dim";
  return value.is_null() || (has_automatic && value == 0);
}

// Only token data has the keys block_size, vocab_size and tokenizer. For another type of data, a later check reports an error.
bool has_token_keys(const Json& train, const std::string& key) {
  const Json type = value_of(train, "data.type");
  return type == "tokens" || (type == "synthetic" && key != "data.tokenizer");
}

}  // namespace

AutoModel with_model_of(const Json& train, const HuggingFaceFolder& folder) {
  AutoModel out{.config = train, .problems = {}, .note = {}};
  const ModelFacts model = model_facts(folder.config);
  const std::string file = folder.file.string();
  const auto problem = [&](const std::string& key, const std::string& message) {
    out.problems.push_back({pointer_to(key).to_string(), message});
  };
  if (model.type.empty()) {
    problem("model.init", file + " has the model_type " + setting_text(model.family) +
                              ", which ddptrain does not support; expected " + kKnownFamilies + " (/model/init)");
    return out;
  }
  for (const std::string& refusal : model.refusals) {
    problem("model.init", "ddptrain does not compute the model of " + file + ": " + refusal + " (/model/init)");
  }
  out.config["model"]["type"] = model.type;
  std::string of_data;
  for (const ModelFact& fact : model.facts) {
    if (fact.key.starts_with("data.") && !has_token_keys(train, fact.key)) continue;
    const Json ours = value_of(train, fact.key);
    if (!is_automatic(fact.key, ours)) {
      if (fact.kind == ModelFact::Kind::kSuggested || same_setting(ours, fact.value)) continue;
      problem(fact.key, fact.key + " is " + setting_text(ours) + " in this config, but " + fact.their_key + " is " +
                            setting_text(fact.their_value) + " in " + file + ": remove this key, or set it to " +
                            setting_text(fact.value) + " (" + pointer_to(fact.key).to_string() + ")");
      continue;
    }
    out.config[pointer_to(fact.key)] = fact.value;
    if (fact.key.starts_with("data.")) of_data += ", " + fact.key + " " + setting_text(fact.value);
  }
  if (!folder.tokenizer.empty() && value_of(train, "data.type") == "tokens" && value_of(train, "data.tokenizer").is_null()) {
    out.config["data"]["tokenizer"] = folder.tokenizer.string();
    of_data += ", data.tokenizer " + folder.tokenizer.string();
  }
  const Json block = value_of(out.config, "data.block_size");
  if (block.is_number_integer()) {
    const bool crop = value_of(train, "model.crop_positions") == true;
    const std::string why = block_size_problem(model, block.get<std::int64_t>(), crop, file);
    if (!why.empty()) problem("data.block_size", why + " (/data/block_size)");
  }
  out.note = "model.type auto: " + file + " describes a " + model.family + " model" + of_data;
  return out;
}

HuggingFaceFolder read_hugging_face_folder(const fs::path& init) {
  std::error_code unknown;
  const fs::path folder = fs::is_directory(init, unknown) ? init : init.parent_path();
  HuggingFaceFolder out{.file = folder / "config.json", .config = {}};
  if (!fs::exists(out.file, unknown)) {
    throw UsageError("model.type \"auto\" needs the config.json of a Hugging Face model next to the weights, but " +
                     out.file.string() + " does not exist");
  }
  const std::string text = read_bounded(out.file, kMaxConfigBytes, "a model's config");
  try {
    out.config = parse_json_within(text, {.depth = 16});
  } catch (const UsageError& problem) {
    throw UsageError(out.file.string() + ": " + problem.what());
  }
  if (!is_hugging_face_config(out.config)) {
    throw UsageError(
        out.file.string() +
        " is not a config of a Hugging Face model, which has the key model_type: set model.type and its keys instead "
        "of \"auto\"");
  }
  const bool both = fs::exists(folder / "vocab.json", unknown) && fs::exists(folder / "merges.txt", unknown);
  if (both || fs::exists(folder / "tokenizer.json", unknown)) out.tokenizer = folder;
  return out;
}

}  // namespace ddprun
