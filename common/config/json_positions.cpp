// Follows nlohmann's SAX events with a small scanner. At each event the scanner stands after the previous token, so the event's
// token begins after spaces, comments and separators. At a syntax error, the same scanner determines what was expected.
#include "common/config/json_positions.hpp"

#include <algorithm>
#include <utility>

#include "common/config/json_hints.hpp"
#include "common/config/string_fault.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The first byte from `at` on that is neither space nor comment. Stops at an unterminated comment.
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

class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, PositionedJson& out) : text_(text), out_(out) {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override { return number(value); }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // text has no binary values

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const std::size_t begin = token_begin();
    Level& level = levels_.back();
    level.pointer_of_value = pointer_to(level.pointer, name);
    level.key = name;
    key_place_ = begin;
    if (level.json->contains(name)) {
      out_.problems.push_back({begin, "key '" + name + "' is given twice (" + level.pointer_of_value + ")",
                               out_.places[level.pointer_of_value].key});
    }
    at_ = end_of_token(text_, begin);
    last_ = Last::kKey;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    constexpr int kNumberTooLarge = 406;  // the only error of the parser that is not a syntax error
    report(error.id == kNumberTooLarge);
    return false;
  }

 private:
  enum class Last { kBegin, kOpen, kKey, kValue };

  struct Level {
    Json* json = nullptr;
    std::string pointer;
    std::string key;               // in an object: the key of the next value
    std::string pointer_of_value;  // in an object: the pointer of the next value
  };

  // The start of this event's token. nlohmann's parser has checked the separators, so at most one is skipped.
  std::size_t token_begin() const {
    const std::size_t begin = skip_space(text_, at_);
    const bool separator = begin < text_.size() && (text_[begin] == ',' || text_[begin] == ':');
    return separator && last_ != Last::kBegin && last_ != Last::kOpen ? skip_space(text_, begin + 1) : begin;
  }

  Json* insert(Json value, std::size_t begin) {
    if (levels_.empty()) {
      out_.root = std::move(value);
      out_.places[""] = {begin, begin};
      return &out_.root;
    }
    Level& level = levels_.back();
    if (level.json->is_object()) {
      out_.places[level.pointer_of_value] = {key_place_, begin};
      return &((*level.json)[level.key] = std::move(value));
    }
    level.pointer_of_value = pointer_to(level.pointer, std::to_string(level.json->size()));
    out_.places[level.pointer_of_value] = {begin, begin};
    level.json->push_back(std::move(value));
    return &level.json->back();
  }

  bool scalar(Json value) {
    const std::size_t begin = token_begin();
    insert(std::move(value), begin);
    at_ = end_of_token(text_, begin);
    last_ = Last::kValue;
    return true;
  }

  // nlohmann's parser ends a number where JSON's grammar ends it. So it reads 010 as 0 followed by other text.
  bool number(Json value) {
    const std::size_t begin = token_begin();
    const std::string_view word = token_at(text_, begin);
    if (Json::accept(word)) return scalar(std::move(value));
    add(begin, "expected a number, found " + describe(begin) + number_hint(word));
    return false;
  }

  bool open(Json empty) {
    const std::size_t begin = token_begin();
    constexpr std::size_t kMaxDepth = 64;  // without a limit, JSON pointers of nested values could grow arbitrarily
    if (levels_.size() == kMaxDepth) {
      add(begin, "expected at most " + std::to_string(kMaxDepth) + " levels of '{' and '['");
      return false;
    }
    Json* const json = insert(std::move(empty), begin);
    // A parent's vector doesn't grow while its child is open, so the pointer stays valid.
    levels_.push_back({json, levels_.empty() ? "" : levels_.back().pointer_of_value, "", ""});
    at_ = begin + 1;
    last_ = Last::kOpen;
    return true;
  }

  bool close() {
    at_ = skip_space(text_, at_) + 1;
    levels_.pop_back();
    last_ = Last::kValue;
    return true;
  }

  // Reports what the parser expected, and the token that it found instead.
  void report(bool too_large) {
    const bool in_object = !levels_.empty() && levels_.back().json->is_object();
    const std::string closer = in_object ? "'}'" : "']'";
    std::size_t begin = skip_space(text_, at_);
    std::string expected;
    bool after_comma = false, wants_value = false, wants_key = false;
    const bool inside_text = begin < text_.size();
    if (last_ == Last::kBegin) {
      expected = "'{'";
    } else if (last_ == Last::kKey) {
      if (inside_text && text_[begin] == ':') {
        begin = skip_space(text_, begin + 1);
        expected = "a value after ':'";
        wants_value = true;
      } else {
        expected = "':' after the key";
      }
    } else if (last_ == Last::kOpen) {
      expected = (in_object ? "a key in double quotes or " : "a value or ") + closer;
      wants_key = in_object;
      wants_value = !in_object;
    } else if (levels_.empty()) {
      expected = "the end of the file";
    } else if (inside_text && text_[begin] == ',') {
      after_comma = true;
      begin = skip_space(text_, begin + 1);
      expected = in_object ? "a key in double quotes after ','" : "a value after ','";
      wants_key = in_object;
      wants_value = !in_object;
    } else {
      expected = "',' or " + closer + " after the value";
    }
    if (report_token(begin) || (wants_value && report_scalar(begin, too_large))) return;
    const std::string found = begin >= text_.size() ? "the end of the file" : std::string(text_.substr(begin, 1));
    std::string message = "expected " + expected + ", found " + describe(begin);
    if (after_comma && (found == "}" || found == "]")) message += ": remove the ',' before it";
    if (found == "'") message += ": strings need double quotes";
    if (wants_key && begin < text_.size() && is_word(text_[begin])) message += ": write it in double quotes";
    add(begin, message);
  }

  // Reports a token that is wrong in every context. Returns true if it did.
  bool report_token(std::size_t begin) {
    const std::string_view rest = text_.substr(std::min(begin, text_.size()));
    if (rest.starts_with("/*")) {
      add(begin, "expected '*/' at the end of this comment, found the end of the file");
    } else if (rest.starts_with("/")) {
      add(begin, "expected '//' or '/*' to begin a comment");
    } else if (rest.starts_with("\"")) {
      return report_string(begin);
    } else {
      return false;
    }
    return true;
  }

  bool report_string(std::size_t begin) {
    const auto fault = fault_in_string(text_, begin);
    if (!fault) return false;
    switch (fault->kind) {
      case StringFault::Kind::kEndOfText:
        add(begin, "expected '\"' at the end of this string, found the end of the file");
        break;
      case StringFault::Kind::kLineEnd:
        add(begin, "expected '\"' at the end of this string, found the end of the line");
        break;
      case StringFault::Kind::kControlCharacter:
        add(fault->offset, "control characters in strings must be written as \\u00XX");
        break;
      case StringFault::Kind::kEscape:
        add(fault->offset, "expected \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX after the backslash");
        break;
      case StringFault::Kind::kEncoding:
        add(fault->offset, "this string is not valid UTF-8");
        break;
    }
    return true;
  }

  // Reports a malformed number or literal at the place of a value: the parser would not have refused a correct one there.
  bool report_scalar(std::size_t begin, bool too_large) {
    const std::string_view rest = text_.substr(std::min(begin, text_.size()));
    if (too_large) {
      add(begin, "this number is too large: expected at most about 1.8e308, found " + describe(begin));
    } else if (!rest.empty() && (rest[0] == '-' || (rest[0] >= '0' && rest[0] <= '9'))) {
      add(begin, "expected a number, found " + describe(begin));
    } else if (!rest.empty() && is_word(rest[0])) {
      add(begin, "expected a value, found " + describe(begin) + literal_hint(token_at(text_, begin)));
    } else {
      return false;
    }
    return true;
  }

  std::string describe(std::size_t begin) const {
    if (begin >= text_.size()) return "the end of the file";
    const std::size_t end = end_of_token(text_, begin);
    constexpr std::size_t kShown = 40;
    if (text_[begin] == '"') return end - begin > kShown ? "a string" : std::string(text_.substr(begin, end - begin));
    const unsigned char first = static_cast<unsigned char>(text_[begin]);
    if (first < 0x20 || first == 0x7f) return "a control character";
    if (text_[begin] == '\'') return "a single quote";
    return "'" + std::string(text_.substr(begin, std::min(end - begin, kShown))) + "'";
  }

  void add(std::size_t offset, const std::string& message) { out_.problems.push_back({offset, message, {}}); }

  std::string_view text_;
  PositionedJson& out_;
  std::vector<Level> levels_;
  std::size_t at_ = 0;  // after the last token
  std::size_t key_place_ = 0;
  Last last_ = Last::kBegin;
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
  Builder builder(text, out);
  out.complete = Json::sax_parse(text.begin(), text.end(), &builder, Json::input_format_t::json, /*strict=*/true,
                                 /*ignore_comments=*/true);
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
