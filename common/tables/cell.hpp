// The meaning of one cell of a table: a missing value, a number, a truth value, a date, or text. column_scan.cpp counts the
// meanings of all cells of a column, from which the kind of the column is chosen. trainer/tables/encode_row.cpp uses the
// meanings to encode a row. All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Returns the cell without the spaces and tabs at both ends.
std::string_view trimmed_cell(std::string_view cell);

// Returns true if the text is valid UTF-8.
bool is_utf8_text(std::string_view text);

// Returns true for an empty cell, "?", and "NA", "N/A", "NaN", "null", "<NA>" and "#N/A" in upper or lower case. Also returns
// true for the texts in `also` (data.missing_values), which must match exactly. Expects a trimmed cell.
bool is_missing(std::string_view cell, const std::vector<std::string>& also);

// Returns the number in the cell if it is finite in float32. Commas may separate groups of three digits before the decimal
// point: "1,234.5". A plus sign is accepted. Returns nullopt for any other text. Expects a trimmed cell.
std::optional<double> number_in(std::string_view cell);

// Returns true for "true" and "yes", and false for "false" and "no", in upper or lower case. Returns nullopt for any other
// text.
std::optional<bool> truth_in(std::string_view cell);

// Returns the days since 1970-01-01 for a date in ISO 8601, such as "2024-02-29" or "2024/02/29". A time may follow, as in
// "2024-02-29T13:45", "2024-02-29 13:45:10.5Z" and "...+01:00". The time is added as a fraction of a day, and the offset of
// the time zone is subtracted. Returns nullopt for any other text, for a day that does not exist, and for years outside 1 to
// 9999. Expects a trimmed cell.
std::optional<double> date_in(std::string_view cell);

// Returns the number of days from 1970-01-01 to the given day of the Gregorian calendar. `month` is 1 to 12. `day` may be
// larger than the number of days in the month.
std::int64_t days_from_civil(std::int64_t year, int month, int day);

// Returns the reason why a cell that looks like a number or a date is not accepted: "has a decimal comma", "has a unit", "is a
// date whose order of day and month is unknown". Returns nullptr for any other text. Expects a trimmed cell.
const char* refused_form(std::string_view cell);

}  // namespace ddprun
