// Implementation of token.hpp. Most of this file estimates the strength of a token from its text.
#include "rendezvous/identity/token.hpp"

#include <string.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "rendezvous/identity/hex.hpp"
#include "rendezvous/identity/random_bytes.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kRandomBytes = 32;
constexpr double kNeededBits = 128;
constexpr std::size_t kLongestTokenText = 4096;
constexpr const char* kCreateHint = "create one with: ddprun token --new FILE";

bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}
bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

enum class CharacterClass { kSmall, kCapital, kDigit, kOther };

CharacterClass class_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (std::islower(byte) != 0) return CharacterClass::kSmall;
  if (std::isupper(byte) != 0) return CharacterClass::kCapital;
  return std::isdigit(byte) != 0 ? CharacterClass::kDigit : CharacterClass::kOther;
}

// Returns the information content of a letter in English text, in bits. This is -log2 of its relative frequency (Lewand,
// "Cryptological Mathematics", 2000). The average is 4.2 bits in English words, and 5.6 bits in random letters.
double letter_bits(char letter) {
  constexpr std::array<double, 26> kBits{3.61, 6.06, 5.16, 4.54, 2.98, 5.51, 5.64, 4.04, 3.84, 9.38, 7.02, 4.64, 5.38,
                                         3.90, 3.74, 5.72, 9.97, 4.06, 3.99, 3.46, 5.16, 6.67, 5.38, 9.38, 5.64, 10.40};
  return kBits[static_cast<std::size_t>(std::tolower(static_cast<unsigned char>(letter)) - 'a')];
}

// Returns true for a text that consists of words with numbers and signs between them, such as Summer2024!Winter2025!. In such a
// text, characters of the same class follow each other, and the letters have the frequencies of English.
bool is_phrase(std::string_view text) {
  std::size_t changes = 0, letters = 0;
  double letter_bits_sum = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && class_of(text[i]) != class_of(text[i - 1])) ++changes;
    if (!is_letter(text[i])) continue;
    ++letters;
    letter_bits_sum += letter_bits(text[i]);
  }
  constexpr double kMaxBitsPerLetter = 4.6;
  return letters >= 6 && 2 * changes < text.size() && letter_bits_sum < kMaxBitsPerLetter * static_cast<double>(letters);
}

double bits_of_phrase(std::string_view text) {
  double bits = 0;
  for (const char c : text) bits += is_letter(c) ? 2 : class_of(c) == CharacterClass::kDigit ? 3.3 : 5;
  return bits;
}

// Returns an upper limit for the number of random bits in a text. A hexadecimal digit counts 4 bits. A letter of a word counts
// 2 bits, because Shannon (1951) measured 1 to 2 bits for English. Any other character counts 6 bits.
double possible_bits(std::string_view text) {
  const auto hex = static_cast<double>(std::count_if(text.begin(), text.end(), is_hex));
  const bool only_hex = std::all_of(text.begin(), text.end(), [](char c) { return is_hex(c) || c == '-' || c == ':'; });
  if (only_hex) return 4 * hex;
  const bool only_words =
      std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || c == '-' || c == '_' || c == '.'; });
  const auto is_upper = [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; };
  const auto capitals = std::count_if(text.begin(), text.end(), is_upper);
  // Random Base64 contains about as many upper-case as lower-case letters. Words contain few upper-case letters, or no
  // lower-case letters.
  const bool words =
      only_words && (5 * capitals < static_cast<std::ptrdiff_t>(text.size()) ||
                     std::all_of(text.begin(), text.end(), [&](char c) { return !is_letter(c) || is_upper(c); }));
  if (!words && is_phrase(text)) return bits_of_phrase(text);
  return (words ? 2 : 6) * static_cast<double>(text.size());
}

bool is_uuid(std::string_view text) {
  constexpr std::array<std::size_t, 4> kDashes{8, 13, 18, 23};
  return text.size() == 36 && std::all_of(kDashes.begin(), kDashes.end(), [&](std::size_t at) { return text[at] == '-'; });
}

// Returns true for a repeated text or a sequence, such as "abcabcabc", "0123456789abcdef" or "aaaaaaaa".
bool is_pattern(std::string_view text) {
  for (std::size_t period = 1; period <= text.size() / 2; ++period) {
    if (std::equal(text.begin() + static_cast<std::ptrdiff_t>(period), text.end(), text.begin())) return true;
  }
  std::size_t steps = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const int step = text[i] - text[i - 1];
    if (step >= -1 && step <= 1) ++steps;
  }
  return 2 * steps > text.size();
}

std::string weakness(std::string_view text) {
  if (text.empty()) return "is empty";
  if (text.size() > kLongestTokenText)
    return "is longer than " + std::to_string(kLongestTokenText) + " bytes; it seems to be another file";
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    return "is not a single line of printable ASCII characters without spaces";
  }
  if (is_uuid(text)) return "is a UUID, which has at most 122 random bits, and 128 are required";
  const std::set<char> distinct(text.begin(), text.end());
  if (possible_bits(text) < kNeededBits || distinct.size() < 8) return "is too short to contain 128 random bits";
  if (is_pattern(text)) return "follows a pattern that can be guessed";
  return {};
}

}  // namespace

// We copy the text and then wipe `other`, because moving a std::string could leave the token in the buffer of `other`.
Token::Token(Token&& other) noexcept : text_(other.text_) {  // NOLINT(performance-move-constructor-init)
  other.wipe();
}

Token& Token::operator=(Token&& other) noexcept {
  if (this != &other) {
    wipe();
    text_ = other.text_;
    other.wipe();
  }
  return *this;
}

void Token::wipe() noexcept {
  ::explicit_bzero(text_.data(), text_.size());
  text_.clear();
}

Token new_token() {
  auto bytes = random_bytes<kRandomBytes>();
  Token token(to_hex(bytes));
  ::explicit_bzero(bytes.data(), bytes.size());
  return token;
}

Token check_token(std::string text, const std::string& source) {
  Token whole(std::move(text));
  std::string_view kept = whole.text();
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = kept.find_first_not_of(kSpace);
  kept = begin == std::string_view::npos ? std::string_view() : kept.substr(begin, kept.find_last_not_of(kSpace) - begin + 1);
  if (const std::string why = weakness(kept); !why.empty()) {
    throw TokenError("the token in " + source + " " + why + "; " + kCreateHint);
  }
  return Token(std::string(kept));
}

}  // namespace ddprun
