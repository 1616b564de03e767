#include "trainer/tables/encode_row.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "common/tables/cell.hpp"

namespace ddprun::trainer {
namespace {

using PlanKind = ColumnPlan::Kind;

constexpr double kDaysPerYear = 365.2425;
constexpr std::int64_t kWeekdayOfDay0 = 3;  // 1970-01-01 was a Thursday; Monday is 0

std::optional<double> value_in(const ColumnPlan& column, std::string_view cell) {
  switch (column.kind) {
    case PlanKind::kNumber:
      return number_in(cell);
    case PlanKind::kDate:
      return date_in(cell);
    case PlanKind::kTruth:
      if (const auto truth = truth_in(cell)) return *truth ? 1 : 0;
      return std::nullopt;
    case PlanKind::kOneHot:
    case PlanKind::kEmbedding:
    case PlanKind::kLeftOut:
      break;
  }
  return std::nullopt;
}

bool is_category(const ColumnPlan& column) {
  return column.kind == PlanKind::kOneHot || column.kind == PlanKind::kEmbedding;
}

// Encodes the position in the year as a point on a circle, so that December is next to January. Also encodes the weekday.
void encode_calendar(double day, std::span<float> to) {
  const double angle = 2 * std::numbers::pi * day / kDaysPerYear;
  to[0] = static_cast<float>(std::sin(angle));
  to[1] = static_cast<float>(std::cos(angle));
  const std::int64_t weekday = (static_cast<std::int64_t>(std::floor(day)) + kWeekdayOfDay0) % kWeekdays;
  to[static_cast<std::size_t>(2 + (weekday + kWeekdays) % kWeekdays)] = 1;
}

}  // namespace

RowEncoder::RowEncoder(const TablePlan& plan) : plan_(plan), width_(width_of(plan)), codes_(plan.columns.size()) {
  for (std::size_t i = 0; i < plan.columns.size(); ++i) {
    const ColumnPlan& column = plan.columns[i];
    deviations_.push_back(column.variance > 0 ? std::sqrt(column.variance) : 1);
    for (const std::string& category : column.categories) codes_[i].emplace(category, std::ssize(codes_[i]));
  }
  for (const std::string& name : plan.target.classes) classes_.emplace(name, std::ssize(classes_));
}

void RowEncoder::encode(std::span<const std::string_view> cells, std::span<float> inputs,
                        std::vector<std::size_t>& misfits) const {
  std::ranges::fill(inputs, 0.0F);
  std::size_t next = 0;
  auto next_code = static_cast<std::size_t>(width_.plain);
  for (std::size_t i = 0; i < plan_.columns.size(); ++i) {
    const ColumnPlan& column = plan_.columns[i];
    if (column.kind == PlanKind::kLeftOut) continue;
    const std::string_view cell = trimmed_cell(cells[i]);
    bool missing = is_missing(cell, plan_.missing_values);
    if (is_category(column)) {
      const auto found = missing ? codes_[i].end() : codes_[i].find(cell);
      // -1 means an unknown category
      const std::int64_t code = found != codes_[i].end()        ? found->second
                                : missing && column.has_missing ? static_cast<std::int64_t>(column.categories.size())
                                                                : -1;
      if (column.kind == PlanKind::kEmbedding) {
        inputs[next_code++] = static_cast<float>(code + 1);
      } else {
        if (code >= 0) inputs[next + static_cast<std::size_t>(code)] = 1;
        next += static_cast<std::size_t>(plain_inputs(column));
      }
      continue;
    }
    const std::optional<double> value = missing ? std::nullopt : value_in(column, cell);
    if (!value && !missing) {
      if (!column.missing_if_invalid) misfits.push_back(i);
      missing = true;
    }
    const std::span<float> of_column = inputs.subspan(next, static_cast<std::size_t>(plain_inputs(column)));
    of_column[0] = static_cast<float>((value.value_or(column.median) - column.mean) / deviations_[i]);
    if (value && column.kind == PlanKind::kDate) encode_calendar(*value, of_column.subspan(1));
    if (missing && column.has_missing) of_column.back() = 1;
    next += of_column.size();
  }
}

std::int64_t RowEncoder::class_of(std::string_view cell) const {
  const auto found = classes_.find(trimmed_cell(cell));
  return found == classes_.end() ? -1 : found->second;
}

const char* expected_in(const ColumnPlan& column) {
  switch (column.kind) {
    case PlanKind::kNumber:
      return "a number";
    case PlanKind::kTruth:
      return "true or false (yes or no)";
    case PlanKind::kDate:
      return "a date such as 2024-02-29";
    case PlanKind::kOneHot:
    case PlanKind::kEmbedding:
    case PlanKind::kLeftOut:
      break;
  }
  return "a text";
}

}  // namespace ddprun::trainer
