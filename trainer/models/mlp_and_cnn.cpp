// The two small networks, mlp and cnn. For such small tensors, the overhead of calls takes more time than the arithmetic. So
// the forward pass calls at:: functions with the parameters directly where possible. The modules own the parameters, name them,
// and initialize them as Python's torch.nn does.
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/nn/modules/conv.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/models/architectures.hpp"
#include "trainer/models/random_init.hpp"
#include "trainer/models/transformer_parts.hpp"

namespace ddprun::trainer {
namespace {

// Layers: flatten, then Linear and ReLU for each hidden layer, then dropout and Linear.
class Mlp : public Model {
 public:
  Mlp(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device) : dropout_(config.dropout) {
    std::int64_t width = shape.channels * shape.height * shape.width;
    for (const std::int64_t hidden : config.hidden) add_layer(std::exchange(width, hidden), hidden, device);
    add_layer(width, classes, device);
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = images.flatten(1);
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
      x = layers_[i]->of(x);
      at::relu_(x);
    }
    return layers_.back()->of(dropped(std::move(x), dropout_, is_training()));
  }

 private:
  void add_layer(std::int64_t inputs, std::int64_t outputs, c10::Device device) {
    layers_.push_back(register_module("fc" + std::to_string(layers_.size() + 1), linear(inputs, outputs, device)));
  }

  std::vector<std::shared_ptr<Linear>> layers_;
  double dropout_;
};

// Layers: conv 3x3 to 32 channels, ReLU, pool, conv 3x3 to 64 channels, ReLU, pool, Linear to 128, ReLU, dropout, Linear.
class Cnn : public Model {
 public:
  Cnn(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device)
      : conv1_(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(shape.channels, 32, 3).padding(1)))),
        conv2_(register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3).padding(1)))),
        fc1_(register_module("fc1", linear(64 * (shape.height / 4) * (shape.width / 4), 128, device))),
        fc2_(register_module("fc2", linear(128, classes, device))),
        dropout_(config.dropout) {}

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = conv1_->forward(images);
    x = at::max_pool2d(at::relu_(x), 2);
    x = conv2_->forward(x);
    x = at::max_pool2d(at::relu_(x), 2);
    x = fc1_->of(x.flatten(1));
    return fc2_->of(dropped(at::relu_(x), dropout_, is_training()));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  std::shared_ptr<Linear> fc1_;
  std::shared_ptr<Linear> fc2_;
  double dropout_;
};

}  // namespace

std::shared_ptr<Model> make_mlp(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device) {
  return std::make_shared<Mlp>(config, shape, classes, device);
}

std::shared_ptr<Model> make_cnn(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device) {
  return std::make_shared<Cnn>(config, shape, classes, device);
}

}  // namespace ddprun::trainer
