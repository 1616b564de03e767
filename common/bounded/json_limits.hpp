// Limits that a JSON text must meet before it is parsed into memory. A parsed value takes up to thirty times the bytes of its
// text, and functions of nlohmann/json that copy or print it recurse once per level. So the text is scanned first, in constant
// memory per level. A filter for nlohmann's own parser is no alternative: after each object it visits all members of the
// enclosing object, so a file of N entries costs N * N. Pure.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddprun {

struct JsonLimits {
  std::size_t depth = 64;          // open objects and arrays
  std::size_t values = 1 << 24;    // total of strings, numbers, objects, arrays, ...
  std::size_t keys = 1 << 24;      // of one object
  std::size_t elements = 1 << 24;  // of one array
  bool unique_keys = false;        // an object with the same key twice is refused
  const char* entries = "keys";    // the name of the keys in the message
};

// Throws UsageError for the first exceeded limit: "is nested deeper than 4 levels". Ignores syntax errors, which the parser
// reports.
void require_json_within(std::string_view text, const JsonLimits& limits);

// Both in one call. Throws UsageError: a limit, or "is not valid JSON (it is wrong at byte 7 of 20)".
nlohmann::json parse_json_within(const std::string& text, const JsonLimits& limits);

}  // namespace ddprun
