// Implementation of csv_file.hpp. Values are double until they are standardised, and float32 then.
#include "trainer/tables/csv_file.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/data/mapped_file.hpp"
#include "trainer/splits/held_out.hpp"
#include "trainer/tables/csv_records.hpp"

namespace ddprun::trainer {
namespace {

using Names = std::vector<std::string>;

std::string list_of(const Names& names) {
  constexpr std::size_t kShown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i == 0 ? "'" : ", '") + names[i] + "'";
  return names.size() > kShown ? text + " and " + std::to_string(names.size() - kShown) + " more" : text;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Where in a line of the file the columns are.
struct Columns {
  Names header;
  Names names;                      // of the inputs, in the training file's order
  std::vector<std::size_t> inputs;  // their places
  std::size_t target = 0;
};

std::size_t place_of(const std::string& name, const Names& header, const char* key, const std::string& file) {
  const auto found = std::ranges::find(header, name);
  if (found != header.end()) return static_cast<std::size_t>(found - header.begin());
  throw UsageError(file + ": has no column '" + name + "'" + (*key == 0 ? ", which the training file has" : "") +
                   (*key == 0 ? "" : std::string(", which ") + key + " names") + "; its columns are " + list_of(header));
}

Columns columns_in(CsvRecords& records, const DataConfig& config, const std::string& file) {
  Columns columns;
  if (!records.next(columns.header)) throw UsageError(file + ": has no line; expected a header that names the columns");
  for (std::string& name : columns.header) name = trimmed(name);
  for (auto name = columns.header.begin(); name != columns.header.end(); ++name) {
    if (std::find(columns.header.begin(), name, *name) != name) {
      throw UsageError(file + ":" + std::to_string(records.line()) + ": two columns are called '" + *name + "'");
    }
  }
  columns.target = place_of(config.target, columns.header, "data.target", file);
  for (const std::string& name : config.leave_out) place_of(name, columns.header, "data.leave_out", file);
  for (std::size_t i = 0; i < columns.header.size(); ++i) {
    if (i == columns.target || std::ranges::find(config.leave_out, columns.header[i]) != config.leave_out.end()) continue;
    columns.names.push_back(columns.header[i]);
    columns.inputs.push_back(i);
  }
  if (columns.inputs.empty()) {
    throw UsageError(file + ": no column is left to predict '" + config.target + "' from; its columns are " +
                     list_of(columns.header));
  }
  return columns;
}

// The file's numbers; of the class, its number.
struct Numbers {
  std::vector<double> inputs;  // [rows, columns]
  std::vector<double> targets;
  Names names;
};

class CsvReader {
 public:
  CsvReader(const DataConfig& config, std::string file) : config_(config), file_(std::move(file)), mapped_(file_) {}

  // `wanted`: the columns in that order; empty: the file's own. `limit`: no more rows; 0: all.
  Numbers read(const Names& wanted, std::int64_t limit, const char* limit_key) {
    CsvRecords records(mapped_.bytes(), file_);
    Columns columns = columns_in(records, config_, file_);
    if (!wanted.empty()) {
      columns.names = wanted;
      columns.inputs.clear();
      for (const std::string& name : wanted) columns.inputs.push_back(place_of(name, columns.header, "", file_));
    }
    Numbers numbers{.inputs = {}, .targets = {}, .names = columns.names};
    Names fields;
    std::int64_t rows = 0;
    for (; (limit == 0 || rows < limit) && records.next(fields); ++rows) {
      line_ = records.line();
      if (fields.size() != columns.header.size()) {
        throw UsageError(here() + "expected " + std::to_string(columns.header.size()) +
                         " fields, as many as the header has, found " + std::to_string(fields.size()));
      }
      for (std::size_t i = 0; i < columns.inputs.size(); ++i) {
        numbers.inputs.push_back(number_in(fields[columns.inputs[i]], columns.names[i]));
      }
      numbers.targets.push_back(target_in(fields[columns.target]));
    }
    if (rows == 0) throw UsageError(file_ + ": has a header and no line of data");
    rows_to_use(limit, rows, limit_key, file_);
    return numbers;
  }

 private:
  std::string here() const { return file_ + ":" + std::to_string(line_) + ": "; }

  std::string column(const std::string& name) const { return here() + "column '" + name + "': "; }

  double number_in(const std::string& field, const std::string& name) const {
    std::string_view text = trimmed(field);
    if (text.empty()) {
      throw UsageError(column(name) + "expected a number, found nothing. Fill it in, remove the line, or name the column in " +
                       "data.leave_out");
    }
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    // What float32 can't hold is no number for a model.
    if (whole && std::isfinite(static_cast<float>(value))) return value;
    throw UsageError(column(name) + "expected a " + (whole ? "finite " : "") + "number, found '" + field + "'");
  }

  double target_in(const std::string& field) const {
    if (config_.predict == DataConfig::Predict::kNumber) return number_in(field, config_.target);
    const std::string_view text = trimmed(field);
    if (!config_.class_names.empty()) {
      const auto found = std::ranges::find(config_.class_names, text);
      if (found != config_.class_names.end()) return static_cast<double>(found - config_.class_names.begin());
      throw UsageError(column(config_.target) + "expected one of data.class_names, " + list_of(config_.class_names) +
                       ", found '" + field + "'");
    }
    std::int64_t label = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
    if (error == std::errc() && end == text.data() + text.size() && label >= 0 && label < config_.classes) {
      return static_cast<double>(label);
    }
    throw UsageError(column(config_.target) + "expected a class from 0 to " + std::to_string(config_.classes - 1) +
                     ", as data.classes says, found '" + field + "'. For names of classes set data.class_names; for numbers " +
                     "set data.predict to \"number\"");
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
    const double mean = one_value ? value(rows.front()) : sum / count;  // a rounded sum is no multiple of the value
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

Sources read_csv(const TrainConfig& config) {
  const DataConfig& data = config.data;
  const Numbers train =
      CsvReader(data, path_of_table(data, data.train_table)).read({}, data.train_samples, "data.train_samples");
  const Numbers test =
      CsvReader(data, path_of_table(data, data.test_table)).read(train.names, data.test_samples, "data.test_samples");
  std::vector<Scale> scales;
  if (data.standardize) {
    scales = scales_of(train, split_samples(config, static_cast<std::int64_t>(train.targets.size())).train);
  }
  return {.train = table_source(table_of(train, scales, data.predict)),
          .test = table_source(table_of(test, scales, data.predict))};
}

}  // namespace ddprun::trainer
