#include "common/tables/make_plan.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/error.hpp"
#include "common/bounded/short_quote.hpp"
#include "common/tables/cell.hpp"
#include "common/tables/choose_kind.hpp"
#include "common/tables/column_scan.hpp"
#include "common/tables/plan_text.hpp"
#include "common/tables/table_rows.hpp"

namespace ddprun {
namespace {

using Names = std::vector<std::string>;

constexpr std::int64_t kMaxClassNumbers = 100;

struct ScannedTable {
  Names header;
  std::size_t target = 0;
  std::vector<ColumnScan> columns;  // the columns, indexed by their position in the header
  std::int64_t rows = 0;
};

std::string quoted(const std::string& name) {
  return "'" + short_quote(name) + "'";
}

std::string at(const ColumnScan::Place& place, const std::string& column) {
  return "line " + std::to_string(place.line) + ": column " + quoted(column) + ": ";
}

ScannedTable scan_rows(TableRows& rows, const TrainConfig& config, const std::function<bool(std::int64_t)>& used) {
  ScannedTable table{.header = rows.header(), .target = rows.target_place(), .columns = {}};
  table.columns.resize(table.header.size());
  const bool predicts_class = config.data.predict == DataConfig::Predict::kClass;
  while (rows.next()) {
    const bool counts = !used || used(rows.used() - 1);
    table.rows += counts ? 1 : 0;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      // Rows that are held out count only for the names of the classes, because a class may occur only in these rows.
      if (!counts && !(predicts_class && i == table.target)) continue;
      table.columns[i].add(rows.cells()[i], rows.line(), config.data.missing_values);
    }
  }
  return table;
}

// Checks the keys that name columns: each column must exist, must not be the target, and must not be in two of the keys.
void check_named_columns(const TableRows& rows, const DataConfig& data, Names& problems) {
  Names seen;
  for (const auto& [key, names] : {std::pair{"data.leave_out", &data.leave_out},
                                   {"data.as_number", &data.as_number},
                                   {"data.as_one_hot", &data.as_one_hot},
                                   {"data.as_embedding", &data.as_embedding}}) {
    for (const std::string& name : *names) {
      if (rows.place_of(name) < 0) {
        problems.push_back(std::string(key) + " names the column " + quoted(name) + ", which the table does not have");
      } else if (name == data.target) {
        problems.push_back(std::string(key) + " names the column " + quoted(name) + ", which is data.target");
      } else if (std::ranges::find(seen, name) != seen.end()) {
        problems.push_back(std::string(key) + " names the column " + quoted(name) + ", which another key or entry names too");
      }
      seen.push_back(name);
    }
  }
}

TargetPlan number_target(const std::string& name, const ColumnScan& scan, Names& problems) {
  TargetPlan target{.name = name};
  if (scan.numbers() < scan.present()) {
    const ColumnScan::Place& place = scan.first_non_number();
    const char* const why = refused_form(place.cell);
    problems.push_back(at(place, name) + "expected a number to predict, found '" + short_quote(place.cell) + "'" +
                       (why == nullptr ? "" : std::string(", which ") + why) +
                       ". Correct it, add it to data.missing_values, or set data.predict to \"class\"");
    return target;
  }
  const Moments moments = moments_of(scan.number_values());
  target.mean = moments.mean;
  target.variance = moments.variance;
  if (!(moments.variance > 0)) problems.push_back("column " + quoted(name) + ": all values to predict are equal");
  return target;
}

// Returns the names of the classes. If all names are numbers, they are sorted by their value, else by their bytes.
Names classes_of(const ColumnScan& scan) {
  Names classes = scan.texts();
  if (scan.numbers() == scan.present()) {
    std::ranges::stable_sort(classes, {}, [](const std::string& text) { return number_in(text).value_or(0); });
  }
  return classes;
}

TargetPlan class_target(const std::string& name, const ColumnScan& scan, const Names& given, Names& problems) {
  TargetPlan target{.name = name, .is_class = true, .classes = given};
  const std::string column = "column " + quoted(name) + ": ";
  const bool many_numbers = scan.numbers() == scan.present() && scan.different() > kMaxClassNumbers;
  if (scan.too_many_texts() || scan.different() > kMaxClasses || (many_numbers && given.empty())) {
    const std::string found =
        scan.too_many_texts() ? "more than " + std::to_string(ColumnScan::kMaxCategories) : std::to_string(scan.different());
    problems.push_back(column + "has " + found + " different values, too many for classes. To predict a number, set " +
                       "data.predict to \"number\"" +
                       (many_numbers ? "; to predict classes, list them in data.class_names" : ""));
    return target;
  }
  if (scan.first_not_utf8().line > 0) problems.push_back(at(scan.first_not_utf8(), name) + "expected UTF-8 text");
  const Names texts = classes_of(scan);
  if (given.empty()) target.classes = texts;
  for (const std::string& text : texts) {
    if (std::ranges::find(target.classes, text) != target.classes.end()) continue;
    problems.push_back(column + "has the value '" + short_quote(text) + "', which data.class_names does not contain");
  }
  if (target.classes.size() < 2)
    problems.push_back(column + "expected at least 2 classes, found " + std::to_string(texts.size()));
  std::int64_t most = -1;
  for (std::size_t i = 0; i < target.classes.size(); ++i) {
    const std::int64_t rows = scan.count_of(target.classes[i]);
    if (rows <= most) continue;
    most = rows;
    target.most_frequent = static_cast<std::int64_t>(i);
  }
  return target;
}

}  // namespace

PlanResult make_plan(std::string_view text, const std::string& file, const TrainConfig& config,
                     const std::function<bool(std::int64_t)>& used) {
  const DataConfig& data = config.data;
  TableRows rows(text, file, config, TablePart::kTrain);
  PlanResult result;
  check_named_columns(rows, data, result.problems);
  const ScannedTable table = scan_rows(rows, config, used);
  result.plan.missing_values = data.missing_values;
  result.plan.rows = table.rows;
  if (rows.misshapen() > 0) {
    const std::int64_t others = rows.misshapen() - 1;
    result.problems.push_back(rows.first_misshapen() + (others == 0 ? "" : "; " + std::to_string(others) + " more such lines"));
  }
  if (table.rows == 0) {
    throw UsageError(file + ": has no rows to train on" +
                     (rows.without_target() == 0 ? std::string() : "; " + quoted(data.target) + " is missing in all of them") +
                     (result.problems.empty() ? "" : ": " + result.problems.back()));
  }
  if (rows.without_target() > 0) {
    result.notes.push_back("training rows without a value in " + quoted(data.target) +
                           ", which are not used: " + std::to_string(rows.without_target()));
  }
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    if (!is_utf8_text(table.header[i])) {
      result.problems.push_back("the name of column " + std::to_string(i + 1) + ", '" + short_quote(table.header[i]) +
                                "', is not UTF-8. Convert the file, for example with iconv -f LATIN1 -t UTF-8");
    }
    if (i == table.target) continue;
    ChosenColumn chosen = choose_kind(table.header[i], table.columns[i], data);
    if (!chosen.problem.empty()) result.problems.push_back(std::move(chosen.problem));
    result.plan.columns.push_back(std::move(chosen.column));
  }
  const ColumnScan& target = table.columns[table.target];
  result.plan.target = data.predict == DataConfig::Predict::kNumber
                           ? number_target(data.target, target, result.problems)
                           : class_target(data.target, target, data.class_names, result.problems);
  if (result.problems.empty() && width_of(result.plan).all() == 0) {
    result.problems.push_back("no column is left from which " + quoted(data.target) + " can be predicted");
  }
  return result;
}

std::string problems_text(const PlanResult& result, const std::string& file) {
  constexpr std::size_t kShown = 50;
  const std::size_t count = result.problems.size();
  std::string text = file + (count == 1 ? ": 1 problem" : ": " + std::to_string(count) + " problems") + ":";
  for (std::size_t i = 0; i < std::min(count, kShown); ++i) text += "\n  " + result.problems[i];
  if (count > kShown) text += "\n  and " + std::to_string(count - kShown) + " more";
  return text + "\nThe columns were interpreted as follows:\n" + plan_text(result.plan);
}

}  // namespace ddprun
