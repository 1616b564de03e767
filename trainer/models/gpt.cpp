// Implementation of gpt.hpp for GPT-2. The forward pass calls at:: functions with the parameters directly. The modules only own
// the parameters and give them their names.
#include "trainer/models/gpt.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>
#include <vector>

#include "trainer/models/low_rank.hpp"
#include "trainer/models/random_init.hpp"
#include "trainer/models/seeded_generator.hpp"
#include "trainer/models/transformer_parts.hpp"

namespace ddprun::trainer {
namespace {

constexpr double kEpsilon = 1e-5;

// A linear layer whose weight has the transposed shape [inputs, outputs], as in Hugging Face's class Conv1D.
struct Conv1D : LinearLayer {
  Conv1D(std::int64_t inputs, std::int64_t outputs, double spread, c10::Device device)
      : LinearLayer(at::empty({inputs, outputs}, at::TensorOptions(device)), Layout::kInputsFirst),
        bias(register_parameter("bias", at::zeros({outputs}, at::TensorOptions(device)))) {
    fill_randomly(weight, [spread](const at::Tensor& tensor) { torch::nn::init::normal_(tensor, 0, spread); });
  }
  at::Tensor product(const at::Tensor& x) const override {
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(1);
    return at::addmm(bias, x.reshape({-1, x.size(-1)}), weight).view(sizes);
  }
  at::Tensor bias;
};

struct Attention : torch::nn::Module {
  Attention(const ModelConfig& config, double spread_of_last, c10::Device device)
      : heads(config.n_head),
        dropout(config.dropout),
        c_attn(register_module("c_attn", std::make_shared<Conv1D>(config.n_embd, 3 * config.n_embd, kSpread, device))),
        c_proj(register_module("c_proj", std::make_shared<Conv1D>(config.n_embd, config.n_embd, spread_of_last, device))) {}

  at::Tensor of(const at::Tensor& x, std::size_t block, const TextContext& context) const {
    const std::int64_t n = x.size(0), positions = x.size(1), width = x.size(2);
    const std::vector<at::Tensor> parts = c_attn->of(x).split(width, 2);
    const auto by_head = [&](const at::Tensor& part) {
      return part.view({n, positions, heads, width / heads}).transpose(1, 2);
    };
    const at::Tensor mixed =
        attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), context, block, is_training() ? dropout : 0);
    return dropped(c_proj->of(mixed.transpose(1, 2).reshape({n, positions, width})), dropout, is_training());
  }
  std::int64_t heads;
  double dropout;
  std::shared_ptr<Conv1D> c_attn;
  std::shared_ptr<Conv1D> c_proj;
};

struct Feedforward : torch::nn::Module {
  Feedforward(const ModelConfig& config, double spread_of_last, c10::Device device)
      : dropout(config.dropout),
        c_fc(register_module("c_fc", std::make_shared<Conv1D>(config.n_embd, 4 * config.n_embd, kSpread, device))),
        c_proj(register_module("c_proj", std::make_shared<Conv1D>(4 * config.n_embd, config.n_embd, spread_of_last, device))) {}

  at::Tensor of(const at::Tensor& x) const {
    return dropped(c_proj->of(at::gelu(c_fc->of(x), "tanh")), dropout, is_training());
  }
  double dropout;
  std::shared_ptr<Conv1D> c_fc;
  std::shared_ptr<Conv1D> c_proj;
};

struct Block : TransformerBlock<LayerNorm, Attention, Feedforward> {
  Block(const ModelConfig& config, double spread_of_last, c10::Device device) {
    attention_norm = register_module("ln_1", std::make_shared<LayerNorm>(config.n_embd, kEpsilon, device));
    attention = register_module("attn", std::make_shared<Attention>(config, spread_of_last, device));
    feedforward_norm = register_module("ln_2", std::make_shared<LayerNorm>(config.n_embd, kEpsilon, device));
    feedforward = register_module("mlp", std::make_shared<Feedforward>(config, spread_of_last, device));
  }
};

// Returns the standard deviation of the initial weights in the last layer of each residual branch. It is smaller than kSpread,
// so that the sum of the 2 * n_layer branches does not grow with the depth (GPT-2, section 2.3).
double spread_of_last(const ModelConfig& config) {
  return kSpread / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

struct Transformer : torch::nn::Module {
  Transformer(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions, c10::Device device)
      : dropout(config.dropout),
        wte(register_module("wte", std::make_shared<Embedding>(vocabulary, config.n_embd, device))),
        wpe(register_module("wpe", std::make_shared<Embedding>(positions, config.n_embd, device))),
        h(register_module("h", std::make_shared<BlockList<Block>>(config, spread_of_last(config), device))),
        ln_f(register_module("ln_f", std::make_shared<LayerNorm>(config.n_embd, kEpsilon, device))) {}

  at::Tensor of(const at::Tensor& tokens, const TextContext& context) const {
    at::Tensor x = at::embedding(wte->weight, tokens) + at::embedding(wpe->weight, context.positions_of(tokens));
    x = h->of(dropped(std::move(x), dropout, is_training()), /*draws=*/dropout > 0 && is_training(), context);
    if (context.seen != nullptr) context.seen->add(tokens.size(1));
    return ln_f->of(x);
  }
  double dropout;
  std::shared_ptr<Embedding> wte;
  std::shared_ptr<Embedding> wpe;
  std::shared_ptr<BlockList<Block>> h;
  std::shared_ptr<LayerNorm> ln_f;
};

class Gpt2 : public Gpt {
 public:
  Gpt2(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions, c10::Device device)
      : transformer_(register_module("transformer", std::make_shared<Transformer>(config, vocabulary, positions, device))),
        head_(register_module("lm_head", std::make_shared<TiedHead>(transformer_->wte->weight))) {}

  at::Tensor hidden(const at::Tensor& tokens, const TextContext& context) override { return transformer_->of(tokens, context); }
  at::Tensor logits(const at::Tensor& hidden) override { return at::linear(hidden, head_->weight); }

 private:
  std::shared_ptr<Transformer> transformer_;
  std::shared_ptr<TiedHead> head_;
};

}  // namespace

std::shared_ptr<Gpt> make_gpt(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions, std::uint64_t seed,
                              c10::Device device) {
  require_equal_heads(config);
  const SeededGenerator seeded(c10::kCPU, seed);
  auto model = std::make_shared<Gpt2>(config, vocabulary, positions, device);
  add_low_rank(*model, config.lora);
  return model;
}

std::shared_ptr<Gpt> make_language_model(const ModelConfig& config, std::int64_t vocabulary, std::int64_t positions,
                                         std::uint64_t seed, c10::Device device) {
  return config.type == ModelConfig::Type::kLlama ? make_llama(config, vocabulary, seed, device)
                                                  : make_gpt(config, vocabulary, positions, seed, device);
}

}  // namespace ddprun::trainer
