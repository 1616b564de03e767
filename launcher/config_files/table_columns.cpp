#include "launcher/config_files/table_columns.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/tables/make_plan.hpp"
#include "common/tables/plan_text.hpp"

namespace ddprun {

std::string table_columns_text(const TrainConfig& config) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
  if (config.data.type != DataConfig::Type::kTable) return "";
  const std::filesystem::path file = std::filesystem::path(config.data.dir) / config.data.train_table;
  std::error_code unknown;
  if (const std::uintmax_t bytes = std::filesystem::file_size(file, unknown); !unknown && bytes > kMaxBytes) return "";
  const PlanResult result = make_plan(read_bounded(file, kMaxBytes, "a table"), file.string(), config);
  if (!result.problems.empty()) throw UsageError(problems_text(result, file.string()));
  std::string text = "ddprun: columns of " + file.string() + " in its " + std::to_string(result.plan.rows) +
                     (config.data.validation.is_set() ? " training rows, with those that are held out for validation:\n"
                                                      : " training rows:\n") +
                     plan_text(result.plan);
  for (const std::string& note : result.notes) text += "ddprun: " + note + "\n";
  return text;
}

}  // namespace ddprun
