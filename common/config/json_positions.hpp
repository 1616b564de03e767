// Parses JSON with // and /* */ comments, and records the position of each key and value in the text. nlohmann/json reports
// positions only for syntax errors, but messages about a config need the position of any key or value. parse_config.cpp calls
// it. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// The position of a value, in bytes from the start of the text.
struct JsonPlace {
  std::size_t key = 0;    // position of the opening quote of the value's key; equals `value` if there is no key
  std::size_t value = 0;  // position of the first character of the value
};

struct JsonProblem {
  std::size_t offset = 0;
  std::string message;
  std::optional<std::size_t> earlier{};  // for a duplicate key: position of the first key with that name

  // Returns a text to append to the message. The function counts the lines of `text`, which takes time. So call it only for
  // problems that the user sees.
  std::string hint(std::string_view text) const;
};

struct PositionedJson {
  nlohmann::json root;
  std::map<std::string, JsonPlace> places;  // position of each value by its JSON pointer; "" is the root
  std::vector<JsonProblem> problems;        // duplicate keys, or a syntax error, after which `root` is incomplete
  bool complete = false;                    // true if the syntax is correct
};

PositionedJson parse_with_positions(std::string_view text);

// Returns the token at `offset`, as written in the text: a string with its quotes, a number, a word, or one character.
std::string_view token_at(std::string_view text, std::size_t offset);

// Returns line and column as text: "7:3". Both are counted from 1. A column is a UTF-8 character and not a byte.
std::string line_and_column(std::string_view text, std::size_t offset);

// Returns the JSON pointer of a child: "/a/b~1c" for the parent "/a" and the key "b/c".
std::string pointer_to(const std::string& parent, std::string_view key);

}  // namespace ddprun
