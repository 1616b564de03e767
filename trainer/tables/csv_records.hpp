// Parses the records of a CSV file (RFC 4180): fields are separated by commas. Quoted fields may contain anything, with "" for
// a quote. Accepts Windows line ends, and skips a byte order mark and empty lines. Called by csv_file.cpp. Pure.
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

  // `name` is for error messages. Both arguments must outlive the object.
  CsvRecords(std::string_view text, const std::string& name);

  // Reads the next record into `fields`; false at the end. Throws UsageError for an unclosed quote, for a closing quote without
  // a comma behind it, and for a field of more than kMostFieldBytes.
  bool next(std::vector<std::string>& fields);
  // Line in which the last record began, counted from 1.
  std::int64_t line() const { return line_; }

 private:
  std::string quoted_field();
  void require_field_of(std::size_t bytes) const;
  bool at_line_end() const { return text_.empty() || text_.front() == '\n' || text_.starts_with("\r\n"); }

  std::string_view text_;  // the unread rest
  const std::string& name_;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
};

}  // namespace ddprun::trainer
