#include "common/hugging_face/model_facts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "common/bounded/short_quote.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;
using Kind = ModelFact::Kind;

// A family with Llama's tensor names. The numbers are the defaults of its config class in transformers.
struct Family {
  std::string_view name;
  std::int64_t vocabulary;
  std::int64_t inner;
  std::int64_t key_value_heads;  // 0: equal to the number of heads
  std::int64_t head_width;       // 0: width / heads
  std::int64_t max_positions;
  std::string_view bias;  // model.attention_bias; empty if the setting attention_bias determines it
  bool qk_norm;
  std::int64_t window;  // default of sliding_window; 0: the family has no default
};
constexpr std::array<Family, 4> kFamilies{{
    {"llama", 32000, 11008, 0, 0, 2048, "", false, 0},
    {"mistral", 32000, 14336, 8, 0, 131072, "none", false, 4096},
    {"qwen2", 151936, 22016, 32, 0, 32768, "qkv", false, 0},
    {"qwen3", 151936, 22016, 32, 128, 32768, "", true, 0},
}};

// Settings of other families that change the results. A config of a known family is refused if it has such a setting, because
// the program that wrote the setting probably applies it. The value 1 is accepted for a factor.
constexpr std::array kOtherFactors{"embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale"};
constexpr std::array kOtherSettings{"attention_multiplier",
                                    "query_pre_attn_scalar",
                                    "attn_logit_softcapping",
                                    "final_logit_softcapping",
                                    "scale_emb",
                                    "scale_depth",
                                    "dim_model_base",
                                    "use_qk_norm",
                                    "qk_layernorm",
                                    "clip_qkv",
                                    "alibi",
                                    "no_rope_layers",
                                    "attention_chunk_size",
                                    "kv_lora_rank",
                                    "num_experts",
                                    "num_local_experts",
                                    "n_routed_experts",
                                    "quantization_config",
                                    "auto_map"};

bool is_unset(const Json& value) {
  return value.is_null() || value == false || (value.is_number() && value == 0) || (value.is_structured() && value.empty());
}

bool is_whole(const Json& value) {
  constexpr double kMax = 9007199254740992.0;  // 2^53
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  return std::abs(number) <= kMax && number == std::floor(number);
}

// Reads the settings of a file, or of an object within it, and adds facts and refusals.
class Settings {
 public:
  Settings(const Json& file, ModelFacts& out, std::string prefix = "") : file_(file), out_(out), prefix_(std::move(prefix)) {}

  // Returns nullptr if the setting is missing or null.
  const Json* find(const char* name) const {
    const auto found = file_.find(name);
    return found == file_.end() || found->is_null() ? nullptr : &*found;
  }
  bool is_null(const char* name) const { return file_.contains(name) && file_.at(name).is_null(); }

  std::string text(const char* name, const std::string& otherwise) const {
    const Json* const found = find(name);
    if (found == nullptr) return otherwise;
    return found->is_string() ? found->get<std::string>() : setting_text(*found);
  }
  std::optional<double> number(const char* name) const {
    const Json* const found = find(name);
    if (found == nullptr || found->is_number()) return found ? std::optional(found->get<double>()) : std::nullopt;
    refuse(name, *found, "; expected a number");
    return std::nullopt;
  }
  std::int64_t whole(const char* name, std::int64_t otherwise) const {
    const Json* const found = find(name);
    if (found == nullptr) return otherwise;
    if (is_whole(*found)) return static_cast<std::int64_t>(found->get<double>());
    refuse(name, *found, found->is_number() ? "; expected an integer" : "; expected a number");
    return otherwise;
  }
  bool flag(const char* name, bool otherwise) const {
    const Json* const found = find(name);
    if (found == nullptr || found->is_boolean()) return found ? found->get<bool>() : otherwise;
    refuse(name, *found, "; expected true or false");
    return otherwise;
  }

  // Refuses each value of the setting that is not in `possible`. The message names the first value of `possible`.
  void expect_one_of(const char* name, std::initializer_list<Json> possible) const {
    const Json* const found = find(name);
    if (found == nullptr) return;
    if (std::ranges::any_of(possible, [&](const Json& each) { return same_setting(each, *found); })) return;
    refuse(name, *found, ", but ddptrain supports only " + setting_text(*possible.begin()));
  }
  void refuse(const std::string& name, const Json& value, const std::string& why) const {
    out_.refusals.push_back(prefix_ + name + " is " + setting_text(value) + " in that file" + why);
  }

  void add(Kind kind, const char* key, const Json& value, const char* name) const {
    const Json* const found = find(name);
    out_.facts.push_back({key, value, prefix_ + name, found ? *found : value, kind, found != nullptr});
  }
  void add_whole(Kind kind, const char* key, const char* name, std::int64_t otherwise) const {
    add(kind, key, whole(name, otherwise), name);
  }

 private:
  const Json& file_;
  ModelFacts& out_;
  std::string prefix_;
};

void refuse_other_families(const Settings& file) {
  for (const char* const name : kOtherFactors) {
    const Json* const found = file.find(name);
    if (found != nullptr && !is_unset(*found) && !same_setting(*found, 1)) {
      file.refuse(name, *found, ", but ddptrain does not multiply by this factor");
    }
  }
  for (const char* const name : kOtherSettings) {
    const Json* const found = file.find(name);
    if (found != nullptr && !is_unset(*found)) file.refuse(name, *found, ", but ddptrain does not support this setting");
  }
}

void add_gpt2(const Settings& file, ModelFacts& out) {
  constexpr std::int64_t kVocabulary = 50257, kPositions = 1024, kWidth = 768, kBlocks = 12, kHeads = 12;
  constexpr double kEpsilon = 1e-5, kDropout = 0.1;
  out.type = "gpt";
  const std::int64_t width = file.whole("n_embd", kWidth);
  file.add_whole(Kind::kIfStated, "model.n_layer", "n_layer", kBlocks);
  file.add_whole(Kind::kCompared, "model.n_head", "n_head", kHeads);
  file.add(Kind::kIfStated, "model.n_embd", width, "n_embd");
  file.add_whole(Kind::kIfStated, "data.vocab_size", "vocab_size", kVocabulary);
  const std::int64_t positions = file.whole("n_positions", kPositions);
  file.add(Kind::kSuggested, "data.block_size", positions, "n_positions");
  if (file.find("n_positions") != nullptr) out.positions = positions;
  const double dropout = file.number("resid_pdrop").value_or(kDropout);
  const bool one_dropout =
      file.number("embd_pdrop").value_or(kDropout) == dropout && file.number("attn_pdrop").value_or(kDropout) == dropout;
  // If the three probabilities differ, the dropout remains at the default of train.json.
  if (one_dropout) file.add(Kind::kSuggested, "model.dropout", dropout, "resid_pdrop");
  file.expect_one_of("n_inner", {4 * width});
  file.expect_one_of("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  file.expect_one_of("layer_norm_epsilon", {kEpsilon});
  file.expect_one_of("scale_attn_weights", {true});
  file.expect_one_of("scale_attn_by_inverse_layer_idx", {false});
  file.expect_one_of("add_cross_attention", {false});
  file.expect_one_of("tie_word_embeddings", {true});
}

// Adds the settings of the scaling "llama3" that have no default.
void add_llama3_scaling(const Settings& rope, std::int64_t max_positions) {
  for (const auto& [key, name] :
       {std::pair{"model.rope_low_freq_factor", "low_freq_factor"}, {"model.rope_high_freq_factor", "high_freq_factor"}}) {
    if (const auto value = rope.number(name)) {
      rope.add(Kind::kCompared, key, *value, name);
    } else {
      rope.refuse(name, nullptr, "; the scaling \"llama3\" needs a number");
    }
  }
  rope.add_whole(Kind::kCompared, "model.rope_original_positions", "original_max_position_embeddings", max_positions);
}

// Adds the settings of rotary positions. They are at the top level (rope_theta) and in rope_scaling. Version 5 of transformers
// and later versions write them into rope_parameters. If a file has both objects, transformers uses rope_scaling.
void add_rope(const Settings& file, ModelFacts& out, std::int64_t max_positions) {
  constexpr double kTheta = 10000;
  const Json* section = nullptr;
  std::string name;
  for (const char* const each : {"rope_parameters", "rope_scaling"}) {
    const Json* const found = file.find(each);
    if (found == nullptr) continue;
    if (!found->is_object()) {
      file.refuse(each, *found, "; expected an object");
    } else if (!found->empty()) {
      section = found, name = each;
    }
  }
  file.expect_one_of("partial_rotary_factor", {1});
  const double theta = file.number("rope_theta").value_or(kTheta);
  if (section == nullptr) {
    file.add(Kind::kCompared, "model.rope_theta", theta, "rope_theta");
    file.add(Kind::kCompared, "model.rope_scaling", "none", "rope_scaling");
    return;
  }
  const Settings rope(*section, out, name + ".");
  const auto inner_theta = rope.number("rope_theta");
  (inner_theta ? rope : file).add(Kind::kCompared, "model.rope_theta", inner_theta.value_or(theta), "rope_theta");
  for (const auto& [setting, value] : section->items()) {
    constexpr std::array<std::string_view, 8> kKnown{"rope_type",        "type",
                                                     "rope_theta",       "factor",
                                                     "low_freq_factor",  "high_freq_factor",
                                                     "attention_factor", "partial_rotary_factor"};
    if (std::ranges::find(kKnown, setting) != kKnown.end() || setting == "original_max_position_embeddings") continue;
    if (!is_unset(value)) rope.refuse(setting, value, ", but ddptrain does not support this setting of rotary positions");
  }
  rope.expect_one_of("partial_rotary_factor", {1});
  const std::string scaling = rope.text("rope_type", rope.text("type", "default"));
  const bool scaled = scaling == "linear" || scaling == "llama3";
  if (!scaled && scaling != "default") {
    rope.refuse("rope_type", scaling,
                ", but ddptrain supports only the scalings \"linear\" and \"llama3\" of rotary positions");
    return;
  }
  rope.add(Kind::kCompared, "model.rope_scaling", scaled ? scaling : "none", "rope_type");
  out.facts.back().their_value = scaling;
  if (!scaled) return;
  rope.expect_one_of("attention_factor", {1});
  if (const auto factor = rope.number("factor")) {
    rope.add(Kind::kCompared, "model.rope_factor", *factor, "factor");
  } else {
    rope.refuse("factor", nullptr, "; a scaling of rotary positions needs a number");
  }
  if (scaling != "llama3") return;
  const Json* const before = file.find("original_max_position_embeddings");
  if (before != nullptr) return add_llama3_scaling(rope, file.whole("original_max_position_embeddings", max_positions));
  add_llama3_scaling(rope, max_positions);
}

// Returns the number of tokens to which a token attends. Config files of Qwen models contain sliding_window even if no layer
// uses it.
std::int64_t window_of(const Settings& file, const Family& family, std::int64_t blocks) {
  constexpr std::int64_t kBlocksWithout = 28, kQwenWindow = 4096;
  const bool qwen = family.name.starts_with("qwen");
  bool slides = false;
  const Json* const layers = file.find("layer_types");
  if (layers != nullptr && layers->is_array()) {
    for (const Json& layer : *layers) {
      const bool sliding = qwen && layer == "sliding_attention";
      slides = slides || sliding;
      if (sliding || layer == "full_attention") continue;
      file.refuse("layer_types", layer, ", but ddptrain supports only \"full_attention\"");
      break;
    }
  } else {
    slides = file.whole("max_window_layers", kBlocksWithout) < blocks;
  }
  if (qwen && (!slides || !file.flag("use_sliding_window", false))) return 0;
  return file.is_null("sliding_window") ? 0 : file.whole("sliding_window", qwen ? kQwenWindow : family.window);
}

void add_llama(const Settings& file, const Family& family, ModelFacts& out) {
  constexpr std::int64_t kWidth = 4096, kBlocks = 32, kHeads = 32, kDefaultBlock = 1024;
  constexpr double kEpsilon = 1e-6;
  out.type = "llama";
  const std::int64_t blocks = file.whole("num_hidden_layers", kBlocks), width = file.whole("hidden_size", kWidth),
                     heads = file.whole("num_attention_heads", kHeads);
  file.add(Kind::kIfStated, "model.n_layer", blocks, "num_hidden_layers");
  file.add(Kind::kCompared, "model.n_head", heads, "num_attention_heads");
  const std::int64_t shared_by_default =
      family.key_value_heads > 0 && !file.is_null("num_key_value_heads") ? family.key_value_heads : heads;
  file.add_whole(Kind::kCompared, "model.n_kv_head", "num_key_value_heads", shared_by_default);
  file.add(Kind::kIfStated, "model.n_embd", width, "hidden_size");
  const std::int64_t equal_width = heads > 0 ? width / heads : 0;
  file.add_whole(family.head_width > 0 ? Kind::kCompared : Kind::kIfStated, "model.head_dim", "head_dim",
                 family.head_width > 0 ? family.head_width : equal_width);
  file.add_whole(Kind::kIfStated, "model.n_inner", "intermediate_size", family.inner);
  file.add_whole(Kind::kIfStated, "data.vocab_size", "vocab_size", family.vocabulary);
  file.add(Kind::kCompared, "model.rms_norm_eps", file.number("rms_norm_eps").value_or(kEpsilon), "rms_norm_eps");
  file.add(Kind::kIfStated, "model.tie_word_embeddings", file.flag("tie_word_embeddings", false), "tie_word_embeddings");
  const bool chosen_bias = family.bias.empty();
  const std::string bias = !chosen_bias ? std::string(family.bias) : file.flag("attention_bias", false) ? "all" : "none";
  file.add(Kind::kCompared, "model.attention_bias", bias, chosen_bias ? "attention_bias" : "model_type");
  file.add(Kind::kCompared, "model.qk_norm", family.qk_norm, "model_type");
  const std::int64_t max_positions = file.whole("max_position_embeddings", family.max_positions);
  add_rope(file, out, max_positions);
  out.window = window_of(file, family, blocks);
  const std::int64_t block = std::min({kDefaultBlock, max_positions, out.window > 0 ? out.window : kDefaultBlock});
  file.add(Kind::kSuggested, "data.block_size", block, "max_position_embeddings");
  file.expect_one_of("hidden_act", {"silu", "swish"});
  file.expect_one_of("attention_dropout", {0});
  file.expect_one_of("mlp_bias", {false});
  if (family.name == "mistral") file.expect_one_of("attention_bias", {false});
}

}  // namespace

bool is_hugging_face_config(const Json& value) {
  return value.is_object() && value.contains("model_type");
}

ModelFacts model_facts(const Json& file) {
  ModelFacts out;
  const Settings settings(file, out);
  out.family = settings.text("model_type", "");
  if (out.family == "gpt2") add_gpt2(settings, out);
  for (const Family& family : kFamilies) {
    if (out.family == family.name) add_llama(settings, family, out);
  }
  if (!out.type.empty()) refuse_other_families(settings);
  return out;
}

std::string block_size_problem(const ModelFacts& model, std::int64_t block_size, bool crop, const std::string& file) {
  const std::string block = std::to_string(block_size), positions = std::to_string(model.positions);
  const std::string both = "data.block_size is " + block + " in this config, but n_positions is " + positions + " in " + file;
  if (model.positions > 0 && block_size > model.positions) return both + ": expected at most that number";
  if (model.positions > 0 && block_size < model.positions && !crop) {
    return both + ": set data.block_size to " + positions + ", or set model.crop_positions to true to use only the first " +
           block + " positions";
  }
  if (model.window > 0 && model.window < block_size) {
    return "sliding_window is " + std::to_string(model.window) + " in " + file +
           ", but ddptrain supports no sliding window below data.block_size (" + block + ")";
  }
  return "";
}

bool same_setting(const Json& one, const Json& other) {
  constexpr double kRounding = 1e-9;  // relative tolerance, because a file may contain rounded numbers
  if (!one.is_number() || !other.is_number()) return one == other;
  const auto a = one.get<double>(), b = other.get<double>();
  return std::abs(a - b) <= kRounding * std::max(std::abs(a), std::abs(b));
}

std::string setting_text(const Json& value) {
  if (value.is_number_float()) {
    constexpr int kDigits = 15;  // all decimal digits that a double represents
    std::array<char, 40> text{};
    // std::to_chars() for a double would load libm (common/base/numbers.hpp).
    std::snprintf(text.data(), text.size(), "%.*g", kDigits, value.get<double>());
    return text.data();
  }
  return short_quote(value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
}

}  // namespace ddprun
