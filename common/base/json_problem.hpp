// Explains in plain words what is wrong with a JSON text, since nlohmann's own messages begin with names of the library. Used
// for files that may be damaged.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ddprun {

inline std::string json_problem(const nlohmann::json::exception& error, const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return "it is empty";
  if (const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&error)) {
    if (parse->byte > text.size()) return "it ends too early, after " + std::to_string(text.size()) + " bytes";
    return "it is wrong at byte " + std::to_string(parse->byte) + " of " + std::to_string(text.size());
  }
  if (dynamic_cast<const nlohmann::json::type_error*>(&error) != nullptr)
    return "a value in it is of another type than expected";
  const std::string what = error.what();
  const auto end = what.find("] ");  // the end of "[json.exception.out_of_range.403] "
  return end == std::string::npos ? what : what.substr(end + 2);
}

}  // namespace ddprun
