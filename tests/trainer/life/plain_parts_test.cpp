// Tests code of the trainer that uses no files, sockets or threads: the position of a step in the run, injected faults, the
// command line, seeds, and the classification of errors.
#include <gtest/gtest.h>

#include <c10/util/Exception.h>

#include <new>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/loop/seeds.hpp"
#include "trainer/surroundings/fault_injection.hpp"
#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {
namespace {

TEST(RunLength, CountsTheRaggedLastBatchAsAStep) {
  TrainConfig config;
  config.batch_size = 30;
  config.epochs = 2;
  const RunLength length = run_length(config, 640);
  EXPECT_EQ(length.steps_per_epoch, 22);  // 640 samples: 21 batches of 30 samples and one batch of 10
  EXPECT_EQ(length.total_steps, 44);
  EXPECT_EQ(length.epoch_of(21), 0);
  EXPECT_EQ(length.position_of(21), 630);
  EXPECT_EQ(length.samples_after(21), 630);
  EXPECT_EQ(length.epoch_of(22), 1);
  EXPECT_EQ(length.position_of(22), 0);
  EXPECT_EQ(length.samples_after(22), 640);
  EXPECT_EQ(length.samples_after(44), 1280);
}

TEST(RunLength, MaxStepsLimitsTheRun) {
  TrainConfig config;
  config.batch_size = 10;
  config.epochs = 3;
  config.max_steps = 7;
  EXPECT_EQ(run_length(config, 40).total_steps, 7);
  config.max_steps = 700;
  EXPECT_EQ(run_length(config, 40).total_steps, 12);
}

TEST(RunLength, EvaluatesAtConfiguredEpochsAndAtTheEnd) {
  TrainConfig config;
  config.batch_size = 10;
  config.epochs = 3;
  config.eval_every_epochs = 2;
  const RunLength length = run_length(config, 40);
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= 12; ++step) {
    if (evaluates_after(length, config, step)) steps.push_back(step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{8, 12}));
  config.eval_every_steps = 5;
  steps.clear();
  for (std::int64_t step = 1; step <= 12; ++step) {
    if (evaluates_after(length, config, step)) steps.push_back(step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{5, 8, 10, 12})) << "in addition to the epochs";
  config.eval_every_steps = 0;
  config.eval_every_epochs = 0;
  EXPECT_FALSE(evaluates_after(length, config, 8));
  EXPECT_TRUE(evaluates_after(length, config, 12));
}

TEST(RunLength, LogsTheFirstTheLastAndEveryNth) {
  TrainConfig config;
  config.batch_size = 10;
  config.epochs = 3;
  config.log.every_steps = 5;
  const RunLength length = run_length(config, 40);
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= 12; ++step) {
    if (logs_after(length, config, step)) steps.push_back(step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 5, 10, 12}));
}

TEST(Seeds, DifferForEveryStepAndRank) {
  std::set<std::uint64_t> seen;
  for (std::int64_t step = 0; step < 100; ++step) {
    for (int rank = 0; rank < 8; ++rank) seen.insert(step_seed(3, step, rank));
  }
  EXPECT_EQ(seen.size(), 800u);
  EXPECT_EQ(step_seed(3, 5, 1), step_seed(3, 5, 1));
}

TEST(Fault, ReadsEveryPart) {
  const Fault fault = parse_fault("exit=3 rank=2 step=17 restart=1 phase=saving");
  EXPECT_EQ(fault.kind, FaultKind::kExit);
  EXPECT_EQ(fault.exit_code, 3);
  EXPECT_EQ(fault.rank, 2);
  EXPECT_EQ(fault.step, 17);
  EXPECT_EQ(fault.restart, 1);
  EXPECT_EQ(fault.phase, FaultPhase::kSaving);
}

TEST(Fault, HasDefaults) {
  const Fault fault = parse_fault("  kill ");
  EXPECT_EQ(fault.kind, FaultKind::kKill);
  EXPECT_EQ(fault.rank, 0);
  EXPECT_EQ(fault.step, 0);
  EXPECT_EQ(fault.restart, 0);
  EXPECT_EQ(fault.phase, FaultPhase::kStep);
}

TEST(Fault, RefusesInvalidText) {
  for (const char* bad :
       {"", "kil", "kill rank", "kill rank=-1", "kill step=1x", "exit=", "exit=256", "kill phase=lunch", "kill color=1"}) {
    EXPECT_THROW(parse_fault(bad), UsageError) << bad;
  }
}

TEST(Fault, AppliesOnlyToItsRankAndRestart) {
  const Fault fault = parse_fault("oom rank=1 step=5");
  EXPECT_FALSE(Faults(fault, 0, 0).due(FaultPhase::kStep, 5));
  EXPECT_FALSE(Faults(fault, 1, 1).due(FaultPhase::kStep, 5));
  EXPECT_TRUE(Faults(fault, 1, 0).due(FaultPhase::kStep, 5));
  EXPECT_TRUE(Faults(parse_fault("oom rank=all step=5"), 7, 0).due(FaultPhase::kStep, 5));
}

TEST(Fault, FiresAtItsStepOrTheFirstSaveAfterIt) {
  const Faults in_step(parse_fault("oom step=5"), 0, 0);
  EXPECT_NO_THROW(in_step.at(FaultPhase::kStep, 4));
  EXPECT_NO_THROW(in_step.at(FaultPhase::kStep, 6));
  EXPECT_NO_THROW(in_step.at(FaultPhase::kSaving, 5));
  EXPECT_THROW(in_step.at(FaultPhase::kStep, 5), std::bad_alloc);
  const Faults in_save(parse_fault("oom step=5 phase=saving"), 0, 0);
  EXPECT_NO_THROW(in_save.at(FaultPhase::kSaving, 4));
  EXPECT_THROW(in_save.at(FaultPhase::kSaving, 7), std::bad_alloc);
}

TEST(Faults, AChaosFaultFiresOncePerRunDirectory) {
  const test::TemporaryFolder folder;
  const auto faults = parse_faults("oom rank=1 step=5; kill step=9 rank=all;", "--chaos");
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[0].restart, std::nullopt) << "whichever round comes there";
  const auto marks = folder.path() / "chaos";
  EXPECT_THROW(Faults(faults, 1, 3, marks).at(FaultPhase::kStep, 5), std::bad_alloc);
  EXPECT_NO_THROW(Faults(faults, 1, 4, marks).at(FaultPhase::kStep, 5)) << "the step is done again";
  EXPECT_TRUE(std::filesystem::exists(marks / "fault-0-rank-1"));
  EXPECT_TRUE(Faults(faults, 0, 4, marks).due(FaultPhase::kStep, 9));
  for (const char* bad : {"", ";", "kill; nothing", "kill rank=1 kill step=2"}) {
    EXPECT_THROW(parse_faults(bad, "--chaos"), UsageError) << bad;
  }
}

TEST(Fault, KillsAndExits) {
  EXPECT_EXIT(Faults(parse_fault("kill"), 0, 0).at(FaultPhase::kStep, 0), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(Faults(parse_fault("segv"), 0, 0).at(FaultPhase::kStep, 0), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(Faults(parse_fault("exit=7"), 0, 0).at(FaultPhase::kStep, 0), testing::ExitedWithCode(7), "");
}

TEST(Options, ReadsFlagsConfigAndOverrides) {
  const Options options =
      parse_options({"--run-dir", "runs/x", "--resume", "never", "train.json", "epochs=2", "optimizer.lr=0.1"});
  EXPECT_EQ(options.config, "train.json");
  EXPECT_EQ(options.run_dir, "runs/x");
  EXPECT_EQ(options.resume, Options::Resume::kNever);
  EXPECT_EQ(options.overrides, (std::vector<std::string>{"epochs=2", "optimizer.lr=0.1"}));
}

TEST(Options, ReadsTheStandbyFlag) {
  EXPECT_TRUE(parse_options({"--standby", "train.json"}).standby);
  EXPECT_FALSE(parse_options({"train.json"}).standby);
}

TEST(Options, AcceptsAResumePath) {
  const Options options = parse_options({"--resume", "runs/a/checkpoints/step-000000400", "train.json"});
  EXPECT_EQ(options.resume, Options::Resume::kPath);
  EXPECT_EQ(options.resume_from, "runs/a/checkpoints/step-000000400");
}

TEST(Options, NeedsAConfigAndNamesTheNearestFlag) {
  EXPECT_THROW(parse_options({}), UsageError);
  try {
    parse_options({"--run-dri", "x", "train.json"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("--run-dir"), std::string::npos) << error.what();
  }
}

template <typename Exception>
Failure failure_of(const Exception& exception) {
  return classify(std::make_exception_ptr(exception));
}

TEST(Failure, KeepsTheExitCodeOfOurErrors) {
  EXPECT_EQ(failure_of(UsageError("x")).exit_code, 2);
  EXPECT_EQ(failure_of(UsageError("x")).kind, channel::ErrorKind::kUsage);
  EXPECT_EQ(failure_of(BadCheckpointError("x")).exit_code, 87);
  EXPECT_EQ(failure_of(DivergedError("x")).kind, channel::ErrorKind::kDiverged);
  EXPECT_EQ(failure_of(InternalError("x")).exit_code, 89);
  EXPECT_EQ(failure_of(SupersededError("x")).kind, channel::ErrorKind::kSuperseded);
  EXPECT_EQ(failure_of(SupersededError("x")).exit_code, 90);
  EXPECT_EQ(failure_of(std::runtime_error("x")).exit_code, 1);
}

TEST(Failure, RecognizesOutOfMemoryOfEveryAllocator) {
  EXPECT_EQ(failure_of(std::bad_alloc()).exit_code, 84);
  const Failure cpu =
      failure_of(std::runtime_error("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: "
                                    "you tried to allocate 4096000 bytes. Error code 12 (Cannot allocate memory)"));
  EXPECT_EQ(cpu.kind, channel::ErrorKind::kOutOfMemory);
  EXPECT_EQ(cpu.bytes_asked, 4096000);
  const std::string cuda =
      "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 15.00 GiB of which 512.00 MiB is free.";
  EXPECT_EQ(bytes_requested_in(cuda), 1610612736);
  EXPECT_EQ(bytes_free_in(cuda), 536870912);
}

}  // namespace
}  // namespace ddprun::trainer
