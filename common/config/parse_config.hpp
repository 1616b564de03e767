// Parses the text of a train.json into a TrainConfig. Comments are allowed. Unknown keys, wrong types and values out of range
// are errors. An error message contains file, line, column and JSON pointer, and suggests the most similar valid key or value.
// All errors of a file are reported together. Any thread may call these functions, because they have no state.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

// A function that returns the keys of a worker program. It is called once. Its argument is the absolute path of the program
// that the config names, or "" if the config names no program. If the std::function is empty, programs have no keys.
using TaskKeysOf = std::function<TaskConfig(const std::string& worker)>;

// Reads and checks a config file. Throws UsageError with all errors.
//
// `overrides` are "key.path=value" in command-line order. If several overrides set the same key, the last one applies. A value
// that is not valid JSON is a string: "optimizer.lr=0.01", "model.type=mlp", "model.hidden=[64,64]". A relative path in the
// config, such as data.dir, is relative to the folder of the file, and becomes absolute. An override may change the type of a
// section ("schedule.type=constant"). Then the keys of the file that only the old type has are removed. If `notes` is not
// nullptr, a line about the removed keys is added to it.
TrainConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {},
                        std::vector<std::string>* notes = nullptr, const TaskKeysOf& task_keys = {});

// Parses and checks the text of a config in the same way as load_config(). `name` is the file's name in messages. Relative
// paths in the config are relative to the folder `base`.
TrainConfig parse_config(std::string_view text, const std::string& name, const std::filesystem::path& base,
                         const std::vector<std::string>& overrides = {}, std::vector<std::string>* notes = nullptr,
                         const TaskKeysOf& task_keys = {});

// Returns the config as formatted JSON with all keys that apply. load_config() parses this text into the same TrainConfig.
std::string to_json_text(const TrainConfig& config);

// Returns a digest of all keys that must not change within a run directory, in lower-case hexadecimal. Keys with "x-may-change"
// in the schema are omitted.
std::string config_digest(const TrainConfig& config);

// A key that differs between two configs: its pointer ("/optimizer/lr") and both values as JSON text. If `may_change` is true,
// a run may continue with the new value. Keys that may change have "x-may-change" in the schema. If `job_wide` is true, all
// nodes of a job must have the same value.
struct ConfigDifference {
  std::string pointer;
  std::string before;
  std::string after;
  bool may_change = false;
  bool job_wide = false;
};
std::vector<ConfigDifference> compare_configs(const TrainConfig& before, const TrainConfig& after);

}  // namespace ddprun
