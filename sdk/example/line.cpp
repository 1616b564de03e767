// Example of a custom worker: linear regression on CSV files, with all features of ddptrain. data.dir contains train.csv and
// test.csv. Each line is one sample: two inputs and the target. The program adds a key `loss` to train.json. The key selects
// the loss function.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ddprun/worker.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace ddprun::trainer;

constexpr std::int64_t kInputs = 2;

class Csv : public Source {
 public:
  explicit Csv(const std::filesystem::path& file) {
    std::ifstream in(file);
    char comma = 0;
    for (std::array<float, kInputs + 1> row{}; in >> row[0] >> comma >> row[1] >> comma >> row[2];) rows_.push_back(row);
    if (rows_.empty()) throw ddprun::UsageError(file.string() + ": expected lines of three numbers, found none");
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  Description describe() const override { return {.tensors = {{.sizes = {kInputs}}, {.sizes = {}}}}; }
  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    Batch batch{.tensors = {at::empty({count, kInputs}), at::empty({count})}, .weight = static_cast<double>(count)};
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto& row = rows_[static_cast<std::size_t>(samples[i])];
      std::copy_n(row.data(), kInputs, batch.tensors[0].mutable_data_ptr<float>() + static_cast<std::int64_t>(i) * kInputs);
      batch.tensors[1].mutable_data_ptr<float>()[i] = row[kInputs];
    }
    return batch;
  }
  std::string fingerprint() const override { return std::to_string(rows_.size()) + " lines"; }

 private:
  std::vector<std::array<float, kInputs + 1>> rows_;
};

struct Line : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", at::zeros({kInputs}));
  at::Tensor bias = register_parameter("bias", at::zeros({}));
  at::Tensor error(const Batch& batch) const { return batch.tensors[0].matmul(weight) + bias - batch.tensors[1]; }
};

class Regression : public Task {
 public:
  explicit Regression(bool absolute) : absolute_(absolute) {}
  std::shared_ptr<torch::nn::Module> make_module(const Description&, c10::Device) const override {
    return std::make_shared<Line>();
  }
  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
    return of(dynamic_cast<Line&>(module).error(batch)).mean();
  }
  std::vector<std::string> figures() const override { return {"loss", "mean_error"}; }
  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    const at::Tensor error = dynamic_cast<Line&>(module).error(batch);
    figures.add("loss", of(error).sum(), batch.weight);
    figures.add("mean_error", error.abs().sum(), batch.weight);
  }

 private:
  at::Tensor of(const at::Tensor& error) const { return absolute_ ? error.abs() : error.square(); }

  bool absolute_;
};

Subject line() {
  static const Description kSamples{.tensors = {{.sizes = {kInputs}}, {.sizes = {}}}};
  return {.make_task =
              [](const ddprun::TrainConfig& config) {
                return std::make_unique<Regression>(config.task.text("loss") == "absolute");
              },
          .describe = [](const ddprun::TrainConfig&) { return kSamples; },
          .read =
              [](const ddprun::TrainConfig& config, c10::Device, const InflatedFiles&) {
                const std::filesystem::path folder = config.data.dir;
                return Sources{std::make_shared<Csv>(folder / "train.csv"), std::make_shared<Csv>(folder / "test.csv")};
              },
          .keys = {{.name = "loss",
                    .value = "square",
                    .help = "Function of the prediction error; the loss is its mean.",
                    .choices = {"square", "absolute"}}},
          .version = "1.0"};
}

}  // namespace

DDPRUN_WORKER(line())
