// Implementation of json_positions.hpp: a recursive descent parser. It records the position of each key and value. At a syntax
// error it reports which token it expected. nlohmann/json decodes the individual strings and numbers.
#include "common/config/json_positions.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "common/base/numbers.hpp"
#include "common/config/string_fault.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Returns the position of the first byte, from `at` on, that belongs neither to white space nor to a comment. If a comment has
// no end, returns the position of that comment.
std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    if (rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\n' || rest[0] == '\r') {
      ++at;
    } else if (rest.starts_with("//")) {
      const std::size_t end = text.find_first_of("\r\n", at);
      at = end == std::string_view::npos ? text.size() : end;
    } else if (rest.starts_with("/*")) {
      const std::size_t end = text.find("*/", at + 2);
      if (end == std::string_view::npos) return at;
      at = end + 2;
    } else {
      break;
    }
  }
  return at;
}

std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '+' ||
         c == '-' || (static_cast<unsigned char>(c) & 0x80) != 0;
}

std::size_t end_of_token(std::string_view text, std::size_t at) {
  if (at >= text.size()) return at;
  if (text[at] == '"') return end_of_string(text, at);
  std::size_t end = at;
  while (end < text.size() && is_word(text[end])) ++end;
  return std::max(end, at + 1);
}

// Returns "UTF-16" or "UTF-32" if the text starts like a file in that encoding: with its byte order mark, or with zero bytes
// next to '{'. Returns "" for any other text.
std::string_view wide_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return "UTF-16";
  if (text.size() < 2 || (text[0] != '\0') == (text[1] != '\0')) return "";
  return text.size() >= 4 && (text[2] == '\0') && (text[3] == '\0') ? "UTF-32" : "UTF-16";
}

// Returns a hint such as ": write 8 ..." for 010, 0x10 and 1_000. `token` starts with a digit or '-', and is not a JSON number.
std::string number_hint(std::string_view token) {
  const std::string_view sign = token.starts_with("-") ? "-" : "", digits = token.substr(sign.size());
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    const auto value = base == 0 ? std::nullopt : exact_number<std::uint64_t>(digits.substr(2), base);
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

// Returns a hint such as ": write true" for True. `token` must not be empty.
std::string literal_hint(std::string_view token) {
  if (token == "True" || token == "TRUE") return ": write true";
  if (token == "False" || token == "FALSE") return ": write false";
  if (token == "None" || token == "NULL" || token == "Null") return ": write null";
  if (token[0] == '.' || token[0] == '+') return ": numbers start with a digit or '-'";
  if (token == "NaN" || token == "Infinity" || token == "inf" || token == "nan") return ", which is not a value in JSON";
  return ": strings need double quotes";
}

// Parses one text. After an error, each parsing function adds the error to the problems and returns false. The caller then
// stops.
class Parser {
 public:
  Parser(std::string_view text, PositionedJson& out)
      : text_(text), out_(out), at_(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0) {}

  bool parse() {
    skip();
    if (!parse_value(out_.root, "", at_, "'{'", "")) return false;
    skip();
    return next() == '\0' || refuse("the end of the file");
  }

 private:
  // Returns the byte at the current position; a null character at the end of the text.
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() { at_ = skip_space(text_, at_); }
  bool take(char expected) {
    if (next() != expected) return false;
    ++at_;
    return true;
  }

  // `key` is the position of the value's key, or of the value if it has no key. `expected` and `hint` are for the error message
  // if there is no value.
  bool parse_value(Json& value, const std::string& pointer, std::size_t key, const char* expected, const char* hint) {
    out_.places[pointer] = {key, at_};
    const char first = next();
    if (first == '{' || first == '[') return parse_nested(value, pointer);
    if (first == '"') return parse_string(value);
    if (first == '-' || (first >= '0' && first <= '9')) return parse_number(value);
    const std::string_view word = token_at(text_, at_);
    if (word == "true" || word == "false" || word == "null") {
      value = word == "null" ? Json() : Json(word == "true");
      at_ += word.size();
      return true;
    }
    if (is_word(first) && !pointer.empty()) return fail(at_, "expected a value, found " + described() + literal_hint(word));
    return refuse(expected, hint);
  }

  bool parse_nested(Json& value, const std::string& pointer) {
    constexpr std::size_t kMaxDepth = 64;  // maximum nesting depth: it limits the recursion and the length of JSON pointers
    if (depth_ == kMaxDepth)
      return fail(at_, "expected at most " + std::to_string(kMaxDepth) + " levels of nested '{' and '[', found more");
    ++depth_;
    value = next() == '{' ? Json::object() : Json::array();
    ++at_;
    const bool parsed = value.is_object() ? parse_object(value, pointer) : parse_array(value, pointer);
    --depth_;
    return parsed;
  }

  bool parse_object(Json& object, const std::string& pointer) {
    for (bool first = true;; first = false) {
      skip();
      if (first && take('}')) return true;
      const std::size_t begin = at_;
      if (next() != '"') {
        return refuse(first ? "a key in double quotes or '}'" : "a key in double quotes after ','",
                      is_word(next()) ? ": write it in double quotes" : comma_hint(first));
      }
      Json name;
      if (!parse_string(name)) return false;
      const auto& key = name.get_ref<const std::string&>();
      const std::string inside = pointer_to(pointer, key);
      if (object.contains(key)) {
        out_.problems.push_back({begin, "key '" + key + "' is given twice (" + inside + ")", out_.places[inside].key});
      }
      skip();
      if (!take(':')) return refuse("':' after the key");
      skip();
      if (!parse_value(object[key], inside, begin, "a value after ':'", "")) return false;
      skip();
      if (take('}')) return true;
      if (!take(',')) return refuse("',' or '}' after the value");
    }
  }

  bool parse_array(Json& array, const std::string& pointer) {
    for (bool first = true;; first = false) {
      skip();
      if (first && take(']')) return true;
      const std::string inside = pointer_to(pointer, std::to_string(array.size()));
      Json& element = array.emplace_back();
      if (!parse_value(element, inside, at_, first ? "a value or ']'" : "a value after ','", comma_hint(first))) return false;
      skip();
      if (take(']')) return true;
      if (!take(',')) return refuse("',' or ']' after the value");
    }
  }

  bool parse_string(Json& value) {
    if (const auto fault = fault_in_string(text_, at_)) return fail_string(*fault);
    const std::string_view token = token_at(text_, at_);
    value = Json::parse(token.begin(), token.end());
    at_ += token.size();
    return true;
  }

  bool parse_number(Json& value) {
    const std::string_view token = token_at(text_, at_);
    bool starts_with_number = false;  // true for 010, whose first digit is a complete JSON number
    try {
      value = Json::parse(token.begin(), token.end(), [&](int, Json::parse_event_t, const Json&) {
        starts_with_number = true;
        return true;
      });
    } catch (const Json::out_of_range&) {
      return fail(at_, "this number is too large: expected at most about 1.8e308, found " + described());
    } catch (const Json::parse_error&) {
      return fail(at_, "expected a number, found " + described() + (starts_with_number ? number_hint(token) : ""));
    }
    at_ += token.size();
    return true;
  }

  const char* comma_hint(bool first) const {
    return !first && (next() == '}' || next() == ']') ? ": remove the ',' before it" : "";
  }

  // Adds an error at the current position: the expected token, the token found, and the hint. If the found token is invalid
  // everywhere in JSON, such as '/', the error states that instead. Returns false.
  bool refuse(const std::string& expected, const std::string& hint = "") {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("/*")) return fail(at_, "expected '*/' at the end of this comment, found the end of the file");
    if (rest.starts_with("/")) return fail(at_, "expected '//' or '/*' to start a comment, found '/'");
    if (rest.starts_with("\"")) {
      if (const auto fault = fault_in_string(text_, at_)) return fail_string(*fault);
    }
    return fail(
        at_, "expected " + expected + ", found " + described() + hint + (next() == '\'' ? ": strings need double quotes" : ""));
  }

  bool fail_string(const StringFault& fault) {
    switch (fault.kind) {
      case StringFault::Kind::kEndOfText:
        return fail(at_, "expected '\"' at the end of this string, found the end of the file");
      case StringFault::Kind::kLineEnd:
        return fail(at_, "expected '\"' at the end of this string, found the end of the line");
      case StringFault::Kind::kControlCharacter:
        return fail(fault.offset, "this string contains a control character: write it as \\u00XX");
      case StringFault::Kind::kEscape:
        return fail(
            fault.offset,
            "unknown escape sequence in a string: expected \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX after the backslash");
      case StringFault::Kind::kEncoding:
        break;
    }
    return fail(fault.offset, "this string is not valid UTF-8: save the file as UTF-8");
  }

  bool fail(std::size_t offset, const std::string& message) {
    out_.problems.push_back({offset, message, {}});
    return false;
  }

  // Describes the token at the current position, for messages.
  std::string described() const {
    constexpr std::size_t kShown = 40;
    if (at_ >= text_.size()) return "the end of the file";
    const std::string_view token = token_at(text_, at_);
    if (token[0] == '"') return token.size() > kShown ? "a string" : std::string(token);
    const unsigned char first = static_cast<unsigned char>(token[0]);
    if (first < 0x20 || first == 0x7f) return "a control character";
    if (token[0] == '\'') return "a single quote";
    return "'" + std::string(token.substr(0, kShown)) + "'";
  }

  std::string_view text_;
  PositionedJson& out_;
  std::size_t at_;
  std::size_t depth_ = 0;
};

}  // namespace

std::string JsonProblem::hint(std::string_view text) const {
  return earlier ? "; first at " + line_and_column(text, *earlier) : "";
}

std::string_view token_at(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  return text.substr(offset, end_of_token(text, offset) - offset);
}

PositionedJson parse_with_positions(std::string_view text) {
  PositionedJson out;
  if (const std::string_view encoding = wide_encoding(text); !encoding.empty()) {
    out.problems.push_back({0, "expected UTF-8 text, found " + std::string(encoding) +
                                   ": save the file as UTF-8 (or iconv -f " + std::string(encoding) + " -t UTF-8 OLD > NEW)"});
    return out;
  }
  out.complete = Parser(text, out).parse();
  return out;
}

std::string line_and_column(std::string_view text, std::size_t offset) {
  std::size_t line = 1, column = 1;
  offset = std::min(offset, text.size());
  for (std::size_t i = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++column;
    }
  }
  return std::to_string(line) + ":" + std::to_string(column);
}

std::string pointer_to(const std::string& parent, std::string_view key) {
  std::string out = parent + "/";
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace ddprun
