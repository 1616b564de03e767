// The records of a CSV file (RFC 4180): fields between commas, those in quotes with anything in them, "" for a quote. Lines may
// end as on Windows, a byte order mark is skipped, and so are empty lines. csv_file.cpp calls it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

class CsvRecords {
 public:
  static constexpr std::size_t kMostFieldBytes = std::size_t{1} << 20;

  // `name` is for errors. Both outlive it.
  CsvRecords(std::string_view text, const std::string& name);

  // Takes the next record into `fields`; false: there is none. Throws UsageError for quotes that are not closed or not followed
  // by a comma, and for a field of more than kMostFieldBytes.
  bool next(std::vector<std::string>& fields);
  // In which line the last record began, counted from 1.
  std::int64_t line() const { return line_; }

 private:
  std::string quoted_field();
  void require_field_of(std::size_t bytes) const;
  bool at_line_end() const { return text_.empty() || text_.front() == '\n' || text_.starts_with("\r\n"); }

  std::string_view text_;  // what is left
  const std::string& name_;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
};

}  // namespace ddprun::trainer
