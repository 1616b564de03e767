// Renderings of the table of keys for other readers than the programs: the JSON Schema for editors (configs/train.schema.json)
// and the reference for users (in docs/configuration.md). Both are committed, and a test compares them. A custom worker program
// prints the same with its additional keys. Pure.
#pragma once

#include <string>

#include "common/config/task_keys.hpp"

namespace ddprun {

// JSON Schema, draft 2020-12. Keys that may change within a run directory have "x-may-change": true. Without keys of a worker
// program, any key of that section is accepted.
std::string config_schema_json(const TaskConfig& task = {});

// Only the keys of that program, two lines each, for its --help.
std::string task_keys_help(const TaskConfig& task);

// A Markdown table for each section.
std::string config_reference_markdown();

}  // namespace ddprun
