// The meaning of one cell of a table: a missing value, a number, a truth value, a date, or text. column_scan.cpp counts these
// meanings to choose the kind of a column, and trainer/tables/encode_row.cpp uses them to encode a row. All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// The cell without spaces and tabs at both ends.
std::string_view trimmed_cell(std::string_view cell);

// True if the text is valid UTF-8.
bool is_utf8_text(std::string_view text);

// True for an empty cell, "?", and "NA", "N/A", "NaN", "null", "<NA>" and "#N/A" in upper or lower case. Also true for the
// texts in `also` (data.missing_values), which must match exactly. Expects a trimmed cell.
bool is_missing(std::string_view cell, const std::vector<std::string>& also);

// The number in the cell, if the cell is a number that is finite in float32. Commas may separate groups of three digits before
// the point: "1,234.5". Accepts a plus sign. nullopt for any other text. Expects a trimmed cell.
std::optional<double> number_in(std::string_view cell);

// true for "true" and "yes", false for "false" and "no", in upper or lower case; nullopt for any other text.
std::optional<bool> truth_in(std::string_view cell);

// Returns the days since 1970-01-01 for a date in ISO 8601: "2024-02-29" or "2024/02/29". A time may follow:
// "2024-02-29T13:45", "2024-02-29 13:45:10.5Z", "...+01:00". It adds a fraction of a day; the time zone is subtracted. nullopt
// for any other text, and for a day that does not exist. Years are 1 to 9999. Expects a trimmed cell.
std::optional<double> date_in(std::string_view cell);

// The number of days from 1970-01-01 to that day of the Gregorian calendar. `month` is 1 to 12; `day` may exceed the month.
std::int64_t days_from_civil(std::int64_t year, int month, int day);

// Why a cell that looks like a number or a date is not accepted as one: "has a decimal comma", "has a unit", "is a date whose
// order of day and month is unknown". nullptr for any other text. Expects a trimmed cell.
const char* refused_form(std::string_view cell);

}  // namespace ddprun
