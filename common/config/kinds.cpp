// Checks the values for each kind of key, and describes the valid values to users.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/overloaded.hpp"
#include "common/config/keys.hpp"
#include "common/config/parameter_groups.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

std::string number_text(double value) {
  return Json(value == static_cast<double>(static_cast<std::int64_t>(value)) ? Json(static_cast<std::int64_t>(value))
                                                                             : Json(value))
      .dump();
}

std::string range_text(const NumberKind& kind) {
  std::string out;
  if (std::isfinite(kind.min)) out += (kind.above_min ? " above " : " from ") + number_text(kind.min);
  if (std::isfinite(kind.max)) out += (kind.below_max ? " to below " : " to ") + number_text(kind.max);
  return out;
}

bool is_integer_in(const Json& value, std::int64_t min, std::int64_t max) {
  if (value.is_number_unsigned())
    return std::in_range<std::int64_t>(value.get<std::uint64_t>()) && value.get<std::int64_t>() >= min &&
           value.get<std::int64_t>() <= max;
  if (value.is_number_integer()) return value.get<std::int64_t>() >= min && value.get<std::int64_t>() <= max;
  if (!value.is_number_float()) return false;
  // JSON Schema accepts 1e3 as an integer, so it is accepted here too.
  const double number = value.get<double>();
  if (!(number >= static_cast<double>(min) && number <= static_cast<double>(max))) return false;
  return std::abs(number) >= 0x1p63 || static_cast<double>(static_cast<std::int64_t>(number)) == number;
}

bool is_name(const std::string& text) {
  const auto is_alnum = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && text.size() <= 100 && is_alnum(text[0]) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_alnum(c) || c == '.' || c == '-'; });
}

}  // namespace

bool is_text(const Json& value) {
  return value.is_string() && !value.get_ref<const std::string&>().empty() &&
         value.get_ref<const std::string&>().find('\0') == std::string::npos;
}

std::string expectation(const Kind& kind) {
  return std::visit(
      Overloaded{
          [](const BoolKind&) -> std::string { return "true or false"; },
          [](const IntegerKind& k) {
            return "an integer from " + std::to_string(k.min) + " to " + std::to_string(k.max) +
                   (k.nullable ? ", or null" : "");
          },
          [](const NumberKind& k) { return "a number" + range_text(k) + (k.nullable ? ", or null" : ""); },
          [](const TextKind& k) -> std::string {
            if (k.name_only) return "a name of letters, digits, '.', '_' and '-', starting with a letter, digit or '_'";
            return k.may_be_empty ? "a string" : "a string that is not empty";
          },
          [](const NameKind& k) {
            std::string out;
            for (std::size_t i = 0; i < k.names.size(); ++i) {
              if (i > 0) out += i + 1 == k.names.size() ? " or " : ", ";
              out += '"' + std::string(k.names[i]) + '"';
            }
            return out;
          },
          [](const IntegerListKind& k) {
            return "an array of 1 to " + std::to_string(kMaxList) + " integers, each from " + std::to_string(k.min) + " to " +
                   std::to_string(k.max);
          },
          [](const NumberPairKind& k) {
            return "an array of two numbers, each" + range_text({.min = k.min, .max = k.max, .below_max = true});
          },
          [](const TextListKind&) -> std::string { return "an array of up to " + std::to_string(kMaxList) + " strings"; },
          [](const ParameterGroupsKind&) -> std::string {
            return "an array of up to " + std::to_string(kMaxList) +
                   R"( objects such as {"parameters": "*.bias", "lr_scale": 1, "weight_decay": 0})";
          }},
      kind);
}

bool accepts(const Kind& kind, const Json& value) {
  return std::visit(
      Overloaded{[&](const BoolKind&) { return value.is_boolean(); },
                 [&](const IntegerKind& k) { return value.is_null() ? k.nullable : is_integer_in(value, k.min, k.max); },
                 [&](const NumberKind& k) {
                   if (value.is_null()) return k.nullable;
                   if (!value.is_number()) return false;
                   const double number = value.get<double>();
                   return std::isfinite(number) && (k.above_min ? number > k.min : number >= k.min) &&
                          (k.below_max ? number < k.max : number <= k.max);
                 },
                 [&](const TextKind& k) {
                   if (!value.is_string()) return false;
                   const std::string& text = value.get_ref<const std::string&>();
                   if (k.name_only) return is_name(text);
                   return (k.may_be_empty || !text.empty()) && text.find('\0') == std::string::npos;
                 },
                 [&](const NameKind& k) {
                   return value.is_string() &&
                          std::find(k.names.begin(), k.names.end(), value.get_ref<const std::string&>()) != k.names.end();
                 },
                 [&](const IntegerListKind& k) {
                   return value.is_array() && !value.empty() && std::cmp_less_equal(value.size(), kMaxList) &&
                          std::all_of(value.begin(), value.end(),
                                      [&](const Json& v) { return is_integer_in(v, k.min, k.max); });
                 },
                 [&](const NumberPairKind& k) {
                   return value.is_array() && value.size() == 2 && std::all_of(value.begin(), value.end(), [&](const Json& v) {
                            return v.is_number() && v.get<double>() >= k.min && v.get<double>() < k.max;
                          });
                 },
                 [&](const TextListKind& k) {
                   return value.is_array() && std::cmp_less_equal(value.size(), kMaxList) &&
                          std::all_of(value.begin(), value.end(),
                                      [&](const Json& v) { return is_text(v) || (k.allows_empty && v == ""); });
                 },
                 [&](const ParameterGroupsKind&) {
                   return value.is_array() && std::cmp_less_equal(value.size(), kMaxList) && !problem_in_groups(value);
                 }},
      kind);
}

}  // namespace ddprun
