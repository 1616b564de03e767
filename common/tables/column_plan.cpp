#include "common/tables/column_plan.hpp"

namespace ddprun {

std::int64_t plain_inputs(const ColumnPlan& column) {
  using ColumnKind = ColumnPlan::Kind;
  const std::int64_t for_missing = column.has_missing ? 1 : 0;
  switch (column.kind) {
    case ColumnKind::kNumber:
    case ColumnKind::kTruth:
      return 1 + for_missing;
    case ColumnKind::kDate:
      return kInputsOfDate + for_missing;
    case ColumnKind::kOneHot:
      return static_cast<std::int64_t>(column.categories.size()) + for_missing;
    case ColumnKind::kEmbedding:
    case ColumnKind::kLeftOut:
      break;
  }
  return 0;
}

std::int64_t embedded_categories(const ColumnPlan& column) {
  if (column.kind != ColumnPlan::Kind::kEmbedding) return 0;
  return static_cast<std::int64_t>(column.categories.size()) + (column.has_missing ? 2 : 1);
}

std::int64_t embedding_width(std::int64_t categories) {
  constexpr std::int64_t kMaxWidth = 32;
  std::int64_t width = 1;
  while (width < kMaxWidth && width * width < categories) ++width;
  return width;
}

std::int64_t resulting_inputs(const ColumnPlan& column) {
  return column.kind == ColumnPlan::Kind::kEmbedding ? embedding_width(embedded_categories(column)) : plain_inputs(column);
}

PlanWidth width_of(const TablePlan& plan) {
  PlanWidth width;
  for (const ColumnPlan& column : plan.columns) {
    width.plain += plain_inputs(column);
    width.codes += column.kind == ColumnPlan::Kind::kEmbedding ? 1 : 0;
  }
  return width;
}

}  // namespace ddprun
