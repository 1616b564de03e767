// Residual networks (He et al. 2016) with the small-image stem: a 3x3 convolution of stride 1 and no max-pool. Layout,
// parameter names, initialisation and the order of random draws are torchvision's. So the same seed gives the same weights as
// in Python. ResNet-20 and 56 are that paper's networks for CIFAR. torchvision lacks them; names and draws follow its pattern.
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <torch/nn/init.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trainer/batch_norm/batch_norm.hpp"
#include "trainer/models/architectures.hpp"
#include "trainer/models/drawn.hpp"
#include "trainer/models/skipped_draws.hpp"

namespace ddprun::trainer {
namespace {

// torch::nn::Conv2d without a bias. Conv2d draws initial weights that ResNet overwrites. Here only the generator is advanced,
// since drawing 11 million unused numbers takes 60 ms.
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
        bn(register_module("1", batch_norm(outputs))) {}

  at::Tensor forward(const at::Tensor& x) { return bn->forward(conv->forward(x)); }

  std::shared_ptr<Convolution> conv;
  std::shared_ptr<BatchNorm> bn;
};

// The shortcut of a block that changes the shape of its input.
enum class Shortcut {
  kConvolution,  // 1x1, with batch norm
  kZeros,        // every other pixel, and zeros for the added channels: no parameters
};

// Returns the module for kConvolution if the block changes the shape, otherwise null.
std::shared_ptr<Downsample> downsample_of(Shortcut shortcut, std::int64_t inputs, std::int64_t outputs, std::int64_t stride,
                                          c10::Device device) {
  const bool changes = stride != 1 || inputs != outputs;
  return changes && shortcut == Shortcut::kConvolution ? std::make_shared<Downsample>(inputs, outputs, stride, device)
                                                       : nullptr;
}

struct ResidualBlock : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};

struct BasicBlock : ResidualBlock {
  static constexpr std::int64_t kExpansion = 1;

  BasicBlock(Shortcut shortcut, std::int64_t inputs, std::int64_t width, std::int64_t stride_of_first, c10::Device device)
      // Made first but registered last: torchvision draws the shortcut's weights before those of the block.
      : outputs(width),
        stride(stride_of_first),
        downsample(downsample_of(shortcut, inputs, width, stride, device)),
        conv1(register_module("conv1", convolution(inputs, width, 3, stride, device))),
        bn1(register_module("bn1", batch_norm(width))),
        conv2(register_module("conv2", convolution(width, width, 3, 1, device))),
        bn2(register_module("bn2", batch_norm(width))) {
    if (downsample) {
      register_module("downsample", downsample);
    }
  }

  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = bn1->forward(conv1->forward(x));
    y = bn2->forward(conv2->forward(at::relu_(y)));
    y += downsample ? downsample->forward(x) : passed_on(x);
    return at::relu_(y);
  }

  at::Tensor passed_on(const at::Tensor& x) const {
    constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
    const std::int64_t added = outputs - x.size(1);
    if (stride == 1 && added == 0) return x;
    return at::constant_pad_nd(x.slice(2, 0, kEnd, stride).slice(3, 0, kEnd, stride),
                               {0, 0, 0, 0, added / 2, added - added / 2});
  }

  std::int64_t outputs;
  std::int64_t stride;
  std::shared_ptr<Downsample> downsample;
  std::shared_ptr<Convolution> conv1;
  std::shared_ptr<BatchNorm> bn1;
  std::shared_ptr<Convolution> conv2;
  std::shared_ptr<BatchNorm> bn2;
};

// Narrow in the middle, with the stride at the 3x3 convolution, as in torchvision.
struct Bottleneck : ResidualBlock {
  static constexpr std::int64_t kExpansion = 4;

  Bottleneck(Shortcut shortcut, std::int64_t inputs, std::int64_t width, std::int64_t stride, c10::Device device)
      : downsample(downsample_of(shortcut, inputs, kExpansion * width, stride, device)),
        conv1(register_module("conv1", convolution(inputs, width, 1, 1, device))),
        bn1(register_module("bn1", batch_norm(width))),
        conv2(register_module("conv2", convolution(width, width, 3, stride, device))),
        bn2(register_module("bn2", batch_norm(width))),
        conv3(register_module("conv3", convolution(width, kExpansion * width, 1, 1, device))),
        bn3(register_module("bn3", batch_norm(kExpansion * width))) {
    if (downsample) {
      register_module("downsample", downsample);
    }
  }

  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = bn1->forward(conv1->forward(x));
    y = bn2->forward(conv2->forward(at::relu_(y)));
    y = bn3->forward(conv3->forward(at::relu_(y)));
    y += downsample ? downsample->forward(x) : x;
    return at::relu_(y);
  }

  std::shared_ptr<Downsample> downsample;
  std::shared_ptr<Convolution> conv1;
  std::shared_ptr<BatchNorm> bn1;
  std::shared_ptr<Convolution> conv2;
  std::shared_ptr<BatchNorm> bn2;
  std::shared_ptr<Convolution> conv3;
  std::shared_ptr<BatchNorm> bn3;
};

struct ResnetShape {
  std::int64_t width = 64;           // channels of the stem; each stage after the first doubles them
  std::vector<std::int64_t> blocks;  // number of blocks in each stage
  bool bottlenecks = false;
  Shortcut shortcut = Shortcut::kConvolution;
};

ResnetShape shape_of(ModelConfig::Type type) {
  switch (type) {
    case ModelConfig::Type::kResnet20:
      return {.width = 16, .blocks = {3, 3, 3}, .shortcut = Shortcut::kZeros};
    case ModelConfig::Type::kResnet56:
      return {.width = 16, .blocks = {9, 9, 9}, .shortcut = Shortcut::kZeros};
    case ModelConfig::Type::kResnet34:
      return {.blocks = {3, 4, 6, 3}};
    case ModelConfig::Type::kResnet50:
      return {.blocks = {3, 4, 6, 3}, .bottlenecks = true};
    default:
      return {.blocks = {2, 2, 2, 2}};
  }
}

class ResNet : public Model {
 public:
  ResNet(const ResnetShape& network, ImageShape shape, std::int64_t classes, c10::Device device)
      : conv1_(register_module("conv1", convolution(shape.channels, network.width, 3, 1, device))),
        bn1_(register_module("bn1", batch_norm(network.width))) {
    std::int64_t inputs = network.width;
    for (std::size_t stage = 0; stage < network.blocks.size(); ++stage) {
      const std::int64_t width = network.width << stage;
      const auto layer = register_module("layer" + std::to_string(stage + 1), std::make_shared<torch::nn::Module>());
      for (std::int64_t i = 0; i < network.blocks[stage]; ++i) {
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        if (network.bottlenecks) {
          blocks_.push_back(layer->register_module(
              std::to_string(i), std::make_shared<Bottleneck>(network.shortcut, inputs, width, stride, device)));
          inputs = Bottleneck::kExpansion * width;
        } else {
          blocks_.push_back(layer->register_module(
              std::to_string(i), std::make_shared<BasicBlock>(network.shortcut, inputs, width, stride, device)));
          inputs = BasicBlock::kExpansion * width;
        }
      }
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
    for (const auto& block : blocks_) {
      x = block->forward(x);
    }
    return fc_->of(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  std::shared_ptr<Convolution> conv1_;
  std::shared_ptr<BatchNorm> bn1_;
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  std::shared_ptr<Linear> fc_;
};

}  // namespace

std::shared_ptr<Model> make_resnet(ModelConfig::Type type, ImageShape shape, std::int64_t classes, c10::Device device) {
  return std::make_shared<ResNet>(shape_of(type), shape, classes, device);
}

}  // namespace ddprun::trainer
