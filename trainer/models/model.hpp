// The image models that a config can name. Parameters and buffers have the same names as in Python's version of the network, so
// safetensors files can be exchanged without renaming:
//   mlp       fc1.weight, fc1.bias, ..., one per hidden layer, and the last one (flatten, Linear, ReLU, ..., dropout, Linear)
//   cnn       conv1 (1->32, 3x3, pad 1), ReLU, max-pool 2, conv2 (32->64, 3x3, pad 1), ReLU, max-pool 2, fc1 (->128), ReLU,
//             dropout, fc2
//   resnet18, resnet34, resnet50
//             torchvision's names (conv1, bn1, layer1.0.conv1, ..., layer2.0.downsample.0, fc) with the small-image stem (3x3
//             convolution, stride 1, no max-pool)
//   resnet20, resnet56
//             the same with three stages of 16, 32 and 64 channels and shortcuts without parameters
//   vit       timm's VisionTransformer (cls_token, pos_embed, patch_embed.proj, blocks.0.norm1, blocks.0.attn.qkv, ..., head)
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/config/train_config.hpp"
#include "common/tables/column_plan.hpp"

namespace ddprun::trainer {

class Model : public torch::nn::Module {
 public:
  // Computes logits [n, classes] from float32 images [n, channels, height, width].
  virtual at::Tensor forward(const at::Tensor& images) = 0;
  // Returns the plan of the target column of a table network (trainer/table_network), or nullptr for other models.
  virtual const TargetPlan* table_target() const { return nullptr; }
};

struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
};

// Returns the image shape of samples whose tensors have `sizes`, which must be [channels, height, width]. An mlp accepts any
// number of dimensions: if there are not 3, the image shape is one row of pixels. For any other model, a different number of
// dimensions throws UsageError.
ImageShape image_shape(const ModelConfig& config, const std::vector<std::int64_t>& sizes);

// Returns the smallest number of samples in a batch with which the model can train. It is 2 for a resnet whose last feature
// maps have one pixel, since batch norm needs two values per channel to compute a variance. For other models it is 1.
std::int64_t smallest_batch_of(const ModelConfig& config, ImageShape shape);

// Makes a model on `device`, in training mode, with PyTorch's default initialization. The same seed gives the same bits on
// every device. The state of the default generator is not changed. Throws UsageError if the images are too small for the model.
std::shared_ptr<Model> make_model(const ModelConfig& config, ImageShape shape, std::int64_t classes, std::uint64_t seed,
                                  c10::Device device = c10::kCPU);

}  // namespace ddprun::trainer
