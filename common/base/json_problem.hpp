// Describes an error of nlohmann/json for users. The messages of the library itself contain its internal names. The code that
// reads possibly damaged files calls this function.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddprun {

inline std::string json_problem(const nlohmann::json::exception& error, std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return "it is empty";
  if (const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&error)) {
    if (parse->byte > text.size()) return "it ends too early, after " + std::to_string(text.size()) + " bytes";
    return "it has a syntax error at byte " + std::to_string(parse->byte) + " of " + std::to_string(text.size());
  }
  if (dynamic_cast<const nlohmann::json::type_error*>(&error) != nullptr) return "a value in it has an unexpected type";
  constexpr int kNumberOverflow = 406;  // the library's text for this error contains the whole number
  if (error.id == kNumberOverflow) return "a number in it is too large: expected at most about 1.8e308";
  const std::string what = error.what();
  const auto end = what.find("] ");  // the end of "[json.exception.out_of_range.403] "
  return end == std::string::npos ? what : what.substr(end + 2);
}

}  // namespace ddprun
