// Tests the translation of a Hugging Face config.json to keys of train.json.
#include "common/hugging_face/model_facts.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace ddprun {
namespace {

using Json = nlohmann::json;

std::map<std::string, Json> by_key(const ModelFacts& model) {
  std::map<std::string, Json> values;
  for (const ModelFact& fact : model.facts) values[fact.key] = fact.value;
  return values;
}

std::map<std::string, Json> values_of(const Json& file) {
  const ModelFacts model = model_facts(file);
  EXPECT_TRUE(model.refusals.empty()) << file << model.refusals.front();
  return by_key(model);
}

TEST(ModelFacts, Gpt2) {
  const auto values = values_of({{"model_type", "gpt2"},
                                 {"n_layer", 3},
                                 {"n_head", 4},
                                 {"n_embd", 48},
                                 {"vocab_size", 300},
                                 {"n_positions", 64},
                                 {"resid_pdrop", 0.2},
                                 {"embd_pdrop", 0.2},
                                 {"attn_pdrop", 0.2}});
  const std::map<std::string, Json> expected{{"model.n_layer", 3},     {"model.n_head", 4},     {"model.n_embd", 48},
                                             {"data.vocab_size", 300}, {"data.block_size", 64}, {"model.dropout", 0.2}};
  EXPECT_EQ(values, expected);
  EXPECT_FALSE(values_of({{"model_type", "gpt2"}, {"resid_pdrop", 0.2}}).contains("model.dropout")) << "not one value";
}

TEST(ModelFacts, LlamaWithScaledRotaryPositions) {
  const Json file{{"model_type", "llama"},
                  {"hidden_size", 48},
                  {"num_attention_heads", 4},
                  {"num_key_value_heads", 2},
                  {"intermediate_size", 96},
                  {"num_hidden_layers", 2},
                  {"vocab_size", 300},
                  {"max_position_embeddings", 512},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 500000.0},
                  {"rope_scaling",
                   {{"rope_type", "llama3"},
                    {"factor", 32.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}}},
                  {"tie_word_embeddings", true}};
  const std::map<std::string, Json> expected{{"model.n_layer", 2},
                                             {"model.n_head", 4},
                                             {"model.n_kv_head", 2},
                                             {"model.n_embd", 48},
                                             {"model.head_dim", 12},
                                             {"model.n_inner", 96},
                                             {"data.vocab_size", 300},
                                             {"model.rms_norm_eps", 1e-5},
                                             {"model.tie_word_embeddings", true},
                                             {"model.attention_bias", "none"},
                                             {"model.qk_norm", false},
                                             {"model.rope_theta", 500000.0},
                                             {"model.rope_scaling", "llama3"},
                                             {"model.rope_factor", 32.0},
                                             {"model.rope_low_freq_factor", 1.0},
                                             {"model.rope_high_freq_factor", 4.0},
                                             {"model.rope_original_positions", 8192},
                                             {"data.block_size", 512}};
  EXPECT_EQ(values_of(file), expected);
  EXPECT_EQ(model_facts(file).type, "llama");
}

TEST(ModelFacts, TheDefaultsOfEachFamily) {
  const auto of = [](const char* family, const Json& more = Json::object()) {
    Json file{{"model_type", family}};
    file.update(more);
    return values_of(file);
  };
  EXPECT_EQ(of("llama")["model.n_kv_head"], 32);
  EXPECT_EQ(of("mistral")["model.n_kv_head"], 8);
  EXPECT_EQ(of("mistral", {{"num_key_value_heads", nullptr}, {"num_attention_heads", 16}})["model.n_kv_head"], 16);
  EXPECT_EQ(of("qwen2")["model.attention_bias"], "qkv");
  EXPECT_EQ(of("qwen2")["model.head_dim"], 128);
  EXPECT_EQ(of("qwen3")["model.qk_norm"], true);
  EXPECT_EQ(of("qwen3", {{"hidden_size", 64}})["model.head_dim"], 128) << "Qwen3 has a fixed width";
  EXPECT_EQ(of("llama", {{"attention_bias", true}})["model.attention_bias"], "all");
  EXPECT_EQ(of("llama")["data.block_size"], 1024) << "not the 2048 positions";
}

// In version 5 of transformers, the object rope_parameters contains the base of rotary positions.
TEST(ModelFacts, BothFormsOfRotaryPositions) {
  const auto of = [](const Json& more) {
    Json file{{"model_type", "llama"}};
    file.update(more);
    return values_of(file);
  };
  EXPECT_EQ(of({{"rope_theta", 100}})["model.rope_theta"], 100);
  EXPECT_EQ(of({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 200}}}})["model.rope_theta"], 200);
  const auto linear = of({{"rope_theta", 100}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  EXPECT_EQ(linear.at("model.rope_theta"), 100);
  EXPECT_EQ(linear.at("model.rope_scaling"), "linear");
  EXPECT_EQ(linear.at("model.rope_factor"), 2);
  EXPECT_EQ(of({{"rope_scaling", nullptr}})["model.rope_scaling"], "none");
}

TEST(ModelFacts, SlidingWindows) {
  const auto window = [](const Json& file) { return model_facts(file).window; };
  EXPECT_EQ(window({{"model_type", "mistral"}}), 4096);
  EXPECT_EQ(window({{"model_type", "mistral"}, {"sliding_window", nullptr}}), 0);
  EXPECT_EQ(window({{"model_type", "mistral"}, {"sliding_window", 64}}), 64);
  EXPECT_EQ(window({{"model_type", "qwen2"}, {"sliding_window", 64}}), 0) << "no layer uses it";
  const Json used{{"model_type", "qwen2"}, {"sliding_window", 64}, {"use_sliding_window", true}, {"num_hidden_layers", 4}};
  EXPECT_EQ(window(used), 0) << "only layers from max_window_layers on use it, which is 28";
  Json first = used, listed = used;
  first["max_window_layers"] = 2;
  EXPECT_EQ(window(first), 64);
  listed["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(window(listed), 64);
}

TEST(ModelFacts, UnsupportedSettingsAreRefusedByName) {
  const auto refusal = [](const char* family, const Json& more) {
    Json file{{"model_type", family}};
    file.update(more);
    const ModelFacts model = model_facts(file);
    EXPECT_EQ(model.refusals.size(), 1U) << file;
    return model.refusals.empty() ? "" : model.refusals.front();
  };
  EXPECT_EQ(refusal("gpt2", {{"activation_function", "relu"}}),
            "activation_function is \"relu\" in that file, but ddptrain supports only \"gelu_new\"");
  EXPECT_EQ(refusal("gpt2", {{"n_inner", 100}}), "n_inner is 100 in that file, but ddptrain supports only 3072");
  EXPECT_EQ(refusal("gpt2", {{"n_head", 4.5}}), "n_head is 4.5 in that file; expected an integer");
  EXPECT_EQ(refusal("llama", {{"logits_scaling", 8.0}}),
            "logits_scaling is 8 in that file, but ddptrain does not multiply by this factor");
  EXPECT_EQ(refusal("llama", {{"num_experts", 8}}),
            "num_experts is 8 in that file, but ddptrain does not support this setting");
  EXPECT_EQ(
      refusal("llama", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
      "rope_scaling.rope_type is \"yarn\" in that file, but ddptrain supports only the scalings \"linear\" and \"llama3\" of "
      "rotary positions");
  EXPECT_EQ(refusal("llama", {{"rope_scaling", {{"rope_type", "linear"}}}}),
            "rope_scaling.factor is null in that file; a scaling of rotary positions needs a number");
  EXPECT_EQ(
      refusal("llama", {{"rope_parameters", {{"rope_type", "default"}, {"mrope_section", {1, 2}}}}}),
      "rope_parameters.mrope_section is [1,2] in that file, but ddptrain does not support this setting of rotary positions");
  EXPECT_EQ(refusal("qwen2", {{"layer_types", {"linear_attention"}}}),
            "layer_types is \"linear_attention\" in that file, but ddptrain supports only \"full_attention\"");
  EXPECT_EQ(refusal("mistral", {{"attention_bias", true}}),
            "attention_bias is true in that file, but ddptrain supports only false");
  EXPECT_TRUE(model_facts({{"model_type", "llama"}, {"logits_scaling", 1.0}, {"num_experts", 0}}).refusals.empty());
}

TEST(ModelFacts, AnUnknownFamilyHasNoType) {
  EXPECT_EQ(model_facts({{"model_type", "gemma"}}).type, "");
  EXPECT_EQ(model_facts({{"model_type", 7}}).family, "7");
  EXPECT_TRUE(is_hugging_face_config({{"model_type", "gpt2"}}));
  EXPECT_FALSE(is_hugging_face_config(Json::array()));
}

}  // namespace
}  // namespace ddprun
