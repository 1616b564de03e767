// Prints, hashes and compares configs. The table in keys.hpp lists the keys.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/config/keys.hpp"
#include "common/config/parse_config.hpp"

namespace ddprun {

std::string to_json_text(const TrainConfig& config) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  for (const Key& key : keys_with(config.task)) {
    // Omits keys that do not exist for the section's type, because load_config() would reject them.
    if (applies(key, config)) root[nlohmann::ordered_json::json_pointer(key.pointer())] = key.get(config);
  }
  return root.dump(2) + "\n";
}

std::string config_digest(const TrainConfig& config) {
  std::string text;
  const TrainConfig defaults = defaults_with(config.task);
  for (const Key& key : keys_with(config.task)) {
    const bool counts = !key.may_change && applies(key, config) && !(key.added_later && key.get(config) == key.get(defaults));
    if (counts) text += key.pointer() + "=" + key.get(config).dump() + "\n";
  }
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return hex;
}

std::vector<ConfigDifference> compare_configs(const TrainConfig& before, const TrainConfig& after) {
  std::vector<ConfigDifference> out;
  for (const Key& key : keys_with(after.task)) {
    // Skips keys that exist for only one of the two section types, because the two types are already reported as different.
    if (!applies(key, before) || !applies(key, after)) continue;
    const nlohmann::json old_value = key.get(before), new_value = key.get(after);
    if (old_value == new_value) continue;
    out.push_back({key.pointer(), old_value.dump(), new_value.dump(), key.may_change, !key.may_change || key.job_wide});
  }
  return out;
}

}  // namespace ddprun
