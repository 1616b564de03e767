// Tests a task and a source that are defined outside of the trainer. The task fits a line to points with different weights.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/metric.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/loop/train.hpp"
#include "trainer/models/precision.hpp"

namespace ddprun::trainer {
namespace {

// Sample s has x = s / 10, weight s mod 3 + 1, and y = 3 x + 1. If the weight is 3, an offset is added to y. Batches are {x,
// y, weights}.
class Points : public Source {
 public:
  explicit Points(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  Description describe() const override { return {.tensors = {{.sizes = {}}, {.sizes = {}}, {.sizes = {}}}}; }
  double weight(std::int64_t sample) const override { return static_cast<double>(sample % 3 + 1); }
  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    Batch batch;
    std::vector<at::Tensor> columns(3, at::empty({}));
    for (at::Tensor& column : columns) column = at::zeros({static_cast<std::int64_t>(samples.size())});
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto x = static_cast<float>(samples[i]) / 10;
      columns[0].mutable_data_ptr<float>()[i] = x;
      columns[1].mutable_data_ptr<float>()[i] = 3 * x + 1 + (samples[i] % 3 == 2 ? 4.0F : 0.0F);
      columns[2].mutable_data_ptr<float>()[i] = static_cast<float>(weight(samples[i]));
      batch.weight += weight(samples[i]);
    }
    batch.tensors = columns;
    return batch;
  }
  std::string fingerprint() const override { return std::to_string(size_) + " points"; }

 private:
  std::int64_t size_;
};

struct Line : torch::nn::Module {
  Line() : slope(register_parameter("slope", at::zeros({}))), offset(register_parameter("offset", at::zeros({}))) {}
  at::Tensor slope;
  at::Tensor offset;
};

class Regression : public Task {
 public:
  std::shared_ptr<torch::nn::Module> make_module(const Description&, c10::Device) const override {
    return std::make_shared<Line>();
  }
  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
    return (error(module, batch).square() * batch.tensors[2]).sum() / batch.weight;
  }
  std::vector<std::string> figures() const override { return {"loss", "mean_error"}; }
  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    const at::Tensor found = error(module, batch);
    figures.add("loss", (found.square() * batch.tensors[2]).sum(), batch.weight);
    figures.add("mean_error", found.abs().sum(), static_cast<double>(batch.samples()));
  }

 protected:
  static at::Tensor error(torch::nn::Module& module, const Batch& batch) {
    auto& line = dynamic_cast<Line&>(module);
    return line.slope * batch.tensors[0] + line.offset - batch.tensors[1];
  }
};

class CustomTaskTest : public testing::Test {
 protected:
  CustomTaskTest() {
    at::set_num_threads(1);
    std::string name = (std::filesystem::temp_directory_path() / "own-task-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    config_.batch_size = 8;
    config_.epochs = 2;
    config_.eval_batch_size = 7;
    config_.optimizer = {.type = OptimizerConfig::Type::kSgd, .lr = 0.01};
    config_.checkpoint = {.every_steps = 3, .local_dir = {}};
    config_.log = {.every_steps = 1, .tensorboard = false};
  }
  ~CustomTaskTest() override { std::filesystem::remove_all(folder_); }

  // Trains, and returns the final slope and offset.
  std::vector<double> train_it(const Task& task, const std::string& name) {
    StopGate gate;
    Status status;
    RunLog log(status, 0);
    const Faults faults;
    const RunLayout layout{.root = folder_ / name};
    std::filesystem::create_directories(layout.root);
    const Sources data{.train = train_data_, .test = test_data_};
    const RunLength length = run_length(config_, data.train->size());
    TrainingState state = new_training_state(task, data.train->describe(), config_, c10::kCPU);
    log.open(layout, config_, length, 0);
    Checkpointing checkpointing({.folder = layout.checkpoints(), .config = config_.checkpoint}, faults, log, status);
    Workspace work = make_workspace({.config = config_,
                                     .length = length,
                                     .device = c10::kCPU,
                                     .task = task,
                                     .data = data,
                                     .faults = faults,
                                     .status = status,
                                     .log = log,
                                     .gate = gate},
                                    Peers(nullptr, 0, 1, c10::kCPU), state, StateOrigin::kSeed);
    work.checkpointing = &checkpointing;
    train(state, work);
    checkpoint_ = layout.checkpoint(state.step);
    return {state.parameters.at(0).tensor.item<double>(), state.parameters.at(1).tensor.item<double>()};
  }

  std::string refusal(const Task& task) {
    try {
      train_it(task, "refused");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }

  std::shared_ptr<const Source> train_data_ = std::make_shared<Points>(37);
  std::shared_ptr<const Source> test_data_ = std::make_shared<Points>(20);
  std::filesystem::path folder_;
  std::filesystem::path checkpoint_;
  TrainConfig config_;
};

// Returns the expected slope and offset. The function computes gradient descent on the weighted mean of each global batch, in
// double precision.
std::vector<double> by_hand(std::uint64_t seed) {
  double slope = 0, offset = 0;
  const Points points(37);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    const std::vector<std::int64_t> order = epoch_order(37, seed, epoch);
    for (std::size_t first = 0; first < order.size(); first += 8) {
      double weight = 0, of_slope = 0, of_offset = 0;
      for (std::size_t i = first; i < std::min<std::size_t>(first + 8, order.size()); ++i) {
        const double x = static_cast<double>(order[i]) / 10;
        const double y = 3 * x + 1 + (order[i] % 3 == 2 ? 4 : 0);
        const double w = points.weight(order[i]);
        const double error = slope * x + offset - y;
        weight += w;
        of_slope += 2 * w * error * x;
        of_offset += 2 * w * error;
      }
      slope -= 0.01 * of_slope / weight;
      offset -= 0.01 * of_offset / weight;
    }
  }
  return {slope, offset};
}

TEST_F(CustomTaskTest, TheMeanIsWeightedForAnySplit) {
  const std::vector<double> expected = by_hand(config_.seed);
  for (const std::int64_t micro_batch_size : {0, 1, 3, 5}) {
    config_.micro_batch_size = micro_batch_size;
    const std::vector<double> found = train_it(Regression(), "micro" + std::to_string(micro_batch_size));
    EXPECT_NEAR(found[0], expected[0], 1e-4 * std::abs(expected[0])) << micro_batch_size;
    EXPECT_NEAR(found[1], expected[1], 1e-4 * std::abs(expected[1])) << micro_batch_size;
  }
}

TEST_F(CustomTaskTest, MetricsAreRecordedByName) {
  const std::vector<double> line = train_it(Regression(), "run");
  double error = 0;
  for (int s = 0; s < 20; ++s) error += std::abs(line[0] * s / 10 + line[1] - (3.0 * s / 10 + 1 + (s % 3 == 2 ? 4 : 0))) / 20;
  const CheckpointState saved = load_checkpoint(checkpoint_);
  ASSERT_TRUE(saved.evaluation);
  EXPECT_EQ(saved.evaluation->size(), 2U);
  EXPECT_NEAR(value_of(*saved.evaluation, "mean_error").value_or(0), error, 1e-4);
  std::ifstream lines(folder_ / "run" / "metrics.jsonl");
  std::vector<std::string> names;
  for (std::string text; std::getline(lines, text);) {
    const auto record = nlohmann::ordered_json::parse(text);
    if (record["event"] != "eval") continue;
    names.clear();
    for (const auto& [name, value] : record.items()) names.push_back(name);
    EXPECT_EQ(record["samples"], 20);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"event", "time_ns", "epoch", "step", "loss", "mean_error", "samples"}));
}

// A metric may have no sample, for example the accuracy of a class that is not in the test set.
TEST_F(CustomTaskTest, AnEmptyMetricDoesNotAffectTheBestCheckpoints) {
  struct OfARareClass : Regression {
    std::vector<std::string> figures() const override { return {"loss", "mean_error", "rare_error"}; }
  };
  config_.checkpoint.keep = 1;
  config_.checkpoint.keep_best = 1;
  config_.checkpoint.best_by = "mean_error";
  config_.checkpoint.best_is = CheckpointConfig::BestIs::kLowest;
  train_it(OfARareClass(), "run");
  const CheckpointState saved = load_checkpoint(checkpoint_);
  ASSERT_TRUE(saved.evaluation);
  EXPECT_EQ(saved.evaluation->size(), 2U);
  EXPECT_TRUE(value_of(*saved.evaluation, "mean_error"));
  EXPECT_FALSE(value_of(*saved.evaluation, "rare_error"));
}

TEST_F(CustomTaskTest, ANonScalarLossIsRefused) {
  struct Many : Regression {
    at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override { return error(module, batch); }
  };
  EXPECT_EQ(refusal(Many()),
            "the task's loss is Float [8]; expected a Float scalar that depends on parameters that require gradients");
  struct WithoutEvaluation : Regression {
    at::Tensor loss(torch::nn::Module&, const Batch&) const override { return at::zeros({}); }
  };
  EXPECT_EQ(refusal(WithoutEvaluation()),
            "the task's loss is Float [] without a gradient; expected a Float scalar that depends on parameters that require "
            "gradients");
}

// The loop evaluates one sample before the first step, to find errors in measure().
TEST_F(CustomTaskTest, AFailingMeasureIsFoundBeforeTheFirstStep) {
  struct CannotMeasure : Regression {
    at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
      ++steps;
      return Regression::loss(module, batch);
    }
    void measure(torch::nn::Module&, const Batch&, Figures&) const override { throw UsageError("measure() has no metric"); }
    mutable int steps = 0;
  };
  const CannotMeasure task;
  EXPECT_EQ(refusal(task), "measure() has no metric");
  EXPECT_EQ(task.steps, 0);
}

// The evaluation after step 5 fails. The state is saved with the evaluation marked as missing, and the run is not finished.
TEST_F(CustomTaskTest, AFailedEvaluationSavesFirst) {
  struct FailsLater : Regression {
    void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
      if (batch.samples() == 6) throw UsageError("a bad sample");  // the batches of the test set have 7, 7 and 6 samples
      Regression::measure(module, batch, figures);
    }
  };
  config_.checkpoint.every_steps = 0;
  for (const std::int64_t epochs : {2, 1}) {
    config_.epochs = epochs;
    const std::string name = "epochs" + std::to_string(epochs);
    try {
      train_it(FailsLater(), name);
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "a bad sample");
    }
    const CheckpointState saved = load_checkpoint(std::filesystem::canonical(folder_ / name / "checkpoints" / "latest"));
    EXPECT_EQ(saved.step, 5);
    EXPECT_FALSE(saved.evaluation);
    EXPECT_FALSE(saved.finished) << "it owes an evaluation";
  }
}

// A label is out of range. The error of PyTorch does not name the sample, so our message must name it.
TEST_F(CustomTaskTest, AnIndexOutOfRangeNamesItsSample) {
  struct Indexes : Regression {
    at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
      TORCH_CHECK_INDEX(!batch.tensors[0].gt(2.95).logical_and(batch.tensors[0].lt(3.05)).any().item<bool>(),
                        "Target 3 is out of bounds.");
      return Regression::loss(module, batch);
    }
  };
  EXPECT_EQ(refusal(Indexes()),
            "the model cannot use a sample: Target 3 is out of bounds; tensor 0 of sample 30. Correct the data, or increase "
            "the number of classes or tokens of the model");
  struct FailsInMeasure : Regression {
    void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
      TORCH_CHECK_INDEX(!batch.tensors[0].gt(0.85).logical_and(batch.tensors[0].lt(0.95)).any().item<bool>(), "index 9");
      Regression::measure(module, batch, figures);
    }
  };
  EXPECT_NE(refusal(FailsInMeasure()).find("index 9; tensor 0 of sample 9."), std::string::npos);
}

// A bad sample makes step 4 fail. The state after the previous steps must be saved.
TEST_F(CustomTaskTest, ABadSampleKeepsThePreviousSteps) {
  struct FailsInStep4 : Regression {
    at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
      if (++steps == 4) throw UsageError("a bad sample");
      return Regression::loss(module, batch);
    }
    mutable int steps = 0;
  };
  config_.checkpoint.every_steps = 0;
  EXPECT_EQ(refusal(FailsInStep4()), "a bad sample");
  EXPECT_EQ(load_checkpoint(std::filesystem::canonical(folder_ / "refused" / "checkpoints" / "latest")).step, 3);
}

// The test source may store samples in a different format than the training source. In this case it needs a different
// conversion on the device.
TEST_F(CustomTaskTest, TestSamplesAreFinishedByTheTestSource) {
  struct Halved : Points {
    using Points::Points;
    Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const override {
      Batch batch = Points::make(samples, draws);
      batch.tensors[1] = batch.tensors[1] / 2;
      return batch;
    }
    std::function<void(Batch&)> finish_on(c10::Device) const override {
      return [](Batch& batch) { batch.tensors[1] = batch.tensors[1] * 2; };
    }
  };
  const auto error_with = [&](std::shared_ptr<const Source> test, const std::string& name) {
    test_data_ = std::move(test);
    train_it(Regression(), name);
    return value_of(load_checkpoint(checkpoint_).evaluation.value(), "mean_error").value();
  };
  const double plain = error_with(std::make_shared<Points>(20), "plain");
  EXPECT_DOUBLE_EQ(error_with(std::make_shared<Halved>(20), "halved"), plain);
}

// Autocast applies in training and in evaluation. The loss may then be bfloat16.
TEST_F(CustomTaskTest, UsesTheConfiguredPrecision) {
  struct Product : Regression {
    at::Tensor product(torch::nn::Module& module, const Batch& batch, at::ScalarType& type) const {
      auto& line = dynamic_cast<Line&>(module);
      const at::Tensor out = batch.tensors[0].unsqueeze(1).matmul(line.slope.view({1, 1})).squeeze(1) + line.offset;
      type = out.scalar_type();
      return out - batch.tensors[1].to(type);
    }
    at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
      return product(module, batch, in_loss).square().mean();
    }
    void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
      const at::Tensor found = product(module, batch, in_measure);
      figures.add("loss", found.square().sum(), batch.weight);
      figures.add("mean_error", found.abs().sum(), batch.weight);
    }
    mutable at::ScalarType in_loss{};
    mutable at::ScalarType in_measure{};
  };
  for (const auto& [precision, type] :
       {std::pair(TrainConfig::Precision::kFp32, at::kFloat), std::pair(TrainConfig::Precision::kBf16, at::kBFloat16)}) {
    config_.precision = precision;
    const Product task;
    const std::vector<double> line = train_it(task, "precision" + std::to_string(static_cast<int>(precision)));
    EXPECT_TRUE(std::isfinite(line[0]) && line[0] != 0);
    EXPECT_EQ(task.in_loss, type);
    EXPECT_EQ(task.in_measure, type);
  }
}

TEST_F(CustomTaskTest, UnknownMetricsAreRefused) {
  struct Other : Regression {
    std::vector<std::string> figures() const override { return {"loss", "error"}; }
  };
  EXPECT_EQ(refusal(Other()),
            "the task reports the metric 'mean_error', which it does not declare; its metrics are loss, error");
  EXPECT_THROW(Figures({"loss", "step"}, c10::kCPU), UsageError);
  EXPECT_THROW(Figures({"loss", "loss"}, c10::kCPU), UsageError);
  EXPECT_THROW(Figures({""}, c10::kCPU), UsageError);
}

// A source in which every second sample has weight 0. The mean over a micro-batch of only such samples would be 0 / 0.
struct HalfMasked : Points {
  using Points::Points;
  double weight(std::int64_t sample) const override { return static_cast<double>(sample % 2); }
};

TEST_F(CustomTaskTest, SamplesOfWeightZeroAreDropped) {
  struct Strict : Regression {
    at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
      EXPECT_GT(batch.weight, 0);
      return Regression::loss(module, batch);
    }
    void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
      EXPECT_GT(batch.weight, 0);
      Regression::measure(module, batch, figures);
    }
  };
  config_.micro_batch_size = 1;
  config_.eval_batch_size = 1;
  train_data_ = std::make_shared<HalfMasked>(37);
  test_data_ = std::make_shared<HalfMasked>(20);
  const std::vector<double> found = train_it(Strict(), "masked");
  config_.micro_batch_size = 0;
  config_.eval_batch_size = 7;
  const std::vector<double> whole = train_it(Strict(), "whole");
  EXPECT_NEAR(found[0], whole[0], 1e-4 * std::abs(whole[0]));
  EXPECT_NEAR(found[1], whole[1], 1e-4 * std::abs(whole[1]));
}

// All samples of a rank have weight 0, while another rank has samples with a weight above 0. The first rank must still take
// part in the sum of gradients, so it gets a stand-in (a sample of weight 0).
TEST_F(CustomTaskTest, ABatchOfWeightlessSamplesHasAStandIn) {
  const HalfMasked source(16);
  int stand_ins = 0;
  for (std::int64_t step = 0; step < 4; ++step) {
    for (const int rank : {0, 1, 2, 3}) {
      const RankBatch share =
          Loader(source, {.batch_size = 4, .micro_batch_size = 1, .world = 4, .rank = rank}, step, step + 1).next();
      const bool counts = source.weight(share.samples.at(0)) > 0;
      ASSERT_EQ(share.micro_batches.size(), 1U);
      EXPECT_EQ(share.micro_batches[0].stand_in, !counts);
      EXPECT_EQ(share.micro_batches[0].weight, 1);
      EXPECT_EQ(share.own_size, 1) << "it has used them";
      stand_ins += counts ? 0 : 1;
    }
  }
  EXPECT_EQ(stand_ins, 8);
}

TEST_F(CustomTaskTest, ANondeterministicOperatorIsNamed) {
  struct Nondeterministic : Regression {
    at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
      at::Tensor twice = at::zeros({1});
      twice.put_(at::zeros({2}, at::kLong), at::zeros({2}), /*accumulate=*/false);
      return Regression::loss(module, batch) + twice.sum();
    }
  };
  use_determinism(true);
  try {
    train_it(Nondeterministic(), "careless");
    ADD_FAILURE();
  } catch (...) {
    const Failure failure = classify(std::current_exception());
    EXPECT_EQ(failure.kind, channel::ErrorKind::kUsage);
    EXPECT_EQ(failure.exit_code, 2);
    EXPECT_EQ(failure.message,
              "\"deterministic\" is true, but the operator put_ has no deterministic implementation on this device; set "
              "\"deterministic\" to false, or use another operator");
  }
  EXPECT_NO_THROW(train_it(Regression(), "careful"));
  use_determinism(false);
}

// Slope and offset are 0 before the first step, so the gradient of that step is known. The log must contain the norm before
// clipping.
TEST_F(CustomTaskTest, TheGradientNormIsRecordedBeforeClipping) {
  int job = 0;
  for (const auto& [norm, value] : {std::pair(0.0, 0.0), std::pair(0.1, 0.0), std::pair(0.0, 0.1), std::pair(0.1, 0.1)}) {
    config_.clip_grad_norm = norm;
    config_.clip_grad_value = value;
    config_.batch_size = 37;
    config_.max_steps = 1;
    const std::string name = "clip" + std::to_string(job++);
    const std::vector<double> line = train_it(Regression(), name);
    double of_slope = 0, of_offset = 0, weight = 0;
    for (int s = 0; s < 37; ++s) {
      const double x = static_cast<double>(s) / 10;
      const double error = -(3 * x + 1 + (s % 3 == 2 ? 4 : 0));
      const double w = s % 3 + 1;
      weight += w;
      of_slope += 2 * w * error * x;
      of_offset += 2 * w * error;
    }
    std::ifstream file(folder_ / name / "metrics.jsonl");
    std::string text;
    std::getline(file, text);
    const auto record = nlohmann::json::parse(text);
    ASSERT_EQ(record["event"], "step");
    const double expected = std::hypot(of_slope, of_offset) / weight;
    EXPECT_NEAR(record["gradient_norm"].get<double>(), expected, 1e-5 * expected) << name;
    const double left = norm > 0 ? norm : value > 0 ? value * std::sqrt(2.0) : expected;
    EXPECT_NEAR(std::hypot(line[0], line[1]), 0.01 * left, 1e-5 * left) << name;
    EXPECT_EQ(line[0] == line[1], value > 0) << "the value is cut first, which makes both elements equal";
  }
}

// If all samples of a global batch have weight 0, the batch has no mean, so an error must be reported.
TEST_F(CustomTaskTest, AGlobalBatchOfWeightZeroIsRefused) {
  struct Weightless : Points {
    using Points::Points;
    double weight(std::int64_t) const override { return 0; }
  };
  const Weightless source(4);
  EXPECT_THROW(Loader(source, {.batch_size = 2}, 0, 2).next(), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
