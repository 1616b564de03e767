// Compares the models with the same networks in Python (golden.json): names, shapes, the initial weights for a seed, and
// logits.
#include "trainer/models/model.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <string>

#include "common/base/error.hpp"
#include "tests/trainer/models/golden.hpp"
#include "trainer/models/skipped_draws.hpp"

namespace ddprun::trainer {
namespace {

using Json = nlohmann::json;

ModelConfig config_of(const std::string& name) {
  static const std::map<std::string, ModelConfig::Type> kTypes{
      {"mlp", ModelConfig::Type::kMlp},           {"cnn", ModelConfig::Type::kCnn},
      {"resnet18", ModelConfig::Type::kResnet18}, {"resnet34", ModelConfig::Type::kResnet34},
      {"resnet50", ModelConfig::Type::kResnet50}, {"resnet20", ModelConfig::Type::kResnet20},
      {"resnet56", ModelConfig::Type::kResnet56}, {"vit", ModelConfig::Type::kVit}};
  return {.type = kTypes.at(name), .hidden = {20, 12}, .n_layer = 2, .n_head = 2, .n_embd = 8, .init = {}};
}

// Returns numbers from a formula, which make_golden.py also uses.
at::Tensor mixed(at::IntArrayRef shape, std::uint32_t k) {
  const at::Tensor values = at::empty(shape, at::kFloat);
  const std::span<float> all(values.mutable_data_ptr<float>(), static_cast<std::size_t>(values.numel()));
  for (std::uint32_t i = 0; float& value : all) {
    std::uint32_t x = (i++ + k * 7919 + 1) * 0x9E3779B1U;
    x = (x ^ (x >> 15)) * 0x85EBCA77U;
    x ^= x >> 13;
    value = static_cast<float>((static_cast<double>(x >> 8) / (1 << 23) - 1) * 0.05);
  }
  return values;
}

// With a feature map of one pixel, each sample gives batch norm a single value per channel, so batch norm needs two samples.
TEST(SmallestBatch, IsTwoForOnePixelFeatureMaps) {
  const auto smallest = [](const char* name, std::int64_t side) {
    return smallest_batch_of(config_of(name), {.channels = 1, .height = side, .width = side});
  };
  EXPECT_EQ(smallest("resnet18", 8), 2);
  EXPECT_EQ(smallest("resnet50", 9), 1);
  EXPECT_EQ(smallest("resnet20", 4), 2);
  EXPECT_EQ(smallest("resnet20", 5), 1);
  EXPECT_EQ(smallest("cnn", 4), 1);
  EXPECT_EQ(smallest("mlp", 1), 1);
}

class ModelTest : public testing::TestWithParam<std::string> {
 protected:
  ModelTest() {
    at::set_num_threads(1);  // makes the results independent of the number of cores
    for (const Json& entry : golden()["models"]) {
      if (entry["name"] == GetParam()) {
        golden_ = entry;
      }
    }
    shape_ = {golden_["channels"], golden_["height"], golden_["width"]};
  }

  std::shared_ptr<Model> make(std::uint64_t seed = 42) const { return make_model(config_of(GetParam()), shape_, 10, seed); }

  at::Tensor images() const { return (mixed({4, shape_.channels, shape_.height, shape_.width}, 1000) * 20).to(at::kDouble); }

  std::shared_ptr<Model> closed_form_model() const {
    const c10::NoGradGuard no_grad;
    const auto model = make();
    std::uint32_t k = 0;
    for (const auto& parameter : model->named_parameters()) {
      const bool is_scale = parameter->dim() == 1 && parameter.key().ends_with(".weight");
      parameter->copy_(mixed(parameter->sizes(), k++) + (is_scale ? 1 : 0));
    }
    model->to(at::kDouble);
    return model;
  }

  void expect_logits(const at::Tensor& logits, const Json& expected) const {
    ASSERT_EQ(logits.sizes(), (std::vector<std::int64_t>{4, 10}));
    for (std::int64_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(logits.flatten()[i].item<double>(), expected[static_cast<std::size_t>(i)].get<double>(), 1e-10) << i;
    }
  }

  Json golden_;
  ImageShape shape_;
};
INSTANTIATE_TEST_SUITE_P(All, ModelTest,
                         testing::Values("mlp", "cnn", "resnet18", "resnet34", "resnet50", "resnet20", "resnet56", "vit"),
                         [](const auto& test) { return test.param; });

TEST_P(ModelTest, UsesPythonsNamesShapesAndOrder) {
  Json parameters = Json::array();
  for (const auto& parameter : make()->named_parameters()) {
    parameters.push_back({parameter.key(), parameter->sizes().vec()});
  }
  EXPECT_EQ(parameters, golden_["parameters"]);
  Json buffers = Json::array();
  for (const auto& buffer : make()->named_buffers()) {
    buffers.push_back(buffer.key());
  }
  EXPECT_EQ(buffers, golden_["buffers"]);
}

TEST_P(ModelTest, MatchesPythonsLogits) {
  const auto model = closed_form_model();
  EXPECT_TRUE(model->is_training());
  expect_logits(model->forward(images()), golden_["train"]);
  model->eval();
  expect_logits(model->forward(images()), golden_["eval"]);
}

TEST_P(ModelTest, InitializesLikePythonFromASeed) {
  const auto model = make(42);
  for (const auto& parameter : model->named_parameters()) {
    const Json& ends = golden_["seeded"][parameter.key()];
    const at::Tensor flat = parameter->detach().flatten();
    EXPECT_FLOAT_EQ(flat[0].item<float>(), std::strtof(ends[0].get<std::string>().c_str(), nullptr)) << parameter.key();
    EXPECT_FLOAT_EQ(flat[-1].item<float>(), std::strtof(ends[1].get<std::string>().c_str(), nullptr)) << parameter.key();
  }
}

TEST_P(ModelTest, EqualSeedsGiveEqualBits) {
  const auto first = make(7)->parameters();
  const auto same = make(7)->parameters();
  const auto other = make(8)->parameters();
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(first[i].equal(same[i]));
  }
  EXPECT_FALSE(first[0].equal(other[0]));
}

// If the model is too large for the device's memory, this must be detected before the host draws random numbers for the model.
TEST(MakeModel, AllocatesDeviceMemoryFirst) {
  if (at::globalContext().hasCUDA()) GTEST_SKIP() << "this needs a device that has no memory at all";
  const ModelConfig huge{.type = ModelConfig::Type::kMlp, .hidden = {400'000, 400'000}, .init = {}};  // needs 640 GB
  try {
    make_model(huge, {1, 8, 8}, 10, 0, c10::Device(c10::kCUDA, 0));
    FAIL() << "expected an error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("CUDA"), std::string::npos) << error.what();
  }
}

// Tests only the mlp. The other models move small tensors to the device when they are made, and "meta" does not support that.
TEST(Mlp, IsCreatedOnItsDevice) {
  const auto model = make_model({.type = ModelConfig::Type::kMlp, .hidden = {20}, .init = {}}, {1, 8, 8}, 10, 42, c10::kMeta);
  for (const auto& parameter : model->named_parameters()) EXPECT_TRUE(parameter->is_meta()) << parameter.key();
}

TEST_P(ModelTest, RestoresTheDefaultGenerator) {
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  make();
  EXPECT_TRUE(at::detail::getDefaultCPUGenerator().get_state().equal(before));
}

// The generator computes blocks of 624 words. The test draws within a block, across boundaries, and from the middle of a block.
TEST(SkippedDraws, AdvanceTheGeneratorLikeRealDraws) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  for (const std::int64_t first : {0, 1, 100, 623, 624, 625}) {
    for (const std::int64_t count : {0, 1, 523, 524, 525, 623, 624, 625, 100'000}) {
      generator.set_current_seed(3);
      at::empty({first}).uniform_();
      at::empty({count}).uniform_();
      const at::Tensor drawn = generator.get_state(), next = at::rand({1000});
      generator.set_current_seed(3);
      at::empty({first}).uniform_();
      skip_uniform_draws(count);
      EXPECT_TRUE(generator.get_state().equal(drawn)) << count << " after " << first;
      EXPECT_TRUE(at::rand({1000}).equal(next)) << count << " after " << first;
    }
  }
  generator.set_state(before);
}

TEST_P(ModelTest, GivesEveryParameterAGradient) {
  const auto model = closed_form_model();
  model->forward(images()).square().sum().backward();
  for (const auto& parameter : model->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_TRUE(parameter->grad().isfinite().all().item<bool>()) << parameter.key();
    EXPECT_TRUE(parameter->grad().abs().sum().item<float>() > 0) << parameter.key();
  }
}

TEST_P(ModelTest, TakesABatchOfOneWhenEvaluating) {
  const auto model = closed_form_model();
  model->eval();
  const at::Tensor all = model->forward(images());
  const at::Tensor one = model->forward(images().narrow(0, 2, 1));
  EXPECT_TRUE(one.allclose(all.narrow(0, 2, 1), 1e-4, 1e-5));
}

TEST(Dropout, IsActiveOnlyInTrainingIfConfigured) {
  for (const ModelConfig::Type type : {ModelConfig::Type::kMlp, ModelConfig::Type::kCnn, ModelConfig::Type::kVit}) {
    const at::Tensor images = mixed({8, 1, 8, 8}, 0) * 20;
    const auto of = [type](double dropout) {
      return make_model({.type = type, .hidden = {64}, .dropout = dropout, .n_layer = 1, .n_head = 2, .n_embd = 8, .init = {}},
                        {1, 8, 8}, 10, 0);
    };
    const auto model = of(0.5);
    EXPECT_FALSE(model->forward(images).equal(model->forward(images)));
    model->eval();
    EXPECT_TRUE(model->forward(images).equal(model->forward(images)));
    const auto plain = of(0);
    EXPECT_TRUE(plain->forward(images).equal(plain->forward(images)));
  }
}

TEST(Mlp, MayHaveNoHiddenLayer) {
  const auto model = make_model({.type = ModelConfig::Type::kMlp, .hidden = {}, .init = {}}, {1, 2, 2}, 3, 0);
  ASSERT_EQ(model->named_parameters().size(), 2U);
  EXPECT_EQ(model->forward(mixed({5, 1, 2, 2}, 0)).sizes(), (std::vector<std::int64_t>{5, 3}));
}

// The two matrices of a low-rank update have `rank` times as many elements as the layer has inputs and outputs. A rank above
// both numbers would need more memory without a benefit.
TEST(LowRank, ATooHighRankIsRefusedBeforeAllocation) {
  const auto refusal = [](std::int64_t rank, std::vector<std::string> modules) -> std::string {
    try {
      make_model({.type = ModelConfig::Type::kMlp,
                  .hidden = {16, 12},
                  .init = {},
                  .lora = {.rank = rank, .modules = std::move(modules)}},
                 {1, 4, 4}, 10, 0);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(10, {"*"}), "");
  EXPECT_EQ(
      refusal(11, {"*"}),
      "model.lora.rank: expected at most 10, found 11: the linear layer 'fc3' has 10 outputs and 12 inputs, and a rank "
      "above the smaller of these two numbers has no benefit. Lower the rank, or choose other layers with model.lora.modules");
  EXPECT_EQ(refusal(12, {"fc1", "fc2"}), "");
  EXPECT_TRUE(
      refusal(1'000'000'000'000, {"fc1", "fc2"}).starts_with("model.lora.rank: expected at most 12, found 1000000000000"));
}

TEST(Vit, RefusesImagesNotDivisibleIntoPatches) {
  const auto refusal = [](std::int64_t height, std::int64_t width, std::int64_t heads) -> std::string {
    try {
      make_model({.type = ModelConfig::Type::kVit, .n_layer = 1, .n_head = heads, .n_embd = 8, .patch_size = 5, .init = {}},
                 {1, height, width}, 10, 0);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(10, 5, 2), "");
  EXPECT_EQ(refusal(28, 30, 2),
            "model.patch_size is 5, but the images of the data set are 28 x 30: expected a divisor of height and width");
  EXPECT_EQ(refusal(10, 4, 2),
            "model.patch_size is 5, but the images of the data set are 10 x 4: expected a divisor of height and width");
  EXPECT_EQ(refusal(10, 5, 3), "model.n_embd 8 is not divisible by model.n_head 3, but all heads need the same width");
}

TEST(MakeModel, RefusesImagesThatAreTooSmall) {
  const auto make = [](ModelConfig::Type type, std::int64_t side) {
    make_model({.type = type, .init = {}}, {1, side, side}, 10, 0);
  };
  EXPECT_THROW(make(ModelConfig::Type::kCnn, 3), UsageError);
  EXPECT_NO_THROW(make(ModelConfig::Type::kCnn, 4));
  EXPECT_THROW(make(ModelConfig::Type::kResnet18, 7), UsageError);
  EXPECT_THROW(make(ModelConfig::Type::kResnet50, 7), UsageError);
  EXPECT_THROW(make(ModelConfig::Type::kResnet20, 3), UsageError);
  EXPECT_NO_THROW(make(ModelConfig::Type::kResnet20, 4));
  EXPECT_NO_THROW(make(ModelConfig::Type::kMlp, 1));
}

}  // namespace
}  // namespace ddprun::trainer
