#include "trainer/tables/table_file.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/bounded/short_quote.hpp"
#include "common/tables/cell.hpp"
#include "common/tables/make_plan.hpp"
#include "common/tables/plan_text.hpp"
#include "common/tables/table_rows.hpp"
#include "trainer/reading/mapped_file.hpp"
#include "trainer/splits/held_out.hpp"
#include "trainer/tables/encode_row.hpp"
#include "trainer/tables/plan_json.hpp"
#include "trainer/tables/table.hpp"

namespace ddprun::trainer {
namespace {

// A file of the table, mapped into memory.
struct TableText {
  explicit TableText(std::string path) : file(std::move(path)), mapped(file) {}
  std::string file;
  MappedFile mapped;
};

std::string path_in(const DataConfig& data, const std::string& name) {
  return (std::filesystem::path(data.dir) / name).string();
}

// Returns a function that selects the training rows that are not held out for validation. The function is empty if no rows are
// held out.
std::function<bool(std::int64_t)> rows_for_statistics(const TableText& train, const TrainConfig& config) {
  if (!config.data.validation.is_set()) return {};
  TableRows rows(train.mapped.bytes(), train.file, config, TablePart::kTrain);
  while (rows.next()) {
  }
  if (rows.used() == 0) return {};
  auto chosen = std::make_shared<std::vector<bool>>(static_cast<std::size_t>(rows.used()), false);
  for (const std::int64_t row : split_samples(config, rows.used()).train) (*chosen)[static_cast<std::size_t>(row)] = true;
  return [chosen](std::int64_t row) { return (*chosen)[static_cast<std::size_t>(row)]; };
}

TablePlan plan_of(const TableText& train, const TrainConfig& config, std::vector<std::string>& notes) {
  const std::filesystem::path stored = config.data.columns_file;
  std::error_code unknown;
  if (!stored.empty() && std::filesystem::exists(stored, unknown)) return read_plan(stored);
  PlanResult result = make_plan(train.mapped.bytes(), train.file, config, rows_for_statistics(train, config));
  if (!result.problems.empty()) throw UsageError(problems_text(result, train.file));
  notes = std::move(result.notes);
  return std::move(result.plan);
}

// The first cell of each column that does not fit the plan. One message names all of these columns.
class Misfits {
 public:
  bool has(std::size_t column) const { return first_.contains(column); }
  void add(std::size_t column, const std::string& problem) { first_.emplace(column, problem); }

  void throw_if_any(const TablePlan& plan, const TableRows& rows, const std::string& file) const {
    PlanResult result{.plan = plan};
    if (rows.misshapen() > 0) result.problems.push_back(rows.first_misshapen());
    for (const auto& [column, problem] : first_) result.problems.push_back(problem);
    if (!result.problems.empty()) throw UsageError(problems_text(result, file));
  }

 private:
  std::map<std::size_t, std::string> first_;  // the first problem in each column; the key is the index of the column
};

struct EncodedRows {
  std::vector<float> inputs;  // [rows, inputs], row by row
  std::vector<float> numbers;
  std::vector<std::int64_t> classes;
  std::int64_t rows = 0;
  std::int64_t of_unknown_class = 0;  // test rows that are not used, since the training rows lack their class
};

// Returns the position of each column of the plan in a row of the file. The position is -1 for a column that is left out and
// absent in the file.
std::vector<std::int64_t> places_of(const TablePlan& plan, const TableRows& rows, const std::string& file) {
  std::vector<std::int64_t> places;
  std::string absent;
  for (const ColumnPlan& column : plan.columns) {
    places.push_back(rows.place_of(column.name));
    if (places.back() >= 0 || column.kind == ColumnPlan::Kind::kLeftOut) continue;
    absent += (absent.empty() ? "'" : ", '") + short_quote(column.name) + "'";
  }
  if (absent.empty()) return places;
  throw UsageError(file + ": lacks columns that the training file has: " + absent);
}

std::string misfit_text(const TableRows& rows, const ColumnPlan& column, std::string_view cell) {
  const char* const why = refused_form(trimmed_cell(cell));
  return "line " + std::to_string(rows.line()) + ": column '" + short_quote(column.name) + "': expected " +
         expected_in(column) + ", as in the training rows, found '" + short_quote(trimmed_cell(cell)) + "'" +
         (why == nullptr ? "" : std::string(", which ") + why);
}

class TableEncoder {
 public:
  TableEncoder(const TablePlan& plan, const TrainConfig& config) : plan_(plan), config_(config), encoder_(plan) {}

  EncodedRows encode(const TableText& table, TablePart part) const {
    TableRows rows(table.mapped.bytes(), table.file, config_, part);
    const std::vector<std::int64_t> places = places_of(plan_, rows, table.file);
    const auto width = static_cast<std::size_t>(width_of(plan_).all());
    EncodedRows encoded;
    Misfits misfits;
    std::vector<std::string_view> cells(places.size());
    std::vector<std::size_t> columns;
    while (rows.next()) {
      if (!add_target(rows, part, encoded, misfits)) continue;
      for (std::size_t i = 0; i < places.size(); ++i) {
        cells[i] = places[i] < 0 ? std::string_view() : rows.cells()[static_cast<std::size_t>(places[i])];
      }
      encoded.inputs.resize(encoded.inputs.size() + width);
      columns.clear();
      encoder_.encode(cells, std::span(encoded.inputs).last(width), columns);
      for (const std::size_t i : columns) {
        if (!misfits.has(i)) misfits.add(i, misfit_text(rows, plan_.columns[i], cells[i]));
      }
      ++encoded.rows;
    }
    misfits.throw_if_any(plan_, rows, table.file);
    if (encoded.rows > 0) return encoded;
    throw UsageError(table.file + (part == TablePart::kTrain ? ": has no rows to train on" : ": has no rows to evaluate on") +
                     (config_.data.test_table.empty() ? "; check data.test_fraction, or set data.test_table" : ""));
  }

 private:
  // Returns false if the row is not used.
  bool add_target(const TableRows& rows, TablePart part, EncodedRows& encoded, Misfits& misfits) const {
    const std::string_view cell = trimmed_cell(rows.target());
    const std::size_t after_columns = plan_.columns.size();
    if (!plan_.target.is_class) {
      const auto number = number_in(cell);
      if (!number) {
        misfits.add(after_columns, "line " + std::to_string(rows.line()) + ": column '" + short_quote(plan_.target.name) +
                                       "': expected a number, found '" + short_quote(cell) + "'");
      }
      encoded.numbers.push_back(static_cast<float>(number.value_or(0)));
      return true;
    }
    const std::int64_t label = encoder_.class_of(cell);
    if (label < 0 && part == TablePart::kTest) {
      ++encoded.of_unknown_class;
      return false;
    }
    if (label < 0) {
      misfits.add(after_columns, "line " + std::to_string(rows.line()) + ": column '" + short_quote(plan_.target.name) +
                                     "': unknown class '" + short_quote(cell) + "'");
    }
    encoded.classes.push_back(std::max<std::int64_t>(label, 0));
    return true;
  }

  const TablePlan& plan_;
  const TrainConfig& config_;
  RowEncoder encoder_;
};

// Moves the numbers into a tensor, without a copy.
template <class Number>
at::Tensor tensor_of(std::vector<Number> numbers, std::vector<std::int64_t> sizes, at::ScalarType type) {
  auto kept = std::make_shared<std::vector<Number>>(std::move(numbers));
  Number* const first = kept->data();
  return at::from_blob(
      first, sizes, [kept](void*) {}, at::TensorOptions().dtype(type));
}

std::shared_ptr<const Source> source_of(EncodedRows encoded, const TablePlan& plan) {
  const std::int64_t rows = encoded.rows;
  Table table{.inputs = tensor_of(std::move(encoded.inputs), {rows, width_of(plan).all()}, at::kFloat), .targets = {}};
  table.targets = plan.target.is_class ? tensor_of(std::move(encoded.classes), {rows}, at::kLong)
                                       : tensor_of(std::move(encoded.numbers), {rows, 1}, at::kFloat);
  return table_source(std::move(table));
}

std::string rows_text(std::int64_t rows) {
  return std::to_string(rows) + (rows == 1 ? " row" : " rows");
}

}  // namespace

Description describe_table(const TrainConfig& config) {
  const TableText train(path_in(config.data, config.data.train_table));
  std::vector<std::string> notes;
  return describe_plan(std::make_shared<const TablePlan>(plan_of(train, config, notes)));
}

Description describe_plan(std::shared_ptr<const TablePlan> plan) {
  using Predict = DataConfig::Predict;
  Description description = describe_row({width_of(*plan).all()}, plan->target.is_class ? Predict::kClass : Predict::kNumber);
  description.table = std::move(plan);
  return description;
}

Sources read_table(const TrainConfig& config) {
  constexpr std::size_t kShownColumns = 60;
  const DataConfig& data = config.data;
  const TableText train(path_in(data, data.train_table));
  Sources sources;
  const TablePlan plan = plan_of(train, config, sources.notes);
  const TableEncoder encoder(plan, config);
  EncodedRows train_rows = encoder.encode(train, TablePart::kTrain);
  EncodedRows test_rows = data.test_table.empty() ? encoder.encode(train, TablePart::kTest)
                                                  : encoder.encode(TableText(path_in(data, data.test_table)), TablePart::kTest);
  if (test_rows.of_unknown_class > 0) {
    sources.notes.push_back("test rows that are not used, since the training rows lack their class: " +
                            std::to_string(test_rows.of_unknown_class));
  }
  sources.notes.push_back(train.file + ": " + rows_text(train_rows.rows) + " to train on, " + rows_text(test_rows.rows) +
                          " to test on" + (data.test_table.empty() ? ", chosen by the seed" : " in " + data.test_table) +
                          ". The columns were interpreted as follows:\n" + plan_text(plan, kShownColumns));
  sources.plan = plan_json(plan);
  sources.train = source_of(std::move(train_rows), plan);
  sources.test = source_of(std::move(test_rows), plan);
  return sources;
}

}  // namespace ddprun::trainer
