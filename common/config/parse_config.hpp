// Turns the text of a train.json into a TrainConfig, strictly. Comments are allowed. Unknown keys, wrong types and values out
// of range are errors with file, line, column and JSON pointer, and the nearest valid key or value. One run reports all errors
// of a file. Thread-safe: it has no state.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/train_config.hpp"

namespace ddprun {

// Returns the keys of a worker program. It is called once, with the program from the config: an absolute path, or "" for none.
// An empty function means that no program has keys.
using TaskKeysOf = std::function<TaskConfig(const std::string& worker)>;

// Reads and checks a config file. `overrides` are "key.path=value" in command-line order; the last one wins. A value is JSON if
// it parses as JSON, else a string ("optimizer.lr=0.01", "model.type=mlp", "model.hidden=[64,64]"). A relative path such as
// data.dir is relative to the file, and becomes absolute. An override of a section's type removes the file's keys that only the
// old type has ("schedule.type=constant"); `notes`, if given, gets a line about that. Throws UsageError.
TrainConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides = {},
                        std::vector<std::string>* notes = nullptr, const TaskKeysOf& task_keys = {});

// The same for a text. `name` is the file's name in messages; relative paths are relative to `base`.
TrainConfig parse_config(std::string_view text, const std::string& name, const std::filesystem::path& base,
                         const std::vector<std::string>& overrides = {}, std::vector<std::string>* notes = nullptr,
                         const TaskKeysOf& task_keys = {});

// Every key with its value, as pretty JSON that load_config reads back to the same TrainConfig.
std::string to_json_text(const TrainConfig& config);

// The digest of all keys that must not change within a run directory, in lower-case hexadecimal. It omits keys with
// "x-may-change" in the schema.
std::string config_digest(const TrainConfig& config);

// A key that differs between two configs: its pointer ("/optimizer/lr") and both values as JSON text. `may_change`: a run
// directory may continue with the new value ("x-may-change" in the schema: epochs, max_steps, checkpoint.*, log.*, eval_*,
// data.prefetch, data.loader_threads, data.ledger, ddp.timeout_s, micro_batch_size, data.dir, device). `of_whole_job`: the
// nodes of a job must not differ in it.
struct ConfigDifference {
  std::string pointer;
  std::string before;
  std::string after;
  bool may_change = false;
  bool of_whole_job = false;
};
std::vector<ConfigDifference> compare_configs(const TrainConfig& before, const TrainConfig& after);

}  // namespace ddprun
