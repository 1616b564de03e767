// Finds, checks and makes tokens (token.hpp). token_file.cpp handles their files.
#include "rendezvous/identity/token.hpp"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <set>

namespace ddprun {
namespace {

constexpr const char* kVariable = "DDPRUN_TOKEN";
constexpr std::size_t kRandomBytes = 32;
constexpr double kNeededBits = 128;
constexpr std::size_t kLongestTokenText = 4096;
constexpr const char* kHowToMake = "make one with: ddprun token --new FILE";

bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}
bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

enum class Look { kSmall, kCapital, kDigit, kOther };

Look look_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (std::islower(byte) != 0) return Look::kSmall;
  if (std::isupper(byte) != 0) return Look::kCapital;
  return std::isdigit(byte) != 0 ? Look::kDigit : Look::kOther;
}

// How surprising a letter is in English, in bits: 4.2 on average in words, 5.6 in letters drawn at random. These are the
// negative binary logarithms of the relative frequencies of Lewand, "Cryptological Mathematics", 2000.
double surprise_of(char letter) {
  constexpr std::array<double, 26> kBits{3.61, 6.06, 5.16, 4.54, 2.98, 5.51, 5.64, 4.04, 3.84, 9.38, 7.02, 4.64, 5.38,
                                         3.90, 3.74, 5.72, 9.97, 4.06, 3.99, 3.46, 5.16, 6.67, 5.38, 9.38, 5.64, 10.40};
  return kBits[static_cast<std::size_t>(std::tolower(static_cast<unsigned char>(letter)) - 'a')];
}

// True for words with years and signs between them, such as Summer2024!Winter2025!. Their letters, digits and signs come in
// runs, and the letters have the frequencies of a language.
bool is_phrase(std::string_view text) {
  std::size_t changes = 0, letters = 0;
  double surprise = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && look_of(text[i]) != look_of(text[i - 1])) ++changes;
    if (!is_letter(text[i])) continue;
    ++letters;
    surprise += surprise_of(text[i]);
  }
  constexpr double kOfWords = 4.6;
  return letters >= 6 && 2 * changes < text.size() && surprise < kOfWords * static_cast<double>(letters);
}

double bits_of_phrase(std::string_view text) {
  double bits = 0;
  for (const char c : text) bits += is_letter(c) ? 2 : look_of(c) == Look::kDigit ? 3.3 : 5;
  return bits;
}

// The most bits that a text of this form can hold: 4 for a hexadecimal digit, about 2 for a letter of a word (Shannon 1951
// found 1 to 2 for English), 6 for any other character.
double possible_bits(std::string_view text) {
  const auto hex = static_cast<double>(std::count_if(text.begin(), text.end(), is_hex));
  const bool only_hex = std::all_of(text.begin(), text.end(), [](char c) { return is_hex(c) || c == '-' || c == ':'; });
  if (only_hex) return 4 * hex;
  const bool only_words =
      std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || c == '-' || c == '_' || c == '.'; });
  const auto is_upper = [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; };
  const auto capitals = std::count_if(text.begin(), text.end(), is_upper);
  // Random base64 has about as many capitals as small letters; words have few capitals, or only capitals.
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

// True for texts such as "abcabcabc", "0123456789abcdef", "aaaaaaaa".
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
    return "is not one line of printable characters without spaces";
  }
  if (is_uuid(text)) return "is a UUID, which has 122 random bits at most";
  const std::set<char> distinct(text.begin(), text.end());
  if (possible_bits(text) < kNeededBits || distinct.size() < 8) return "is too short to have 128 random bits";
  if (is_pattern(text)) return "follows a pattern that can be guessed";
  return {};
}

FoundToken from_file(const std::filesystem::path& file, bool made) {
  return {read_token_file(file), file.string(), file, made};
}

// The token in the user's own file. Creates the file if it is missing.
FoundToken of_user(const std::filesystem::path& file) {
  const bool made = !std::filesystem::exists(file) && make_token_file(file, new_token());
  return from_file(file, made);
}

[[noreturn]] void nothing_found(const TokenSources& sources) {
  std::string where;
  if (!sources.run_dir.empty()) where = (sources.run_dir / "token").string();
  if (!sources.user_file.empty()) where += (where.empty() ? "" : " or ") + sources.user_file.string();
  throw TokenError(
      "this node has no token of the job" + (where.empty() ? std::string() : ": expected it in " + where) +
      ". On the first node, ddprun token says where its token is: copy that file here and name it with --token-file");
}

}  // namespace

// A moved std::string could leave the text of the token in the moved-from buffer, so it is copied and wiped.
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
  std::array<unsigned char, kRandomBytes> bytes{};
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (count < 0 && errno != EINTR) throw InternalError("the kernel gives no random numbers (getrandom)");
    if (count > 0) filled += static_cast<std::size_t>(count);
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    text.push_back(kDigits[byte >> 4U]);
    text.push_back(kDigits[byte & 0xfU]);
  }
  ::explicit_bzero(bytes.data(), bytes.size());
  return Token(std::move(text));
}

Token check_token(std::string text, const std::string& source) {
  Token whole(std::move(text));
  std::string_view kept = whole.text();
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = kept.find_first_not_of(kSpace);
  kept = begin == std::string_view::npos ? std::string_view() : kept.substr(begin, kept.find_last_not_of(kSpace) - begin + 1);
  if (const std::string why = weakness(kept); !why.empty()) {
    throw TokenError("the token in " + source + " " + why + "; " + kHowToMake);
  }
  return Token(std::string(kept));
}

std::optional<std::string> take_token_variable() {
  char* const value = ::getenv(kVariable);
  if (value == nullptr) return std::nullopt;
  std::string text = value;
  ::explicit_bzero(value, text.size());
  ::unsetenv(kVariable);
  if (text.empty()) return std::nullopt;
  return text;
}

std::filesystem::path token_file_of_user() {
  const auto folder = [](const char* variable) -> std::filesystem::path {
    const char* const value = ::getenv(variable);
    return value != nullptr && *value == '/' ? value : "";
  };
  if (const auto config = folder("XDG_CONFIG_HOME"); !config.empty()) return config / "ddprun" / "token";
  if (const auto home = folder("HOME"); !home.empty()) return home / ".config" / "ddprun" / "token";
  return {};
}

FoundToken find_token(TokenSources sources) {
  if (!sources.token_file.empty()) return from_file(sources.token_file, false);
  if (sources.variable) return {check_token(std::move(*sources.variable), kVariable), kVariable, {}, false};
  if (!sources.run_dir.empty()) {
    const auto file = sources.run_dir / "token";
    if (std::filesystem::exists(file)) return from_file(file, false);
    if (sources.node == TokenSources::Node::kFirst) {
      const Token content = sources.user_file.empty() ? new_token() : of_user(sources.user_file).token;
      return from_file(file, make_token_file(file, content));
    }
    if (wait_for_token_file(file, sources.patience)) return from_file(file, false);
    if (!sources.user_file.empty() && std::filesystem::exists(sources.user_file)) return from_file(sources.user_file, false);
    nothing_found(sources);
  }
  if (sources.user_file.empty()) nothing_found(sources);
  return of_user(sources.user_file);
}

}  // namespace ddprun
