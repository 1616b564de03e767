// ResNet-18 (He et al. 2016) with the small-image stem: 3x3 convolution of stride 1 and no max-pool. Layout, parameter names,
// initialisation and even the order of random draws are torchvision's, so the same seed gives the same weights as in Python.
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>

#include <array>
#include <cstddef>
#include <string>

#include "trainer/models/architectures.hpp"
#include "trainer/models/drawn.hpp"
#include "trainer/models/skipped_draws.hpp"

namespace ddprun::trainer {
namespace {

using torch::nn::BatchNorm2d;

// torch::nn::Conv2d without a bias, but for the weights that it draws at once and that ResNet18 overwrites: only the generator
// takes note of them. Drawing 11 million numbers in vain takes 60 ms.
struct Convolution : torch::nn::Module {
  Convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t step_size, c10::Device device)
      : weight(register_parameter("weight", at::empty({outputs, inputs, kernel, kernel}, at::TensorOptions(device)))),
        stride(step_size),
        padding(kernel / 2) {
    skip_uniform_draws(weight.numel());
  }

  at::Tensor forward(const at::Tensor& x) { return at::conv2d(x, weight, {}, stride, padding); }

  at::Tensor weight;
  std::int64_t stride;
  std::int64_t padding;
};

std::shared_ptr<Convolution> convolution(std::int64_t inputs, std::int64_t outputs, std::int64_t kernel, std::int64_t stride,
                                         c10::Device device) {
  return std::make_shared<Convolution>(inputs, outputs, kernel, stride, device);
}

// The shortcut of a block that changes shape: 1x1 convolution and batch norm, named 0 and 1 as in torchvision's Sequential.
struct Downsample : torch::nn::Module {
  Downsample(std::int64_t inputs, std::int64_t outputs, std::int64_t stride, c10::Device device)
      : conv(register_module("0", convolution(inputs, outputs, 1, stride, device))),
        bn(register_module("1", BatchNorm2d(outputs))) {}

  at::Tensor forward(const at::Tensor& x) { return bn->forward(conv->forward(x)); }

  std::shared_ptr<Convolution> conv;
  BatchNorm2d bn;
};

struct BasicBlock : torch::nn::Module {
  BasicBlock(std::int64_t inputs, std::int64_t outputs, std::int64_t stride, c10::Device device)
      // Made first but registered last: torchvision draws the shortcut's weights before those of the block.
      : downsample(stride != 1 || inputs != outputs ? std::make_shared<Downsample>(inputs, outputs, stride, device) : nullptr),
        conv1(register_module("conv1", convolution(inputs, outputs, 3, stride, device))),
        bn1(register_module("bn1", BatchNorm2d(outputs))),
        conv2(register_module("conv2", convolution(outputs, outputs, 3, 1, device))),
        bn2(register_module("bn2", BatchNorm2d(outputs))) {
    if (downsample) {
      register_module("downsample", downsample);
    }
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1->forward(conv1->forward(x));
    y = bn2->forward(conv2->forward(at::relu_(y)));
    y += downsample ? downsample->forward(x) : x;
    return at::relu_(y);
  }

  std::shared_ptr<Downsample> downsample;
  std::shared_ptr<Convolution> conv1;
  BatchNorm2d bn1;
  std::shared_ptr<Convolution> conv2;
  BatchNorm2d bn2;
};

// Two blocks, named 0 and 1.
struct Layer : torch::nn::Module {
  Layer(std::int64_t inputs, std::int64_t outputs, std::int64_t stride, c10::Device device)
      : first(register_module("0", std::make_shared<BasicBlock>(inputs, outputs, stride, device))),
        second(register_module("1", std::make_shared<BasicBlock>(outputs, outputs, 1, device))) {}

  at::Tensor forward(const at::Tensor& x) { return second->forward(first->forward(x)); }

  std::shared_ptr<BasicBlock> first;
  std::shared_ptr<BasicBlock> second;
};

class ResNet18 : public Model {
 public:
  ResNet18(ImageShape shape, std::int64_t classes, c10::Device device)
      : conv1_(register_module("conv1", convolution(shape.channels, 64, 3, 1, device))),
        bn1_(register_module("bn1", BatchNorm2d(64))) {
    std::int64_t inputs = 64;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::int64_t outputs = std::int64_t{64} << i;
      layers_[i] =
          register_module("layer" + std::to_string(i + 1), std::make_shared<Layer>(inputs, outputs, i == 0 ? 1 : 2, device));
      inputs = outputs;
    }
    fc_ = register_module("fc", linear(inputs, classes, device));
    for (const auto& module : modules(/*include_self=*/false)) {
      // Batch norm already begins with weight 1 and bias 0.
      if (auto* conv = module->as<Convolution>()) {
        fill_by_drawing(conv->weight, [](const at::Tensor& weights) {
          torch::nn::init::kaiming_normal_(weights, 0.0, torch::kFanOut, torch::kReLU);
        });
      }
    }
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = bn1_->forward(conv1_->forward(images));
    at::relu_(x);
    for (const auto& layer : layers_) {
      x = layer->forward(x);
    }
    return at::linear(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), fc_->weight, fc_->bias);
  }

 private:
  std::shared_ptr<Convolution> conv1_;
  BatchNorm2d bn1_;
  std::array<std::shared_ptr<Layer>, 4> layers_;
  std::shared_ptr<Linear> fc_;
};

}  // namespace

std::shared_ptr<Model> make_resnet18(ImageShape shape, std::int64_t classes, c10::Device device) {
  return std::make_shared<ResNet18>(shape, classes, device);
}

}  // namespace ddprun::trainer
