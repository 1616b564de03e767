// Tests the resume of three ranks, of which only some can read the checkpoint. After the resume, all ranks must have the state
// of the checkpoint, as if each rank had read it.
#include "trainer/resume/resumed_state.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <vector>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/parallel/ranks.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/models/model.hpp"
#include "trainer/state/state_sharing.hpp"
#include "trainer/surroundings/signals.hpp"
#include "trainer/task/classification.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpoints = "DDPRUN_TEST_CHECKPOINTS";
constexpr int kWorld = 3;
constexpr std::int64_t kStep = 7;

TrainConfig config_of_test() {
  TrainConfig config;
  config.model.type = ModelConfig::Type::kMlp;
  config.model.hidden = {5};
  config.data.classes = 3;
  config.optimizer.type = OptimizerConfig::Type::kAdamw;
  config.batch_size = 8;
  config.epochs = 4;
  return config;
}

const RunLength kLength{.samples_per_epoch = 32, .batch_size = 8, .epochs = 4, .steps_per_epoch = 4, .total_steps = 16};

TrainingState new_state(const TrainConfig& config) {
  return new_training_state(*classification(config), {.tensors = {{.sizes = {1, 4, 4}}}}, config, c10::kCPU);
}

// Returns a state whose values differ from the values of a new state.
TrainingState trained_state(const TrainConfig& config) {
  const at::NoGradGuard no_gradients;
  TrainingState state = new_state(config);
  for (const NamedTensor& parameter : state.parameters) parameter.tensor.detach().add_(0.25);
  std::vector<NamedTensor> moments = state.optimizer->state();
  for (const NamedTensor& moment : moments) moment.tensor.add_(0.5);
  state.optimizer->load_state(moments);
  state.step = kStep;
  state.bucket_order = {{3, 2}, {1, 0}};
  state.run = {.id = "a"};
  return state;
}

void expect_checkpoint_state(const TrainingState& state, const TrainConfig& config) {
  const TrainingState expected = trained_state(config);
  EXPECT_EQ(state.step, kStep);
  EXPECT_EQ(state.started_from, kStep);
  EXPECT_EQ(state.bucket_order, expected.bucket_order);
  EXPECT_EQ(state.run, expected.run);
  EXPECT_FALSE(state.figures);
  EXPECT_FALSE(state.evaluation);
  for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(state.parameters[i].tensor, expected.parameters[i].tensor)) << expected.parameters[i].name;
  }
  const auto moments = state.optimizer->state(), expected_moments = expected.optimizer->state();
  ASSERT_EQ(moments.size(), expected_moments.size());
  for (std::size_t i = 0; i < moments.size(); ++i) {
    EXPECT_TRUE(at::equal(moments[i].tensor, expected_moments[i].tensor)) << moments[i].name;
  }
}

// the parameter is the list of ranks that can read the checkpoint
class ResumedState : public testing::TestWithParam<std::vector<int>> {};

TEST_P(ResumedState, IsEqualOnReadersAndReceivers) {
  const TrainConfig config = config_of_test();
  if (!is_rank()) {
    const test::TemporaryFolder folder;
    CheckpointState saved = checkpoint_of(trained_state(config), config, kLength, {{3, 2}, {1, 0}}, kWorld);
    saved.intra_op_threads = 1;  // the same number of threads as the ranks use
    save_checkpoint(folder.path(), saved, {.newest = 1});
    start_ranks(kWorld, {}, {{kCheckpoints, folder.path().string()}}, true);
    return;
  }
  const auto rank = join_as_rank();
  const Peers peers(rank->group, rank->environment.rank, kWorld, c10::kCPU);
  const fs::path checkpoint = fs::path(std::getenv(kCheckpoints)) / "step-000000007";
  ResumeFrom from{.step = kStep, .holders = GetParam(), .path = {}};
  for (const int holder : from.holders) {
    if (holder == peers.rank()) from.path = checkpoint;
  }

  TrainingState state = new_state(config);
  state.run = {.id = "a"};
  StateOrigin origin = StateOrigin::kUndecided;
  const Resumed resumed = resume_state(state, origin, from, config, kLength, peers);

  EXPECT_EQ(origin, StateOrigin::kCheckpoint);
  expect_checkpoint_state(state, config);
  EXPECT_EQ(resumed.path, checkpoint.string());
  EXPECT_EQ(resumed.differences, "");
  // All ranks are at the same step, so each of them could send the state after the loss of another rank.
  EXPECT_EQ(share_state(state, origin, peers).holders, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(origin, StateOrigin::kSurvivors);
}

INSTANTIATE_TEST_SUITE_P(Holders, ResumedState,
                         testing::Values(std::vector<int>{0, 1, 2}, std::vector<int>{0}, std::vector<int>{1, 2},
                                         std::vector<int>{2}));

// A new rank also receives the newest metrics. It may become rank 0, which needs the metrics that are not in the log yet.
TEST(SharedState, ANewRankGetsTheNewestMetrics) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const TrainConfig config = config_of_test();
  const Peers peers(rank->group, rank->environment.rank, 2, c10::kCPU);
  TrainingState state = peers.rank() == 0 ? trained_state(config) : new_state(config);
  StateOrigin origin = peers.rank() == 0 ? StateOrigin::kSurvivors : StateOrigin::kUndecided;
  if (peers.rank() == 0) {
    state.figures = StepMetrics{.step = kStep,
                                .loss = std::numeric_limits<double>::quiet_NaN(),
                                .lr = 0.1,
                                .gradient_norm = std::numeric_limits<double>::infinity(),
                                .peak_memory = 3'000'000'001,
                                .largest_peak_memory = 5'000'000'002,
                                .skipped = 4};
    state.evaluation =
        StepEvaluation{.step = kStep, .result = {.figures = {{"loss", 0.3}, {"accuracy", 1.0 / 3}}, .samples = 9}};
  }
  EXPECT_EQ(share_state(state, origin, peers).without, std::vector{1});
  ASSERT_TRUE(state.figures && state.evaluation);
  EXPECT_EQ(state.figures->step, kStep);
  EXPECT_TRUE(std::isnan(state.figures->loss));
  EXPECT_EQ(state.figures->lr, 0.1);
  EXPECT_TRUE(std::isinf(state.figures->gradient_norm));
  EXPECT_EQ(state.figures->peak_memory, 3'000'000'001);
  EXPECT_EQ(state.figures->largest_peak_memory, 5'000'000'002);
  EXPECT_EQ(state.figures->skipped, 4);
  EXPECT_EQ(state.evaluation->step, kStep);
  ASSERT_EQ(state.evaluation->result.figures.size(), 2U);
  EXPECT_EQ(state.evaluation->result.figures[1].name, "accuracy");
  EXPECT_EQ(state.evaluation->result.figures[1].value, 1.0 / 3);
  EXPECT_EQ(state.evaluation->result.samples, 9);
}

// The sender is lost during the transfer. The receiver must keep its old state, which may be the newest state that remains.
TEST(SharedState, AnInterruptedTransferKeepsTheOldState) {
  const auto rank = as_rank_of(2, {{0, -SIGKILL}});
  if (!rank) return;
  const TrainConfig config = config_of_test();
  const Peers peers(rank->group, rank->environment.rank, 2, c10::kCPU);
  if (peers.rank() == 0) {  // acts as a rank that is one step ahead, and is killed during the transfer
    [[maybe_unused]] const auto progress = peers.from_all(2 * (kStep + 1));
    peers.send("{}", 1);
    const TrainingState ahead = new_state(config);
    for (int sent = 0; sent < 3; ++sent) peers.send(ahead.parameters[static_cast<std::size_t>(sent)].tensor.detach(), 1);
    ::raise(SIGKILL);
  }
  TrainingState state = trained_state(config);
  state.started_from = kStep;
  StateOrigin origin = StateOrigin::kSurvivors;
  EXPECT_ANY_THROW(share_state(state, origin, peers));
  EXPECT_EQ(origin, StateOrigin::kSurvivors);
  expect_checkpoint_state(state, config);
  // Skips the destructor of the process group, which would wait for the lost rank.
  exit_now(testing::Test::HasFailure() ? 1 : 0);
}

// The checkpoint contains a position in the data that is impossible at that step with this config.
TEST(ResumedStateRefusal, AMismatchIsRefusedByTheReadingRank) {
  const TrainConfig config = config_of_test();
  const test::TemporaryFolder folder;
  save_checkpoint(folder.path(), checkpoint_of(trained_state(config), config, kLength, {}, 1), {.newest = 1});
  RunLength longer = kLength;
  longer.steps_per_epoch = 5;
  TrainingState state = new_state(config);
  StateOrigin origin = StateOrigin::kUndecided;
  const Peers alone(nullptr, 0, 1, c10::kCPU);
  const ResumeFrom from{.step = kStep, .holders = {0}, .path = folder / "step-000000007"};
  EXPECT_THROW(resume_state(state, origin, from, config, longer, alone), UsageError);
  EXPECT_FALSE(is_whole(origin));
}

}  // namespace
}  // namespace ddprun::trainer
