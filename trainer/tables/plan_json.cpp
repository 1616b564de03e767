#include "trainer/tables/plan_json.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/json_problem.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"

namespace ddprun::trainer {
namespace {

using JsonKind = ColumnPlan::Kind;
using nlohmann::json;

constexpr int kFormat = 1;

constexpr std::array kKindNames{std::pair{JsonKind::kNumber, "number"},       std::pair{JsonKind::kTruth, "truth"},
                                std::pair{JsonKind::kDate, "date"},           std::pair{JsonKind::kOneHot, "one_hot"},
                                std::pair{JsonKind::kEmbedding, "embedding"}, std::pair{JsonKind::kLeftOut, "left_out"}};

const char* name_in_json(JsonKind kind) {
  return std::ranges::find(kKindNames, kind, &std::pair<JsonKind, const char*>::first)->second;
}

JsonKind kind_in_json(const std::string& name) {
  const auto found = std::ranges::find_if(kKindNames, [&](const auto& entry) { return entry.second == name; });
  if (found == kKindNames.end()) throw UsageError("has a column of the unknown kind \"" + name + "\"");
  return found->first;
}

json column_json(const ColumnPlan& column) {
  json value{{"name", column.name},
             {"kind", name_in_json(column.kind)},
             {"missing", column.missing},
             {"different", column.different},
             {"has_missing", column.has_missing}};
  if (column.kind == JsonKind::kLeftOut) value["reason"] = column.reason;
  if (column.kind == JsonKind::kNumber || column.kind == JsonKind::kTruth || column.kind == JsonKind::kDate) {
    value["mean"] = column.mean;
    value["variance"] = column.variance;
    value["median"] = column.median;
    value["missing_if_invalid"] = column.missing_if_invalid;
  }
  if (!column.categories.empty()) value["categories"] = column.categories;
  return value;
}

ColumnPlan column_from(const json& value) {
  ColumnPlan column{.name = value.at("name").get<std::string>(),
                    .kind = kind_in_json(value.at("kind").get<std::string>()),
                    .reason = value.value("reason", ""),
                    .mean = value.value("mean", 0.0),
                    .variance = value.value("variance", 0.0),
                    .median = value.value("median", 0.0),
                    .has_missing = value.at("has_missing").get<bool>(),
                    .missing_if_invalid = value.value("missing_if_invalid", false),
                    .missing = value.at("missing").get<std::int64_t>(),
                    .different = value.at("different").get<std::int64_t>()};
  if (const auto found = value.find("categories"); found != value.end()) {
    column.categories = found->get<std::vector<std::string>>();
  }
  return column;
}

}  // namespace

std::string plan_json(const TablePlan& plan) {
  json columns = json::array();
  for (const ColumnPlan& column : plan.columns) columns.push_back(column_json(column));
  json target{{"name", plan.target.name}, {"kind", plan.target.is_class ? "class" : "number"}};
  if (plan.target.is_class) {
    target["classes"] = plan.target.classes;
    target["most_frequent"] = plan.target.most_frequent;
  } else {
    target["mean"] = plan.target.mean;
    target["variance"] = plan.target.variance;
  }
  const json value{{"format", kFormat},
                   {"rows", plan.rows},
                   {"missing_values", plan.missing_values},
                   {"target", std::move(target)},
                   {"columns", std::move(columns)}};
  return value.dump(1) + "\n";
}

TablePlan plan_from_json(const std::string& text) {
  try {
    require_json_within(text, {.depth = 8});
    const json value = json::parse(text);
    if (const int format = value.at("format").get<int>(); format != kFormat) {
      throw UsageError("has format " + std::to_string(format) + "; this version of ddprun reads format " +
                       std::to_string(kFormat));
    }
    TablePlan plan{.columns = {},
                   .target = {},
                   .missing_values = value.at("missing_values").get<std::vector<std::string>>(),
                   .rows = value.at("rows").get<std::int64_t>()};
    const json& target = value.at("target");
    plan.target.name = target.at("name").get<std::string>();
    plan.target.is_class = target.at("kind").get<std::string>() == "class";
    if (plan.target.is_class) {
      plan.target.classes = target.at("classes").get<std::vector<std::string>>();
      plan.target.most_frequent = target.at("most_frequent").get<std::int64_t>();
    } else {
      plan.target.mean = target.at("mean").get<double>();
      plan.target.variance = target.at("variance").get<double>();
      if (!(plan.target.variance > 0)) throw UsageError("has a target with a variance that is not above 0");
    }
    for (const json& column : value.at("columns")) plan.columns.push_back(column_from(column));
    return plan;
  } catch (const json::exception& error) {
    throw UsageError("is not a valid column plan (" + json_problem(error, text) + ")");
  }
}

TablePlan read_plan(const std::filesystem::path& file) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  try {
    return plan_from_json(read_bounded(file, kMaxBytes, "a column plan"));
  } catch (const UsageError& error) {
    const std::string text = error.what();
    throw UsageError(text.starts_with(file.string()) ? text : file.string() + " " + text);
  }
}

}  // namespace ddprun::trainer
