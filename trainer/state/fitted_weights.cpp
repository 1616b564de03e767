#include "trainer/state/fitted_weights.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::array<std::string_view, 2> kBodies{"transformer.", "model."};
constexpr std::array<std::string_view, 2> kWrappers{"module.", "_orig_mod."};

// Returns true if the name belongs to an attention mask of GPT-2 or to the frequencies of rotary positions. No weight has such
// a name.
bool is_constant(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

std::string name_in_model(const std::set<std::string>& names, const std::string& found) {
  std::string_view name = found;
  for (const std::string_view wrapper : kWrappers) {
    if (name.starts_with(wrapper) && !names.contains(found)) name.remove_prefix(wrapper.size());
  }
  for (const std::string_view body : kBodies) {
    const std::string longer = std::string(body) + std::string(name);
    if (!names.contains(std::string(name)) && names.contains(longer)) return longer;
  }
  return names.contains(std::string(name)) ? std::string(name) : found;
}

}  // namespace

std::vector<NamedTensor> with_names(const std::set<std::string>& names, std::vector<NamedTensor> weights) {
  std::set<std::string> given;
  for (const NamedTensor& entry : weights) given.insert(entry.name);
  for (NamedTensor& entry : weights) {
    std::string name = name_in_model(names, entry.name);
    if (!given.contains(name)) entry.name = std::move(name);
  }
  std::erase_if(weights, [&](const NamedTensor& entry) { return is_constant(entry.name) && !names.contains(entry.name); });
  return weights;
}

std::vector<NamedTensor> with_positions(std::vector<NamedTensor> weights, const TrainConfig& config,
                                        const std::filesystem::path& source) {
  if (config.model.type != ModelConfig::Type::kGpt) return weights;
  const auto table = std::ranges::find(weights, "transformer.wpe.weight", &NamedTensor::name);
  const std::int64_t block = config.data.block_size;
  if (table == weights.end() || table->tensor.dim() != 2 || table->tensor.size(0) <= block) return weights;
  if (!config.model.crop_positions) {
    const std::string rows = std::to_string(table->tensor.size(0));
    throw UsageError(source.string() + " has " + rows + " positions, but data.block_size is " + std::to_string(block) +
                     ": set data.block_size to " + rows + ", or set model.crop_positions to true to use only the first " +
                     std::to_string(block) + " positions");
  }
  table->tensor = table->tensor.narrow(0, 0, block).contiguous();
  return weights;
}

}  // namespace ddprun::trainer
