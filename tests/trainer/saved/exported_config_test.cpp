// Tests the config.json of an exported model: when ddprun reads the file, it must get the same model.
#include "trainer/saved/exported_config.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "trainer/models/foreign_config.hpp"

namespace ddprun::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

TrainConfig small_model(ModelConfig::Type type) {
  TrainConfig config;
  config.model = {.type = type, .dropout = 0.1, .n_layer = 2, .n_head = 4, .n_embd = 48, .init = {}};
  config.data.block_size = 32;
  config.data.vocab_size = 300;
  return config;
}

TEST(ExportedConfig, DescribesTheSameModel) {
  using Bias = ModelConfig::AttentionBias;
  TrainConfig llama = small_model(ModelConfig::Type::kLlama);
  llama.model.n_kv_head = 2;
  llama.model.rope_theta = 500;
  TrainConfig scaled = llama, qwen2 = llama, qwen3 = llama, biased = llama, odd = llama;
  scaled.model.rope_scaling = ModelConfig::RopeScaling::kLlama3;
  scaled.model.tie_word_embeddings = true;
  qwen2.model.attention_bias = Bias::kQkv;
  qwen3.model.qk_norm = true;
  qwen3.model.head_dim = 16;
  biased.model.attention_bias = Bias::kAll;
  biased.model.rope_scaling = ModelConfig::RopeScaling::kLinear;
  odd.model.n_embd = 50;
  odd.model.head_dim = 12;
  const std::vector<std::pair<TrainConfig, const char*>> models{{small_model(ModelConfig::Type::kGpt), "GPT2LMHeadModel"},
                                                                {llama, "LlamaForCausalLM"},
                                                                {scaled, "LlamaForCausalLM"},
                                                                {biased, "LlamaForCausalLM"},
                                                                {odd, "MistralForCausalLM"},
                                                                {qwen2, "Qwen2ForCausalLM"},
                                                                {qwen3, "Qwen3ForCausalLM"}};
  for (const auto& [config, name] : models) {
    const OrderedJson written = exported_config(config, nullptr);
    EXPECT_EQ(foreign_contradictions(written, config), "");
    EXPECT_EQ(written["architectures"], OrderedJson::array({name}));
    EXPECT_EQ(written["dtype"], "float32");
    EXPECT_TRUE(written["eos_token_id"].is_null());
  }
}

TEST(ExportedConfig, KeepsTheSettingsOfTheSource) {
  TrainConfig config = small_model(ModelConfig::Type::kGpt);
  config.model.crop_positions = true;
  OrderedJson source = exported_config(config, nullptr);
  source["n_positions"] = 64;
  source["eos_token_id"] = 7;
  source["torch_dtype"] = "bfloat16";
  const OrderedJson written = exported_config(config, source);
  EXPECT_EQ(written["eos_token_id"], 7);
  EXPECT_EQ(written["n_positions"], 32) << "the run has cropped them";
  EXPECT_EQ(written["dtype"], "float32");
  EXPECT_FALSE(written.contains("torch_dtype"));
  source["n_head"] = 12;
  config.data.end_of_document = 5;
  EXPECT_EQ(exported_config(config, source)["eos_token_id"], 5) << "the source is another model";
}

TEST(ExportedConfig, AModelWithoutAClassIsRefused) {
  TrainConfig config = small_model(ModelConfig::Type::kLlama);
  config.model.qk_norm = true;
  config.model.attention_bias = ModelConfig::AttentionBias::kQkv;
  EXPECT_THROW(exported_config(config, nullptr), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
