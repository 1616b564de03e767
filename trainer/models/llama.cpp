// The Llama model that gpt.hpp describes, with the options that make it a Mistral, Qwen2 or Qwen3 model. The forward pass calls
// at:: functions with the parameters directly, in the order of Hugging Face's LlamaForCausalLM. So a float32 model computes the
// same logits.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/models/gpt.hpp"
#include "trainer/models/low_rank.hpp"
#include "trainer/models/random_init.hpp"
#include "trainer/models/seeded_generator.hpp"
#include "trainer/models/transformer_parts.hpp"

namespace ddprun::trainer {
namespace {

struct RmsNorm : torch::nn::Module {
  RmsNorm(std::int64_t width, const ModelConfig& config, c10::Device device)
      : epsilon(config.rms_norm_eps), weight(register_parameter("weight", at::ones({width}, at::TensorOptions(device)))) {}
  at::Tensor of(const at::Tensor& x) const { return at::rms_norm(x, {x.size(-1)}, weight, epsilon); }
  double epsilon;
  at::Tensor weight;
};

// A linear layer. Only the layers of attention may have a bias, which starts at 0.
struct Projection : LinearLayer {
  Projection(std::int64_t inputs, std::int64_t outputs, c10::Device device, bool has_bias)
      : LinearLayer(at::empty({outputs, inputs}, at::TensorOptions(device)), Layout::kOutputsFirst) {
    fill_randomly(weight, [](const at::Tensor& tensor) { torch::nn::init::normal_(tensor, 0, kSpread); });
    if (has_bias) bias = register_parameter("bias", at::zeros({outputs}, at::TensorOptions(device)));
  }
  at::Tensor product(const at::Tensor& x) const override { return bias ? at::linear(x, weight, *bias) : at::linear(x, weight); }
  std::optional<at::Tensor> bias;
};

std::shared_ptr<Projection> projection(std::int64_t inputs, std::int64_t outputs, c10::Device device, bool has_bias = false) {
  return std::make_shared<Projection>(inputs, outputs, device, has_bias);
}

// Scales the frequencies of rotary positions, so that a model can use more positions than it was trained with. `linear`
// divides all frequencies. `llama3` divides the frequencies whose wavelength is long compared with the original number of
// positions. It does not change frequencies with a short wavelength, and interpolates between the two. The operations have the
// same order as in the function _compute_llama3_parameters of transformers, so they round in the same way.
at::Tensor scaled(const at::Tensor& frequencies, const ModelConfig& config) {
  using Scaling = ModelConfig::RopeScaling;
  if (config.rope_scaling == Scaling::kNone) return frequencies;
  const at::Tensor divided = frequencies / config.rope_factor;
  if (config.rope_scaling == Scaling::kLinear) return divided;
  const double low = config.rope_low_freq_factor, high = config.rope_high_freq_factor;
  const auto positions = static_cast<double>(config.rope_original_positions);
  const at::Tensor wavelengths = frequencies.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor is_long = wavelengths > positions / low, is_short = wavelengths < positions / high;
  const at::Tensor smooth = (wavelengths.reciprocal() * positions - low) / (high - low);
  const at::Tensor between = (1 - smooth) * frequencies / config.rope_factor + smooth * frequencies;
  return at::where(is_long, divided, at::where(is_short, frequencies, between));
}

// Rotary positions (Su et al. 2021). Element i of the first half of a head and element i of the second half form a pair, which
// is rotated by the angle position / theta^(2i / width). The tensors have the shape [positions, width of a head], or [n, 1,
// positions, width of a head] if each text has separate positions. They are computed in the type of the weights, while Hugging
// Face always uses float32.
struct Rotation {
  at::Tensor cos;
  at::Tensor sin;

  Rotation(const at::Tensor& positions, const ModelConfig& config, const at::TensorOptions& options) {
    const std::int64_t width = config.head_width();
    const at::Tensor exponents = at::arange(0, width, 2, options) / width;
    const at::Tensor frequencies = scaled(at::pow(config.rope_theta, exponents).reciprocal(), config);
    const at::Tensor angles = positions.to(c10::typeMetaToScalarType(options.dtype())).unsqueeze(-1) * frequencies.unsqueeze(0);
    const at::Tensor repeated = at::cat({angles, angles}, -1);
    // Inserts a dimension of size 1 for the heads.
    const at::Tensor both = positions.dim() > 1 ? repeated.unsqueeze(1) : repeated;
    cos = both.cos();
    sin = both.sin();
  }

  at::Tensor of(const at::Tensor& x) const {
    const std::vector<at::Tensor> halves = x.chunk(2, -1);
    return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
  }
};

struct GroupedAttention : torch::nn::Module {
  GroupedAttention(const ModelConfig& config, c10::Device device)
      : heads(config.n_head),
        shared_heads(config.key_value_heads()),
        width(config.head_width()),
        q_proj(register_module("q_proj", biased(config, heads * width, device))),
        k_proj(register_module("k_proj", biased(config, shared_heads * width, device))),
        v_proj(register_module("v_proj", biased(config, shared_heads * width, device))),
        o_proj(register_module("o_proj", projection(heads * width, config.n_embd, device,
                                                    config.attention_bias == ModelConfig::AttentionBias::kAll))) {
    if (!config.qk_norm) return;
    q_norm = register_module("q_norm", std::make_shared<RmsNorm>(width, config, device));
    k_norm = register_module("k_norm", std::make_shared<RmsNorm>(width, config, device));
  }

  at::Tensor of(const at::Tensor& x, std::size_t block, const Rotation& rotation, const TextContext& context) const {
    const std::int64_t n = x.size(0), positions = x.size(1);
    const auto by_head = [&](const Projection& layer, std::int64_t count, const std::shared_ptr<RmsNorm>& norm) {
      const at::Tensor split = layer.of(x).view({n, positions, count, width});
      return (norm ? norm->of(split) : split).transpose(1, 2);
    };
    const at::Tensor queries = rotation.of(by_head(*q_proj, heads, q_norm));
    const at::Tensor keys = rotation.of(by_head(*k_proj, shared_heads, k_norm));
    const at::Tensor values = by_head(*v_proj, shared_heads, /*norm=*/nullptr);
    const at::Tensor mixed = attention(queries, keys, values, context, block, /*dropout=*/0);
    return o_proj->of(mixed.transpose(1, 2).reshape({n, positions, heads * width}));
  }

  static std::shared_ptr<Projection> biased(const ModelConfig& config, std::int64_t outputs, c10::Device device) {
    return projection(config.n_embd, outputs, device, config.attention_bias != ModelConfig::AttentionBias::kNone);
  }

  std::int64_t heads;
  std::int64_t shared_heads;
  std::int64_t width;
  std::shared_ptr<Projection> q_proj;
  std::shared_ptr<Projection> k_proj;
  std::shared_ptr<Projection> v_proj;
  std::shared_ptr<Projection> o_proj;
  std::shared_ptr<RmsNorm> q_norm;  // null if model.qk_norm is off, like k_norm
  std::shared_ptr<RmsNorm> k_norm;
};

// The feedforward network: SwiGLU (Shazeer 2020).
struct GatedFeedforward : torch::nn::Module {
  GatedFeedforward(const ModelConfig& config, c10::Device device)
      : gate_proj(register_module("gate_proj", projection(config.n_embd, config.inner_width(), device))),
        up_proj(register_module("up_proj", projection(config.n_embd, config.inner_width(), device))),
        down_proj(register_module("down_proj", projection(config.inner_width(), config.n_embd, device))) {}

  at::Tensor of(const at::Tensor& x) const {
    // gate_proj is computed before up_proj, as in Python. The order of these calls determines the order in which backward()
    // adds gradients.
    const at::Tensor gate = at::silu(gate_proj->of(x));
    return down_proj->of(gate * up_proj->of(x));
  }
  std::shared_ptr<Projection> gate_proj;
  std::shared_ptr<Projection> up_proj;
  std::shared_ptr<Projection> down_proj;
};

struct DecoderLayer : TransformerBlock<RmsNorm, GroupedAttention, GatedFeedforward> {
  DecoderLayer(const ModelConfig& config, c10::Device device) {
    attention = register_module("self_attn", std::make_shared<GroupedAttention>(config, device));
    feedforward = register_module("mlp", std::make_shared<GatedFeedforward>(config, device));
    attention_norm = register_module("input_layernorm", std::make_shared<RmsNorm>(config.n_embd, config, device));
    feedforward_norm = register_module("post_attention_layernorm", std::make_shared<RmsNorm>(config.n_embd, config, device));
  }
};

struct Decoder : torch::nn::Module {
  Decoder(const ModelConfig& model, std::int64_t vocabulary, c10::Device device)
      : config(model),
        embed_tokens(register_module("embed_tokens", std::make_shared<Embedding>(vocabulary, config.n_embd, device))),
        layers(register_module("layers", std::make_shared<BlockList<DecoderLayer>>(config, device))),
        norm(register_module("norm", std::make_shared<RmsNorm>(config.n_embd, config, device))) {}

  at::Tensor of(const at::Tensor& tokens, const TextContext& context) const {
    at::Tensor x = at::embedding(embed_tokens->weight, tokens);
    const Rotation rotation(context.positions_of(tokens), config, x.options().requires_grad(false));
    x = layers->of(std::move(x), /*draws=*/false, rotation, context);
    if (context.seen != nullptr) context.seen->add(tokens.size(1));
    return norm->of(x);
  }
  ModelConfig config;
  std::shared_ptr<Embedding> embed_tokens;
  std::shared_ptr<BlockList<DecoderLayer>> layers;
  std::shared_ptr<RmsNorm> norm;
};

class Llama : public Gpt {
 public:
  Llama(const ModelConfig& config, std::int64_t vocabulary, c10::Device device)
      : model_(register_module("model", std::make_shared<Decoder>(config, vocabulary, device))) {
    if (config.tie_word_embeddings) {
      tied_head_ = register_module("lm_head", std::make_shared<TiedHead>(model_->embed_tokens->weight));
    } else {
      head_ = register_module("lm_head", projection(config.n_embd, vocabulary, device));
    }
  }

  at::Tensor hidden(const at::Tensor& tokens, const TextContext& context) override { return model_->of(tokens, context); }
  at::Tensor logits(const at::Tensor& hidden) override {
    return head_ ? head_->of(hidden) : at::linear(hidden, tied_head_->weight);
  }

 private:
  std::shared_ptr<Decoder> model_;
  std::shared_ptr<TiedHead> tied_head_;  // exactly one of tied_head_ and head_ is set
  std::shared_ptr<Projection> head_;
};

}  // namespace

std::shared_ptr<Gpt> make_llama(const ModelConfig& config, std::int64_t vocabulary, std::uint64_t seed, c10::Device device) {
  if (config.head_dim == 0) require_equal_heads(config);
  if (config.head_width() % 2 != 0) {
    throw UsageError((config.head_dim > 0 ? "model.head_dim " + std::to_string(config.head_dim)
                                          : "model.n_embd " + std::to_string(config.n_embd) + " divided by model.n_head " +
                                                std::to_string(config.n_head)) +
                     " is odd, but rotary positions rotate pairs of values: expected an even number");
  }
  if (config.n_kv_head > 0 && config.n_head % config.n_kv_head != 0) {
    throw UsageError("model.n_head " + std::to_string(config.n_head) + " is not divisible by model.n_kv_head " +
                     std::to_string(config.n_kv_head));
  }
  const SeededGenerator seeded(c10::kCPU, seed);
  auto model = std::make_shared<Llama>(config, vocabulary, device);
  add_low_rank(*model, config.lora);
  return model;
}

}  // namespace ddprun::trainer
