// Implementation of low_rank.hpp and of the low-rank update in linear_layer.hpp.
#include "trainer/models/low_rank.hpp"

#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.hpp"
#include "common/base/error.hpp"
#include "trainer/models/linear_layer.hpp"
#include "trainer/models/random_init.hpp"
#include "trainer/optim/name_patterns.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::string_view kA = "lora_A";
constexpr std::string_view kB = "lora_B";

// One of the two matrices of a low-rank update. It is a separate module because PEFT calls the parameter "lora_A.weight".
struct Factor : torch::nn::Module {
  explicit Factor(at::Tensor initial) : weight(register_parameter("weight", std::move(initial))) {}
  at::Tensor weight;
};

std::int64_t max_useful_rank(const LinearLayer& layer) {
  return std::min(layer.inputs(), layer.outputs());
}

// Throws UsageError if the rank exceeds the number of inputs or outputs of a selected layer. The rank of a matrix cannot exceed
// its smaller dimension, so a higher rank would only need more memory.
void require_useful(std::int64_t rank, const std::vector<std::pair<std::string, LinearLayer*>>& chosen) {
  const auto smallest = std::ranges::min_element(chosen, {}, [](const auto& named) { return max_useful_rank(*named.second); });
  if (smallest == chosen.end() || rank <= max_useful_rank(*smallest->second)) return;
  const LinearLayer& layer = *smallest->second;
  throw UsageError("model.lora.rank: expected at most " + std::to_string(max_useful_rank(layer)) + ", found " +
                   std::to_string(rank) + ": the linear layer '" + smallest->first + "' has " +
                   std::to_string(layer.outputs()) + " outputs and " + std::to_string(layer.inputs()) +
                   " inputs, and a rank above the smaller of these two numbers has no benefit. Lower the rank, or choose other "
                   "layers with " +
                   "model.lora.modules");
}

}  // namespace

at::Tensor LinearLayer::of(const at::Tensor& x) const {
  // The product is computed before the update, as in Python. So backward() adds the gradients of x in the same order as in
  // Python.
  const at::Tensor own = product(x);
  return a_.defined() ? own + at::linear(at::linear(x, a_), b_) * scale_ : own;
}

void LinearLayer::add_update(std::int64_t rank, double alpha) {
  check(!a_.defined(), "the linear layer already has a low-rank update");
  const at::TensorOptions options = weight.options().requires_grad(false);
  a_ = register_module(std::string(kA), std::make_shared<Factor>(at::empty({rank, inputs()}, options)))->weight;
  b_ = register_module(std::string(kB), std::make_shared<Factor>(at::zeros({outputs(), rank}, options)))->weight;
  fill_randomly(a_, [](const at::Tensor& tensor) { torch::nn::init::kaiming_uniform_(tensor, std::sqrt(5)); });
  scale_ = alpha / static_cast<double>(rank);
}

void add_low_rank(torch::nn::Module& model, const LoraConfig& config) {
  if (config.rank == 0) return;
  if (config.modules.empty()) {
    throw UsageError(
        "model.lora.modules: expected name patterns of the linear layers to train with low-rank updates, found none");
  }
  std::vector<std::string> names;
  std::vector<LinearLayer*> layers;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* const layer = dynamic_cast<LinearLayer*>(item.value().get());
    if (layer == nullptr) continue;
    names.push_back(item.key());
    layers.push_back(layer);
  }
  for (at::Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  const auto chosen = first_matches("model.lora.modules", config.modules, names, /*tied=*/{}, "linear layer");
  std::vector<std::pair<std::string, LinearLayer*>> updated;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (chosen[i]) updated.emplace_back(names[i], layers[i]);
  }
  require_useful(config.rank, updated);
  for (const auto& [name, layer] : updated) layer->add_update(config.rank, config.alpha);
}

bool is_lora_parameter(std::string_view name) {
  const std::string_view field = ".weight";
  if (!name.ends_with(field)) return false;
  name.remove_suffix(field.size());
  return name.ends_with(kA) || name.ends_with(kB);
}

}  // namespace ddprun::trainer
