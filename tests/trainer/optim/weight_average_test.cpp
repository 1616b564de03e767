// Tests that the moving average of the weights is bit-identical to torch.optim.swa_utils.AveragedModel (golden.json), and that
// it can temporarily replace the weights.
#include "trainer/optim/weight_average.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/trainer/optim/golden.hpp"
#include "tests/trainer/optim/golden_parameters.hpp"

namespace ddprun::trainer {
namespace {

TEST(WeightAverage, EqualsPyTorchsBitForBitAfterEachStep) {
  for (const nlohmann::json& entry : golden()["ema"]) {
    const auto parameters = fresh_parameters();
    const auto optimizer = make_optimizer({.type = OptimizerConfig::Type::kSgd, .lr = 0.1, .momentum = 0.9}, parameters);
    WeightAverage average(entry["decay"], parameters);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      set_gradients(parameters, step);
      optimizer->step(0.1);
      average.update(/*first=*/step == 0);
      for (std::size_t t = 0; t < 3; ++t) {
        const NamedTensor& of = average.tensors().at(t);
        EXPECT_EQ(of.name, parameters[t].name);
        expect_bits(of.tensor, entry["averages"][static_cast<std::size_t>(step)][t],
                    of.name + " after step " + std::to_string(step));
      }
    }
  }
}

TEST(WeightAverage, ReplacesTheWeightsTemporarily) {
  const std::vector<NamedTensor> parameters{{"p", at::full({3}, 2.0F).requires_grad_()}};
  const void* const memory = parameters[0].tensor.const_data_ptr();
  WeightAverage average(0.5, parameters);
  average.update(/*first=*/true);
  parameters[0].tensor.detach().fill_(4);
  average.update(/*first=*/false);
  try {
    const WeightAverage::WeightSwap in_use(average);
    EXPECT_TRUE(parameters[0].tensor.detach().equal(at::full({3}, 3.0F)));
    throw std::runtime_error("a lost peer");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(parameters[0].tensor.const_data_ptr(), memory) << "what fails meanwhile changes nothing";
  }
  EXPECT_TRUE(parameters[0].tensor.detach().equal(at::full({3}, 4.0F)));
  EXPECT_TRUE(parameters[0].tensor.requires_grad());
  EXPECT_TRUE(average.tensors()[0].tensor.equal(at::full({3}, 3.0F)));
}

}  // namespace
}  // namespace ddprun::trainer
