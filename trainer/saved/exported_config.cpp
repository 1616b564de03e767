#include "trainer/saved/exported_config.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/models/foreign_config.hpp"

namespace ddprun::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Bias = ModelConfig::AttentionBias;
using Scaling = ModelConfig::RopeScaling;

// Returns the class of transformers that computes a model of type llama, and the model_type of this class.
std::pair<const char*, const char*> class_of(const ModelConfig& model) {
  if (model.qk_norm && model.attention_bias == Bias::kQkv) {
    throw UsageError("no model of transformers has both model.qk_norm true and model.attention_bias \"qkv\"");
  }
  if (model.qk_norm) return {"Qwen3ForCausalLM", "qwen3"};
  if (model.attention_bias == Bias::kQkv) return {"Qwen2ForCausalLM", "qwen2"};
  // LlamaConfig refuses a width that is not a multiple of the number of heads.
  if (model.n_embd % model.n_head != 0 && model.attention_bias == Bias::kNone) return {"MistralForCausalLM", "mistral"};
  return {"LlamaForCausalLM", "llama"};
}

OrderedJson rope_scaling_of(const ModelConfig& model) {
  if (model.rope_scaling == Scaling::kNone) return nullptr;
  if (model.rope_scaling == Scaling::kLinear) return {{"rope_type", "linear"}, {"factor", model.rope_factor}};
  return {{"rope_type", "llama3"},
          {"factor", model.rope_factor},
          {"low_freq_factor", model.rope_low_freq_factor},
          {"high_freq_factor", model.rope_high_freq_factor},
          {"original_max_position_embeddings", model.rope_original_positions}};
}

// Returns the number of positions for the config.json. If the positions are scaled, this is at least the scaled number,
// because transformers warns if a scaled model does not have more than its original number of positions.
std::int64_t max_positions_of(const TrainConfig& config) {
  const ModelConfig& model = config.model;
  if (model.rope_scaling != Scaling::kLlama3) return config.data.block_size;
  const auto scaled = static_cast<std::int64_t>(static_cast<double>(model.rope_original_positions) * model.rope_factor);
  return std::max(config.data.block_size, scaled);
}

OrderedJson gpt2_config(const TrainConfig& config) {
  const ModelConfig& model = config.model;
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", config.data.vocab_size},
          {"n_positions", config.data.block_size},
          {"n_ctx", config.data.block_size},
          {"n_embd", model.n_embd},
          {"n_layer", model.n_layer},
          {"n_head", model.n_head},
          {"n_inner", nullptr},
          {"activation_function", "gelu_new"},
          {"resid_pdrop", model.dropout},
          {"embd_pdrop", model.dropout},
          {"attn_pdrop", model.dropout},
          {"layer_norm_epsilon", 1e-5},
          {"tie_word_embeddings", true}};
}

OrderedJson llama_config(const TrainConfig& config) {
  const ModelConfig& model = config.model;
  const auto [name, family] = class_of(model);
  OrderedJson out{{"architectures", {name}},
                  {"model_type", family},
                  {"vocab_size", config.data.vocab_size},
                  {"hidden_size", model.n_embd},
                  {"intermediate_size", model.inner_width()},
                  {"num_hidden_layers", model.n_layer},
                  {"num_attention_heads", model.n_head},
                  {"num_key_value_heads", model.key_value_heads()},
                  {"head_dim", model.head_width()},
                  {"hidden_act", "silu"},
                  {"max_position_embeddings", max_positions_of(config)},
                  {"rms_norm_eps", model.rms_norm_eps},
                  {"rope_theta", model.rope_theta},
                  {"rope_scaling", rope_scaling_of(model)},
                  {"attention_dropout", 0.0},
                  {"tie_word_embeddings", model.tie_word_embeddings}};
  if (out["model_type"] == "llama" || out["model_type"] == "qwen3") out["attention_bias"] = model.attention_bias == Bias::kAll;
  if (out["model_type"] == "llama") out["mlp_bias"] = false;
  if (out["model_type"] == "mistral") out["sliding_window"] = nullptr;
  return out;
}

}  // namespace

OrderedJson exported_config(const TrainConfig& config, const OrderedJson& source) {
  const bool gpt = config.model.type == ModelConfig::Type::kGpt;
  OrderedJson out = gpt ? gpt2_config(config) : llama_config(config);
  const bool same = is_foreign_config(source) && foreign_contradictions(source, config).empty();
  if (same) {
    const OrderedJson positions = out["n_positions"], architectures = out["architectures"];
    out = source;
    if (!out.contains("architectures") || out["architectures"].is_null()) out["architectures"] = architectures;
    if (gpt) out["n_positions"] = out["n_ctx"] = positions;
  } else {
    const auto end = config.data.end_of_document;
    for (const char* const key : {"bos_token_id", "eos_token_id"}) out[key] = end ? OrderedJson(*end) : OrderedJson(nullptr);
  }
  out.erase("torch_dtype");  // the name of dtype before version 5 of transformers
  out["dtype"] = "float32";
  return out;
}

}  // namespace ddprun::trainer
