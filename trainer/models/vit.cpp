// The vision transformer (Dosovitskiy et al. 2020). Layers, parameter names and initial weights are the same as in timm's
// VisionTransformer, such as vit_base_patch16_224. The forward pass calls at:: functions with the parameters directly, in the
// same order as timm.
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/models/architectures.hpp"
#include "trainer/models/random_init.hpp"
#include "trainer/models/transformer_parts.hpp"

namespace ddprun::trainer {
namespace {

constexpr double kVitEpsilon = 1e-6;

// Draws random numbers like timm's trunc_normal_(std=0.02). The limits of -2 and 2 are 100 standard deviations, so clamping
// changes only infinite values.
void draw_cut_normal(const at::Tensor& tensor) {
  constexpr double kMax = 2;
  tensor.uniform_(-1, 1).erfinv_().mul_(kSpread * std::numbers::sqrt2).clamp_(-kMax, kMax);
}

// A linear layer with timm's initial weights. The initial bias is 0.
struct VitLinear : LinearLayer {
  VitLinear(std::int64_t inputs, std::int64_t outputs, c10::Device device)
      : LinearLayer(at::empty({outputs, inputs}, at::TensorOptions(device)), Layout::kOutputsFirst),
        bias(register_parameter("bias", at::zeros({outputs}, at::TensorOptions(device)))) {
    fill_randomly(weight, draw_cut_normal);
  }
  at::Tensor product(const at::Tensor& x) const override { return at::linear(x, weight, bias); }
  at::Tensor bias;
};

std::shared_ptr<VitLinear> vit_linear(std::int64_t inputs, std::int64_t outputs, c10::Device device) {
  return std::make_shared<VitLinear>(inputs, outputs, device);
}

// The parameters of a convolution over adjacent patches without overlap. They are initialized as in torch.nn.Conv2d.
struct PatchConvolution : torch::nn::Module {
  PatchConvolution(std::int64_t channels, std::int64_t width, std::int64_t patch, c10::Device device)
      : weight(register_parameter("weight", at::empty({width, channels, patch, patch}, at::TensorOptions(device)))),
        bias(register_parameter("bias", at::empty({width}, at::TensorOptions(device)))),
        stride(patch) {
    fill_randomly(weight, [](const at::Tensor& tensor) { torch::nn::init::kaiming_uniform_(tensor, std::sqrt(5)); });
    const double bound = 1 / std::sqrt(static_cast<double>(channels * patch * patch));
    fill_randomly(bias, [bound](const at::Tensor& tensor) { torch::nn::init::uniform_(tensor, -bound, bound); });
  }
  at::Tensor weight;
  at::Tensor bias;
  std::int64_t stride;
};

// Converts images to embeddings of their patches, row by row: [n, channels, height, width] -> [n, patches, width of the model].
struct PatchEmbedding : torch::nn::Module {
  PatchEmbedding(std::int64_t channels, std::int64_t width, std::int64_t patch, c10::Device device)
      : proj(register_module("proj", std::make_shared<PatchConvolution>(channels, width, patch, device))) {}
  at::Tensor of(const at::Tensor& images) const {
    return at::conv2d(images, proj->weight, proj->bias, proj->stride).flatten(2).transpose(1, 2);
  }
  std::shared_ptr<PatchConvolution> proj;
};

struct PatchAttention : torch::nn::Module {
  PatchAttention(const ModelConfig& config, c10::Device device)
      : heads(config.n_head),
        dropout(config.dropout),
        qkv(register_module("qkv", vit_linear(config.n_embd, 3 * config.n_embd, device))),
        proj(register_module("proj", vit_linear(config.n_embd, config.n_embd, device))) {}

  at::Tensor of(const at::Tensor& x, std::size_t /*block*/) const {
    const std::int64_t n = x.size(0), positions = x.size(1), width = x.size(2);
    const std::vector<at::Tensor> parts =
        qkv->of(x).reshape({n, positions, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/std::nullopt,
                                                              is_training() ? dropout : 0, /*is_causal=*/false);
    return dropped(proj->of(mixed.transpose(1, 2).reshape({n, positions, width})), dropout, is_training());
  }
  std::int64_t heads;
  double dropout;
  std::shared_ptr<VitLinear> qkv;
  std::shared_ptr<VitLinear> proj;
};

struct PatchFeedforward : torch::nn::Module {
  PatchFeedforward(const ModelConfig& config, c10::Device device)
      : dropout(config.dropout),
        fc1(register_module("fc1", vit_linear(config.n_embd, 4 * config.n_embd, device))),
        fc2(register_module("fc2", vit_linear(4 * config.n_embd, config.n_embd, device))) {}

  at::Tensor of(const at::Tensor& x) const {
    const at::Tensor inner = dropped(at::gelu(fc1->of(x)), dropout, is_training());
    return dropped(fc2->of(inner), dropout, is_training());
  }
  double dropout;
  std::shared_ptr<VitLinear> fc1;
  std::shared_ptr<VitLinear> fc2;
};

struct PatchBlock : TransformerBlock<LayerNorm, PatchAttention, PatchFeedforward> {
  PatchBlock(const ModelConfig& config, c10::Device device) {
    attention_norm = register_module("norm1", std::make_shared<LayerNorm>(config.n_embd, kVitEpsilon, device));
    attention = register_module("attn", std::make_shared<PatchAttention>(config, device));
    feedforward_norm = register_module("norm2", std::make_shared<LayerNorm>(config.n_embd, kVitEpsilon, device));
    feedforward = register_module("mlp", std::make_shared<PatchFeedforward>(config, device));
  }
};

std::int64_t patch_count(const ModelConfig& config, ImageShape shape) {
  const std::int64_t side = config.patch_size;
  if (shape.height % side == 0 && shape.width % side == 0) return (shape.height / side) * (shape.width / side);
  throw UsageError(c10::str("model.patch_size is ", side, ", but the images of the data set are ", shape.height, " x ",
                            shape.width, ": expected a divisor of height and width"));
}

class Vit : public Model {
 public:
  Vit(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device)
      : dropout_(config.dropout),
        cls_token_(register_parameter("cls_token", at::empty({1, 1, config.n_embd}, at::TensorOptions(device)))),
        pos_embed_(register_parameter(
            "pos_embed", at::empty({1, 1 + patch_count(config, shape), config.n_embd}, at::TensorOptions(device)))),
        patch_embed_(register_module(
            "patch_embed", std::make_shared<PatchEmbedding>(shape.channels, config.n_embd, config.patch_size, device))) {
    constexpr double kSpreadOfClass = 1e-6;
    fill_randomly(cls_token_, [](const at::Tensor& tensor) { torch::nn::init::normal_(tensor, 0, kSpreadOfClass); });
    fill_randomly(pos_embed_, draw_cut_normal);
    blocks_ = register_module("blocks", std::make_shared<BlockList<PatchBlock>>(config, device));
    norm_ = register_module("norm", std::make_shared<LayerNorm>(config.n_embd, kVitEpsilon, device));
    head_ = register_module("head", vit_linear(config.n_embd, classes, device));
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = patch_embed_->of(images);
    x = at::cat({cls_token_.expand({x.size(0), -1, -1}), x}, 1) + pos_embed_;
    x = blocks_->of(dropped(std::move(x), dropout_, is_training()), /*draws=*/dropout_ > 0 && is_training());
    return head_->of(norm_->of(x).select(1, 0));
  }

 private:
  double dropout_;
  at::Tensor cls_token_;
  at::Tensor pos_embed_;
  std::shared_ptr<PatchEmbedding> patch_embed_;
  std::shared_ptr<BlockList<PatchBlock>> blocks_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<VitLinear> head_;
};

}  // namespace

std::shared_ptr<Model> make_vit(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device) {
  require_equal_heads(config);
  return std::make_shared<Vit>(config, shape, classes, device);
}

}  // namespace ddprun::trainer
