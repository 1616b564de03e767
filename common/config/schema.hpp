// What other readers than the programs get from the table of keys: the JSON Schema for editors (configs/train.schema.json) and
// the reference for people (in docs/configuration.md). Both are committed, and a test compares them. Pure.
#pragma once

#include <string>

namespace ddprun {

// JSON Schema, draft 2020-12. Keys that may change within a run directory have "x-may-change": true.
std::string config_schema_json();

// A Markdown table for each section.
std::string config_reference_markdown();

}  // namespace ddprun
