#include "common/tables/csv_records.hpp"

#include <algorithm>

#include "common/base/error.hpp"
#include "common/bounded/short_quote.hpp"

namespace ddprun {

CsvRecords::CsvRecords(std::string_view text, const std::string& name) : text_(text), name_(name) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
}

bool CsvRecords::next(std::vector<std::string>& fields) {
  fields.clear();
  while (!text_.empty() && at_line_end()) {
    text_.remove_prefix(text_.find('\n') + 1);
    ++next_line_;
  }
  if (text_.empty()) return false;
  line_ = next_line_;
  while (true) {
    if (text_.starts_with('"')) {
      fields.push_back(quoted_field());
    } else {
      // the end of a field is searched only in this prefix
      const std::string_view first = text_.substr(0, kMaxFieldBytes + 1);
      std::string_view field = first.substr(0, first.find_first_of(",\n"));
      require_field_of(field.size());
      text_.remove_prefix(field.size());
      if (field.ends_with('\r')) field.remove_suffix(1);
      fields.emplace_back(field);
    }
    if (text_.starts_with('\r')) text_.remove_prefix(1);
    if (text_.empty()) return true;
    const bool more = text_.front() == ',';
    text_.remove_prefix(1);
    if (!more) {
      ++next_line_;
      return true;
    }
  }
}

void CsvRecords::require_field_of(std::size_t bytes) const {
  if (bytes <= kMaxFieldBytes) return;
  throw UsageError(name_ + ":" + std::to_string(line_) + ": a field has more than " + std::to_string(kMaxFieldBytes) +
                   " bytes; expected fields separated by commas and newlines");
}

std::string CsvRecords::quoted_field() {
  std::string field;
  text_.remove_prefix(1);
  while (true) {
    const std::size_t quote = text_.find('"');
    if (quote == std::string_view::npos) {
      throw UsageError(name_ + ":" + std::to_string(line_) + ": a quote is opened in this line and never closed");
    }
    const std::string_view part = text_.substr(0, quote);
    next_line_ += std::ranges::count(part, '\n');
    require_field_of(field.size() + part.size());
    field += part;
    text_.remove_prefix(quote + 1);
    if (!text_.starts_with('"')) break;
    field += '"';
    text_.remove_prefix(1);
  }
  if (text_.starts_with(',') || at_line_end()) return field;
  throw UsageError(name_ + ":" + std::to_string(line_) + ": expected a comma or the end of the line after \"" +
                   short_quote(field) + "\", found '" + short_quote(text_.substr(0, 1)) + "'");
}

}  // namespace ddprun
