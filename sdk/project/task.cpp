// The training task of @NAME@: a small network that learns a curve. Replace the data, model, loss and config keys by your own.
// ddprun provides everything else, from checkpoints to live recovery. docs/own-worker.md lists the rules for each part.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ddprun/worker.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace ddprun::trainer;

// This example computes its data: points of y = sin(3 x). To use your own data, read it in the constructor from
// config.data.dir.
class Points : public Source {
 public:
  Points(std::int64_t first, std::int64_t count) : first_(first), count_(count) {}
  static Description description() { return {.tensors = {{.sizes = {1}}, {.sizes = {1}}}}; }

  std::int64_t size() const override { return count_; }
  Description describe() const override { return description(); }
  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    Batch batch{.tensors = {at::empty({count, 1}), at::empty({count, 1})}, .weight = static_cast<double>(count)};
    float* x = batch.tensors[0].mutable_data_ptr<float>();
    float* y = batch.tensors[1].mutable_data_ptr<float>();
    for (const std::int64_t sample : samples) {
      const double at = std::fmod(static_cast<double>(first_ + sample) * 0.6180339887498949, 1.0) * 2 - 1;
      *x++ = static_cast<float>(at);
      *y++ = static_cast<float>(std::sin(3 * at));
    }
    return batch;
  }
  std::string fingerprint() const override { return std::to_string(first_) + "+" + std::to_string(count_) + " points"; }

 private:
  std::int64_t first_;
  std::int64_t count_;
};

// The initial weights must be bit-identical at each start. So they come from a separate generator, which is seeded with the
// config's seed.
struct Network : torch::nn::Module {
  Network(std::int64_t width, at::Generator seeded)
      : scale(register_parameter("scale", at::empty({width}).uniform_(-3, 3, seeded))),
        shift(register_parameter("shift", at::empty({width}).uniform_(-3, 3, seeded))),
        weight(register_parameter("weight", at::empty({width, 1}).uniform_(-0.2, 0.2, seeded))),
        bias(register_parameter("bias", at::zeros({1}))) {}
  at::Tensor forward(const at::Tensor& x) const { return (x * scale + shift).tanh().matmul(weight) + bias; }

  at::Tensor scale, shift, weight, bias;
};

class Curve : public Task {
 public:
  Curve(std::int64_t width, std::uint64_t seed) : width_(width), seed_(seed) {}

  std::shared_ptr<torch::nn::Module> make_module(const Description&, c10::Device device) const override {
    auto network = std::make_shared<Network>(width_, at::detail::createCPUGenerator(seed_));
    network->to(device);
    return network;
  }
  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override { return error(module, batch).square().mean(); }
  std::vector<std::string> figures() const override { return {"loss", "mean_error"}; }
  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    const at::Tensor errors = error(module, batch);
    figures.add("loss", errors.square().sum(), batch.weight);
    figures.add("mean_error", errors.abs().sum(), batch.weight);
  }

 private:
  static at::Tensor error(torch::nn::Module& module, const Batch& batch) {
    return dynamic_cast<Network&>(module).forward(batch.tensors[0]) - batch.tensors[1];
  }

  std::int64_t width_;
  std::uint64_t seed_;
};

ddprun::trainer::Subject subject() {
  return {
      .make_task =
          [](const ddprun::TrainConfig& config) { return std::make_unique<Curve>(config.task.integer("width"), config.seed); },
      .describe = [](const ddprun::TrainConfig&) { return Points::description(); },
      .read =
          [](const ddprun::TrainConfig& config, c10::Device, const InflatedFiles&) {
            const std::int64_t count = config.task.integer("points");
            return Sources{std::make_shared<Points>(0, count), std::make_shared<Points>(count, count / 4 + 1)};
          },
      .keys = {{.name = "width", .value = 32, .help = "Units of the hidden layer.", .min = 1, .max = 4096},
               {.name = "points", .value = 1000, .help = "Samples to train on.", .min = 1, .max = 1e6}},
      .version = "0.1"};
}

}  // namespace

DDPRUN_WORKER(subject())
