// Limits on the size and the depth of a JSON text, checked before the text is parsed. The code is pure: no I/O, no clock.
//
// The problem. A parsed JSON value needs up to thirty times the memory of its text. Functions of nlohmann/json that copy or
// print a value recurse once per level, so deep nesting overflows the stack. A hostile file could use both to end the process.
//
// The idea. A scan of the text, with constant memory per level, checks the limits first. The text is parsed only if it is
// within them.
//
// Alternative tried. A filter callback for nlohmann's own parser is too slow. After each object, it visits all members of the
// enclosing object, so a file of N entries costs N * N steps.
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

// Throws UsageError for the first exceeded limit: "is nested deeper than 4 levels". Ignores syntax errors, since the parser
// reports them.
void require_json_within(std::string_view text, const JsonLimits& limits);

// Checks the limits, and then parses the text. Throws UsageError for an exceeded limit or for invalid JSON.
nlohmann::json parse_json_within(const std::string& text, const JsonLimits& limits);

}  // namespace ddprun
