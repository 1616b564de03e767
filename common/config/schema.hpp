// Converts the table of keys to two other formats: the JSON Schema for editors (configs/train.schema.json), and the reference
// for users (in docs/configuration.md). The repository contains both files, and a test checks that the files are up to date. A
// custom worker program can print the schema and a list of its additional keys. The code is pure: no I/O, no clock.
#pragma once

#include <string>

#include "common/config/task_keys.hpp"

namespace ddprun {

// Returns the JSON Schema, draft 2020-12. Keys that may change within a run directory have "x-may-change": true. If `task` is
// empty, the section "task" accepts any keys.
std::string config_schema_json(const TaskConfig& task = {});

// Returns the keys of a worker program, two lines each, for its --help.
std::string task_keys_help(const TaskConfig& task);

// Returns the reference for users: a Markdown table for each section.
std::string config_reference_markdown();

}  // namespace ddprun
