#include "launcher/submit/kubernetes/yaml_text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "common/base/printable.hpp"

namespace ddprun {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// YAML 1.1, which kubectl's parser follows, reads these words as booleans or as null, in upper or lower case.
bool is_yaml_keyword(std::string_view text) {
  constexpr std::array<std::string_view, 9> kKeywords{"y", "n", "yes", "no", "true", "false", "on", "off", "null"};
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return std::ranges::find(kKeywords, lower) != kKeywords.end();
}

// Returns true for a word that starts with a letter, a slash or "--", and has only letters, digits and harmless punctuation.
// Numbers and dates start with a digit, a sign or a dot, so they are not plain. A colon at the end would start a mapping.
bool is_plain(std::string_view text) {
  const std::string_view start = text.starts_with("--") ? text.substr(2) : text;
  if (start.empty() || !(is_letter(start[0]) || (start[0] == '/' && text[0] == '/'))) return false;
  const auto harmless = [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || std::string_view("_./=+-:@").find(c) != std::string_view::npos;
  };
  return std::ranges::all_of(text, harmless) && !text.ends_with(':') && !is_yaml_keyword(text);
}

// Multi-byte characters that YAML forbids, or that it treats as a line break or a byte order mark. Each is written as its
// escape sequence.
struct Escaped {
  std::string_view bytes, escape;
};
constexpr std::array<Escaped, 5> kEscapedCharacters{Escaped{"\xE2\x80\xA8", "\\u2028"}, Escaped{"\xE2\x80\xA9", "\\u2029"},
                                                    Escaped{"\xEF\xBB\xBF", "\\ufeff"}, Escaped{"\xEF\xBF\xBE", "\\ufffe"},
                                                    Escaped{"\xEF\xBF\xBF", "\\uffff"}};

std::string hex_escape(unsigned code) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'\\', 'x', kDigits[code >> 4 & 0xf], kDigits[code & 0xf]};
}

// Escapes a character that would end a line or that YAML does not allow.
std::string escaped_character(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(character[i])); };
  if (character == "\n") return "\\n";
  if (character == "\t") return "\\t";
  if (character.size() == 1 && (byte(0) < 0x20 || byte(0) == 0x7f)) return hex_escape(byte(0));
  if (character.size() == 2 && byte(0) == 0xc2 && byte(1) < 0xa0) return hex_escape(byte(1));  // U+0080 to U+009F
  const auto special = std::ranges::find(kEscapedCharacters, character, &Escaped::bytes);
  return std::string(special == kEscapedCharacters.end() ? character : special->escape);
}

template <typename Escape>
std::string each_character(std::string_view text, const Escape& escape) {
  std::string escaped;
  while (!text.empty()) {
    const std::size_t bytes = std::max<std::size_t>(bytes_of_first_character(text), 1);
    escaped += escape(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return escaped;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = bytes_of_first_character(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string yaml_text(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  const auto escape = [](std::string_view character) {
    return character == "\"" || character == "\\" ? "\\" + std::string(character) : escaped_character(character);
  };
  return "\"" + each_character(text, escape) + "\"";
}

std::string yaml_comment(std::string_view text) {
  return each_character(text, escaped_character);
}

std::string container_word(std::string_view word) {
  std::string escaped;
  for (const char c : word) escaped.append(c == '$' ? 2 : 1, c);
  return escaped;
}

std::string indented(std::string_view lines, int columns) {
  const std::string space(static_cast<std::size_t>(columns), ' ');
  std::string text;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1);
    const std::string_view line = lines.substr(0, end + 1);
    if (line != "\n") text += space;
    text += line;
    lines.remove_prefix(end + 1);
  }
  return text;
}

}  // namespace ddprun
