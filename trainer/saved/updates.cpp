#include "trainer/saved/updates.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "trainer/models/low_rank.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::string_view kA = ".lora_A.weight";
constexpr std::string_view kB = ".lora_B.weight";

// Returns true if the model's weights have the shape [inputs, outputs], as in GPT-2. PEFT calls this property fan_in_fan_out.
bool inputs_first(const ModelConfig& config) {
  return config.type == ModelConfig::Type::kGpt;
}

}  // namespace

std::vector<NamedTensor> with_updates_added(std::vector<NamedTensor> weights, const ModelConfig& config) {
  const at::NoGradGuard no_gradients;
  if (config.lora.rank == 0) {
    throw UsageError("the checkpoint has low-rank updates, but its config.json has no model.lora, which contains their scale");
  }
  std::map<std::string, at::Tensor, std::less<>> updates;
  std::vector<NamedTensor> merged;
  for (NamedTensor& entry : weights) {
    if (is_lora_parameter(entry.name)) {
      updates.emplace(std::move(entry.name), std::move(entry.tensor));
    } else {
      merged.push_back(std::move(entry));
    }
  }
  const double scale = config.lora.alpha / static_cast<double>(config.lora.rank);
  std::set<std::string> left;
  for (const auto& [name, tensor] : updates) left.insert(name);
  for (NamedTensor& entry : merged) {
    constexpr std::string_view kWeight = ".weight";
    if (!entry.name.ends_with(kWeight)) continue;
    const std::string layer = entry.name.substr(0, entry.name.size() - kWeight.size());
    const auto a = updates.find(layer + std::string(kA)), b = updates.find(layer + std::string(kB));
    if (a == updates.end() || b == updates.end()) continue;
    const at::Tensor product = at::matmul(b->second, a->second);
    entry.tensor = entry.tensor + (inputs_first(config) ? product.t() : product) * scale;
    left.erase(a->first);
    left.erase(b->first);
  }
  if (!left.empty()) {
    throw UsageError("the low-rank update " + *left.begin() + " in the checkpoint is incomplete: expected the weight of the " +
                     "layer and both factors of the update");
  }
  return merged;
}

Adapter adapter_of(const std::vector<NamedTensor>& weights, const ModelConfig& config) {
  Adapter adapter;
  std::vector<std::string> modules;
  for (const NamedTensor& entry : weights) {
    if (!is_lora_parameter(entry.name)) continue;
    adapter.tensors.push_back({"base_model.model." + entry.name, entry.tensor});
    if (entry.name.ends_with(kA)) modules.push_back(entry.name.substr(0, entry.name.size() - kA.size()));
  }
  const bool writes_text = config.type == ModelConfig::Type::kGpt || config.type == ModelConfig::Type::kLlama;
  adapter.config = {{"peft_type", "LORA"},
                    {"task_type", writes_text ? nlohmann::ordered_json("CAUSAL_LM") : nlohmann::ordered_json(nullptr)},
                    {"base_model_name_or_path", nullptr},
                    {"r", config.lora.rank},
                    {"lora_alpha", config.lora.alpha},
                    {"lora_dropout", 0.0},
                    {"bias", "none"},
                    {"fan_in_fan_out", inputs_first(config)},
                    {"target_modules", modules},
                    {"inference_mode", true}};
  return adapter;
}

}  // namespace ddprun::trainer
