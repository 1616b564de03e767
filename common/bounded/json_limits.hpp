// Limits on the size and the depth of a JSON text, checked before the text is parsed. The code is pure: no I/O, no clock.
//
// The problem. A parsed JSON value needs up to thirty times the memory of its text. Functions of nlohmann/json that copy or
// print a value recurse once per level, so deep nesting overflows the stack. So a hostile file could exhaust the memory or the
// stack of the process.
//
// The idea. A scan of the text, with constant memory per level, checks the limits first. The text is parsed only if it is
// within the limits.
//
// Alternative tried. A filter callback for the parser of nlohmann/json is too slow. After each object, the parser visits all
// members of the enclosing object, so a file of N entries takes N * N steps.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ddprun {

struct JsonLimits {
  std::size_t depth = 64;          // maximum number of levels of nested objects and arrays
  std::size_t values = 1 << 24;    // maximum number of values of all types
  std::size_t keys = 1 << 24;      // maximum number of keys in one object
  std::size_t elements = 1 << 24;  // maximum number of elements in one array
  bool unique_keys = false;        // true: a duplicate key in an object is an error
  const char* entries = "keys";    // the noun for keys in messages
};

// Throws UsageError for the first limit that the text exceeds, with a message such as "is nested deeper than 4 levels". Ignores
// syntax errors, because the parser reports them.
void require_json_within(std::string_view text, const JsonLimits& limits);

// Checks the limits, and then parses the text. Throws UsageError if a limit is exceeded or the JSON is invalid.
nlohmann::json parse_json_within(const std::string& text, const JsonLimits& limits);

}  // namespace ddprun
