// Reads the table of a config with data.type "table", and describes its columns for `ddprun validate`: name, interpretation,
// values, missing values, inputs. The workers use the same rules (common/tables/make_plan.hpp).
#pragma once

#include <string>

#include "common/config/train_config.hpp"

namespace ddprun {

// Returns the description, which ends with a newline. The text is empty for other types of data, and for a table above 1 GiB,
// which is not read here. Throws UsageError with all problems of the table.
std::string table_columns_text(const TrainConfig& config);

}  // namespace ddprun
