// A worker program with its own model, loss and data, and all features of ddptrain: a small network learns y = sin(3 x).
#include <ATen/TensorOperators.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <ddprun/worker.hpp>

#include <memory>
#include <string>

using namespace ddprun::trainer;

// The data: a batch is {x, y}. A sample depends on its number alone, so a restarted worker gets the same samples.
class Points : public Source {
 public:
  explicit Points(double offset) : offset_(offset) {}
  std::int64_t size() const override { return 1000; }
  Description describe() const override { return {.tensors = {{.sizes = {1}}, {.sizes = {1}}}}; }
  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    const at::Tensor x = at::tensor(samples, at::kFloat).unsqueeze(1) * 0.002 - 1 + offset_;  // from -1 to 1
    return {.tensors = {x, at::sin(3 * x)}, .weight = static_cast<double>(samples.size())};
  }
  std::string fingerprint() const override { return "1000 points from " + std::to_string(offset_); }

 private:
  double offset_;
};

// The model, its loss, and the metrics of an evaluation.
class Curve : public Task {
 public:
  explicit Curve(std::int64_t width) : width_(width) {}
  std::shared_ptr<torch::nn::Module> make_module(const Description&, c10::Device device) const override {
    torch::nn::Sequential net(torch::nn::Linear(1, width_), torch::nn::Tanh(), torch::nn::Linear(width_, 1));
    net->to(device);
    return net.ptr();
  }
  at::Tensor loss(torch::nn::Module& net, const Batch& batch) const override { return error(net, batch).square().mean(); }
  std::vector<std::string> figures() const override { return {"loss"}; }
  void measure(torch::nn::Module& net, const Batch& batch, Figures& figures) const override {
    figures.add("loss", error(net, batch).square().sum(), batch.weight);
  }

 private:
  static at::Tensor error(torch::nn::Module& net, const Batch& batch) {
    return dynamic_cast<torch::nn::SequentialImpl&>(net).forward(batch.tensors[0]) - batch.tensors[1];
  }
  std::int64_t width_;
};

DDPRUN_WORKER(Subject{
    .make_task = [](const ddprun::TrainConfig& config) { return std::make_unique<Curve>(config.task.integer("width")); },
    .describe = [](const ddprun::TrainConfig&) { return Points(0).describe(); },
    .read =
        [](const ddprun::TrainConfig&, c10::Device, const InflatedFiles&) {
          return Sources{std::make_shared<Points>(0), std::make_shared<Points>(0.001)};
        },
    .keys = {{.name = "width", .value = 32, .help = "Units of the hidden layer.", .min = 1, .max = 4096}}})
