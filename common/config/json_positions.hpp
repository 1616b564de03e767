// Reads JSON with // and /* */ comments, and records the place of each key and value in the text. nlohmann/json gives positions
// only for syntax errors, but config errors need them for everything. parse_config.cpp calls it. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Offsets in bytes from the start of the text.
struct JsonPlace {
  std::size_t key = 0;    // the opening quote of the key; without a key, the place of the value
  std::size_t value = 0;  // the value's first character
};

struct JsonProblem {
  std::size_t offset = 0;
  std::string message;
  std::optional<std::size_t> earlier{};  // for a duplicate key: the place of the first one

  // The text after the message. It counts lines in the text, so call it only for problems that are shown.
  std::string hint(std::string_view text) const;
};

struct PositionedJson {
  nlohmann::json root;
  std::map<std::string, JsonPlace> places;  // by JSON pointer; "" is the root
  std::vector<JsonProblem> problems;        // a syntax error (then root is incomplete), or duplicate keys
  bool complete = false;                    // true if the syntax is correct
};

PositionedJson parse_with_positions(std::string_view text);

// The token at that offset as written: a string with its quotes, a number, a word, or one character.
std::string_view token_at(std::string_view text, std::size_t offset);

// "7:3": line and column, both counted from 1; columns count characters (UTF-8), not bytes.
std::string line_and_column(std::string_view text, std::size_t offset);

// The JSON pointer with one more token: "/a" + "b/c" -> "/a/b~1c".
std::string pointer_to(const std::string& parent, std::string_view key);

}  // namespace ddprun
