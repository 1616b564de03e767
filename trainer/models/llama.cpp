// The Llama model that gpt.hpp describes. The forward pass calls at:: functions with the parameters directly, in the order of
// Hugging Face's LlamaForCausalLM. So a float32 model computes the same logits.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>

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
  RmsNorm(const ModelConfig& config, c10::Device device)
      : epsilon(config.rms_norm_eps),
        weight(register_parameter("weight", at::ones({config.n_embd}, at::TensorOptions(device)))) {}
  at::Tensor of(const at::Tensor& x) const { return at::rms_norm(x, {x.size(-1)}, weight, epsilon); }
  double epsilon;
  at::Tensor weight;
};

// A linear layer without a bias.
struct Projection : LinearLayer {
  Projection(std::int64_t inputs, std::int64_t outputs, c10::Device device)
      : LinearLayer(at::empty({outputs, inputs}, at::TensorOptions(device)), Layout::kOutputsFirst) {
    fill_randomly(weight, [](const at::Tensor& tensor) { torch::nn::init::normal_(tensor, 0, kSpread); });
  }
  at::Tensor product(const at::Tensor& x) const override { return at::linear(x, weight); }
};

std::shared_ptr<Projection> projection(std::int64_t inputs, std::int64_t outputs, c10::Device device) {
  return std::make_shared<Projection>(inputs, outputs, device);
}

// Rotary positions (Su et al. 2021). Element i of the first half of a head and element i of the second half form a pair, which
// is rotated by the angle position / theta^(2i / width). The tensors have the shape [positions, width of a head], or [n, 1,
// positions, width of a head] if each text has separate positions. They are computed in the type of the weights, while Hugging
// Face always uses float32.
struct Rotation {
  at::Tensor cos;
  at::Tensor sin;

  Rotation(const at::Tensor& positions, std::int64_t width, double theta, const at::TensorOptions& options) {
    const at::Tensor exponents = at::arange(0, width, 2, options) / width;
    const at::Tensor frequencies = at::pow(theta, exponents).reciprocal();
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
        shared_heads(config.n_kv_head > 0 ? config.n_kv_head : config.n_head),
        width(config.n_embd / config.n_head),
        q_proj(register_module("q_proj", projection(config.n_embd, config.n_embd, device))),
        k_proj(register_module("k_proj", projection(config.n_embd, shared_heads * width, device))),
        v_proj(register_module("v_proj", projection(config.n_embd, shared_heads * width, device))),
        o_proj(register_module("o_proj", projection(config.n_embd, config.n_embd, device))) {}

  at::Tensor of(const at::Tensor& x, std::size_t block, const Rotation& rotation, const TextContext& context) const {
    const std::int64_t n = x.size(0), positions = x.size(1);
    const auto by_head = [&](const Projection& layer, std::int64_t count) {
      return layer.of(x).view({n, positions, count, width}).transpose(1, 2);
    };
    const at::Tensor queries = rotation.of(by_head(*q_proj, heads));
    const at::Tensor keys = rotation.of(by_head(*k_proj, shared_heads));
    const at::Tensor values = by_head(*v_proj, shared_heads);
    const at::Tensor mixed = attention(queries, keys, values, context, block, /*dropout=*/0);
    return o_proj->of(mixed.transpose(1, 2).reshape({n, positions, heads * width}));
  }
  std::int64_t heads;
  std::int64_t shared_heads;
  std::int64_t width;
  std::shared_ptr<Projection> q_proj;
  std::shared_ptr<Projection> k_proj;
  std::shared_ptr<Projection> v_proj;
  std::shared_ptr<Projection> o_proj;
};

std::int64_t inner_width(const ModelConfig& config) {
  constexpr std::int64_t kMultiple = 256;
  return config.n_inner > 0 ? config.n_inner : (config.n_embd * 8 / 3 + kMultiple - 1) / kMultiple * kMultiple;
}

// The feedforward network: SwiGLU (Shazeer 2020).
struct GatedFeedforward : torch::nn::Module {
  GatedFeedforward(const ModelConfig& config, c10::Device device)
      : gate_proj(register_module("gate_proj", projection(config.n_embd, inner_width(config), device))),
        up_proj(register_module("up_proj", projection(config.n_embd, inner_width(config), device))),
        down_proj(register_module("down_proj", projection(inner_width(config), config.n_embd, device))) {}

  at::Tensor of(const at::Tensor& x) const {
    // gate_proj is computed before up_proj, as in Python. The order determines the order in which backward() adds gradients.
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
    attention_norm = register_module("input_layernorm", std::make_shared<RmsNorm>(config, device));
    feedforward_norm = register_module("post_attention_layernorm", std::make_shared<RmsNorm>(config, device));
  }
};

struct Decoder : torch::nn::Module {
  Decoder(const ModelConfig& config, std::int64_t vocabulary, c10::Device device)
      : head_width(config.n_embd / config.n_head),
        theta(config.rope_theta),
        embed_tokens(register_module("embed_tokens", std::make_shared<Embedding>(vocabulary, config.n_embd, device))),
        layers(register_module("layers", std::make_shared<BlockList<DecoderLayer>>(config, device))),
        norm(register_module("norm", std::make_shared<RmsNorm>(config, device))) {}

  at::Tensor of(const at::Tensor& tokens, const TextContext& context) const {
    at::Tensor x = at::embedding(embed_tokens->weight, tokens);
    const Rotation rotation(context.positions_of(tokens), head_width, theta, x.options().requires_grad(false));
    x = layers->of(std::move(x), /*draws=*/false, rotation, context);
    if (context.seen != nullptr) context.seen->add(tokens.size(1));
    return norm->of(x);
  }
  std::int64_t head_width;
  double theta;
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
  require_equal_heads(config);
  if (config.n_embd / config.n_head % 2 != 0) {
    throw UsageError("model.n_embd " + std::to_string(config.n_embd) + " divided by model.n_head " +
                     std::to_string(config.n_head) +
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
