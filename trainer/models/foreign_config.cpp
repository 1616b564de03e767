// Implementation of foreign_config.hpp. common/hugging_face reads configs of Hugging Face, and this file reads configs of
// timm.
#include "trainer/models/foreign_config.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "common/config/keys.hpp"
#include "common/hugging_face/model_facts.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;
using Type = ModelConfig::Type;

std::string name_of(Type type) {
  return std::string(std::get<NameKind>(find_key("model.type")->kind).names.at(static_cast<std::size_t>(type)));
}

bool is_resnet(Type type) {
  return type == Type::kResnet18 || type == Type::kResnet34 || type == Type::kResnet50 || type == Type::kResnet20 ||
         type == Type::kResnet56;
}

// Returns the value of a key in this config. A value of 0 can mean that the value is derived from other keys. The function
// then returns the derived value.
json value_of(const std::string& key, const TrainConfig& config) {
  const ModelConfig& model = config.model;
  if (key == "model.n_kv_head") return model.key_value_heads();
  if (key == "model.head_dim") return model.head_width();
  if (key == "model.n_inner") return model.inner_width();
  return find_key(key)->get(config);
}

// Collects a text for each difference. The public functions return these texts.
class Differences {
 public:
  // `shown` is the value of `their_key` as it is written in the file.
  void compare(const std::string& key, const json& ours, const std::string& their_key, const json& theirs, const json& shown) {
    if (same_setting(ours, theirs)) return;
    add(key + " is " + setting_text(ours) + " in this config, but " + their_key + " is " + setting_text(shown) +
        " in that file");
  }
  void add(const std::string& text) { text_ += (text_.empty() ? "" : "; ") + text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Reads keys of a timm config, and records each unexpected value in `differences`.
class TimmKeys {
 public:
  TimmKeys(const json& value, Differences& differences) : value_(value), differences_(differences) {}

  // Returns nullptr if the key is missing or its value is null.
  const json* find(const char* key) const {
    const auto found = value_.find(key);
    return found == value_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<double> number(const char* key) const {
    const json* const found = find(key);
    if (found == nullptr) return std::nullopt;
    if (found->is_number()) return found->get<double>();
    differences_.add(std::string(key) + " is " + setting_text(*found) + " in that file; expected a number");
    return std::nullopt;
  }

  std::string text(const char* key, const char* default_value) const {
    const json* const found = find(key);
    if (found == nullptr) return default_value;
    return found->is_string() ? found->get<std::string>() : setting_text(*found);
  }

  // ddprun supports only one value of this key, the parameter `supported`. The function adds a difference if the file has
  // another value.
  void expect(const char* key, const char* supported) const {
    const std::string found = text(key, supported);
    if (found == supported) return;
    differences_.add(std::string(key) + " is " + setting_text(found) + " in that file, but ddptrain supports only \"" +
                     supported + "\"");
  }

 private:
  const json& value_;
  Differences& differences_;
};

// Compares the model with a config of Hugging Face.
void compare_hugging_face(const json& file, const TrainConfig& config, Differences& differences) {
  const ModelFacts theirs = model_facts(file);
  const std::string ours = name_of(config.model.type);
  if (theirs.type != ours) {
    return differences.add("model.type is \"" + ours + "\" in this config, but model_type is " + setting_text(theirs.family) +
                           " in that file: another kind of model, even if its tensors have the same names");
  }
  for (const std::string& refusal : theirs.refusals) differences.add(refusal);
  bool same_scaling = true;  // false if the kind of scaling differs; the numbers of the scaling are then not compared
  for (const ModelFact& fact : theirs.facts) {
    const bool compared = fact.kind == ModelFact::Kind::kCompared || (fact.kind == ModelFact::Kind::kIfStated && fact.stated);
    if (!compared || (!same_scaling && fact.key.starts_with("model.rope_"))) continue;
    const json mine = value_of(fact.key, config);
    if (fact.key == "model.rope_scaling") same_scaling = same_setting(mine, fact.value);
    differences.compare(fact.key, mine, fact.their_key, fact.value, fact.their_value);
  }
  const std::string problem = block_size_problem(theirs, config.data.block_size, config.model.crop_positions);
  if (!problem.empty()) differences.add(problem);
}

// Derives the number of heads from the name of a timm model: "vit_tiny_patch16_224" has three heads. Returns nullopt for an
// unknown size.
std::optional<double> heads_by_name(const std::string& architecture) {
  for (const auto& [size, heads] :
       {std::pair{"_tiny_", 3.0}, {"_small_", 6.0}, {"_medium_", 8.0}, {"_base_", 12.0}, {"_large_", 16.0}, {"_huge_", 16.0}}) {
    if (architecture.find(size) != std::string::npos) return heads;
  }
  return std::nullopt;
}

void compare_timm(const TimmKeys& theirs, const ModelConfig& ours, Differences& differences) {
  const std::string architecture = theirs.text("architecture", "");
  if (is_resnet(ours.type)) {
    if (architecture != name_of(ours.type)) {
      differences.add("model.type is \"" + name_of(ours.type) + "\" in this config, but architecture is " +
                      setting_text(architecture) + " in that file");
    }
    return;
  }
  if (!architecture.starts_with("vit_") && !architecture.starts_with("deit_")) {
    return differences.add("model.type is \"vit\" in this config, but architecture is " + setting_text(architecture) +
                           " in that file, which is another kind of model");
  }
  theirs.expect("global_pool", "token");
  std::optional<double> heads = heads_by_name(architecture);
  if (const json* const given = theirs.find("model_args"); given != nullptr && given->is_object()) {
    const TimmKeys arguments(*given, differences);
    if (const auto number = arguments.number("num_heads")) heads = number;
    arguments.expect("act_layer", "gelu");
    arguments.expect("global_pool", "token");
  }
  if (heads) differences.compare("model.n_head", ours.n_head, "num_heads", *heads, *heads);
}

}  // namespace

bool is_foreign_config(const json& value) {
  return value.is_object() && (value.contains("model_type") || value.contains("architecture"));
}

std::string foreign_contradictions(const json& value, const TrainConfig& config) {
  Differences differences;
  const ModelConfig& ours = config.model;
  if (value.contains("model_type") && ours.is_language_model()) {
    compare_hugging_face(value, config, differences);
  } else if (value.contains("architecture") && (ours.type == Type::kVit || is_resnet(ours.type))) {
    compare_timm(TimmKeys(value, differences), ours, differences);
  }
  return differences.text();
}

std::string contradictions(const ModelConfig& theirs, const ModelConfig& ours) {
  const auto compared = [](const ModelConfig& model) { return model.is_language_model() || model.type == Type::kVit; };
  if (!compared(ours) && !is_resnet(ours.type)) return "";
  Differences differences;
  if (theirs.type != ours.type) {
    differences.add("model.type is \"" + name_of(ours.type) + "\" in this config, but \"" + name_of(theirs.type) +
                    "\" in that file");
    return differences.text();
  }
  std::vector<const char*> keys{"model.n_head"};
  if (ours.type == Type::kLlama) {
    keys.insert(keys.end(), {"model.n_kv_head", "model.rope_theta", "model.rope_scaling", "model.rms_norm_eps"});
    if (ours.n_head == theirs.n_head) keys.push_back("model.head_dim");
    if (ours.rope_scaling != ModelConfig::RopeScaling::kNone && ours.rope_scaling == theirs.rope_scaling) {
      keys.push_back("model.rope_factor");
    }
    if (ours.rope_scaling == ModelConfig::RopeScaling::kLlama3 && ours.rope_scaling == theirs.rope_scaling) {
      keys.insert(keys.end(), {"model.rope_low_freq_factor", "model.rope_high_freq_factor", "model.rope_original_positions"});
    }
  }
  if (!compared(ours)) keys.clear();
  TrainConfig mine, other;
  mine.model = ours, other.model = theirs;
  for (const char* const key : keys) {
    const json value = value_of(key, other);
    differences.compare(key, value_of(key, mine), key, value, value);
  }
  return differences.text();
}

std::string keys_without_a_shape(const ModelConfig& config) {
  if (!config.is_language_model() && config.type != Type::kVit) return "";
  std::string text = "n_head " + std::to_string(config.n_head);
  if (config.type == Type::kLlama) {
    TrainConfig whole;
    whole.model = config;
    text += ", rope_theta " + setting_text(config.rope_theta) + ", rms_norm_eps " + setting_text(config.rms_norm_eps);
    if (config.rope_scaling != ModelConfig::RopeScaling::kNone) {
      text += ", rope_scaling " + setting_text(find_key("model.rope_scaling")->get(whole));
    }
  }
  return text;
}

}  // namespace ddprun::trainer
