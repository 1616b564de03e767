// What other readers than the programs get from the table of keys: the JSON Schema for editors (configs/train.schema.json) and
// the reference for people (in docs/configuration.md). Both are committed, and a test compares them. A worker program of one's
// own prints the same with its own keys. Pure.
#pragma once

#include <string>

#include "common/config/task_keys.hpp"

namespace ddprun {

// JSON Schema, draft 2020-12. Keys that may change within a run directory have "x-may-change": true. Without keys of a worker
// program of one's own, any are accepted.
std::string config_schema_json(const TaskConfig& task = {});

// The keys of that program alone, two lines each, for its --help.
std::string task_keys_help(const TaskConfig& task);

// A Markdown table for each section.
std::string config_reference_markdown();

}  // namespace ddprun
