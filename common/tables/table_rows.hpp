// Reads the rows of a table in a CSV file that a run uses: the rows with a target that belong to the training set or to the
// test set. If there is no separate test file, some rows of the training file are the test set. The seed and the number of a
// row alone decide whether the row is a test row. So rows that are appended later do not move earlier rows to the other set.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/config/train_config.hpp"
#include "common/tables/csv_records.hpp"

namespace ddprun {

// Returns true if the row with this number, counted from 0, belongs to the test set. About `fraction` of all rows are test
// rows.
bool is_test_row(std::uint64_t seed, std::int64_t row, double fraction);

enum class TablePart { kTrain, kTest };

// Throws UsageError with the file's name if the content is not CSV: a Parquet file, a compressed file, an Excel file or
// UTF-16. The message contains a command that converts the file.
void require_csv(std::string_view text, const std::string& file);

class TableRows {
 public:
  // Limits on the size of a table. The limit for a cell is in csv_records.hpp.
  static constexpr std::size_t kMaxColumns = std::size_t{1} << 20;
  static constexpr std::int64_t kMaxRows = std::int64_t{1} << 32;

  // Reads the header. `text` is the content of `file`, which is data.train_table or data.test_table. All arguments must outlive
  // the object. Throws UsageError if the header is missing or has no column data.target, or if two columns have the same name.
  TableRows(std::string_view text, const std::string& file, const TrainConfig& config, TablePart part);

  const std::vector<std::string>& header() const { return header_; }
  // Returns the position of a column in each row; -1 if the table has no such column.
  std::int64_t place_of(const std::string& name) const;
  std::size_t target_place() const { return target_; }

  // Moves to the next row of the training set or test set. Skips rows without a target, and rows with fewer or more cells than
  // the header. Returns false after the last row, or after data.train_samples or data.test_samples rows. Throws the errors of
  // CsvRecords, and UsageError above kMaxRows.
  bool next();
  // Returns the cells of the current row, in the order of the header.
  const std::vector<std::string>& cells() const { return cells_; }
  const std::string& target() const { return cells_[target_]; }
  std::int64_t line() const { return records_.line(); }
  std::int64_t used() const { return used_; }  // number of rows that next() has returned

  std::int64_t without_target() const { return without_target_; }
  // Returns the number of rows that have fewer or more cells than the header.
  std::int64_t misshapen() const { return misshapen_; }
  // Returns a message about the first row that has fewer or more cells than the header; empty if there is none.
  const std::string& first_misshapen() const { return first_misshapen_; }

 private:
  bool belongs_to_part(std::int64_t row) const;

  const std::string& file_;
  const TrainConfig& config_;
  TablePart part_;
  CsvRecords records_;
  std::vector<std::string> header_;
  std::unordered_map<std::string, std::size_t> places_;
  std::size_t target_ = 0;
  std::vector<std::string> cells_;
  std::int64_t row_ = -1;  // number of the current row in the file
  std::int64_t used_ = 0;
  std::int64_t without_target_ = 0;
  std::int64_t misshapen_ = 0;
  std::string first_misshapen_;
};

}  // namespace ddprun
