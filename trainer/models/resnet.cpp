// Residual networks (He et al. 2016) with the small-image stem: a 3x3 convolution of stride 1 and no max-pool. Layers,
// parameter names, initialization and the order of random draws are the same as in torchvision. So the same seed gives the
// same weights as in Python. ResNet-20 and ResNet-56 are the networks for CIFAR from that paper. torchvision does not have
// these two, but we use torchvision's naming and order of draws for them too.
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
#include "trainer/models/random_init.hpp"
#include "trainer/models/skipped_draws.hpp"

namespace ddprun::trainer {
namespace {

// torch::nn::Conv2d without a bias. In Python, Conv2d draws initial weights, and ResNet then draws other weights. To get the
// same weights, the generator must advance past Conv2d's draws. The skipped numbers are not computed, since computing 11
// million numbers takes 60 ms.
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

// A shortcut with parameters: a 1x1 convolution and a batch norm, named 0 and 1 as in torchvision's Sequential.
struct Downsample : torch::nn::Module {
  Downsample(std::int64_t inputs, std::int64_t outputs, std::int64_t stride, c10::Device device)
      : conv(register_module("0", convolution(inputs, outputs, 1, stride, device))),
        bn(register_module("1", batch_norm(outputs))) {}

  at::Tensor forward(const at::Tensor& x) { return bn->forward(conv->forward(x)); }

  std::shared_ptr<Convolution> conv;
  std::shared_ptr<BatchNorm> bn;
};

// The kind of shortcut in a block that changes the shape of its input.
enum class Shortcut {
  kConvolution,  // a 1x1 convolution with batch norm
  kZeros,        // takes every second pixel and appends channels of zeros; has no parameters
};

// Returns the module for a shortcut of kind kConvolution if the block changes the shape, otherwise null.
std::shared_ptr<Downsample> downsample_of(Shortcut shortcut, std::int64_t inputs, std::int64_t outputs, std::int64_t stride,
                                          c10::Device device) {
  const bool changes = stride != 1 || inputs != outputs;
  return changes && shortcut == Shortcut::kConvolution ? std::make_shared<Downsample>(inputs, outputs, stride, device)
                                                       : nullptr;
}

struct ResnetShape {
  std::int64_t width = 64;  // number of channels of the first convolution; each stage after the first doubles the number
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

// A block with two 3x3 convolutions, or a bottleneck block with three convolutions: 1x1, 3x3, and 1x1 to four times the width.
// A batch norm follows each convolution. The first 3x3 convolution has the stride of the block, as in torchvision.
struct ResidualBlock : torch::nn::Module {
  ResidualBlock(const ResnetShape& network, std::int64_t inputs, std::int64_t width, std::int64_t stride_of_block,
                c10::Device device)
      // The shortcut is created first, because torchvision draws its weights before the weights of the convolutions. It is
      // registered last, because torchvision lists its parameters last.
      : outputs(network.bottlenecks ? 4 * width : width),
        stride(stride_of_block),
        downsample(downsample_of(network.shortcut, inputs, outputs, stride, device)) {
    if (network.bottlenecks) {
      add(inputs, width, 1, 1, device);
      add(width, width, 3, stride, device);
      add(width, outputs, 1, 1, device);
    } else {
      add(inputs, width, 3, stride, device);
      add(width, width, 3, 1, device);
    }
    if (downsample) register_module("downsample", downsample);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = norms[0]->forward(convolutions[0]->forward(x));
    for (std::size_t i = 1; i < norms.size(); ++i) y = norms[i]->forward(convolutions[i]->forward(at::relu_(y)));
    y += downsample ? downsample->forward(x) : identity_shortcut(x);
    return at::relu_(y);
  }

  void add(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t step_size, c10::Device device) {
    const std::string number = std::to_string(norms.size() + 1);
    convolutions.push_back(register_module("conv" + number, convolution(from, to, kernel, step_size, device)));
    norms.push_back(register_module("bn" + number, batch_norm(to)));
  }

  at::Tensor identity_shortcut(const at::Tensor& x) const {
    constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
    const std::int64_t added = outputs - x.size(1);
    if (stride == 1 && added == 0) return x;
    return at::constant_pad_nd(x.slice(2, 0, kEnd, stride).slice(3, 0, kEnd, stride),
                               {0, 0, 0, 0, added / 2, added - added / 2});
  }

  std::int64_t outputs;
  std::int64_t stride;
  std::shared_ptr<Downsample> downsample;
  std::vector<std::shared_ptr<Convolution>> convolutions;
  std::vector<std::shared_ptr<BatchNorm>> norms;
};

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
        const auto block = std::make_shared<ResidualBlock>(network, inputs, width, stride, device);
        blocks_.push_back(layer->register_module(std::to_string(i), block));
        inputs = block->outputs;
      }
    }
    fc_ = register_module("fc", linear(inputs, classes, device));
    for (const auto& module : modules(/*include_self=*/false)) {
      // Batch norms need no initialization here: they already have weight 1 and bias 0.
      if (auto* conv = module->as<Convolution>()) {
        fill_randomly(conv->weight, [](const at::Tensor& weights) {
          torch::nn::init::kaiming_normal_(weights, 0.0, torch::kFanOut, torch::kReLU);
        });
      }
    }
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = bn1_->forward(conv1_->forward(images));
    at::relu_(x);
    for (const auto& block : blocks_) x = block->forward(x);
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
