// Tests the state after an interrupted step. If a collective is interrupted, the state before the step is restored. If the
// update is interrupted, no usable state is left.
#include "trainer/state/training_state.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <vector>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/models/model.hpp"
#include "trainer/state/initial_weights.hpp"
#include "trainer/task/classification.hpp"

namespace ddprun::trainer {
namespace {

TrainingState state_with_a_buffer() {
  TrainingState state;
  state.step = 7;
  state.buffers = {{"running_mean", at::zeros({3})}};
  return state;
}

TEST(TrainingState, AStepInterruptedInAnExchangeIsUndone) {
  TrainingState state = state_with_a_buffer();
  for (int again = 0; again < 2; ++again) {
    begin_step(state);
    state.buffers[0].tensor.add_(1.0);  // changes the buffer, as a forward pass does
    EXPECT_TRUE(undo_step(state));
    EXPECT_TRUE(state.buffers[0].tensor.equal(at::zeros({3})));
  }
  EXPECT_EQ(state.step, 7);
}

// If undo is off, buffers are not copied. On a GPU, the copies would need a kernel launch in each step.
TEST(TrainingState, NoBackupIsKeptWithoutUndo) {
  TrainingState state = state_with_a_buffer();
  state.can_undo = false;
  begin_step(state);
  EXPECT_TRUE(state.buffers_before.empty());
  EXPECT_FALSE(undo_step(state)) << "the earlier buffers are unknown";
  EXPECT_TRUE(undo_step(state)) << "between steps there is nothing to undo";
}

TEST(TrainingState, RecordsHowItsNumbersWereComputed) {
  TrainConfig config;
  config.precision = TrainConfig::Precision::kBf16;
  const TrainingState state =
      new_training_state(*classification(config), {.tensors = {{.sizes = {1, 8, 8}}}}, config, c10::kCPU);
  const CheckpointState saved =
      checkpoint_of(state, config, RunLength{.samples_per_epoch = 8, .batch_size = 8, .steps_per_epoch = 1}, {}, 1);
  EXPECT_EQ(saved.device, "cpu");
  EXPECT_EQ(saved.precision, "bf16");
  EXPECT_EQ(rounding_differences(saved, state, config, 1), "");
  config.precision = TrainConfig::Precision::kTf32;
  EXPECT_EQ(rounding_differences(saved, state, config, 1), "precision: fp32 instead of bf16") << "a CPU has no TF32";
  CheckpointState of_a_gpu = saved;
  of_a_gpu.device = "NVIDIA H200";
  config.precision = TrainConfig::Precision::kBf16;
  EXPECT_EQ(rounding_differences(of_a_gpu, state, config, 1), "device: cpu instead of NVIDIA H200");
  of_a_gpu.device = of_a_gpu.precision = "";
  EXPECT_EQ(rounding_differences(of_a_gpu, state, config, 1), "") << "written by a version that noted neither";
}

TEST(TrainingState, AFinishedStepStays) {
  TrainingState state = state_with_a_buffer();
  begin_step(state);
  state.buffers[0].tensor.add_(1.0);
  begin_update(state);
  end_step(state);
  EXPECT_TRUE(undo_step(state));
  EXPECT_TRUE(state.buffers[0].tensor.equal(at::ones({3})));
  EXPECT_EQ(state.step, 8);
}

TEST(TrainingState, AnInterruptedUpdateInvalidatesTheState) {
  TrainingState state = state_with_a_buffer();
  begin_step(state);
  begin_update(state);
  EXPECT_FALSE(undo_step(state));
}

// A model with one weight under two names, and one frozen weight.
struct TiedAndFrozen : Model {
  TiedAndFrozen() {
    tied = register_parameter("first", at::full({2}, 3.0F));
    register_parameter("second", tied);
    frozen = register_parameter("frozen", at::ones({2}), /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& images) override { return images * tied * frozen; }
  at::Tensor tied;
  at::Tensor frozen;
};

TEST(TrainingState, TiedParametersCountOnceAndFrozenOnesAreNotTrained) {
  const auto model = std::make_shared<TiedAndFrozen>();
  const OptimizerConfig sgd{.type = OptimizerConfig::Type::kSgd, .lr = 1.0};
  TrainingState state = state_around(model, sgd);
  ASSERT_EQ(state.parameters.size(), 2U);
  EXPECT_EQ(state.parameters[0].name, "first");
  EXPECT_EQ(state.parameters[1].name, "frozen");
  EXPECT_EQ(state.tied.at("second"), "first");
  std::vector<at::Tensor> trained;
  for (const NamedTensor& parameter : trained_parameters(state)) trained.push_back(parameter.tensor);
  ASSERT_EQ(trained.size(), 1U);

  model->tied.mutable_grad() = at::full({2}, 0.5F);
  model->frozen.mutable_grad() = at::full({2}, 100.0F);  // this gradient must be ignored, even if some code has set it
  EXPECT_NEAR(clip_grad_norm(trained, 100.0), std::sqrt(0.5), 1e-6);
  state.optimizer->step(1.0);
  EXPECT_TRUE(model->tied.detach().equal(at::full({2}, 2.5F))) << "stepped once";
  EXPECT_TRUE(model->frozen.equal(at::ones({2})));
}

std::string refusal_of_weights(TrainingState& state, std::vector<NamedTensor> model) {
  CheckpointState saved = checkpoint_of(state, TrainConfig{}, run_length(TrainConfig{}, 1000), {}, 1);
  saved.model = std::move(model);
  try {
    restore(state, saved, TrainConfig{}, run_length(TrainConfig{}, 1000), "there");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainingState, AForeignCheckpointListsAllDifferences) {
  TrainingState state = state_around(std::make_shared<TiedAndFrozen>(), {.type = OptimizerConfig::Type::kSgd});
  EXPECT_EQ(
      refusal_of_weights(state, {{"first", at::zeros({3})}, {"head", at::zeros({1})}, {"body", at::zeros({1})}}),
      "there does not match the model of the config: 1 tensor is missing: frozen; 2 are unexpected: body, head; 1 has another "
      "shape: first [3] instead of [2]");
  EXPECT_NE(refusal_of_weights(state, {{"first", at::zeros({2})}}), "");
  EXPECT_TRUE(state.parameters[0].tensor.detach().equal(at::full({2}, 3.0F))) << "what is refused changes nothing";
}

// A task whose model is TiedAndFrozen with a bias.
struct Fitting : Task {
  std::shared_ptr<torch::nn::Module> make_module(const Description&, c10::Device) const override {
    auto model = std::make_shared<TiedAndFrozen>();
    model->register_parameter("bias", at::ones({1}));
    return model;
  }
  at::Tensor loss(torch::nn::Module&, const Batch&) const override { return {}; }
  std::vector<std::string> figures() const override { return {"loss"}; }
  void measure(torch::nn::Module&, const Batch&, Figures&) const override {}
};

std::vector<std::string> names_trained(const std::vector<std::string>& freeze, std::vector<ParameterGroup> groups = {}) {
  TrainConfig config;
  config.model.freeze = freeze;
  config.optimizer.groups = std::move(groups);
  std::vector<std::string> names;
  for (const NamedTensor& one : trained_parameters(new_training_state(Fitting(), {}, config, c10::kCPU)))
    names.push_back(one.name);
  return names;
}

std::string refusal_of_freeze(const std::vector<std::string>& freeze, std::vector<ParameterGroup> groups = {}) {
  try {
    names_trained(freeze, std::move(groups));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainingState, ParametersAreFrozenByPatterns) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_trained({}), (Names{"first", "bias"}));
  EXPECT_EQ(names_trained({"b*"}), Names{"first"});
  EXPECT_EQ(names_trained({"second"}), Names{"bias"}) << "by any of its names";
  EXPECT_EQ(refusal_of_freeze({"b*", "layer1.*"}),
            "model.freeze: no parameter matches 'layer1.*'. The names are first, second, frozen, bias");
  EXPECT_EQ(refusal_of_freeze({"*"}), "model.freeze leaves no parameter to train");
  EXPECT_EQ(refusal_of_freeze({"bias"}, {{.parameters = "bias"}}),
            "optimizer.groups: no trained parameter matches 'bias'. The names are first");
  EXPECT_EQ(refusal_of_freeze({}, {{.parameters = "second"}}), "");
}

// The tensors in the map share memory with the state. A rank that receives a state writes the received values through the map.
TEST(TrainingState, TheMapHasAllSavedTensors) {
  using Role = StateTensor::Role;
  const auto model = std::make_shared<TiedAndFrozen>();
  model->register_buffer("seen", at::zeros({1}));
  TrainingState state = state_around(model, {.type = OptimizerConfig::Type::kSgd, .momentum = 0.9});
  const StateMap map = state_map(state);
  std::vector<std::pair<Role, std::string>> found;
  for (const StateTensor& one : map) found.emplace_back(one.role, one.entry.name);
  EXPECT_EQ(found, (std::vector<std::pair<Role, std::string>>{{Role::kParameter, "first"},
                                                              {Role::kParameter, "frozen"},
                                                              {Role::kBuffer, "seen"},
                                                              {Role::kOptimizer, "first.momentum_buffer"}}));
  for (const StateTensor& one : map) one.entry.tensor.fill_(4);
  const CheckpointState saved = checkpoint_of(state, TrainConfig{}, run_length(TrainConfig{}, 1000), {}, 1);
  ASSERT_EQ(saved.model.size(), 3U);
  ASSERT_EQ(saved.optimizer.size(), 1U);
  for (const auto* list : {&saved.model, &saved.optimizer}) {
    for (const NamedTensor& entry : *list) EXPECT_TRUE(entry.tensor.detach().eq(4).all().item<bool>()) << entry.name;
  }
  EXPECT_TRUE(all_finite(state));
  map.back().entry.tensor.fill_(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(all_finite(state));
}

// Loads these weights into the model. Returns the error message, or an empty string if the weights are accepted.
std::string refusal_of_file(const std::shared_ptr<torch::nn::Module>& model, const std::vector<NamedTensor>& weights) {
  ddprun::test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "w.safetensors";
  ddprun::test::write_text(file, encode_safetensors(weights));
  try {
    take_weights(model, file, TrainConfig{});
  } catch (const UsageError& error) {
    const std::string text = error.what();
    return text.starts_with(file.string()) ? text.substr(file.string().size()) : text;
  }
  return "";
}

TEST(TrainingState, TwoNamesOfATensorShareIt) {
  const auto model = std::make_shared<TiedAndFrozen>();
  const NamedTensor frozen{"frozen", at::ones({2})};
  const at::Tensor seven = at::full({2}, 7.0F), other = at::full({2}, 6.0F);
  const at::Tensor no_number = at::full({2}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(
      refusal_of_file(model, {{"first", seven}, {"second", other}, frozen}),
      " does not match the model of the config: its tensors second and first differ, but the model has one tensor for both");
  EXPECT_NE(refusal_of_file(model, {{"first", seven}, {"second", at::full({3}, 7.0F)}, frozen}), "");
  EXPECT_TRUE(model->tied.detach().equal(at::full({2}, 3.0F))) << "what is refused changes nothing";
  EXPECT_EQ(refusal_of_file(model, {{"first", no_number}, {"second", no_number.clone()}, frozen}), "");
  EXPECT_EQ(refusal_of_file(model, {{"first", seven}, {"second", seven.to(at::kHalf)}, frozen}), "");
  EXPECT_EQ(refusal_of_file(model, {{"second", other}, frozen}), "") << "save_model() of safetensors.torch keeps one of them";
  EXPECT_TRUE(model->tied.detach().equal(other));
}

// As in PyTorch's load_state_dict(), a missing buffer is an error. If a missing buffer were accepted, its initial values would
// be used as if they were learned.
TEST(TrainingState, AMissingBufferIsReported) {
  const auto model = std::make_shared<TiedAndFrozen>();
  model->register_buffer("running_mean", at::zeros({2}));
  model->register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  const NamedTensor first{"first", at::ones({2})}, frozen{"frozen", at::ones({2})};
  EXPECT_EQ(refusal_of_file(model, {first, frozen}),
            " does not match the model of the config: 1 tensor is missing: running_mean");
  EXPECT_EQ(refusal_of_file(model, {first, frozen, {"running_mean", at::ones({2})}}), "");
}

TEST(TrainingState, ATiedParameterIsSavedOnceAndReadFromTwo) {
  const OptimizerConfig sgd{.type = OptimizerConfig::Type::kSgd, .lr = 1.0, .momentum = 0.9};
  TrainingState state = state_around(std::make_shared<TiedAndFrozen>(), sgd);
  const RunLength length = run_length(TrainConfig{}, 1000);
  CheckpointState saved = checkpoint_of(state, TrainConfig{}, length, {}, 1);
  ASSERT_EQ(saved.model.size(), 2U);
  saved.model = {{"first", at::full({2}, 7.0F)}, {"second", at::full({2}, 7.0F)}, {"frozen", at::full({2}, 8.0F)}};
  restore(state, saved, TrainConfig{}, length, "test");
  EXPECT_TRUE(state.parameters[0].tensor.detach().equal(at::full({2}, 7.0F)));
  EXPECT_TRUE(state.parameters[1].tensor.equal(at::full({2}, 8.0F)));
}

// The seed determines the order of samples within an epoch, and the choice of held-out samples. So the seed must not change
// within an epoch. If samples are held out, it must never change.
TEST(TrainingState, AnotherSeedIsRefusedWithHeldOutSamples) {
  TrainConfig config;
  config.batch_size = 100;
  const RunLength length = run_length(config, 1000);
  const auto refusal = [&](std::int64_t step, std::uint64_t seed, bool holds_out) {
    TrainConfig now = config;
    now.seed = seed;
    if (holds_out) now.data.validation.samples = 10;
    TrainingState state = state_around(std::make_shared<TiedAndFrozen>(), config.optimizer);
    state.step = step;
    const CheckpointState saved = checkpoint_of(state, config, length, {}, 1);
    try {
      restore(state, saved, now, length, "there");
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(3, 0, true), "");
  EXPECT_EQ(refusal(10, 5, false), "") << "a whole epoch: the next one has another order";
  EXPECT_EQ(refusal(3, 5, false),
            "there was trained with seed 0, but this config has seed 5: the checkpoint is from the middle of an epoch, and in "
            "another order some samples would be used twice and others never. Set seed to 0. To start a "
            "new run from these weights, set model.init to the checkpoint");
  EXPECT_NE(refusal(10, 5, true).find("data.validation holds out samples that were already used for training"),
            std::string::npos);
}

TEST(TrainingState, AConfigNextToTheWeightsIsCompared) {
  ddprun::test::TemporaryFolder folder;
  const auto model = std::make_shared<TiedAndFrozen>();
  const std::filesystem::path file = folder / "model.safetensors";
  ddprun::test::write_text(file, encode_safetensors({{"first", at::ones({2})}, {"frozen", at::ones({2})}}));
  TrainConfig config;
  config.model.type = ModelConfig::Type::kGpt;
  config.model.n_head = 4;
  const auto refusal = [&] {
    try {
      take_weights(model, file, config);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(), "");
  ddprun::test::write_text(folder / "config.json", R"({"model_type": "gpt2", "n_head": 4})");
  EXPECT_EQ(refusal(), "");
  ddprun::test::write_text(folder / "config.json", R"({"model_type": "gpt2", "n_head": 6})");
  EXPECT_EQ(refusal(), file.string() + " has another model than this config, according to " +
                           (folder / "config.json").string() +
                           ": model.n_head is 4 in this config, but n_head is 6 in that file. Set these keys to the values in "
                           "the file; if the file does not describe these weights, move it away");
  ddprun::test::write_text(folder / "config.json", "no JSON");
  EXPECT_EQ(refusal(), "");
  ddprun::test::write_text(folder / "config.json", std::string((1 << 20) + 1, ' '));
  EXPECT_NE(refusal().find("the maximum for a model's config is"), std::string::npos) << refusal();
  const std::string nested = std::string(100, '[') + std::string(100, ']');
  ddprun::test::write_text(folder / "config.json", R"({"model_type": "gpt2", "n_head": )" + nested + "}");
  EXPECT_EQ(refusal(), "") << "too deep to be one";
}

TEST(TrainingState, AConfigNextToModelInitIsCompared) {
  ddprun::test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "model.safetensors";
  ddprun::test::write_text(file, encode_safetensors({{"first", at::ones({2})}}));
  ddprun::test::write_text(folder / "config.json", R"({"model_type": "gpt2", "n_head": 6})");
  TrainConfig config;
  config.model.type = ModelConfig::Type::kGpt;
  config.model.n_head = 4;
  config.model.init = file.string();
  try {
    new_training_state(Fitting(), {}, config, c10::kCPU);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("model.n_head is 4 in this config, but n_head is 6 in that file"),
              std::string::npos)
        << error.what();
  }
}

// The path of the weights is the folder of a checkpoint or a file in it. The model is compared with the config.json of the run
// directory that contains the checkpoint.
TEST(TrainingState, TheConfigOfTheRunThatWroteTheWeightsIsCompared) {
  ddprun::test::TemporaryFolder folder;
  const std::filesystem::path checkpoint = folder / "checkpoints" / "step-000000001";
  std::filesystem::create_directories(checkpoint);
  const std::filesystem::path file = checkpoint / "model.safetensors";
  ddprun::test::write_text(file, "");
  ddprun::test::write_text(folder / "config.json",
                           R"({"seed": 1, "model": {"type": "gpt", "n_head": 6}, "data": {"type": "tokens", "dir": "d"}})");
  TrainConfig config;
  config.model.type = ModelConfig::Type::kGpt;
  config.data.type = DataConfig::Type::kTokens;
  config.data.dir = (folder / "d").string();
  config.model.n_head = 6;
  for (const auto& source : {file, checkpoint}) EXPECT_EQ(compare_model(source, config), "");
  config.model.n_head = 12;
  for (const auto& source : {file, checkpoint}) EXPECT_THROW(compare_model(source, config), UsageError);
  EXPECT_EQ(compare_model(folder.path().parent_path(), config),
            "there is no config.json next to the weights, so these keys could not be checked: n_head 12");

  EXPECT_EQ(compare_held_out(file, config), "") << "nothing is held out";
  config.data.validation.samples = 3;
  config.seed = 1;
  EXPECT_NE(compare_held_out(file, config).find("without data.validation"), std::string::npos);
  ddprun::test::write_text(
      folder / "config.json",
      R"({"seed": 1, "data": {"type": "tokens", "dir": "d", "validation": {"samples": 3}}, "model": {"type": "gpt"}})");
  EXPECT_EQ(compare_held_out(file, config), "");
  config.seed = 2;
  EXPECT_NE(compare_held_out(file, config).find("seed 1 then, 2 now"), std::string::npos);
  config.data.dir = "/elsewhere";
  EXPECT_EQ(compare_held_out(file, config), "") << "other samples altogether";
}

struct OneWeight : torch::nn::Module {
  explicit OneWeight(const at::Tensor& first) : weight(register_parameter("weight", first)) {}
  at::Tensor weight;
};

// A task whose weights are drawn from the default generator, like the weights of torch::nn::Linear.
struct DrawsByDefault : Fitting {
  std::shared_ptr<torch::nn::Module> make_module(const Description&, c10::Device) const override {
    return std::make_shared<OneWeight>(at::rand({4}));
  }
};

TEST(TrainingState, ACustomModuleIsSeeded) {
  TrainConfig config;
  const auto weight_of = [&](std::uint64_t seed) {
    config.seed = seed;
    return new_training_state(DrawsByDefault(), {}, config, c10::kCPU).parameters.at(0).tensor.detach();
  };
  const at::Tensor first = weight_of(3);
  at::rand({1});  // changes the state of the default generator
  EXPECT_TRUE(weight_of(3).equal(first));
  EXPECT_FALSE(weight_of(4).equal(first));
  EXPECT_NO_THROW(require_same_module(DrawsByDefault(), {}, 3, c10::kCPU));
}

TEST(TrainingState, ANondeterministicModuleIsRefused) {
  struct Counts : Fitting {
    std::shared_ptr<torch::nn::Module> make_module(const Description&, c10::Device) const override {
      return std::make_shared<OneWeight>(at::full({2}, ++calls));
    }
    mutable double calls = 0;
  };
  try {
    require_same_module(Counts(), {}, 0, c10::kCPU);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("a second call with the same seed returned a different parameter 'weight'"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace ddprun::trainer
