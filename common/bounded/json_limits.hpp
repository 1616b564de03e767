// Limits that a JSON text must keep before it is parsed into memory. A parsed value takes up to thirty times the bytes of its
// text, and functions of nlohmann/json that copy or print it recurse once per level. So the text is scanned first, in constant
// memory per level. A filter passed to nlohmann's own parser is no alternative: after each object it visits all members of the
// object around it, so that a file of N entries costs N * N. Pure.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddprun {

struct JsonLimits {
  std::size_t depth = 64;          // open objects and arrays
  std::size_t values = 1 << 24;    // strings, numbers, objects, arrays, ... in all
  std::size_t keys = 1 << 24;      // of one object
  std::size_t elements = 1 << 24;  // of one array
  bool unique_keys = false;        // an object with the same key twice is refused
  const char* entries = "keys";    // what the keys are, for the message
};

// Throws UsageError for the first limit that does not hold: "is nested deeper than 4 levels". Says nothing about a text that is
// not JSON: the parser explains that.
void require_json_within(std::string_view text, const JsonLimits& limits);

// Both in one call. Throws UsageError: a limit, or "is not valid JSON (it is wrong at byte 7 of 20)".
nlohmann::json parse_json_within(const std::string& text, const JsonLimits& limits);

}  // namespace ddprun
