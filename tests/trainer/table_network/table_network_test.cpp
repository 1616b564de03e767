// Tests the network for tables: its basic unit, its embeddings, and the names of its parameters.
#include "trainer/table_network/table_network.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddprun::trainer {
namespace {

ModelConfig small() {
  ModelConfig config;
  config.type = ModelConfig::Type::kMlp;
  config.hidden = {4};
  return config;
}

TablePlan plan_of_number() {
  TablePlan plan{.columns = {}, .target = {.name = "y", .mean = 1000, .variance = 400}};
  plan.columns.push_back({.name = "c", .kind = ColumnPlan::Kind::kEmbedding, .categories = {"u", "v"}});
  plan.columns.push_back({.name = "a", .kind = ColumnPlan::Kind::kNumber});
  return plan;
}

TEST(TableNetwork, ItsParametersHaveNames) {
  const auto model = make_table_network(small(), plan_of_number(), 1, c10::kCPU);
  std::vector<std::string> names;
  for (const auto& entry : model->named_parameters()) names.push_back(entry.key());
  EXPECT_EQ(names, (std::vector<std::string>{"embedding1.weight", "linear.weight", "linear.bias", "fc1.weight", "fc1.bias",
                                             "fc2.weight", "fc2.bias"}));
  EXPECT_EQ(model->named_parameters()["embedding1.weight"].sizes(), (std::vector<std::int64_t>{3, 2}));
  EXPECT_EQ(model->named_buffers()["target_deviation"].item<float>(), 20);
}

TEST(TableNetwork, ResultsAreInTheUnitOfTheTarget) {
  const auto model = make_table_network(small(), plan_of_number(), 1, c10::kCPU);
  const at::NoGradGuard no_gradients;
  for (at::Tensor& weights : model->parameters()) weights.zero_();
  model->named_parameters()["linear.bias"].fill_(0.5);
  EXPECT_TRUE(at::equal(model->forward(at::zeros({2, 2})), at::tensor({1010.0F, 1010.0F}).view({2, 1})));
}

TEST(TableNetwork, CodesSelectVectors) {
  const auto model = make_table_network(small(), plan_of_number(), 1, c10::kCPU);
  {
    const at::NoGradGuard no_gradients;
    model->named_parameters()["linear.weight"].fill_(1);  // initially 0, so that no input has an effect
  }
  const at::Tensor vectors = model->named_parameters()["embedding1.weight"];
  EXPECT_EQ(vectors[0].abs().sum().item<float>(), 0) << "the vector of an unknown text";
  const at::Tensor results = model->forward(at::tensor({0.0F, 0.0F, 0.0F, 1.0F, 0.0F, 2.0F, 0.0F, 1.0F}).view({4, 2}));
  EXPECT_NE(results[1].item<float>(), results[2].item<float>());
  EXPECT_EQ(results[1].item<float>(), results[3].item<float>());
  results.sum().backward();
  EXPECT_NE(vectors.grad()[1].abs().sum().item<float>(), 0);
}

TEST(TableNetwork, TheFirstPredictionIsTheMean) {
  const auto model = make_table_network(small(), plan_of_number(), 1, c10::kCPU);
  EXPECT_TRUE(at::equal(model->forward(at::rand({5, 2}).round()), at::full({5, 1}, 1000.0F)));
}

TEST(TableNetwork, TheFirstLogitsAreEqual) {
  TablePlan plan = plan_of_number();
  plan.target = {.name = "y", .is_class = true, .classes = {"a", "b", "c"}};
  const auto model = make_table_network(small(), plan, 1, c10::kCPU);
  EXPECT_TRUE(at::equal(model->forward(at::rand({5, 2}).round()), at::zeros({5, 3})));
}

TEST(TableNetwork, TheSeedDecides) {
  const auto weights = [](std::uint64_t seed) {
    return make_table_network(small(), plan_of_number(), seed, c10::kCPU)->named_parameters()["fc1.weight"];
  };
  EXPECT_TRUE(at::equal(weights(1), weights(1)));
  EXPECT_FALSE(at::equal(weights(1), weights(2)));
}

}  // namespace
}  // namespace ddprun::trainer
