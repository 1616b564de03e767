// Tests where a worker gets its training state from. This process is a job of one rank. The tests check the worker's state
// before it joins a process group, within a group, and after another rank is lost during an operation.
// tests/whole_program/test_live_recovery.py tests the state that survivors send.
#include "trainer/life/state_source.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/life/prepare_workspace.hpp"

namespace ddprun::trainer {
namespace {

using Stage = TrainingState::Stage;

constexpr std::uint32_t kSamples = 8;
constexpr std::uint32_t kSide = 2;

std::string number(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

class StateSourceTest : public testing::Test {
 protected:
  explicit StateSourceTest(const std::string& model = R"({"type": "mlp", "hidden": [3]})") {
    for (const char* split : {"train", "t10k"}) {
      std::string pixels = number(0x803) + number(kSamples) + number(kSide) + number(kSide);
      for (std::uint32_t i = 0; i < kSamples * kSide * kSide; ++i) pixels += static_cast<char>(i);
      write(std::string(split) + "-images-idx3-ubyte", pixels);
      write(std::string(split) + "-labels-idx1-ubyte", number(0x801) + number(kSamples) + std::string(kSamples, '\0'));
    }
    write("config.json", R"({"name": "test", "epochs": 2, "batch_size": 4, "model": )" + model + R"(,
                             "checkpoint": {"keep_best": 1},
                             "data": {"dir": ")" +
                             folder_.path().string() + R"("}})");
    options_.config = folder_ / "config.json";
    process_.begin();
    process_.use(c10::kCPU);
    process_.await_data();
    run_.layout.root = folder_ / "run";
    run_.length = run_length(process_.config(), kSamples);
    std::filesystem::create_directories(run_.layout.root);
  }

  void write(const std::string& name, const std::string& bytes) { std::ofstream(folder_ / name, std::ios::binary) << bytes; }

  void begin_group() {
    source_.prepare();
    process_.join(source_.held(), 0);
    source_.agree(run_);
  }

  const test::TemporaryFolder folder_;
  Options options_;
  const Subject training_program_ = image_classification();
  Process process_{options_, training_program_};
  trainer::Run run_;
  StateSource source_{process_};
};

TEST_F(StateSourceTest, NothingIsHeldBeforeTheGroupAgrees) {
  EXPECT_EQ(source_.origin(), StateOrigin::kNothing);
  EXPECT_FALSE(source_.held());
  source_.prepare();
  EXPECT_EQ(source_.origin(), StateOrigin::kUndecided);
  EXPECT_FALSE(source_.held());
}

TEST_F(StateSourceTest, AnUntouchedStateIsReused) {
  source_.prepare();
  const auto model = source_.state().model;
  source_.prepare();
  EXPECT_EQ(source_.state().model, model);
}

TEST_F(StateSourceTest, AStateWithoutAgreementIsRebuilt) {
  source_.prepare();
  const auto model = source_.state().model;
  source_.leave();
  EXPECT_EQ(source_.origin(), StateOrigin::kNothing);
  source_.prepare();
  EXPECT_NE(source_.state().model, model);
}

TEST_F(StateSourceTest, WithoutCheckpointsTheRunStartsFromTheSeed) {
  begin_group();
  EXPECT_EQ(source_.origin(), StateOrigin::kSeed);
  EXPECT_EQ(source_.held(), 0);
}

TEST_F(StateSourceTest, ACheckpointIsResumed) {
  begin_group();
  source_.state().step = 3;
  save_checkpoint(run_.layout.checkpoints(), checkpoint_of(source_.state(), process_.config(), run_.length, {}, 1),
                  {.newest = 1});
  StateSource next(process_);
  next.prepare();
  EXPECT_FALSE(next.held());
  next.agree(run_);
  EXPECT_EQ(next.origin(), StateOrigin::kCheckpoint);
  EXPECT_EQ(next.held(), 3);
}

TEST_F(StateSourceTest, ALossInAnExchangeUndoesTheStep) {
  begin_group();
  source_.state().step = 3;
  begin_step(source_.state());
  source_.leave();
  EXPECT_EQ(source_.held(), 3);
  const auto model = source_.state().model;
  source_.prepare();
  EXPECT_EQ(source_.state().model, model);
}

TEST_F(StateSourceTest, ALossInTheUpdateInvalidatesTheState) {
  begin_group();
  begin_step(source_.state());
  begin_update(source_.state());
  source_.leave();
  EXPECT_EQ(source_.origin(), StateOrigin::kNothing);
  EXPECT_FALSE(source_.held());
  EXPECT_EQ(source_.state().stage, Stage::kBetweenSteps);
}

// Another rank had finished an evaluation when the process group broke, and sent the result to this rank. This rank writes the
// checkpoints, so it must use the result to choose the best checkpoint.
TEST_F(StateSourceTest, AnEvaluationOfASurvivorCountsForTheBest) {
  begin_group();
  std::optional<Workspace> work;
  prepare_workspace(work, process_, source_, run_);
  Checkpointing* const checkpointing = work->checkpointing;
  ASSERT_NE(checkpointing, nullptr);
  source_.state().step = 2;
  EXPECT_FALSE(checkpointing->due(2));
  source_.state().evaluation = StepEvaluation{.step = 2, .result = {.figures = {{"accuracy", 0.5}}, .samples = 8}};
  prepare_workspace(work, process_, source_, run_);
  EXPECT_EQ(work->checkpointing, checkpointing) << "it outlives the group";
  EXPECT_TRUE(checkpointing->due(2));
}

std::string vit_with(const std::string& keys) {
  return R"({"type": "vit", "n_layer": 1, "n_embd": 4, "patch_size": 1, )" + keys + "}";
}

// Simulates a run that was started by an older version of ddptrain. That version did not compare the model with the config
// next to the weights in model.init.
class OfAnotherModel : public StateSourceTest {
 protected:
  OfAnotherModel() : StateSourceTest(vit_with(R"("n_head": 1, "init": "theirs/w.safetensors")")) {
    const std::filesystem::path theirs = folder_ / "theirs";
    std::filesystem::create_directories(theirs / "checkpoints");
    test::write_text(theirs / "config.json", R"({"name": "theirs", "batch_size": 4, "model": )" + vit_with(R"("n_head": 2)") +
                                                 R"(, "data": {"dir": "/nowhere"}})");
    TrainConfig config = process_.config();
    config.model.init.clear();
    const auto task = training_program_.make_task(config);
    const TrainingState state = new_training_state(*task, training_program_.describe(config), config, c10::kCPU);
    test::write_text(theirs / "w.safetensors", encode_safetensors(state.parameters));
  }

  std::string refusal(const std::function<void()>& act) const {
    try {
      act();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(OfAnotherModel, AnOldRunNeedsTheUsersConsent) {
  const std::string refused = refusal([&] { source_.prepare(); });
  EXPECT_NE(refused.find("w.safetensors has another model than this config, according to "), std::string::npos) << refused;
  EXPECT_NE(refused.find("model.n_head is 1 in this config, but model.n_head is 2 in that file"), std::string::npos) << refused;
  EXPECT_TRUE(
      refused.ends_with("If an older version of ddprun without this check started the run, add --data-changed to resume "
                        "it with the model of its config"))
      << refused;
  options_.data_changed = true;
  TrainConfig config = process_.config();
  config.model.init.clear();
  TrainingState old = new_training_state(process_.task(), training_program_.describe(config), config, c10::kCPU);
  old.step = 3;
  old.parameters.front().tensor.detach().fill_(7);
  save_checkpoint(run_.layout.checkpoints(), checkpoint_of(old, process_.config(), run_.length, {}, 1), {.newest = 1});
  begin_group();
  EXPECT_EQ(source_.held(), 3);
  EXPECT_EQ(source_.state().parameters.front().tensor.flatten()[0].item<float>(), 7);
}

TEST_F(OfAnotherModel, ANewRunIsAlwaysRefused) {
  options_.data_changed = true;
  const std::string refused = refusal([&] { begin_group(); });
  EXPECT_TRUE(refused.ends_with("--data-changed applies only to a run with checkpoints, and this run has none")) << refused;
}

}  // namespace
}  // namespace ddprun::trainer
