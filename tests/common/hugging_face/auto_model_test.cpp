// Tests model.type "auto": which keys are added to a train.json, and which contradictions are reported.
#include "common/hugging_face/auto_model.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

Json gpt2() {
  return {{"model_type", "gpt2"}, {"n_layer", 3}, {"n_head", 4}, {"n_embd", 48}, {"vocab_size", 300}, {"n_positions", 64}};
}

AutoModel resolved(const Json& model, const Json& data, const Json& file = gpt2(), const char* tokenizer = "") {
  Json train{{"model", {{"type", "auto"}, {"init", "hf"}}}, {"data", {{"type", "tokens"}}}};
  train["model"].update(model);
  train["data"].update(data);
  return with_model_of(train, {.file = "hf/config.json", .config = file, .tokenizer = tokenizer});
}

TEST(AutoModel, TheKeysOfTheModelAreAdded) {
  const AutoModel found = resolved(Json::object(), Json::object(), gpt2(), "hf");
  EXPECT_TRUE(found.problems.empty());
  const Json model{{"type", "gpt"}, {"init", "hf"}, {"n_layer", 3}, {"n_head", 4}, {"n_embd", 48}, {"dropout", 0.1}};
  EXPECT_EQ(found.config["model"], model);
  const Json data{{"type", "tokens"}, {"vocab_size", 300}, {"block_size", 64}, {"tokenizer", "hf"}};
  EXPECT_EQ(found.config["data"], data);
  EXPECT_EQ(
      found.note,
      "model.type auto: hf/config.json describes a gpt2 model, data.vocab_size 300, data.block_size 64, data.tokenizer hf");
}

TEST(AutoModel, KeysOfTheConfigRemainIfTheyDoNotContradict) {
  const AutoModel found = resolved({{"n_head", 4}, {"dropout", 0}}, {{"tokenizer", ""}, {"block_size", 64}}, gpt2(), "hf");
  EXPECT_TRUE(found.problems.empty());
  EXPECT_EQ(found.config["model"]["dropout"], 0) << "a setting of the training";
  EXPECT_EQ(found.config["data"]["tokenizer"], "");
}

TEST(AutoModel, AContradictionShowsBothValuesAtItsKey) {
  const AutoModel found = resolved({{"n_head", 12}}, {{"vocab_size", 256}});
  ASSERT_EQ(found.problems.size(), 2U);
  EXPECT_EQ(found.problems[0].pointer, "/model/n_head");
  EXPECT_EQ(
      found.problems[0].message,
      "model.n_head is 12 in this config, but n_head is 4 in hf/config.json: remove this key, or set it to 4 (/model/n_head)");
  EXPECT_EQ(found.problems[1].pointer, "/data/vocab_size");
}

TEST(AutoModel, ALongerTableOfPositionsNeedsAPermission) {
  const AutoModel found = resolved(Json::object(), {{"block_size", 32}});
  ASSERT_EQ(found.problems.size(), 1U);
  EXPECT_EQ(found.problems[0].message,
            "data.block_size is 32 in this config, but n_positions is 64 in hf/config.json: set data.block_size to 64, or set "
            "model.crop_positions to true to use only the first 32 positions (/data/block_size)");
  EXPECT_TRUE(resolved({{"crop_positions", true}}, {{"block_size", 32}}).problems.empty());
}

TEST(AutoModel, AnotherFamilyIsRefusedByName) {
  Json gemma = gpt2(), relu = gpt2();
  gemma["model_type"] = "gemma";
  relu["activation_function"] = "relu";
  EXPECT_EQ(
      resolved(Json::object(), Json::object(), gemma).problems.at(0).message,
      "hf/config.json has the model_type \"gemma\", which ddptrain does not support; expected gpt2, llama, mistral, qwen2 and "
      "qwen3 (/model/init)");
  EXPECT_EQ(resolved(Json::object(), Json::object(), relu).problems.at(0).message,
            "ddptrain does not compute the model of hf/config.json: activation_function is \"relu\" in that file, but ddptrain "
            "supports only \"gelu_new\" (/model/init)");
}

TEST(AutoModel, IsResolvedWhenAConfigIsParsed) {
  test::TemporaryFolder folder;
  test::write_text(folder / "config.json", gpt2().dump());
  const std::string text =
      R"({"model": {"type": "auto", "init": "model.safetensors"}, "data": {"type": "tokens", "dir": "d"}})";
  std::vector<std::string> notes;
  const TrainConfig config = parse_config(text, "train.json", folder.path(), {}, &notes);
  EXPECT_EQ(config.model.type, ModelConfig::Type::kGpt);
  EXPECT_EQ(config.model.n_embd, 48);
  EXPECT_EQ(config.data.block_size, 64);
  ASSERT_EQ(notes.size(), 1U);
  // The printed config contains the concrete model, so it can be parsed without the removed file.
  std::filesystem::remove(folder / "config.json");
  EXPECT_EQ(config_digest(parse_config(to_json_text(config), "config.json", folder.path())), config_digest(config));
  try {
    parse_config(text, "train.json", folder.path(), {"model.n_head=3"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("config.json does not exist (/model/init)"), std::string::npos) << error.what();
  }
  test::write_text(folder / "config.json", gpt2().dump());
  try {
    parse_config(text, "train.json", folder.path(), {"model.n_head=3"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("model.n_head is 3 in this config, but n_head is 4 in "), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ddprun
