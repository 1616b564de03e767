// A column plan as JSON, in the file columns.json of a run directory. The file is written with the first checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "common/tables/column_plan.hpp"

namespace ddprun::trainer {

// Returns the plan as JSON. plan_from_json() restores exactly the same plan from this text, including all bits of its numbers.
std::string plan_json(const TablePlan& plan);

// Parses the result of plan_json(). Throws UsageError if the text is not a plan.
TablePlan plan_from_json(const std::string& text);

// Reads columns.json. Throws a UsageError that names the file.
TablePlan read_plan(const std::filesystem::path& file);

}  // namespace ddprun::trainer
