// Tests the whole training loop in one process. A run that is interrupted and resumes from its checkpoint must be bit-identical
// to an uninterrupted run.
#include "trainer/loop/train.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "common/base/error.hpp"
#include "tests/trainer/surroundings/fake_agent.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/data/images.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/loop/evaluate.hpp"
#include "trainer/resume/resume.hpp"
#include "trainer/task/classification.hpp"

namespace ddprun::trainer {
namespace {

// A source with one sample that cannot be read, as if its file were truncated.
class DamagedSource : public Source {
 public:
  DamagedSource(std::shared_ptr<const Source> whole, std::int64_t damaged) : whole_(std::move(whole)), damaged_(damaged) {}
  std::int64_t size() const override { return whole_->size(); }
  Description describe() const override { return whole_->describe(); }
  std::string fingerprint() const override { return whole_->fingerprint(); }
  std::function<void(Batch&)> finish_on(c10::Device device) const override { return whole_->finish_on(device); }
  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const override {
    if (std::ranges::find(samples, damaged_) != samples.end()) throw UsageError("sample " + std::to_string(damaged_));
    return whole_->make(samples, draws);
  }

 private:
  std::shared_ptr<const Source> whole_;
  std::int64_t damaged_;
};

class TrainTest : public testing::Test {
 protected:
  TrainTest() {
    // one thread is enough, because the tensors are so small that more threads would only wait for each other
    at::set_num_threads(1);
    std::string name = (std::filesystem::temp_directory_path() / "train-test-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    config_.model.type = ModelConfig::Type::kMlp;
    config_.model.hidden = {16};
    config_.model.dropout = 0.2;
    config_.batch_size = 8;
    config_.micro_batch_size = 3;
    config_.epochs = 2;
    config_.checkpoint = {.every_steps = 4, .keep = 10, .local_dir = {}};
    config_.log = {.every_steps = 1, .tensorboard = false};
    config_.data.classes = 4;
    config_.data.augment = {.crop_padding = 1, .flip = true};
    config_.clip_grad_norm = 1.0;
    config_.label_smoothing = 0.1;
    set_.labels = at::arange(36).remainder(4);  // an epoch has 4 steps of 8 samples and one step of 4
    set_.images = (at::arange(36 * 64).reshape({36, 1, 8, 8}) * 37 % 251).to(at::kByte);
  }
  ~TrainTest() override { std::filesystem::remove_all(folder_); }

  struct Result {
    TrainingState state;
    Outcome outcome = Outcome::kDone;
  };

  // Simulates one process that trains in the run directory `name`. It resumes from the checkpoint in that directory, if there
  // is one.
  Result run(const std::string& name, const Faults& faults = {}, StopGate* gate = nullptr) {
    StopGate own_gate;
    Status status;
    RunLog log(status, 0);
    const Peers peers(nullptr, 0, 1, c10::kCPU);
    const RunLayout layout{.root = folder_ / name};
    std::filesystem::create_directories(layout.root);
    const RunLength length = run_length(config_, set_.size());
    Result result;
    const auto task = classification(config_);
    result.state = new_training_state(*task, {.tensors = {{.sizes = {1, 8, 8}}}}, config_, c10::kCPU);
    const auto from = newest(layout.checkpoints());
    if (from) restore(result.state, load_checkpoint(*from->path), config_, length, *from->path);
    log.open(layout, config_, length, result.state.step);
    Sources data{.train = image_source(set_, normalization_, config_.data.augment), .test = image_source(set_, normalization_)};
    if (damaged_ >= 0) data.train = std::make_shared<DamagedSource>(data.train, damaged_);
    const Checkpointing::Setting setting{
        .folder = layout.checkpoints(), .config = config_.checkpoint, .second_writer = !of_rank_0_};
    Checkpointing checkpointing(setting, faults, log, status);
    Workspace work = make_workspace({.config = config_,
                                     .length = length,
                                     .device = c10::kCPU,
                                     .task = *task,
                                     .data = data,
                                     .faults = faults,
                                     .status = status,
                                     .log = log,
                                     .gate = gate != nullptr ? *gate : own_gate},
                                    peers, result.state, from ? StateOrigin::kCheckpoint : StateOrigin::kSeed);
    if (of_rank_0_) work.checkpointing = &checkpointing;
    if (!of_rank_0_) work.second_writer = [&] { return std::make_unique<Checkpointing>(setting, faults, log, status); };
    result.outcome = train(result.state, work);
    return result;
  }

  static std::optional<ResumeFrom> newest(
      const std::filesystem::path& checkpoints, const Options& options = {}, int restart_count = 0,
      const Warn& warn = [](const std::string&) {}) {
    return choose_resume(options, restart_count, {checkpoints}, /*data=*/"", Peers(nullptr, 0, 1, c10::kCPU), warn).from;
  }

  static std::string read(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::string metrics(const std::string& name) const { return read(folder_ / name / "metrics.jsonl"); }

  std::filesystem::path folder_;
  TrainConfig config_;
  std::int64_t damaged_ = -1;  // index of a training sample that cannot be read; -1 if all samples can be read
  bool of_rank_0_ = true;      // false: this process acts as a rank other than 0, which normally writes no checkpoints
  Dataset set_;
  Normalization normalization_{0.5, 0.25};
};

void expect_same(const TrainingState& a, const TrainingState& b) {
  EXPECT_EQ(a.step, b.step);
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(a.parameters[i].tensor, b.parameters[i].tensor)) << a.parameters[i].name;
  }
  const auto moments_a = a.optimizer->state();
  const auto moments_b = b.optimizer->state();
  ASSERT_EQ(moments_a.size(), moments_b.size());
  for (std::size_t i = 0; i < moments_a.size(); ++i) {
    EXPECT_TRUE(at::equal(moments_a[i].tensor, moments_b[i].tensor)) << moments_a[i].name;
  }
  ASSERT_EQ(a.average.has_value(), b.average.has_value());
  for (std::size_t i = 0; a.average && i < a.average->tensors().size(); ++i) {
    EXPECT_TRUE(at::equal(a.average->tensors()[i].tensor, b.average->tensors()[i].tensor)) << a.average->tensors()[i].name;
  }
  EXPECT_EQ(a.values, b.values);
}

TEST_F(TrainTest, ReachesTheLastStep) {
  const Result result = run("calm");
  EXPECT_EQ(result.outcome, Outcome::kDone);
  EXPECT_EQ(result.state.step, 10);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "calm" / "checkpoints" / "step-000000010" / "manifest.json"));
}

TEST_F(TrainTest, AnInterruptionChangesNoBit) {
  const Result calm = run("calm");
  for (const int step : {1, 5, 9}) {
    const std::string name = "struck-" + std::to_string(step);
    EXPECT_THROW(run(name, Faults(parse_fault("oom phase=optimizer step=" + std::to_string(step)), 0, 0)), std::bad_alloc);
    const Result resumed = run(name);
    expect_same(resumed.state, calm.state);
  }
}

// Evaluations and checkpoints are at different steps. The learning rate is lowered at each evaluation except the first.
TEST_F(TrainTest, AnInterruptedRunKeepsAverageAndPlateau) {
  config_.optimizer.ema.decay = 0.9;
  config_.eval_every_steps = 3;
  config_.schedule = {.type = ScheduleConfig::Type::kPlateau,
                      .factor = 0.5,
                      .patience = 0,
                      .threshold = 10,
                      .threshold_mode = ScheduleConfig::ThresholdMode::kAbs};
  const Result calm = run("calm");
  EXPECT_EQ(calm.state.values.at("average.updates"), 10);
  // There are evaluations after steps 3, 5, 6, 9 and 10. Steps 5 and 10 are the ends of epochs.
  EXPECT_EQ(calm.state.values.at("plateau.lr"), 1e-3 / 16);
  for (const int step : {1, 5, 7, 9}) {
    const std::string name = "struck-" + std::to_string(step);
    EXPECT_THROW(run(name, Faults(parse_fault("oom phase=optimizer step=" + std::to_string(step)), 0, 0)), std::bad_alloc);
    const Result resumed = run(name);
    expect_same(resumed.state, calm.state);
  }
}

// Two ranks that each have a part of one model replica must evaluate the same samples. The block of samples depends on the
// device mesh, not on the number of ranks.
TEST_F(TrainTest, AnEvaluationUsesTheBlockOfTheMesh) {
  const Result result = run("run");
  const auto task = classification(config_);
  const auto test = image_source(set_, {0.5, 0.25});
  Upload upload(*test, c10::kCPU);
  const auto loss = [&](const Mesh& mesh) {
    return *value_of(evaluate({*task, *result.state.model, {.train = test, .test = test}, config_, c10::kCPU, upload},
                              Peers(nullptr, 0, 1, c10::kCPU), mesh)
                         .figures,
                     "loss");
  };
  const auto samples = static_cast<std::int64_t>(test->size()), first = samples / 2 + samples % 2;
  const double halves =
      loss({.data = 2}) * static_cast<double>(first) + loss({.data = 2, .data_rank = 1}) * static_cast<double>(samples - first);
  EXPECT_NEAR(halves / static_cast<double>(samples), loss({}), 1e-6);
  EXPECT_NE(loss({.data = 2}), loss({}));
}

TEST_F(TrainTest, AnEvaluationUsesTheAverage) {
  config_.optimizer.ema.decay = 0.9;
  const Result result = run("run");
  const auto task = classification(config_);
  const auto test = image_source(set_, {0.5, 0.25});
  Upload upload(*test, c10::kCPU);
  const auto loss = [&] {
    return value_of(evaluate({*task, *result.state.model, {.train = test, .test = test}, config_, c10::kCPU, upload},
                             Peers(nullptr, 0, 1, c10::kCPU), Mesh{})
                        .figures,
                    "loss");
  };
  const auto of_weights = loss();
  const WeightAverage::WeightSwap average(*result.state.average);
  EXPECT_EQ(value_of(result.state.evaluation->result.figures, "loss"), loss());
  EXPECT_NE(loss(), of_weights);
}

// The required improvement is so large that no evaluation counts as an improvement.
TEST_F(TrainTest, ARunWithoutImprovementEndsEarly) {
  config_.eval_every_steps = 2;
  config_.early_stopping = {.patience = 2, .min_delta = 100};
  const Result stopped = run("run");
  EXPECT_EQ(stopped.outcome, Outcome::kDone);
  EXPECT_EQ(stopped.state.step, 5) << "evaluated after steps 2, 4 and, since an epoch ends there, 5";
  const CheckpointState saved = load_checkpoint(RunLayout{.root = folder_ / "run"}.checkpoint(5));
  EXPECT_TRUE(saved.finished);
  EXPECT_EQ(saved.total_steps, 10);

  EXPECT_EQ(run("run").state.step, 5) << "also in a start that does not check whether it is finished";
  config_.early_stopping.patience = 3;
  const Result longer = run("run");
  EXPECT_EQ(longer.state.step, 6);
  expect_same(longer.state, run("calm").state);
  config_.early_stopping.patience = 0;
  EXPECT_EQ(run("run").state.step, 10);
}

TEST_F(TrainTest, AFailureBeforeAnEarlyEndChangesNothing) {
  config_.eval_every_steps = 2;
  config_.early_stopping = {.patience = 2, .min_delta = 100};
  const Result calm = run("calm");
  EXPECT_THROW(run("struck", Faults(parse_fault("oom phase=optimizer step=4"), 0, 0)), std::bad_alloc);
  expect_same(run("struck").state, calm.state);
}

// An extra evaluation at the end of a run must not change the learning rate. A run that had the greater length from the start
// would not make this evaluation.
TEST_F(TrainTest, AnExtendedRunHasTheRatesOfALongRun) {
  config_.eval_every_epochs = 0;
  config_.eval_every_steps = 4;
  config_.schedule = {.type = ScheduleConfig::Type::kPlateau,
                      .patience = 0,
                      .threshold = 10,
                      .threshold_mode = ScheduleConfig::ThresholdMode::kAbs};
  const Result calm = run("calm");
  config_.max_steps = 5;
  run("longer");
  config_.max_steps = 0;
  expect_same(run("longer").state, calm.state);
}

TEST_F(TrainTest, AFailureInASaveLosesNothing) {
  const Result calm = run("calm");
  EXPECT_THROW(run("struck", Faults(parse_fault("oom phase=saving step=10"), 0, 0)), InternalError);
  const Result resumed = run("struck");
  expect_same(resumed.state, calm.state);
}

TEST_F(TrainTest, StopsSavesAndResumesLater) {
  const Result calm = run("calm");
  StopGate gate;
  gate.stop_at(6);
  const Result stopped = run("stopped", {}, &gate);
  EXPECT_EQ(stopped.outcome, Outcome::kPreempted);
  EXPECT_EQ(stopped.state.step, 6);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "stopped" / "checkpoints" / "step-000000006"));
  const Result resumed = run("stopped");
  expect_same(resumed.state, calm.state);
}

TEST_F(TrainTest, ANaNLossNamesStepAndRank) {
  try {
    run("nan", Faults(parse_fault("nan step=5"), 0, 0));
    FAIL();
  } catch (const DivergedError& error) {
    EXPECT_NE(std::string(error.what()).find("step 6"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 0"), std::string::npos) << error.what();
  }
}

TEST_F(TrainTest, ASkippedStepChangesNothing) {
  config_.not_finite = TrainConfig::NotFinite::kSkip;
  config_.optimizer.ema.decay = 0.9;
  const Result calm = run("calm");
  config_.checkpoint.every_steps = 1;
  const Result skipped = run("skipped", Faults(parse_fault("nan step=5"), 0, 0));
  EXPECT_EQ(skipped.state.step, 10);
  EXPECT_EQ(skipped.state.figures->skipped, 1);
  const RunLayout layout{.root = folder_ / "skipped"};
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "average.safetensors"}) {
    EXPECT_EQ(read(layout.checkpoint(5) / file), read(layout.checkpoint(6) / file)) << file;
    EXPECT_NE(read(layout.checkpoint(6) / file), read(layout.checkpoint(7) / file)) << file;
  }
  config_.not_finite = TrainConfig::NotFinite::kStop;
  StateValues without = calm.state.values;
  std::erase_if(without, [](const auto& value) { return value.first.starts_with("skipped_steps"); });
  Result plain = run("plain");
  EXPECT_EQ(plain.state.values, without);
  plain.state.values = calm.state.values;
  expect_same(plain.state, calm.state);  // the check of the gradients must not change any bit
}

// The limit on consecutive skipped steps is so high that it is never reached. The run still ends after 100 steps without a
// change of the weights.
TEST_F(TrainTest, AHundredUnchangedStepsAtTheEndAreAnError) {
  config_.not_finite = TrainConfig::NotFinite::kSkip;
  config_.max_skipped_steps = 1000;
  normalization_.std = 0;  // a division by 0 makes every input infinite
  EXPECT_EQ(run("short").state.step, 10);
  EXPECT_NE(metrics("short").find("none of the 10 steps changed them"), std::string::npos);
  config_.epochs = 20;
  try {
    run("long");
    FAIL();
  } catch (const DivergedError& error) {
    EXPECT_NE(std::string(error.what()).find("the last 100 steps of the run, up to step 100, did not change the weights"),
              std::string::npos)
        << error.what();
  }
}

// Between two steps each rank has the whole state. So the rank that finds the bad sample saves a checkpoint, even if it is not
// rank
// 0.
TEST_F(TrainTest, BadDataOnAnyRankCostsNoStep) {
  config_.checkpoint = {.every_steps = 1, .keep = 10, .local_dir = {}};
  config_.epochs = 1;
  run("calm");
  config_.checkpoint.every_steps = 0;
  const std::int64_t last = epoch_order(set_.size(), config_.seed, 0).back();
  const at::Tensor labels = set_.labels;
  for (const bool of_rank_0 : {true, false}) {
    of_rank_0_ = of_rank_0;
    for (const bool damaged : {true, false}) {  // true: the sample cannot be read; false: its label is invalid
      damaged_ = damaged ? last : -1;
      set_.labels = labels.clone();
      if (!damaged) set_.labels[last] = 9;
      const std::string name = std::string(of_rank_0 ? "first" : "other") + (damaged ? "-file" : "-label");
      EXPECT_THROW(run(name), UsageError) << name;
      const auto from = newest(folder_ / name / "checkpoints");
      ASSERT_TRUE(from.has_value()) << name;
      EXPECT_EQ(from->step, 4) << name;
      for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
        EXPECT_EQ(read(*from->path / file), read(folder_ / "calm/checkpoints/step-000000004" / file)) << name;
      }
    }
  }
}

// If all ranks read a truncated file, all ranks try to save. Only the first rank must write the checkpoint.
TEST_F(TrainTest, ASecondWriterSkipsAPublishedStep) {
  const Result result = run("run");
  Status status;
  RunLog log(status, 0);
  const Faults faults;
  const std::filesystem::path checkpoints = folder_ / "run" / "checkpoints";
  const auto before = std::filesystem::last_write_time(checkpoints / "latest");
  Checkpointing second({.folder = checkpoints, .config = config_.checkpoint, .second_writer = true}, faults, log, status);
  const RunLength length = run_length(config_, set_.size());
  second.save(result.state, config_, length, {}, 1, Checkpointing::Need::kRequired);
  EXPECT_EQ(std::filesystem::last_write_time(checkpoints / "latest"), before);
}

TEST_F(TrainTest, NaNWeightsAreNotSaved) {
  Result result = run("run");
  result.state.parameters.back().tensor.detach().fill_(std::numeric_limits<float>::infinity());
  Status status;
  RunLog log(status, 0);
  const Faults faults;
  const RunLength length = run_length(config_, set_.size());
  for (const bool background : {false, true}) {
    for (const auto need : {Checkpointing::Need::kUseful, Checkpointing::Need::kRequired}) {
      config_.checkpoint.background = background;
      Checkpointing checkpointing({.folder = folder_ / "other", .config = config_.checkpoint}, faults, log, status);
      EXPECT_THROW(
          {
            checkpointing.save(result.state, config_, length, {}, 1, need);
            checkpointing.save(result.state, config_, length, {}, 1, need);  // waits for the first save and throws its error
          },
          DivergedError);
      EXPECT_FALSE(std::filesystem::exists(folder_ / "other" / "latest"));
    }
  }
}

// The agent assumes that a worker hangs if it sends no messages for a long time. So the worker sends messages during a long
// write.
TEST_F(TrainTest, TheLastSaveReportsProgress) {
  const Result result = run("run");
  FakeAgent agent;
  AgentChannel channel(agent.connect(), {}, [](const channel::FromAgent&) {});
  Status status;
  status.attach(&channel);
  RunLog log(status, 0);
  const Faults faults;
  Checkpointing checkpointing(
      {.folder = folder_ / "other", .config = config_.checkpoint, .report_interval = std::chrono::milliseconds(0)}, faults, log,
      status);
  checkpointing.save(result.state, config_, run_length(config_, set_.size()), {}, 1, Checkpointing::Need::kRequired);
  channel.send(channel::StopReady{});  // marks the end of the messages
  agent.wait_for_message<channel::StopReady>();
  const auto saving = agent.all<channel::PhaseChange>();
  EXPECT_GT(std::ranges::count(saving, channel::Phase::kSaving, &channel::PhaseChange::phase), 2);
}

// Training pauses only while the state is copied. The checkpoint must contain the state at the time of the copy, even though
// training then changes the original.
TEST_F(TrainTest, TheLastSaveUsesTheHostCopy) {
  config_.checkpoint.background = true;
  Result result = run("run");
  const Result before = run("run");
  Status status;
  RunLog log(status, 0);
  const Faults faults;
  std::promise<void> changed;
  Checkpointing checkpointing(
      {.folder = folder_ / "other", .config = config_.checkpoint, .save_run_files = [&] { changed.get_future().wait(); }},
      faults, log, status);
  const RunLength length = run_length(config_, set_.size());
  checkpointing.begin_last(result.state, config_, length, {}, 1);
  for (const NamedTensor& parameter : result.state.parameters) parameter.tensor.detach().fill_(7);
  changed.set_value();
  while (!checkpointing.last_is_saved(std::chrono::milliseconds(1000))) {
  }
  const auto from = newest(folder_ / "other");
  ASSERT_TRUE(from.has_value());
  restore(result.state, load_checkpoint(*from->path), config_, length, *from->path);
  expect_same(result.state, before.state);
}

TEST_F(TrainTest, BackgroundSavingChangesNoBit) {
  config_.checkpoint.background = false;
  const Result calm = run("calm");
  config_.checkpoint.background = true;
  const Result result = run("background");
  expect_same(result.state, calm.state);
  for (const char* step : {"step-000000004", "step-000000008", "step-000000010"}) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
      const std::string one = read(folder_ / "calm" / "checkpoints" / step / file);
      EXPECT_FALSE(one.empty());
      EXPECT_EQ(one, read(folder_ / "background" / "checkpoints" / step / file)) << step << " " << file;
    }
  }
}

TEST_F(TrainTest, AFullDiskStopsSavingButNotTraining) {
  config_.checkpoint.every_steps = 3;
  for (const bool background : {false, true}) {
    config_.checkpoint.background = background;
    const std::string name = background ? "background" : "foreground";
    // Creates a folder at the path of a file that a save writes, so that saves fail.
    std::filesystem::create_directories(folder_ / name / "checkpoints" / ".writer");
    try {
      run(name);
      FAIL() << "the last save is required";
    } catch (const UnsavedError& error) {
      EXPECT_NE(std::string(error.what()).find("checkpoint of step 10"), std::string::npos) << error.what();
    }
    const std::string text = metrics(name);
    EXPECT_NE(text.find("checkpoint of step 3"), std::string::npos) << text;
    EXPECT_EQ(text.find("checkpoint of step 6"), std::string::npos) << "it failed alike: " << text;
    EXPECT_NE(text.find("\"step\":10,\"loss\""), std::string::npos) << "training continued to the end";
  }
}

TEST_F(TrainTest, KeepsTheBestByTheEvaluationAfterItsStep) {
  config_.epochs = 4;
  config_.checkpoint = {.keep = 1, .keep_best = 1, .best_by = "loss", .local_dir = {}};
  run("run");
  double best = std::numeric_limits<double>::infinity();
  std::int64_t best_step = 0;
  std::istringstream lines(metrics("run"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record["event"] != "eval" || record["loss"].get<double>() > best) continue;
    best = record["loss"];
    best_step = record["step"];
  }
  ASSERT_GT(best_step, 0);
  const RunLayout layout{.root = folder_ / "run"};
  ASSERT_TRUE(std::filesystem::exists(layout.checkpoint(best_step)));
  const CheckpointState saved = load_checkpoint(layout.checkpoint(best_step));
  ASSERT_TRUE(saved.evaluation);
  EXPECT_EQ(value_of(*saved.evaluation, "loss"), best);
  EXPECT_LE(inspect_checkpoints(layout.checkpoints()).size(), 2U);
}

// The writer of a checkpoint runs out of host memory. This must not be reported as a batch that is too large.
TEST_F(TrainTest, ALackOfMemoryLosesOnlyTheCheckpoint) {
  try {
    run("run", Faults(parse_fault("oom step=4 phase=saving"), 0, 0));  // fails at each save from step 4 on
    FAIL() << "the last one is not saved either";
  } catch (...) {
    const Failure failure = classify(std::current_exception());
    EXPECT_EQ(failure.kind, channel::ErrorKind::kException) << "it would halve the micro-batch";
    EXPECT_NE(failure.message.find("step 10 could not be saved: not enough memory to write it"), std::string::npos)
        << failure.message;
  }
  EXPECT_NE(metrics("run").find("step 4 could not be saved: not enough memory to write it"), std::string::npos);
  EXPECT_NE(metrics("run").find("\"step\":10,\"loss\""), std::string::npos) << "training continued";
}

// The job was restarted while this process was suspended. This process must end without another checkpoint.
TEST_F(TrainTest, AnEarlierWriterEndsAfterALaterClaim) {
  run("run");
  Result result = run("run");
  Status status;
  RunLog log(status, 0);
  const Faults faults;
  const std::filesystem::path checkpoints = folder_ / "run" / "checkpoints";
  Checkpointing earlier({.folder = checkpoints, .config = config_.checkpoint, .generation = {.restart = 1}}, faults, log,
                        status);
  Checkpointing later({.folder = checkpoints, .config = config_.checkpoint, .generation = {.restart = 2}}, faults, log, status);
  earlier.begin();
  later.begin();
  const RunLength length = run_length(config_, set_.size());
  result.state.step = 9;
  EXPECT_THROW(earlier.save(result.state, config_, length, {}, 1, Checkpointing::Need::kRequired), SupersededError);
  EXPECT_THROW(earlier.begin(), SupersededError);
  EXPECT_FALSE(std::filesystem::exists(checkpoints / "step-000000009"));
  EXPECT_NO_THROW(later.save(result.state, config_, length, {}, 1, Checkpointing::Need::kRequired));
}

TEST_F(TrainTest, TheLatestLinkIsRepaired) {
  run("run");
  const std::filesystem::path checkpoints = folder_ / "run" / "checkpoints";
  for (const char* target : {"", "step-000000004", "nowhere"}) {
    std::filesystem::remove(checkpoints / "latest");
    if (*target != '\0') std::filesystem::create_symlink(target, checkpoints / "latest");
    const auto from = newest(checkpoints);
    ASSERT_TRUE(from);
    EXPECT_EQ(from->step, 10) << target;
    EXPECT_EQ(std::filesystem::read_symlink(checkpoints / "latest"), "step-000000010") << target;
  }
}

TEST_F(TrainTest, MicroBatchesChangeTheLossOnlyByRounding) {
  config_.model.dropout = 0;
  const Result small = run("small");
  config_.micro_batch_size = 0;
  const Result whole = run("whole");
  for (std::size_t i = 0; i < small.state.parameters.size(); ++i) {
    EXPECT_TRUE(small.state.parameters[i].tensor.allclose(whole.state.parameters[i].tensor, 1e-3, 1e-5));
  }
}

TEST_F(TrainTest, FreshRenamesOldCheckpoints) {
  run("run");
  const std::filesystem::path checkpoints = folder_ / "run" / "checkpoints";
  Options options;
  options.resume = Options::Resume::kNever;
  EXPECT_FALSE(newest(checkpoints, options));
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "step-000000010.superseded"));
  EXPECT_FALSE(newest(checkpoints));
}

TEST_F(TrainTest, ResumingAnEarlierCheckpointSupersedesLaterOnes) {
  run("run");
  const std::filesystem::path checkpoints = folder_ / "run" / "checkpoints";
  Options options;
  options.resume = Options::Resume::kPath;
  options.resume_from = checkpoints / "step-000000004";
  const auto from = newest(checkpoints, options);
  ASSERT_TRUE(from);
  EXPECT_EQ(from->step, 4);
  const auto after_failure = newest(checkpoints, options, 1);
  EXPECT_EQ(after_failure->step, 4);
}

TEST_F(TrainTest, RefusesToStartOverWithoutAValidCheckpoint) {
  run("run");
  const std::filesystem::path checkpoints = folder_ / "run" / "checkpoints";
  for (const char* step : {"step-000000004", "step-000000008", "step-000000010"}) {
    std::ofstream(checkpoints / step / "model.safetensors", std::ios::app) << 'x';
  }
  EXPECT_THROW(newest(checkpoints), BadCheckpointError);
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "step-000000010"));  // no checkpoint was renamed
}

TEST_F(TrainTest, ABadNewestCheckpointIsSetAsideAndNamed) {
  run("run");
  const std::filesystem::path checkpoints = folder_ / "run" / "checkpoints";
  std::ofstream(checkpoints / "step-000000010" / "model.safetensors", std::ios::app) << 'x';
  std::string warnings;
  const auto from = newest(checkpoints, {}, 0, [&](const std::string& text) { warnings += text; });
  ASSERT_TRUE(from);
  EXPECT_EQ(from->step, 8);
  EXPECT_NE(warnings.find("step-000000010"), std::string::npos) << warnings;
  EXPECT_FALSE(std::filesystem::exists(checkpoints / "step-000000010"));
}

}  // namespace
}  // namespace ddprun::trainer
