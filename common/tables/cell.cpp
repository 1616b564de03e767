#include "common/tables/cell.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "common/base/numbers.hpp"
#include "common/base/printable.hpp"

namespace ddprun {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equals_in_any_case(std::string_view text, std::string_view in_lower_case) {
  return std::ranges::equal(text, in_lower_case, {}, lower);
}

std::optional<double> plain_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto number = leading_decimal(text);
  if (!number || number->length != text.size() || !std::isfinite(static_cast<float>(number->value))) return std::nullopt;
  return number->value;
}

// Removes the separators of a number with groups of three digits, such as "-12,345.6". Returns nullopt if the separators are
// at other positions.
std::optional<std::string> without_separators(std::string_view text, char separator, char point) {
  const std::size_t first = text.find_first_of("+-") == 0 ? 1 : 0;
  const std::size_t end = std::min(text.find(point), text.size());
  std::string digits(text.substr(0, first));
  std::size_t in_group = 0;
  bool grouped = false;
  for (std::size_t i = first; i < end; ++i) {
    if (text[i] == separator) {
      if (in_group == 0 || in_group > 3 || (grouped && in_group != 3)) return std::nullopt;
      grouped = true;
      in_group = 0;
    } else if (is_digit(text[i])) {
      digits += text[i];
      ++in_group;
    } else {
      return std::nullopt;
    }
  }
  // A text such as "0,125" is more likely a number with a decimal comma than a number with a separator.
  if (!grouped || in_group != 3 || digits[first] == '0') return std::nullopt;
  if (end < text.size()) digits += "." + std::string(text.substr(end + 1));
  return digits;
}

// Removes an unsigned integer of `fewest` to `most` digits from the start of the text, and returns it.
std::optional<int> take_integer(std::string_view& text, std::size_t fewest, std::size_t most) {
  std::size_t digits = 0;
  int value = 0;
  while (digits < most && digits < text.size() && is_digit(text[digits])) value = value * 10 + (text[digits++] - '0');
  if (digits < fewest) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

int days_in_month(int year, int month) {
  constexpr std::array<int, 12> kDays{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month == 2 && leap ? 29 : kDays[static_cast<std::size_t>(month - 1)];
}

// Parses "HH:MM" with optional seconds, an optional fraction of the seconds, and an optional time zone. Returns the time as a
// fraction of a day.
std::optional<double> time_of_day(std::string_view text) {
  constexpr double kSecondsPerDay = 86400;
  const auto hour = take_integer(text, 1, 2);
  if (!hour || *hour > 23 || !take(text, ':')) return std::nullopt;
  const auto minute = take_integer(text, 2, 2);
  if (!minute || *minute > 59) return std::nullopt;
  double seconds = *hour * 3600.0 + *minute * 60.0;
  if (take(text, ':')) {
    const auto number = leading_decimal(text.substr(0, text.find_first_not_of("0123456789.")));
    if (!number || !(number->value < 61)) return std::nullopt;
    seconds += number->value;
    text.remove_prefix(number->length);
  }
  if (take(text, 'Z') || text.empty()) return text.empty() ? std::optional(seconds / kSecondsPerDay) : std::nullopt;
  const bool east = text.front() == '+';
  if (!east && text.front() != '-') return std::nullopt;
  text.remove_prefix(1);
  const auto zone_hour = take_integer(text, 2, 2);
  (void)take(text, ':');
  const auto zone_minute = text.empty() ? std::optional(0) : take_integer(text, 2, 2);
  if (!zone_hour || !zone_minute || !text.empty()) return std::nullopt;
  const double offset = *zone_hour * 3600.0 + *zone_minute * 60.0;
  return (seconds - (east ? offset : -offset)) / kSecondsPerDay;
}

// Returns true for a date that is not in ISO 8601, such as "3/4/2024", "03.04.24" or "31-12-2024".
bool is_other_date(std::string_view text) {
  if (!take_integer(text, 1, 2) || text.empty()) return false;
  const char separator = text.front();
  if (separator != '/' && separator != '.' && separator != '-') return false;
  text.remove_prefix(1);
  if (!take_integer(text, 1, 2) || !take(text, separator)) return false;
  const std::size_t before = text.size();
  const bool year = take_integer(text, 2, 4).has_value();
  return year && (before - text.size()) % 2 == 0 && (text.empty() || text.front() == ' ');
}

}  // namespace

bool is_utf8_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = bytes_of_first_character(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string_view trimmed_cell(std::string_view cell) {
  const std::size_t first = cell.find_first_not_of(" \t");
  return first == std::string_view::npos ? "" : cell.substr(first, cell.find_last_not_of(" \t") - first + 1);
}

bool is_missing(std::string_view cell, const std::vector<std::string>& also) {
  constexpr std::array<std::string_view, 6> kNames{"na", "n/a", "nan", "null", "<na>", "#n/a"};
  if (cell.empty() || cell == "?") return true;
  if (std::ranges::any_of(kNames, [cell](std::string_view name) { return equals_in_any_case(cell, name); })) return true;
  return std::ranges::find(also, cell) != also.end();
}

std::optional<double> number_in(std::string_view cell) {
  if (const auto number = plain_number(cell)) return number;
  if (cell.find(',') == std::string_view::npos) return std::nullopt;
  const auto digits = without_separators(cell, ',', '.');
  return digits ? plain_number(*digits) : std::nullopt;
}

std::optional<bool> truth_in(std::string_view cell) {
  if (equals_in_any_case(cell, "true") || equals_in_any_case(cell, "yes")) return true;
  if (equals_in_any_case(cell, "false") || equals_in_any_case(cell, "no")) return false;
  return std::nullopt;
}

// https://howardhinnant.github.io/date_algorithms.html: a year starts in March, so that the leap day is its last day.
std::int64_t days_from_civil(std::int64_t year, int month, int day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

std::optional<double> date_in(std::string_view cell) {
  const auto year = take_integer(cell, 4, 4);
  if (!year || *year < 1 || cell.empty()) return std::nullopt;
  const char separator = cell.front();
  if (separator != '-' && separator != '/') return std::nullopt;
  cell.remove_prefix(1);
  const auto month = take_integer(cell, 1, 2);
  if (!month || *month < 1 || *month > 12 || !take(cell, separator)) return std::nullopt;
  const auto day = take_integer(cell, 1, 2);
  if (!day || *day < 1 || *day > days_in_month(*year, *month)) return std::nullopt;
  const auto days = static_cast<double>(days_from_civil(*year, *month, *day));
  if (cell.empty()) return days;
  if (!take(cell, 'T') && !take(cell, ' ')) return std::nullopt;
  const auto time = time_of_day(cell);
  return time ? std::optional(days + *time) : std::nullopt;
}

const char* refused_form(std::string_view cell) {
  if (is_other_date(cell)) return "is a date whose order of day and month is unknown";
  if (number_in(cell)) return nullptr;
  if (const std::size_t comma = cell.rfind(','); comma != std::string_view::npos) {
    const std::string whole(cell.substr(0, comma));
    const std::string_view part = cell.substr(comma + 1);
    const bool digits = !part.empty() && std::ranges::all_of(part, is_digit);
    if (digits && (plain_number(whole) || without_separators(whole, '.', ','))) return "has a decimal comma";
  }
  std::string_view number = cell;
  for (const std::string_view unit : {"$", "\xe2\x82\xac", "\xc2\xa3", "%"}) {
    if (number.starts_with(unit)) number = trimmed_cell(number.substr(unit.size()));
    if (number.ends_with(unit)) number = trimmed_cell(number.substr(0, number.size() - unit.size()));
  }
  return number.size() < cell.size() && number_in(number) ? "has a unit" : nullptr;
}

}  // namespace ddprun
