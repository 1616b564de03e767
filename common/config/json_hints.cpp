// Implementation of json_hints.hpp.
#include "common/config/json_hints.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

namespace ddprun {

std::string_view wide_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return "UTF-16";
  if (text.size() < 2 || (text[0] != '\0') == (text[1] != '\0')) return "";
  return text.size() >= 4 && (text[2] == '\0') && (text[3] == '\0') ? "UTF-32" : "UTF-16";
}

std::string number_hint(std::string_view word) {
  const std::string_view sign = word.starts_with("-") ? "-" : "", digits = word.substr(sign.size());
  const auto value_of = [](std::string_view text, int base) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
  };
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    const auto value = base == 0 ? std::nullopt : value_of(digits.substr(2), base);
    if (value) return ": JSON has decimal numbers only; write " + std::string(sign) + std::to_string(*value);
  }
  std::string plain;
  std::copy_if(digits.begin(), digits.end(), std::back_inserter(plain), [](char c) { return c != '_'; });
  const bool grouped = plain.size() < digits.size();
  const std::size_t zeros = std::min(plain.find_first_not_of('0'), plain.size());
  plain.erase(0, zeros > 0 && (zeros == plain.size() || plain[zeros] < '0' || plain[zeros] > '9') ? zeros - 1 : zeros);
  plain.insert(0, sign);
  if (!nlohmann::json::accept(plain)) return ": strings need double quotes";
  return (grouped ? ": JSON has no '_' in numbers; write " : ": JSON numbers have no leading zeros; write ") + plain;
}

std::string literal_hint(std::string_view word) {
  if (word == "True" || word == "TRUE") return ": write true";
  if (word == "False" || word == "FALSE") return ": write false";
  if (word == "None" || word == "NULL" || word == "Null") return ": write null";
  if (word[0] == '.' || word[0] == '+') return ": numbers begin with a digit or '-'";
  if (word == "NaN" || word == "Infinity" || word == "inf" || word == "nan") return ", which JSON doesn't have";
  return ": strings need double quotes";
}

}  // namespace ddprun
