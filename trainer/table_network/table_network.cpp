#include "trainer/table_network/table_network.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/relu.h>
#include <torch/nn/init.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "trainer/models/low_rank.hpp"
#include "trainer/models/random_init.hpp"
#include "trainer/models/seeded_generator.hpp"
#include "trainer/models/transformer_parts.hpp"

namespace ddprun::trainer {
namespace {

// An embedding whose first row, for unknown texts, is 0. No training row uses it, so it stays 0.
struct CategoryEmbedding : torch::nn::Module {
  CategoryEmbedding(std::int64_t categories, c10::Device device)
      : weight(register_parameter("weight", at::empty({categories, embedding_width(categories)}, at::TensorOptions(device)))) {
    fill_randomly(weight, [](const at::Tensor& tensor) {
      torch::nn::init::normal_(tensor, 0, kInitialSpread);
      tensor.select(0, 0).zero_();
    });
  }

  static constexpr double kInitialSpread = 0.1;
  at::Tensor weight;
};

class TableNetwork : public Model {
 public:
  TableNetwork(const ModelConfig& config, const TablePlan& plan, c10::Device device)
      : target_(plan.target), plain_(width_of(plan).plain), dropout_(config.dropout) {
    std::int64_t width = plain_;
    for (const ColumnPlan& column : plan.columns) {
      if (column.kind != ColumnPlan::Kind::kEmbedding) continue;
      add_embedding(embedded_categories(column), device);
      width += resulting_inputs(column);
    }
    const std::int64_t outputs = target_.is_class ? std::ssize(target_.classes) : 1;
    linear_ = register_module("linear", linear(width, outputs, device));
    for (const std::int64_t hidden : config.hidden) add_layer(std::exchange(width, hidden), hidden, device);
    add_layer(width, outputs, device);
    start_at_zero(*linear_);
    start_at_zero(*layers_.back());
    if (target_.is_class) return;
    mean_ = add_number("target_mean", target_.mean, device);
    deviation_ = add_number("target_deviation", std::sqrt(target_.variance), device);
  }

  at::Tensor forward(const at::Tensor& inputs) override {
    const at::Tensor all = embedded(inputs.flatten(1));
    at::Tensor x = all;
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) x = at::relu(layers_[i]->of(x));
    const at::Tensor sum = linear_->of(all) + layers_.back()->of(dropped(std::move(x), dropout_, is_training()));
    // The result is computed in float32, because autocast may return fewer bits, which do not suffice for a large mean.
    return target_.is_class ? sum : sum.to(at::kFloat) * deviation_ + mean_;
  }

  const TargetPlan* table_target() const override { return &target_; }

 private:
  // Replaces the codes of the embedded columns, which are the last inputs, by the embedding vectors of these codes.
  at::Tensor embedded(const at::Tensor& inputs) const {
    if (embeddings_.empty()) return inputs;
    std::vector<at::Tensor> parts{inputs.narrow(1, 0, plain_)};
    for (std::size_t i = 0; i < embeddings_.size(); ++i) {
      const at::Tensor codes = inputs.select(1, plain_ + static_cast<std::int64_t>(i)).to(at::kLong);
      parts.push_back(at::embedding(embeddings_[i]->weight, codes));
    }
    return at::cat(parts, 1);
  }

  void add_embedding(std::int64_t categories, c10::Device device) {
    const std::string name = "embedding" + std::to_string(embeddings_.size() + 1);
    embeddings_.push_back(register_module(name, std::make_shared<CategoryEmbedding>(categories, device)));
  }

  void add_layer(std::int64_t inputs, std::int64_t outputs, c10::Device device) {
    layers_.push_back(register_module("fc" + std::to_string(layers_.size() + 1), linear(inputs, outputs, device)));
  }

  // If the weights start at 0, an input that few rows use (such as a rare category) has no effect at first. Random weights
  // would give it a random effect.
  static void start_at_zero(const Linear& layer) {
    const at::NoGradGuard no_gradients;
    layer.weight.zero_();
    layer.bias.zero_();
  }

  at::Tensor add_number(const std::string& name, double value, c10::Device device) {
    return register_buffer(name, at::full({1}, value, at::TensorOptions(device).dtype(at::kFloat)));
  }

  TargetPlan target_;
  std::int64_t plain_;
  double dropout_;
  std::vector<std::shared_ptr<CategoryEmbedding>> embeddings_;
  std::shared_ptr<Linear> linear_;
  std::vector<std::shared_ptr<Linear>> layers_;
  at::Tensor mean_;
  at::Tensor deviation_;
};

}  // namespace

std::shared_ptr<Model> make_table_network(const ModelConfig& config, const TablePlan& plan, std::uint64_t seed,
                                          c10::Device device) {
  const SeededGenerator seeded(c10::kCPU, seed);
  auto model = std::make_shared<TableNetwork>(config, plan, device);
  add_low_rank(*model, config.lora);
  if (!device.is_cpu()) model->to(device);
  return model;
}

}  // namespace ddprun::trainer
