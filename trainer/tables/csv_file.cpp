// Implementation of csv_file.hpp. Values stay double until they are standardized, and are then rounded to float32.
#include "trainer/tables/csv_file.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/numbers.hpp"
#include "common/bounded/short_quote.hpp"
#include "common/tables/choose_kind.hpp"
#include "common/tables/csv_records.hpp"
#include "common/tables/table_rows.hpp"
#include "trainer/data/samples.hpp"
#include "trainer/reading/mapped_file.hpp"
#include "trainer/splits/held_out.hpp"

namespace ddprun::trainer {
namespace {

using Names = std::vector<std::string>;

// Limits on the size of a table. The limit for a field is in csv_records.hpp.
constexpr std::size_t kMaxColumns = std::size_t{1} << 20;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 32;

std::string list_of(const Names& names) {
  constexpr std::size_t kShown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i == 0 ? "'" : ", '") + short_quote(names[i]) + "'";
  return names.size() > kShown ? text + " and " + std::to_string(names.size() - kShown) + " more" : text;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The columns of a file. A position is the index of a column in a line.
struct Columns {
  Names header;
  std::unordered_map<std::string, std::size_t> places;  // position of each column, by its name
  Names names;                                          // input columns, in the order of the training file
  std::vector<std::size_t> inputs;                      // inputs[i]: position in a line of the column names[i]
  std::size_t target = 0;
};

std::size_t place_of(const std::string& name, const Columns& columns, const char* key, const std::string& file) {
  const auto found = columns.places.find(name);
  if (found != columns.places.end()) return found->second;
  throw UsageError(file + ": has no column '" + short_quote(name) + "'" + (*key == 0 ? ", which the training file has" : "") +
                   (*key == 0 ? "" : std::string(", which ") + key + " names") + "; its columns are " +
                   list_of(columns.header));
}

Columns columns_in(CsvRecords& records, const DataConfig& config, const std::string& file) {
  Columns columns;
  require_csv(records.rest(), file);
  if (!records.next(columns.header)) throw UsageError(file + ": has no lines; expected a header that names the columns");
  if (columns.header.size() > kMaxColumns) {
    throw UsageError(file + ": has " + std::to_string(columns.header.size()) + " columns; a table has at most " +
                     std::to_string(kMaxColumns));
  }
  for (std::size_t i = 0; i < columns.header.size(); ++i) {
    std::string& name = columns.header[i];
    name = std::string(trimmed(name));
    if (columns.places.emplace(name, i).second) continue;
    throw UsageError(file + ":" + std::to_string(records.line()) + ": two columns are called '" + short_quote(name) + "'");
  }
  columns.target = place_of(config.target, columns, "data.target", file);
  std::unordered_set<std::size_t> unused{columns.target};
  for (const std::string& name : config.leave_out) unused.insert(place_of(name, columns, "data.leave_out", file));
  for (std::size_t i = 0; i < columns.header.size(); ++i) {
    if (unused.contains(i)) continue;
    columns.names.push_back(columns.header[i]);
    columns.inputs.push_back(i);
  }
  if (columns.inputs.empty()) {
    throw UsageError(file + ": expected at least one input column to predict '" + short_quote(config.target) +
                     "' from; its columns are " + list_of(columns.header));
  }
  return columns;
}

// The numbers in a file. A class name is represented by its index.
struct Numbers {
  std::vector<double> inputs;  // [rows, columns], row by row
  std::vector<double> targets;
  Names names;
};

// Collects the columns that have a field which is not a number. A real table may have a dozen such columns. One error message
// names all of them and quotes the first such field, so that the user need not start the run once per column.
class NonNumericColumns {
 public:
  explicit NonNumericColumns(std::string file) : file_(std::move(file)) {}

  void add(std::size_t column, const std::string& name, const std::string& problem) {
    if (!columns_.insert(column).second) return;
    names_.push_back(name);
    if (columns_.size() == 1) first_ = problem;
  }
  // Returns true if add() was called for the column. Further fields of such a column need not be parsed.
  bool has(std::size_t column) const { return columns_.contains(column); }
  void throw_if_any() const {
    if (columns_.empty()) return;
    const std::string remedy = ". Set data.type to \"table\", which reads text, dates and missing values";
    if (columns_.size() == 1) throw UsageError(first_ + remedy);
    throw UsageError(first_ + ". In total " + std::to_string(names_.size()) + " columns of " + file_ +
                     " have values that are not numbers: " + list_of(names_) +
                     ". Add them to data.leave_out, or convert them to numbers" + remedy);
  }

 private:
  std::string file_;
  std::set<std::size_t> columns_;
  Names names_;
  std::string first_;
};

class CsvReader {
 public:
  CsvReader(const DataConfig& config, std::string file) : config_(config), file_(std::move(file)), mapped_(file_) {}

  // Reads the rows. `wanted` names the input columns in the required order; if it is empty, the file's order is used. `limit`
  // is the maximum number of rows; 0 means all rows.
  Numbers read(const Names& wanted, std::int64_t limit, const char* limit_key) {
    CsvRecords records(mapped_.bytes(), file_);
    Columns columns = columns_in(records, config_, file_);
    if (!wanted.empty()) {
      columns.names = wanted;
      columns.inputs.clear();
      for (const std::string& name : wanted) columns.inputs.push_back(place_of(name, columns, "", file_));
    }
    Numbers numbers{.inputs = {}, .targets = {}, .names = columns.names};
    NonNumericColumns non_numeric(file_);
    Names fields;
    std::int64_t rows = 0;
    for (; (limit == 0 || rows < limit) && records.next(fields); ++rows) {
      line_ = records.line();
      if (rows == kMaxRows) throw UsageError(here() + "a table has at most " + std::to_string(kMaxRows) + " lines of data");
      if (fields.size() != columns.header.size()) {
        non_numeric.throw_if_any();
        throw UsageError(here() + "expected " + std::to_string(columns.header.size()) + " fields, as in the header, found " +
                         std::to_string(fields.size()));
      }
      for (std::size_t i = 0; i < columns.inputs.size(); ++i) {
        double value = 0;
        if (!non_numeric.has(i)) {
          const std::string problem = read_number(fields[columns.inputs[i]], columns.names[i], value);
          if (!problem.empty()) non_numeric.add(i, columns.names[i], problem);
        }
        numbers.inputs.push_back(value);
      }
      numbers.targets.push_back(target_in(fields[columns.target], non_numeric));
    }
    non_numeric.throw_if_any();
    if (rows == 0) throw UsageError(file_ + ": has a header but no lines of data");
    samples_to_use(limit, rows, limit_key, file_);
    return numbers;
  }

 private:
  std::string here() const { return file_ + ":" + std::to_string(line_) + ": "; }

  std::string column(const std::string& name) const { return here() + "column '" + short_quote(name) + "': "; }

  // Parses a field. Returns the error message, or an empty string if the field is valid.
  std::string read_number(const std::string& field, const std::string& name, double& value) const {
    std::string_view text = trimmed(field);
    if (text.empty()) {
      return column(name) +
             "expected a number, found an empty field. Fill it in, remove the line, or add the column to data.leave_out";
    }
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    // A number must be finite in float32, because models compute in float32.
    if (whole && std::isfinite(static_cast<float>(value))) return "";
    return column(name) + "expected a " + (whole ? "finite " : "") + "number, found '" + short_quote(field) + "'";
  }

  double target_in(const std::string& field, const NonNumericColumns& non_numeric) const {
    if (config_.predict == DataConfig::Predict::kNumber) {
      double value = 0;
      const std::string problem = read_number(field, config_.target, value);
      if (problem.empty()) return value;
      non_numeric.throw_if_any();
      throw UsageError(problem);
    }
    const std::string_view text = trimmed(field);
    if (!config_.class_names.empty()) {
      const auto found = std::ranges::find(config_.class_names, text);
      if (found != config_.class_names.end()) return static_cast<double>(found - config_.class_names.begin());
      non_numeric.throw_if_any();
      throw UsageError(column(config_.target) + "expected one of data.class_names, " + list_of(config_.class_names) +
                       ", found '" + short_quote(field) + "'");
    }
    const auto label = exact_number<std::int64_t>(text);
    if (label && *label >= 0 && *label < config_.classes) return static_cast<double>(*label);
    non_numeric.throw_if_any();
    throw UsageError(column(config_.target) + "expected a class from 0 to " + std::to_string(config_.classes - 1) +
                     " (data.classes), found '" + short_quote(field) +
                     "'. For class names set data.class_names; for numbers set data.predict to \"number\"");
  }

  const DataConfig& config_;
  std::string file_;
  MappedFile mapped_;
  std::int64_t line_ = 0;
};

struct Scale {
  double mean = 0;
  double std = 1;
};

std::vector<Scale> scales_of(const Numbers& numbers, const std::vector<std::int64_t>& rows) {
  const std::size_t width = numbers.names.size();
  const auto count = static_cast<double>(rows.size());
  std::vector<Scale> scales(width);
  for (std::size_t i = 0; i < width; ++i) {
    const auto value = [&](std::int64_t row) { return numbers.inputs[static_cast<std::size_t>(row) * width + i]; };
    double sum = 0, squares = 0;
    for (const std::int64_t row : rows) sum += value(row);
    const bool one_value = std::ranges::all_of(rows, [&](std::int64_t row) { return value(row) == value(rows.front()); });
    // If all values are equal, this value is the mean. The sum divided by the number of values could differ from it by a
    // rounding error.
    const double mean = one_value ? value(rows.front()) : sum / count;
    for (const std::int64_t row : rows) squares += (value(row) - mean) * (value(row) - mean);
    scales[i].mean = mean;
    if (squares > 0) scales[i].std = std::sqrt(squares / count);
  }
  return scales;
}

Table table_of(const Numbers& numbers, const std::vector<Scale>& scales, DataConfig::Predict predict) {
  const auto rows = static_cast<std::int64_t>(numbers.targets.size());
  const auto width = static_cast<std::int64_t>(numbers.names.size());
  const bool is_class = predict == DataConfig::Predict::kClass;
  Table table{.inputs = at::empty({rows, width}, at::kFloat),
              .targets = is_class ? at::empty({rows}, at::kLong) : at::empty({rows, 1}, at::kFloat)};
  auto* input = table.inputs.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < numbers.inputs.size(); ++i) {
    const Scale scale = scales.empty() ? Scale{} : scales[i % numbers.names.size()];
    input[i] = static_cast<float>((numbers.inputs[i] - scale.mean) / scale.std);
  }
  if (is_class) {
    std::ranges::transform(numbers.targets, table.targets.mutable_data_ptr<std::int64_t>(),
                           [](double label) { return static_cast<std::int64_t>(label); });
  } else {
    std::ranges::transform(numbers.targets, table.targets.mutable_data_ptr<float>(),
                           [](double value) { return static_cast<float>(value); });
  }
  return table;
}

std::string path_of_table(const DataConfig& config, const std::string& name) {
  return (std::filesystem::path(config.dir) / name).string();
}

}  // namespace

Description describe_csv(const DataConfig& config) {
  const std::string file = path_of_table(config, config.train_table);
  const MappedFile mapped(file);
  CsvRecords records(mapped.bytes(), file);
  return describe_row({static_cast<std::int64_t>(columns_in(records, config, file).inputs.size())}, config.predict);
}

std::vector<std::string> notes_on_csv(const DataConfig& config) {
  const std::string file = path_of_table(config, config.train_table);
  const MappedFile mapped(file);
  CsvRecords records(mapped.bytes(), file);
  const Columns columns = columns_in(records, config, file);
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < columns.inputs.size(); ++i) {
    const std::string& name = columns.names[i];
    if (!is_index_name(name)) continue;
    notes.push_back(file + ": column " + std::to_string(columns.inputs[i] + 1) +
                    (name.empty() ? " without a name" : " '" + short_quote(name) + "'") +
                    " is an input of the model. If it is an index that pandas wrote, add \"" + short_quote(name) +
                    "\" to data.leave_out");
  }
  return notes;
}

Sources read_csv(const TrainConfig& config) {
  const DataConfig& data = config.data;
  const Numbers train =
      CsvReader(data, path_of_table(data, data.train_table)).read({}, data.train_samples, "data.train_samples");
  const Numbers test =
      CsvReader(data, path_of_table(data, data.test_table)).read(train.names, data.test_samples, "data.test_samples");
  std::vector<Scale> scales;
  if (data.standardize) scales = scales_of(train, split_samples(config, static_cast<std::int64_t>(train.targets.size())).train);
  return {.train = table_source(table_of(train, scales, data.predict)),
          .test = table_source(table_of(test, scales, data.predict))};
}

}  // namespace ddprun::trainer
