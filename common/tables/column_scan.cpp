#include "common/tables/column_scan.hpp"

#include <algorithm>

#include "common/tables/cell.hpp"

namespace ddprun {
namespace {

void keep_first(ColumnScan::Place& place, std::string_view cell, std::int64_t line) {
  if (place.line == 0) place = {.line = line, .cell = std::string(cell.substr(0, ColumnScan::kMaxCategoryBytes + 1))};
}

}  // namespace

void ColumnScan::add(std::string_view cell, std::int64_t line, const std::vector<std::string>& missing_values) {
  cell = trimmed_cell(cell);
  ++rows_;
  if (is_missing(cell, missing_values)) {
    ++missing_;
    return;
  }
  count(cell, line);
  if (const auto number = number_in(cell)) {
    numbers_.push_back(*number);
    return;
  }
  keep_first(first_non_number_, cell, line);
  if (const auto truth = truth_in(cell)) {
    ++truths_;
    true_cells_ += *truth ? 1 : 0;
  } else if (const auto date = date_in(cell)) {
    dates_.push_back(*date);
  } else if (refused_form(cell) != nullptr) {
    ++refused_;
    keep_first(first_refused_, cell, line);
  } else {
    keep_first(first_text_, cell, line);
  }
}

void ColumnScan::count(std::string_view cell, std::int64_t line) {
  if (too_many_) return;
  if (const auto found = counts_.find(cell); found != counts_.end()) {
    ++found->second;
    return;
  }
  if (!is_utf8_text(cell)) keep_first(first_not_utf8_, cell, line);
  if (cell.size() > kMaxCategoryBytes || counts_.size() == kMaxCategories) {
    too_many_ = true;
    counts_.clear();
    return;
  }
  counts_.emplace(cell, 1);
}

std::vector<std::string> ColumnScan::texts() const {
  std::vector<std::string> texts;
  texts.reserve(counts_.size());
  for (const auto& [text, rows] : counts_) texts.push_back(text);
  std::ranges::sort(texts);
  return texts;
}

std::int64_t ColumnScan::count_of(const std::string& text) const {
  const auto found = counts_.find(text);
  return found == counts_.end() ? 0 : found->second;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

Moments moments_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const bool one_value = std::ranges::all_of(values, [&](double value) { return value == values.front(); });
  if (one_value) return {.mean = values.front(), .variance = 0};
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const auto count = static_cast<double>(values.size());
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {.mean = mean, .variance = squares / count};
}

}  // namespace ddprun
