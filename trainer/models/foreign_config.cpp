// Implementation of foreign_config.hpp. If a file of Hugging Face lacks a key, the default of the corresponding Hugging Face
// class is used.
#include "trainer/models/foreign_config.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/printable.hpp"
#include "common/config/keys.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;
using Type = ModelConfig::Type;

constexpr std::size_t kMaxQuoteBytes = 100;  // maximum length of a value that is quoted in a message

std::string text_of(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string json_text(const json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  if (text.size() > kMaxQuoteBytes) text = text.substr(0, kMaxQuoteBytes) + "...";
  return printable(text);
}

std::string name_of(Type type) {
  return std::string(std::get<NameKind>(find_key("model.type")->kind).names.at(static_cast<std::size_t>(type)));
}

bool is_resnet(Type type) {
  return type == Type::kResnet18 || type == Type::kResnet34 || type == Type::kResnet50 || type == Type::kResnet20 ||
         type == Type::kResnet56;
}

std::int64_t key_heads(const ModelConfig& config) {
  return config.n_kv_head > 0 ? config.n_kv_head : config.n_head;
}

bool same(double a, double b) {
  constexpr double kRounding = 1e-9;  // relative tolerance, since a file may contain rounded numbers
  return std::abs(a - b) <= kRounding * std::max(std::abs(a), std::abs(b));
}

// Collects a text for each difference. The public functions return these texts.
class Differences {
 public:
  void number(const std::string& key, double ours, const std::string& their_key, double theirs) {
    if (same(ours, theirs)) return;
    add(key + " is " + text_of(ours) + " in this config, but " + their_key + " is " + text_of(theirs) + " in that file");
  }
  void add(const std::string& text) { text_ += (text_.empty() ? "" : "; ") + text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Reads keys of another program's config file, and records each unexpected value in `differences`.
class ForeignKeys {
 public:
  ForeignKeys(const json& value, Differences& differences) : value_(value), differences_(differences) {}

  // Returns nullptr if the key is missing or its value is null.
  const json* find(const char* key) const {
    const auto found = value_.find(key);
    return found == value_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<double> number(const char* key) const {
    const json* const found = find(key);
    if (found == nullptr) return std::nullopt;
    if (found->is_number()) return found->get<double>();
    differences_.add(std::string(key) + " is " + json_text(*found) + " in that file; expected a number");
    return std::nullopt;
  }

  std::string text(const char* key, const char* default_value) const {
    const json* const found = find(key);
    if (found == nullptr) return default_value;
    return found->is_string() ? found->get<std::string>() : json_text(*found);
  }

  // Adds a difference if the value of the key is none of the values that ddprun supports.
  void expect_one_of(const char* key, const char* default_value, std::initializer_list<std::string_view> possible) const {
    const std::string found = text(key, default_value);
    for (const std::string_view each : possible) {
      if (found == each) return;
    }
    differences_.add(std::string(key) + " is " + json_text(found) + " in that file, but ddptrain supports only \"" +
                     std::string(*possible.begin()) + "\"");
  }
  void expect(const char* key, bool expected) const {
    const json* const found = find(key);
    if (found == nullptr || (found->is_boolean() && found->get<bool>() == expected)) return;
    differences_.add(std::string(key) + " is " + json_text(*found) + " in that file, but ddptrain supports only " +
                     (expected ? "true" : "false"));
  }
  void expect(const char* key, double expected) const {
    if (const auto found = number(key); found && !same(*found, expected)) {
      differences_.add(std::string(key) + " is " + text_of(*found) + " in that file, but ddptrain supports only " +
                       text_of(expected));
    }
  }

 private:
  const json& value_;
  Differences& differences_;
};

void compare_gpt2(const ForeignKeys& theirs, const ModelConfig& ours, Differences& differences) {
  constexpr double kHeads = 12, kEpsilon = 1e-5;
  differences.number("model.n_head", static_cast<double>(ours.n_head), "n_head", theirs.number("n_head").value_or(kHeads));
  theirs.expect_one_of("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
  theirs.expect("layer_norm_epsilon", kEpsilon);
  theirs.expect("scale_attn_weights", true);
  theirs.expect("scale_attn_by_inverse_layer_idx", false);
}

// Compares rotary positions. Their keys are at the top level (rope_theta, rope_scaling) or, since version 5 of transformers, in
// rope_parameters.
void compare_rope(const ForeignKeys& theirs, const ModelConfig& ours, Differences& differences) {
  constexpr double kTheta = 10000;
  double theta = theirs.number("rope_theta").value_or(kTheta);
  for (const char* const section : {"rope_parameters", "rope_scaling"}) {
    const json* const found = theirs.find(section);
    if (found == nullptr) continue;
    if (!found->is_object()) {
      differences.add(std::string(section) + " is " + json_text(*found) + " in that file; expected an object");
      continue;
    }
    const ForeignKeys inside(*found, differences);
    theta = inside.number("rope_theta").value_or(theta);
    const std::string type = inside.text("rope_type", inside.text("type", "default").c_str());
    if (type != "default") {
      differences.add(std::string(section) + ".rope_type is " + json_text(type) +
                      " in that file, but ddptrain does not support scaled rotary positions");
    }
    inside.expect("partial_rotary_factor", 1.0);
  }
  theirs.expect("partial_rotary_factor", 1.0);
  differences.number("model.rope_theta", ours.rope_theta, "rope_theta", theta);
}

void compare_llama(const ForeignKeys& theirs, const TrainConfig& config, bool mistral, Differences& differences) {
  constexpr double kHeads = 32, kEpsilon = 1e-6;
  const ModelConfig& ours = config.model;
  const double heads = theirs.number("num_attention_heads").value_or(kHeads);
  differences.number("model.n_head", static_cast<double>(ours.n_head), "num_attention_heads", heads);
  const auto key_value_heads = theirs.number("num_key_value_heads");
  if (key_value_heads || !mistral) {
    differences.number("model.n_kv_head", static_cast<double>(key_heads(ours)), "num_key_value_heads",
                       key_value_heads.value_or(heads));
  }
  if (const auto width = theirs.number("head_dim"); width && ours.n_head > 0) {
    differences.number("the head width (model.n_embd / model.n_head)",
                       static_cast<double>(ours.n_embd) / static_cast<double>(ours.n_head), "head_dim", *width);
  }
  theirs.expect_one_of("hidden_act", "silu", {"silu", "swish"});
  differences.number("model.rms_norm_eps", ours.rms_norm_eps, "rms_norm_eps", theirs.number("rms_norm_eps").value_or(kEpsilon));
  compare_rope(theirs, ours, differences);
  if (const auto window = theirs.number("sliding_window"); window && *window < static_cast<double>(config.data.block_size)) {
    differences.add("sliding_window is " + text_of(*window) +
                    " in that file, but ddptrain supports no sliding window below data.block_size (" +
                    std::to_string(config.data.block_size) + ")");
  }
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

void compare_timm(const ForeignKeys& theirs, const ModelConfig& ours, Differences& differences) {
  const std::string architecture = theirs.text("architecture", "");
  if (is_resnet(ours.type)) {
    if (architecture != name_of(ours.type)) {
      differences.add("model.type is \"" + name_of(ours.type) + "\" in this config, but architecture is " +
                      json_text(architecture) + " in that file");
    }
    return;
  }
  if (!architecture.starts_with("vit_") && !architecture.starts_with("deit_")) {
    return differences.add("model.type is \"vit\" in this config, but architecture is " + json_text(architecture) +
                           " in that file, which is another kind of model");
  }
  theirs.expect_one_of("global_pool", "token", {"token"});
  std::optional<double> heads = heads_by_name(architecture);
  if (const json* const given = theirs.find("model_args"); given != nullptr && given->is_object()) {
    const ForeignKeys arguments(*given, differences);
    if (const auto number = arguments.number("num_heads")) heads = number;
    arguments.expect_one_of("act_layer", "gelu", {"gelu"});
    arguments.expect_one_of("global_pool", "token", {"token"});
  }
  if (heads) differences.number("model.n_head", static_cast<double>(ours.n_head), "num_heads", *heads);
}

}  // namespace

bool is_foreign_config(const json& value) {
  return value.is_object() && (value.contains("model_type") || value.contains("architecture"));
}

std::string foreign_contradictions(const json& value, const TrainConfig& config) {
  Differences differences;
  const ForeignKeys theirs(value, differences);
  const ModelConfig& ours = config.model;
  if (value.contains("model_type") && ours.is_language_model()) {
    const std::string family = theirs.text("model_type", "");
    const bool gpt = ours.type == Type::kGpt;
    if (gpt ? family == "gpt2" : family == "llama" || family == "mistral") {
      if (gpt) compare_gpt2(theirs, ours, differences);
      if (!gpt) compare_llama(theirs, config, family == "mistral", differences);
    } else {
      differences.add("model.type is \"" + name_of(ours.type) + "\" in this config, but model_type is " + json_text(family) +
                      " in that file: another kind of model, even if its tensors have the same names");
    }
  } else if (value.contains("architecture") && (ours.type == Type::kVit || is_resnet(ours.type))) {
    compare_timm(theirs, ours, differences);
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
  const auto compare = [&](const char* key, double mine, double other) { differences.number(key, mine, key, other); };
  if (compared(ours)) compare("model.n_head", static_cast<double>(ours.n_head), static_cast<double>(theirs.n_head));
  if (ours.type == Type::kLlama) {
    compare("model.n_kv_head", static_cast<double>(key_heads(ours)), static_cast<double>(key_heads(theirs)));
    compare("model.rope_theta", ours.rope_theta, theirs.rope_theta);
    compare("model.rms_norm_eps", ours.rms_norm_eps, theirs.rms_norm_eps);
  }
  return differences.text();
}

std::string keys_without_a_shape(const ModelConfig& config) {
  if (!config.is_language_model() && config.type != Type::kVit) return "";
  std::string text = "n_head " + std::to_string(config.n_head);
  if (config.type == Type::kLlama) {
    text += ", rope_theta " + text_of(config.rope_theta) + ", rms_norm_eps " + text_of(config.rms_norm_eps);
  }
  return text;
}

}  // namespace ddprun::trainer
