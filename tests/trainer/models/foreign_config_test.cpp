// Tests the comparison of a run's model with the config.json next to the weights. The comparison must find differences that
// are not visible in the shapes of the weights.
#include "trainer/models/foreign_config.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ddprun::trainer {
namespace {

using nlohmann::json;

TrainConfig gpt() {
  TrainConfig config;
  config.model = {.type = ModelConfig::Type::kGpt, .n_layer = 3, .n_head = 4, .n_embd = 48, .init = {}};
  return config;
}

TrainConfig llama() {
  TrainConfig config;
  config.model = {.type = ModelConfig::Type::kLlama, .n_layer = 2, .n_head = 4, .n_embd = 48, .init = {}};
  config.model.n_kv_head = 2;
  config.model.n_inner = 96;
  config.model.rms_norm_eps = 1e-5;
  config.data.block_size = 32;
  return config;
}

TrainConfig vit(std::int64_t heads) {
  TrainConfig config;
  config.model = {.type = ModelConfig::Type::kVit, .n_head = heads, .n_embd = 192, .init = {}};
  return config;
}

json of_gpt2(const json& more) {
  json value{{"model_type", "gpt2"},
             {"n_head", 4},
             {"activation_function", "gelu_new"},
             {"layer_norm_epsilon", 1e-5},
             {"scale_attn_weights", true}};
  if (!more.is_null()) value.update(more);
  return value;
}

json of_llama(const json& more) {
  json value{{"model_type", "llama"},
             {"num_attention_heads", 4},
             {"num_key_value_heads", 2},
             {"hidden_act", "silu"},
             {"rms_norm_eps", 1e-5}};
  if (!more.is_null()) value.update(more);
  return value;
}

// Compares the configs. The message must contain each of `texts`. If `texts` is empty, there must be no message.
void expect(const json& theirs, const TrainConfig& config, const std::vector<std::string>& texts) {
  const std::string found = foreign_contradictions(theirs, config);
  EXPECT_EQ(found.empty(), texts.empty()) << theirs << ": " << found;
  for (const std::string& text : texts) EXPECT_NE(found.find(text), std::string::npos) << theirs << ": " << found;
}

TEST(ForeignConfig, TheSameModelHasNoContradictions) {
  expect(of_gpt2({}), gpt(), {});
  expect(of_gpt2({{"activation_function", "gelu_pytorch_tanh"}, {"n_inner", nullptr}, {"n_layer", 3}}), gpt(), {});
  expect(of_llama({}), llama(), {});
  expect(of_llama({{"rope_scaling", nullptr}, {"head_dim", 12}, {"rope_theta", 10000.0}}), llama(), {});
  expect(of_llama({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000}}}}), llama(), {});
  expect(of_llama({{"model_type", "mistral"}, {"sliding_window", 4096}}), llama(), {});
  expect({{"architecture", "vit_tiny_patch16_224"}, {"global_pool", "token"}}, vit(3), {});
  expect({{"architecture", "vit_tiny_patch16_224"}, {"model_args", {{"num_heads", 4}}}}, vit(4), {});
}

TEST(ForeignConfig, AContradictionShowsBothValues) {
  TrainConfig many_heads = gpt();
  many_heads.model.n_head = 12;
  expect(of_gpt2({}), many_heads, {"model.n_head is 12 in this config, but n_head is 4 in that file"});
  expect({{"model_type", "gpt2"}}, gpt(), {"model.n_head is 4 in this config, but n_head is 12 in that file"});
  expect(of_llama({{"rms_norm_eps", 0.1}}), llama(),
         {"model.rms_norm_eps is 1e-05 in this config, but rms_norm_eps is 0.1 in that file"});
  expect(of_llama({{"rope_theta", 500000.0}}), llama(),
         {"model.rope_theta is 10000 in this config, but rope_theta is 500000 in that file"});
  expect(of_llama({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 100.0}}}}), llama(),
         {"rope_theta is 100 in that file"});
  expect(of_llama({{"num_key_value_heads", 4}}), llama(),
         {"model.n_kv_head is 2 in this config, but num_key_value_heads is 4 in that file"});
  expect(of_llama({{"head_dim", 24}}), llama(), {"is 12 in this config, but head_dim is 24 in that file"});
  expect({{"architecture", "vit_base_patch16_224"}}, vit(3),
         {"model.n_head is 3 in this config, but num_heads is 12 in that file"});
}

TEST(ForeignConfig, UnsupportedForeignSettingsAreRefused) {
  expect(of_gpt2({{"activation_function", "relu"}}), gpt(),
         {"activation_function is \"relu\" in that file, but ddptrain supports only \"gelu_new\""});
  expect(of_gpt2({{"scale_attn_by_inverse_layer_idx", true}}), gpt(),
         {"scale_attn_by_inverse_layer_idx is true in that file, but ddptrain supports only false"});
  expect(of_gpt2({{"scale_attn_weights", false}}), gpt(),
         {"scale_attn_weights is false in that file, but ddptrain supports only true"});
  expect(of_gpt2({{"layer_norm_epsilon", 1e-6}}), gpt(),
         {"layer_norm_epsilon is 1e-06 in that file, but ddptrain supports only 1e-05"});
  expect(of_llama({{"hidden_act", "gelu"}}), llama(), {"hidden_act"});
  expect(of_llama({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}), llama(),
         {"model.rope_scaling is \"none\" in this config, but rope_scaling.rope_type is \"linear\" in that file"});
  expect(of_llama({{"rope_parameters", {{"rope_type", "llama3"}, {"factor", 8.0}}}}), llama(), {"\"llama3\" in that file"});
  expect(of_llama({{"partial_rotary_factor", 0.5}}), llama(),
         {"partial_rotary_factor is 0.5 in that file, but ddptrain supports only 1"});
  expect(of_llama({{"model_type", "mistral"}, {"sliding_window", 16}}), llama(), {"sliding_window is 16 in that file"});
}

TEST(ForeignConfig, AnotherModelFamilyIsRefusedByName) {
  for (const char* family : {"gemma", "granite", "qwen3_moe", "olmo", "gpt2"}) {
    expect(of_llama({{"model_type", family}}), llama(), {std::string("model_type is \"") + family + "\" in that file"});
  }
  expect(of_gpt2({{"model_type", "gpt_neo"}}), gpt(), {"model_type is \"gpt_neo\" in that file"});
  expect({{"architecture", "beit_base_patch16_224"}}, vit(12), {"\"beit_base_patch16_224\" in that file"});
  TrainConfig resnet;
  resnet.model.type = ModelConfig::Type::kResnet18;
  expect({{"architecture", "resnet18"}}, resnet, {});
  expect({{"architecture", "resnetblur18"}}, resnet, {"\"resnetblur18\" in that file"});
}

TEST(ForeignConfig, QwenIsALlamaWithOptions) {
  expect(of_llama({{"model_type", "qwen2"}}), llama(),
         {"model.attention_bias is \"none\" in this config, but model_type is \"qwen2\""});
  expect(of_llama({{"model_type", "qwen3"}}), llama(),
         {"model.head_dim is 12 in this config, but head_dim is 128 in that file",
          "model.qk_norm is false in this config, but model_type is \"qwen3\" in that file"});
  TrainConfig qwen2 = llama(), qwen3 = llama();
  qwen2.model.attention_bias = ModelConfig::AttentionBias::kQkv;
  qwen3.model.qk_norm = true;
  expect(of_llama({{"model_type", "qwen2"}, {"sliding_window", 16}}), qwen2, {});
  expect(of_llama({{"model_type", "qwen3"}, {"head_dim", 12}}), qwen3, {});
}

TEST(ForeignConfig, ScaledRotaryPositionsAreCompared) {
  const json scaling{{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};
  TrainConfig ours = llama();
  expect(of_llama({{"rope_scaling", scaling}}), ours, {"model.rope_scaling is \"none\" in this config"});
  ours.model.rope_scaling = ModelConfig::RopeScaling::kLlama3;
  expect(of_llama({{"rope_scaling", scaling}}), ours, {});
  expect(of_llama({}), ours, {"model.rope_scaling is \"llama3\" in this config, but rope_scaling is \"none\" in that file"});
  ours.model.rope_factor = 32;
  expect(of_llama({{"rope_scaling", scaling}}), ours, {"model.rope_factor is 32 in this config, but rope_scaling.factor is 8"});
}

TEST(ForeignConfig, ALongerTableOfPositionsNeedsAPermission) {
  TrainConfig ours = gpt();
  ours.data.block_size = 32;
  expect(of_gpt2({{"n_positions", 32}}), ours, {});
  expect(of_gpt2({{"n_positions", 16}}), ours, {"data.block_size is 32 in this config, but n_positions is 16 in that file"});
  expect(of_gpt2({{"n_positions", 64}}), ours, {"n_positions is 64 in that file", "set model.crop_positions to true"});
  ours.model.crop_positions = true;
  expect(of_gpt2({{"n_positions", 64}}), ours, {});
}

// Another program wrote the file, so its values may have any type. A message must quote them safely and briefly.
TEST(ForeignConfig, ValuesOfAnotherTypeAreQuotedBriefly) {
  expect(of_gpt2({{"n_head", "four"}}), gpt(), {"n_head is \"four\" in that file; expected a number"});
  expect(of_llama({{"rope_parameters", 7}}), llama(), {"rope_parameters is 7 in that file; expected an object"});
  EXPECT_LT(foreign_contradictions(of_gpt2({{"activation_function", std::string(5000, 'x')}}), gpt()).size(), 400U);
  EXPECT_EQ(foreign_contradictions(of_gpt2({{"activation_function", "a\x1b[2Jb"}}), gpt()).find('\x1b'), std::string::npos);
}

TEST(ForeignConfig, OtherFilesAreNotRecognized) {
  EXPECT_FALSE(is_foreign_config(json::parse(R"({"model": {"type": "gpt"}})")));
  EXPECT_FALSE(is_foreign_config(json::array()));
  EXPECT_TRUE(is_foreign_config({{"model_type", "gpt2"}}));
}

TEST(ForeignConfig, KeysWithoutAShapeAreComparedBetweenRuns) {
  const ModelConfig ours = llama().model;
  EXPECT_EQ(contradictions(ours, ours), "");
  ModelConfig theirs = ours;
  theirs.rope_theta = 500;
  theirs.n_head = 2;
  theirs.dropout = 0.1;
  EXPECT_EQ(contradictions(theirs, ours),
            "model.n_head is 4 in this config, but model.n_head is 2 in that file; model.rope_theta is 10000 in this config, "
            "but model.rope_theta is 500 in that file");
  theirs = ours;
  theirs.rope_scaling = ModelConfig::RopeScaling::kLinear;
  EXPECT_EQ(contradictions(theirs, ours),
            "model.rope_scaling is \"none\" in this config, but model.rope_scaling is \"linear\" in that file");
  theirs = ours;
  theirs.n_kv_head = 4;
  EXPECT_EQ(contradictions(theirs, ours), "model.n_kv_head is 2 in this config, but model.n_kv_head is 4 in that file");
  EXPECT_EQ(contradictions(gpt().model, ours), "model.type is \"llama\" in this config, but \"gpt\" in that file");
  EXPECT_EQ(contradictions({}, {.type = ModelConfig::Type::kMlp, .init = {}}), "") << "shapes show all of an mlp";
}

TEST(ForeignConfig, KeysWithoutAShapeAreNamed) {
  EXPECT_EQ(keys_without_a_shape(gpt().model), "n_head 4");
  EXPECT_EQ(keys_without_a_shape(llama().model), "n_head 4, rope_theta 10000, rms_norm_eps 1e-05");
  EXPECT_EQ(keys_without_a_shape({.type = ModelConfig::Type::kMlp, .init = {}}), "");
}

}  // namespace
}  // namespace ddprun::trainer
