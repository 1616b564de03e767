// Tests that the optimizers are bit-identical to the optimizers of PyTorch (golden.json), and that their state can be saved
// and loaded.
#include "trainer/optim/optimizer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "common/base/error.hpp"
#include "tests/trainer/optim/golden.hpp"
#include "tests/trainer/optim/golden_parameters.hpp"
#include "trainer/optim/name_patterns.hpp"
#include "trainer/optim/tensor_fit.hpp"

namespace ddprun::trainer {
namespace {

void train(Optimizer& optimizer, const std::vector<NamedTensor>& parameters, double lr, std::int64_t first, std::int64_t last,
           const Absent& absent = {}) {
  for (std::int64_t step = first; step < last; ++step) {
    set_gradients(parameters, step, absent);
    optimizer.step(lr * (1 - static_cast<double>(step) / 16));
  }
}

at::Tensor state_of(const Optimizer& optimizer, const std::string& name) {
  for (const NamedTensor& entry : optimizer.state()) {
    if (entry.name == name) {
      return entry.tensor;
    }
  }
  ADD_FAILURE() << "no state " << name;
  return at::zeros({0});
}

std::vector<NamedTensor> copied(std::vector<NamedTensor> tensors) {
  for (NamedTensor& entry : tensors) {
    entry.tensor = entry.tensor.clone();
  }
  return tensors;
}

TEST(Sgd, EqualsPythonsBitForBit) {
  for (const Json& entry : golden()["sgd"]) {
    const OptimizerConfig config{.type = OptimizerConfig::Type::kSgd,
                                 .lr = entry["lr"],
                                 .momentum = entry["momentum"],
                                 .nesterov = entry["nesterov"],
                                 .weight_decay = entry["weight_decay"]};
    const auto parameters = fresh_parameters();
    const auto optimizer = make_optimizer(config, parameters);
    train(*optimizer, parameters, config.lr, 0, kSteps);
    for (std::size_t t = 0; t < 3; ++t) {
      expect_bits(parameters[t].tensor, entry["parameters"][t], parameters[t].name);
      if (config.momentum != 0) {
        const std::string name = parameters[t].name + ".momentum_buffer";
        expect_bits(state_of(*optimizer, name), entry["momentum_buffers"][t], name);
      }
    }
  }
}

void expect_pythons_adam(OptimizerConfig::Type type, const Json& entries) {
  for (const Json& entry : entries) {
    const OptimizerConfig config{.type = type,
                                 .lr = entry["lr"],
                                 .weight_decay = entry["weight_decay"],
                                 .betas = entry["betas"].get<std::array<double, 2>>(),
                                 .eps = entry["eps"]};
    const auto parameters = fresh_parameters();
    const auto optimizer = make_optimizer(config, parameters);
    train(*optimizer, parameters, config.lr, 0, kSteps, entry["absent"].get<Absent>());
    for (std::size_t t = 0; t < 3; ++t) {
      const std::string& name = parameters[t].name;
      expect_bits(parameters[t].tensor, entry["parameters"][t], name);
      expect_bits(state_of(*optimizer, name + ".exp_avg"), entry["exp_avgs"][t], name + ".exp_avg");
      expect_bits(state_of(*optimizer, name + ".exp_avg_sq"), entry["exp_avg_sqs"][t], name + ".exp_avg_sq");
      EXPECT_EQ(state_of(*optimizer, name + ".step").item<float>(), entry["steps"][t].get<float>());
    }
  }
}

TEST(AdamW, EqualsPythonsBitForBit) {
  expect_pythons_adam(OptimizerConfig::Type::kAdamw, golden()["adamw"]);
}

TEST(Adam, EqualsPythonsBitForBit) {
  expect_pythons_adam(OptimizerConfig::Type::kAdam, golden()["adam"]);
}

TEST(Lion, EqualsPlainPythonBitForBit) {
  for (const Json& entry : golden()["lion"]) {
    const OptimizerConfig config{.type = OptimizerConfig::Type::kLion,
                                 .lr = entry["lr"],
                                 .weight_decay = entry["weight_decay"],
                                 .betas = entry["betas"].get<std::array<double, 2>>()};
    const auto parameters = fresh_parameters();
    const auto optimizer = make_optimizer(config, parameters);
    train(*optimizer, parameters, config.lr, 0, kSteps, entry["absent"].get<Absent>());
    for (std::size_t t = 0; t < 3; ++t) {
      const std::string& name = parameters[t].name;
      expect_bits(parameters[t].tensor, entry["parameters"][t], name);
      expect_bits(state_of(*optimizer, name + ".exp_avg"), entry["exp_avgs"][t], name + ".exp_avg");
    }
  }
}

// Only the parameter p1 is in a group with different options.
TEST(Groups, EqualPythonsBitForBit) {
  for (const Json& entry : golden()["groups"]) {
    const bool sgd = entry["type"] == "sgd";
    const Json& group = entry["group"];
    const OptimizerConfig config{
        .type = sgd ? OptimizerConfig::Type::kSgd : OptimizerConfig::Type::kAdamw,
        .lr = entry["lr"],
        .momentum = sgd ? entry["momentum"].get<double>() : 0,
        .weight_decay = entry["weight_decay"],
        .groups = {{.parameters = "*1", .lr_scale = group["lr_scale"], .weight_decay = group["weight_decay"].get<double>()}}};
    const auto parameters = fresh_parameters();
    const auto optimizer = make_optimizer(config, parameters);
    train(*optimizer, parameters, config.lr, 0, kSteps);
    for (std::size_t t = 0; t < 3; ++t) expect_bits(parameters[t].tensor, entry["parameters"][t], parameters[t].name);
  }
}

std::string refusal_of_groups(const std::vector<ParameterGroup>& groups, std::vector<NamedTensor> parameters) {
  try {
    make_optimizer({.groups = groups}, std::move(parameters), {{"head", "p2"}});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Groups, UnmatchedPatternsAreRefused) {
  EXPECT_EQ(refusal_of_groups({{.parameters = "q*"}}, fresh_parameters()),
            "optimizer.groups: no trained parameter matches 'q*'. The names are p0, p1, p2");
  EXPECT_EQ(
      refusal_of_groups({{.parameters = "*"}, {.parameters = "p1"}}, fresh_parameters()),
      "optimizer.groups: all parameters that match 'p1' belong to earlier groups. Move this group before them, or remove it");
  EXPECT_EQ(refusal_of_groups({{.parameters = "head"}}, fresh_parameters()), "") << "another name of p2";
  auto frozen = fresh_parameters();
  frozen[1].tensor.requires_grad_(false);
  EXPECT_EQ(refusal_of_groups({{.parameters = "p1"}}, frozen),
            "optimizer.groups: no trained parameter matches 'p1'. The names are p0, p2");
}

TEST(Patterns, AStarMatchesAnyCharacters) {
  for (const char* pattern : {"layer1.0.bias", "*", "*bias", "layer*", "l*1*bias", "layer1.0.bias*", "**.bias", "*.*.*"}) {
    EXPECT_TRUE(matches(pattern, "layer1.0.bias")) << pattern;
  }
  for (const char* pattern : {"", "layer1", "*weight", "bias*", "layer1.0.bias?", "*.*.*.*"}) {
    EXPECT_FALSE(matches(pattern, "layer1.0.bias")) << pattern;
  }
  EXPECT_TRUE(matches("a*ab", "aaaab")) << "the first place that fits is not the last one";
}

TEST(ClipGradValue, EqualsPythonsBitForBit) {
  for (const Json& entry : golden()["clip_value"]) {
    const auto parameters = fresh_parameters();
    set_gradients(parameters, 0);
    std::vector<at::Tensor> tensors;
    for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor);
    clip_grad_value(tensors, entry["limit"]);
    for (std::size_t t = 0; t < 3; ++t) expect_bits(tensors[t].grad(), entry["gradients"][t], c10::str("gradient ", t));
  }
  EXPECT_NO_THROW(clip_grad_value({at::ones({3}).requires_grad_()}, 1.0)) << "without gradients";
}

TEST(GradNorm, EqualsTheNormUsedForClipping) {
  const auto parameters = fresh_parameters();
  set_gradients(parameters, 0);
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor);
  const at::Tensor norm = grad_norm(tensors);
  EXPECT_EQ(clip_grad_norm_on_device(tensors, 0.1).item<float>(), norm.item<float>());
  EXPECT_FALSE(grad_norm({at::ones({3}).requires_grad_()}).defined()) << "without gradients";
}

TEST(ClipGradNorm, EqualsPythonsBitForBit) {
  for (const Json& entry : golden()["clip"]) {
    const auto parameters = fresh_parameters();
    set_gradients(parameters, 0);
    std::vector<at::Tensor> tensors;
    for (const NamedTensor& parameter : parameters) {
      tensors.push_back(parameter.tensor);
    }
    const double norm = clip_grad_norm(tensors, entry["max_norm"]);
    EXPECT_EQ(norm, std::strtod(entry["norm"].get<std::string>().c_str(), nullptr));
    for (std::size_t t = 0; t < 3; ++t) {
      expect_bits(tensors[t].grad(), entry["gradients"][t], c10::str("gradient ", t));
    }
  }
}

// On a GPU the host never reads the clipping coefficient. This test shows on a CPU that the arithmetic of this variant gives
// the same bits.
TEST(ClipGradNorm, OnDeviceVariantHasTheSameBits) {
  for (const Json& entry : golden()["clip"]) {
    const auto parameters = fresh_parameters();
    set_gradients(parameters, 0);
    std::vector<at::Tensor> tensors;
    for (const NamedTensor& parameter : parameters) {
      tensors.push_back(parameter.tensor);
    }
    clip_grad_norm_on_device(tensors, entry["max_norm"]);
    for (std::size_t t = 0; t < 3; ++t) {
      expect_bits(tensors[t].grad(), entry["gradients"][t], c10::str("gradient ", t));
    }
  }
  EXPECT_NO_THROW(clip_grad_norm_on_device({at::ones({3}).requires_grad_()}, 1.0)) << "without gradients";
}

TEST(ClipGradNorm, IsZeroWithoutGradients) {
  EXPECT_EQ(clip_grad_norm({at::ones({3}).requires_grad_()}, 1.0), 0.0);
  EXPECT_EQ(clip_grad_norm({}, 1.0), 0.0);
}

class StateTest : public testing::TestWithParam<OptimizerConfig> {};
INSTANTIATE_TEST_SUITE_P(All, StateTest,
                         testing::Values(OptimizerConfig{.type = OptimizerConfig::Type::kSgd, .lr = 0.1},
                                         OptimizerConfig{
                                             .type = OptimizerConfig::Type::kSgd, .lr = 0.1, .momentum = 0.9, .nesterov = true},
                                         OptimizerConfig{.type = OptimizerConfig::Type::kAdamw, .weight_decay = 0.01},
                                         OptimizerConfig{.type = OptimizerConfig::Type::kAdam, .weight_decay = 0.01},
                                         OptimizerConfig{.type = OptimizerConfig::Type::kLion, .weight_decay = 0.01},
                                         OptimizerConfig{.type = OptimizerConfig::Type::kSgd,
                                                         .lr = 0.1,
                                                         .momentum = 0.9,
                                                         .groups = {{.parameters = "p2", .lr_scale = 0.5},
                                                                    {.parameters = "p*1", .weight_decay = 0.1}}}));

// Saves the state after each step and loads it into a new optimizer, which must continue with bit-identical results.
TEST_P(StateTest, ResumesBitForBit) {
  const OptimizerConfig& config = GetParam();
  const auto straight = fresh_parameters();
  const auto straight_optimizer = make_optimizer(config, straight);
  train(*straight_optimizer, straight, config.lr, 0, kSteps);
  for (std::int64_t saved_at = 0; saved_at <= kSteps; ++saved_at) {
    const auto before = fresh_parameters();
    const auto first = make_optimizer(config, before);
    train(*first, before, config.lr, 0, saved_at);

    auto after = copied(before);
    for (NamedTensor& parameter : after) {
      parameter.tensor = parameter.tensor.detach().requires_grad_();
    }
    const auto second = make_optimizer(config, after);
    second->load_state(copied(first->state()));
    train(*second, after, config.lr, saved_at, kSteps);
    for (std::size_t t = 0; t < 3; ++t) {
      EXPECT_TRUE(after[t].tensor.equal(straight[t].tensor)) << "saved at " << saved_at << " parameter " << t;
    }
  }
}

TEST_P(StateTest, SkipsParametersWithoutGradient) {
  const auto parameters = fresh_parameters();
  const auto optimizer = make_optimizer(GetParam(), parameters);
  train(*optimizer, parameters, 0.1, 0, 2, {{0, 1}, {1, 1}});
  EXPECT_TRUE(parameters[1].tensor.equal(filled(0, 0, 1)));
  EXPECT_FALSE(parameters[0].tensor.equal(filled(0, 0, 0)));
}

TEST_P(StateTest, DoesNothingWithoutAnyGradient) {
  const auto parameters = fresh_parameters();
  make_optimizer(GetParam(), parameters)->step(0.1);
  EXPECT_TRUE(parameters[2].tensor.equal(filled(0, 0, 2)));
}

TEST_P(StateTest, HoldsNoReferenceToGradients) {
  const auto parameters = fresh_parameters();
  const auto optimizer = make_optimizer(GetParam(), parameters);
  set_gradients(parameters, 0);
  optimizer->step(0.1);
  EXPECT_EQ(parameters[0].tensor.grad().use_count(), 1U);
}

TEST_P(StateTest, RefusesAMismatchedStateUnchanged) {
  const auto parameters = fresh_parameters();
  const auto optimizer = make_optimizer(GetParam(), parameters);
  train(*optimizer, parameters, 0.1, 0, 1);
  const auto good = copied(optimizer->state());

  auto surplus = good;
  surplus.push_back({"p9.exp_avg", at::zeros({2})});
  EXPECT_THROW(optimizer->load_state(surplus), UsageError);
  if (!good.empty()) {
    auto missing = good;
    missing.pop_back();
    EXPECT_THROW(optimizer->load_state(missing), UsageError);
    auto misshapen = good;
    misshapen.back().tensor = at::zeros({2, 2});
    misshapen.front().tensor.fill_(99);
    EXPECT_THROW(optimizer->load_state(misshapen), UsageError);
    auto twice = good;
    twice.push_back(good.front());
    EXPECT_THROW(optimizer->load_state(twice), UsageError);
    EXPECT_NE(optimizer->state().front().tensor.flatten()[0].item<float>(), 99.0F);
  }
}

TEST(MakeOptimizer, AMismatchListsAllDifferences) {
  const auto parameters = fresh_parameters();
  const auto optimizer = make_optimizer({.type = OptimizerConfig::Type::kSgd, .momentum = 0.9}, parameters);
  try {
    optimizer->load_state({{"p0.momentum_buffer", at::zeros({5, 3})},
                           {"p1.momentum_buffer", at::zeros({8})},
                           {"p3.momentum_buffer", at::zeros({1})},
                           {"p2.exp_avg", at::zeros({33})}});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "the saved optimizer state does not fit the model and optimizer of this config: 1 tensor is missing: "
        "p2.momentum_buffer; 2 "
        "are unexpected: p2.exp_avg, p3.momentum_buffer; 1 has another shape: p1.momentum_buffer [8] instead of [7]. Check "
        "\"model\" and \"optimizer\" in the config, or use --fresh to start over");
  }
}

TEST(Misfit, ListsALimitedNumberOfNames) {
  std::vector<NamedTensor> needed;
  for (int i = 10; i < 35; ++i) needed.push_back({c10::str("w", i), at::zeros({1})});
  EXPECT_EQ(misfit(needed, needed), "");
  EXPECT_EQ(misfit(needed, {}),
            "25 tensors are missing: w10, w11, w12, w13, w14, w15, w16, w17, w18, w19, w20, w21, w22, w23, w24, w25, w26, w27, "
            "w28, w29 and 5 more");
}

// If a parameter gets its first gradient in a late step, its momentum buffer starts with that gradient, as in PyTorch. The
// buffer does not start at zero.
TEST(Sgd, StartsAMomentumBufferWithTheFirstGradient) {
  const OptimizerConfig config{.type = OptimizerConfig::Type::kSgd, .momentum = 0.5};
  const std::vector<NamedTensor> parameters{{"early", at::zeros({2}).requires_grad_()},
                                            {"late", at::zeros({2}).requires_grad_()}};
  const auto optimizer = make_optimizer(config, parameters);
  parameters[0].tensor.mutable_grad() = at::ones({2});
  optimizer->step(1.0);
  parameters[1].tensor.mutable_grad() = at::full({2}, 4.0);
  optimizer->step(1.0);
  EXPECT_EQ(state_of(*optimizer, "early.momentum_buffer")[0].item<float>(), 1.5F);
  EXPECT_EQ(state_of(*optimizer, "late.momentum_buffer")[0].item<float>(), 4.0F);
  EXPECT_EQ(parameters[0].tensor[0].item<float>(), -2.5F);
  EXPECT_EQ(parameters[1].tensor[0].item<float>(), -4.0F);
  optimizer->step(1.0);
  // In the second step of this parameter, the momentum buffer 0.5 * 4 + 4 is subtracted.
  EXPECT_EQ(parameters[1].tensor[0].item<float>(), -10.0F);
}

// A rank that received its state must be bit-identical to a rank that made all steps. This includes the sign of a zero,
// because a dead ReLU gives gradients of -0. If the signs differed, a replacement would be reported as a worker with corrupt
// memory.
TEST(Sgd, ZeroSignsDoNotDependOnALoadedState) {
  const OptimizerConfig config{.type = OptimizerConfig::Type::kSgd, .momentum = 0.9};
  const auto buffer_after = [&](bool loads) {
    const std::vector<NamedTensor> parameters{{"p", at::ones({2}).requires_grad_()}};
    const auto optimizer = make_optimizer(config, parameters);
    if (loads) optimizer->load_state(make_optimizer(config, parameters)->state());
    parameters[0].tensor.mutable_grad() = at::full({2}, -0.0F);
    optimizer->step(0.1);
    return std::signbit(state_of(*optimizer, "p.momentum_buffer")[0].item<float>());
  };
  EXPECT_EQ(buffer_after(false), buffer_after(true));
}

TEST(MakeOptimizer, OmitsFrozenParameters) {
  auto parameters = fresh_parameters();
  parameters[1].tensor.requires_grad_(false);
  const auto optimizer = make_optimizer({.type = OptimizerConfig::Type::kAdamw}, parameters);
  EXPECT_EQ(optimizer->state().size(), 6U);
}

}  // namespace
}  // namespace ddprun::trainer
