#include "common/tables/plan_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "common/base/printable.hpp"

namespace ddprun {
namespace {

using Cells = std::array<std::string, 5>;

constexpr std::size_t kMaxNameBytes = 30;
constexpr std::size_t kMaxValueBytes = 48;

std::string shortened(const std::string& text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return printable(text);
  return printable(cut_to(text, max_bytes - 3)) + "...";
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

std::string list_text(const std::vector<std::string>& texts) {
  std::string list;
  std::size_t shown = 0;
  for (const std::string& text : texts) {
    const std::string next = (list.empty() ? "" : ", ") + shortened(text, kMaxNameBytes);
    if (shown > 0 && list.size() + next.size() > kMaxValueBytes) break;
    list += next;
    ++shown;
  }
  if (shown < texts.size()) list += ", and " + std::to_string(texts.size() - shown) + " more";
  return list;
}

std::string values_text(const ColumnPlan& column) {
  switch (column.kind) {
    case ColumnPlan::Kind::kNumber:
      return "mean " + number_text(column.mean) + ", median " + number_text(column.median);
    case ColumnPlan::Kind::kTruth:
      return number_text(static_cast<double>(static_cast<int>(1000 * column.mean + 0.5)) / 10) + " % true";
    case ColumnPlan::Kind::kDate:
      return "dates";
    case ColumnPlan::Kind::kOneHot:
    case ColumnPlan::Kind::kEmbedding:
      return list_text(column.categories);
    case ColumnPlan::Kind::kLeftOut:
      break;
  }
  return column.reason;
}

Cells cells_of(const ColumnPlan& column) {
  const bool left_out = column.kind == ColumnPlan::Kind::kLeftOut;
  return {column.name.empty() ? "(no name)" : shortened(column.name, kMaxNameBytes), kind_name(column.kind),
          values_text(column), std::to_string(column.missing), left_out ? "0" : std::to_string(resulting_inputs(column))};
}

Cells cells_of(const TargetPlan& target) {
  return {shortened(target.name, kMaxNameBytes), target.is_class ? "target, class" : "target, number",
          target.is_class ? list_text(target.classes) : "mean " + number_text(target.mean), "", ""};
}

}  // namespace

const char* kind_name(ColumnPlan::Kind kind) {
  switch (kind) {
    case ColumnPlan::Kind::kNumber:
      return "number";
    case ColumnPlan::Kind::kTruth:
      return "true or false";
    case ColumnPlan::Kind::kDate:
      return "date";
    case ColumnPlan::Kind::kOneHot:
      return "one-hot";
    case ColumnPlan::Kind::kEmbedding:
      return "embedding";
    case ColumnPlan::Kind::kLeftOut:
      break;
  }
  return "left out";
}

std::string plan_text(const TablePlan& plan, std::size_t max_columns) {
  std::vector<Cells> lines{{"column", "interpreted as", "values", "missing", "inputs"}, cells_of(plan.target)};
  for (std::size_t i = 0; i < std::min(max_columns, plan.columns.size()); ++i) lines.push_back(cells_of(plan.columns[i]));
  std::array<std::size_t, 5> widths{};
  for (const Cells& cells : lines) {
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string text;
  for (const Cells& cells : lines) {
    std::string line = "  ";
    for (std::size_t i = 0; i < cells.size(); ++i) line += cells[i] + std::string(widths[i] - cells[i].size() + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (plan.columns.size() > max_columns) {
    text += "  and " + std::to_string(plan.columns.size() - max_columns) + " more columns\n";
  }
  return text;
}

}  // namespace ddprun
