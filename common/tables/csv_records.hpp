// Parses the records of a CSV file (RFC 4180). Fields are separated by commas. A quoted field may contain commas, line ends,
// and quotes that are written as "". Also accepts Windows line ends, a byte order mark and empty lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

class CsvRecords {
 public:
  static constexpr std::size_t kMaxFieldBytes = std::size_t{1} << 20;

  // `name` is the file's name in error messages. Both arguments must outlive the object.
  CsvRecords(std::string_view text, const std::string& name);

  // Reads the next record into `fields`. Returns false at the end of the text. Throws UsageError in three cases: a quote is not
  // closed, a closing quote is not followed by a comma or a line end, or a field has more than kMaxFieldBytes.
  bool next(std::vector<std::string>& fields);
  // Returns the number of the line in which the last record starts, counted from 1.
  std::int64_t line() const { return line_; }
  // Returns the text after the last record that next() has returned.
  std::string_view rest() const { return text_; }

 private:
  std::string quoted_field();
  void require_field_of(std::size_t bytes) const;
  bool at_line_end() const { return text_.empty() || text_.front() == '\n' || text_.starts_with("\r\n"); }

  std::string_view text_;  // the part of the text that is not parsed yet
  const std::string& name_;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
};

}  // namespace ddprun
