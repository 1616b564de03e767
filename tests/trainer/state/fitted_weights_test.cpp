// Tests how weights of other programs are adapted to the names and shapes of a language model, and the files that contain
// these weights.
#include "trainer/state/fitted_weights.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/state/pretrained_files.hpp"

namespace ddprun::trainer {
namespace {

using Names = std::vector<std::string>;

Names names_after(const std::set<std::string>& wanted, const Names& given) {
  std::vector<NamedTensor> weights;
  for (const std::string& name : given) weights.push_back({name, at::ones({1})});
  Names names;
  for (const NamedTensor& entry : with_names(wanted, weights)) names.push_back(entry.name);
  return names;
}

TEST(FittedWeights, PrefixesAreAddedAndRemoved) {
  const std::set<std::string> gpt{"transformer.wte.weight", "transformer.h.0.attn.c_attn.bias", "lm_head.weight"};
  const Names right{"transformer.wte.weight", "transformer.h.0.attn.c_attn.bias"};
  EXPECT_EQ(names_after(gpt, right), right);
  EXPECT_EQ(names_after(gpt, {"wte.weight", "h.0.attn.c_attn.bias"}), right);
  EXPECT_EQ(names_after(gpt, {"module.transformer.wte.weight", "_orig_mod.transformer.h.0.attn.c_attn.bias"}), right);
  EXPECT_EQ(names_after({"model.norm.weight", "lm_head.weight"}, {"norm.weight", "lm_head.weight"}),
            (Names{"model.norm.weight", "lm_head.weight"}));
}

TEST(FittedWeights, OtherNamesAreKept) {
  EXPECT_EQ(names_after({"model.norm.weight"}, {"score.weight", "model.extra"}), (Names{"score.weight", "model.extra"}));
  EXPECT_EQ(names_after({"model.a"}, {"a", "model.a"}), (Names{"a", "model.a"})) << "both would have one name";
}

TEST(FittedWeights, ConstantsOfOldFilesAreOmitted) {
  EXPECT_EQ(names_after({"transformer.h.0.attn.c_attn.bias"}, {"h.0.attn.bias", "h.0.attn.masked_bias", "h.0.attn.c_attn.bias",
                                                               "model.layers.0.self_attn.rotary_emb.inv_freq"}),
            Names{"transformer.h.0.attn.c_attn.bias"});
}

TEST(FittedWeights, PositionsAreCroppedWithAPermission) {
  TrainConfig config;
  config.model.type = ModelConfig::Type::kGpt;
  config.data.block_size = 2;
  const std::vector<NamedTensor> weights{{"transformer.wpe.weight", at::arange(8).view({4, 2})}};
  try {
    with_positions(weights, config, "hf");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "hf has 4 positions, but data.block_size is 2: set data.block_size to 4, or set model.crop_positions to true to use "
        "only the first 2 positions");
  }
  config.model.crop_positions = true;
  EXPECT_TRUE(with_positions(weights, config, "hf").front().tensor.equal(at::arange(4).view({2, 2})));
  config.data.block_size = 4;
  EXPECT_TRUE(with_positions(weights, config, "hf").front().tensor.equal(weights.front().tensor));
}

class PretrainedFiles : public testing::Test {
 protected:
  void write(const char* file, const std::vector<NamedTensor>& tensors) {
    ddprun::test::write_text(folder_ / file, encode_safetensors(tensors));
  }
  std::string refusal_of_index(const std::string& index) {
    ddprun::test::write_text(folder_ / "model.safetensors.index.json", index);
    try {
      read_pretrained(folder_ / "model.safetensors.index.json");
    } catch (const UsageError& error) {
      const std::string text = error.what();
      return text.substr(text.find(".index.json: ") + 13);
    }
    return "";
  }
  ddprun::test::TemporaryFolder folder_;
};

TEST_F(PretrainedFiles, ShardsAreReadByTheirIndex) {
  write("a.safetensors", {{"one", at::ones({2})}, {"old", at::ones({1})}});
  write("b.safetensors", {{"two", at::ones({3})}});
  EXPECT_EQ(
      refusal_of_index(R"({"metadata": {"total_size": 20}, "weight_map": {"one": "a.safetensors", "two": "b.safetensors"}})"),
      "");
  EXPECT_FALSE(is_pretrained_folder(folder_.path())) << "without config.json, it may be a damaged checkpoint";
  ddprun::test::write_text(folder_ / "config.json", "{}");
  EXPECT_TRUE(is_pretrained_folder(folder_.path()));
  const std::vector<NamedTensor> found = read_pretrained(folder_.path());
  ASSERT_EQ(found.size(), 2U) << "only tensors of the index";
  EXPECT_EQ(found[0].name, "one");
  EXPECT_EQ(found[1].tensor.numel(), 3);
}

TEST_F(PretrainedFiles, DamagedIndexesAreRefused) {
  write("a.safetensors", {{"one", at::ones({2})}});
  EXPECT_EQ(refusal_of_index(R"({"weight_map": {"two": "a.safetensors"}})"),
            "lists the tensor 'two' in a.safetensors, but that file does not contain it");
  for (const char* const file : {"\"../a.safetensors\"", "\"/tmp/a\"", "\"..\"", "\"\"", "7"}) {
    EXPECT_EQ(refusal_of_index(std::string(R"({"weight_map": {"one": )") + file + "}}"),
              std::string("the file of tensor 'one' is ") + file + "; expected the name of a file in the same folder");
  }
  EXPECT_EQ(refusal_of_index("[]"), "expected an object \"weight_map\" that maps tensors to files");
  EXPECT_NE(refusal_of_index("{"), "");
}

}  // namespace
}  // namespace ddprun::trainer
