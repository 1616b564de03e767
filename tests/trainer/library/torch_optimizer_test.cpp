// Tests the optimizers of LibTorch through our interface. A new optimizer that loads a saved state must continue with
// bit-identical results.
#include "trainer/library/torch_optimizer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

namespace optim = torch::optim;
using Make = std::function<std::unique_ptr<optim::Optimizer>(std::vector<at::Tensor>)>;

template <typename Of, typename Options>
Make make(const Options& options) {
  return [options](std::vector<at::Tensor> parameters) { return std::make_unique<Of>(std::move(parameters), options); };
}

struct Training {
  at::Tensor weight = at::tensor({1.0F, 2.0F, -3.0F}).requires_grad_();
  at::Tensor frozen = at::ones({2});
  std::unique_ptr<optim::Optimizer> theirs;
  std::unique_ptr<Optimizer> ours;

  explicit Training(const Make& make) : theirs(make({weight, frozen})) {
    ours = wrap_optimizer(*theirs, {{"weight", weight}, {"frozen", frozen}});
  }
  void steps(int from, int to) {
    for (int step = from; step < to; ++step) {
      weight.mutable_grad() = weight.detach() * 0.5 + step;
      ours->step(0);
    }
  }
};

std::vector<std::string> names_of(const Optimizer& optimizer) {
  std::vector<std::string> names;
  for (const NamedTensor& entry : optimizer.state()) names.push_back(entry.name);
  return names;
}

class TorchOptimizers : public testing::TestWithParam<std::pair<Make, std::vector<std::string>>> {};

TEST_P(TorchOptimizers, ResumeBitwiseFromASavedState) {
  const auto& [make, fields] = GetParam();
  for (const int saved_at : {0, 1, 4}) {
    Training whole(make), first(make), second(make);
    EXPECT_EQ(names_of(*first.ours), fields);
    whole.steps(0, 8);
    first.steps(0, saved_at);
    std::vector<NamedTensor> saved;
    for (const NamedTensor& entry : first.ours->state()) saved.push_back({entry.name, entry.tensor.clone()});
    {
      const at::NoGradGuard no_gradients;
      second.weight.copy_(first.weight);
    }
    second.ours->load_state(saved);
    EXPECT_EQ(names_of(*second.ours), fields);
    second.steps(saved_at, 8);
    EXPECT_TRUE(at::equal(second.weight, whole.weight)) << "saved after " << saved_at << " steps";
    const auto ends = second.ours->state(), should = whole.ours->state();
    for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_TRUE(at::equal(ends[i].tensor, should[i].tensor)) << ends[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TorchOptimizers,
    testing::Values(
        std::pair(make<optim::SGD>(optim::SGDOptions(0.1)), std::vector<std::string>{}),
        std::pair(make<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).dampening(0.5)),
                  std::vector<std::string>{"weight.momentum_buffer"}),
        std::pair(make<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true)),
                  std::vector<std::string>{"weight.exp_avg", "weight.exp_avg_sq", "weight.max_exp_avg_sq", "weight.step"}),
        std::pair(make<optim::AdamW>(optim::AdamWOptions(0.1)),
                  std::vector<std::string>{"weight.exp_avg", "weight.exp_avg_sq", "weight.step"}),
        std::pair(make<optim::RMSprop>(optim::RMSpropOptions(0.1).momentum(0.9).centered(true)),
                  std::vector<std::string>{"weight.square_avg", "weight.momentum_buffer", "weight.grad_avg", "weight.step"}),
        std::pair(make<optim::Adagrad>(optim::AdagradOptions(0.1)), std::vector<std::string>{"weight.sum", "weight.step"})));

TEST(TorchOptimizer, RefusesUnsupportedAndForeignStates) {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  optim::LBFGS other({weight});
  EXPECT_THROW(wrap_optimizer(other, {{"weight", weight}}), UsageError);
  optim::SGD sgd({weight}, optim::SGDOptions(0.1).momentum(0.9));
  EXPECT_THROW(wrap_optimizer(sgd, {}), UsageError);
  EXPECT_THROW(wrap_optimizer(sgd, {{"weight", weight}})->load_state({{"weight.exp_avg", at::ones({2})}}), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
