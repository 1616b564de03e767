// Implementation of string_fault.hpp. It follows the grammar of RFC 8259, section 7.
#include "common/config/string_fault.hpp"

#include <cstdint>

#include "common/base/printable.hpp"

namespace ddprun {
namespace {

using Kind = StringFault::Kind;

// Checks a string. `at` is the position after its opening quote.
class StringReader {
 public:
  StringReader(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  std::optional<StringFault> read() {
    while (!fault_) {
      if (at_ >= text_.size()) return StringFault{Kind::kEndOfText, text_.size()};
      const char c = text_[at_];
      if (c == '"') return std::nullopt;
      if (c == '\n' || c == '\r') return StringFault{Kind::kLineEnd, at_};
      if (static_cast<unsigned char>(c) < 0x20) return StringFault{Kind::kControlCharacter, at_};
      if (c == '\\') {
        read_escape();
      } else {
        const std::size_t bytes = bytes_of_first_character(text_.substr(at_));
        if (bytes == 0) return StringFault{Kind::kEncoding, at_};
        at_ += bytes;
      }
    }
    return fault_;
  }

 private:
  void read_escape() {
    constexpr std::string_view kSingle = "\"\\/bfnrt";
    if (next() == 'u') return read_unit_pair();
    if (at_ + 1 < text_.size() && kSingle.find(next()) != std::string_view::npos) {
      at_ += 2;
    } else {
      refuse(at_ + 1);
    }
  }

  // Checks \uXXXX. A character above U+FFFF is written as a surrogate pair, with the high surrogate first.
  void read_unit_pair() {
    const std::uint32_t first = read_unit();
    if (fault_ || first < 0xd800 || first > 0xdfff) return;
    if (first > 0xdbff) return refuse(at_ - 1);
    if (at_ >= text_.size() || text_[at_] != '\\' || next() != 'u') return refuse(at_);
    const std::uint32_t second = read_unit();
    if (!fault_ && (second < 0xdc00 || second > 0xdfff)) refuse(at_ - 1);
  }

  std::uint32_t read_unit() {
    at_ += 2;
    std::uint32_t unit = 0;
    for (int digit = 0; digit < 4; ++digit, ++at_) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const std::size_t value = kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
      if (value == std::string_view::npos) {
        refuse(at_);
        return 0;
      }
      unit = unit << 4 | static_cast<std::uint32_t>(value);
    }
    return unit;
  }

  char next() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }
  void refuse(std::size_t offset) {
    fault_ = offset < text_.size() ? StringFault{Kind::kEscape, offset} : StringFault{Kind::kEndOfText, text_.size()};
  }

  std::string_view text_;
  std::size_t at_;
  std::optional<StringFault> fault_{};
};

}  // namespace

std::optional<StringFault> fault_in_string(std::string_view text, std::size_t begin) {
  return StringReader(text, begin + 1).read();
}

}  // namespace ddprun
