#include "trainer/tokens/words.hpp"

#include "trainer/tokens/character_classes.hpp"
#include "trainer/tokens/utf8.hpp"

namespace ddprun::trainer {
namespace {

struct Run {
  std::size_t bytes = 0;
  std::size_t last = 0;  // number of bytes of the last character
};

// Returns the longest prefix of `text` in which all characters have the class `wanted`.
Run run_of(CharacterClass wanted, std::string_view text) {
  Run run;
  while (run.bytes < text.size()) {
    const Character next = first_character(text.substr(run.bytes));
    if (class_of(next.code) != wanted) break;
    run.bytes += next.bytes;
    run.last = next.bytes;
  }
  return run;
}

// Returns the length of the line ends at the start of the text.
std::size_t line_ends(std::string_view text) {
  const std::size_t end = text.find_first_not_of("\r\n");
  return end == std::string_view::npos ? text.size() : end;
}

// Returns the length of a contraction such as "'ll" at the start of the text, with letters of any case; 0 if there is none. The
// letter U+017F is a lower-case s.
std::size_t contraction(std::string_view text) {
  if (text.front() != '\'') return 0;
  constexpr std::string_view kLongS = "\xc5\xbf";
  if (text.substr(1).starts_with(kLongS)) return 1 + kLongS.size();
  const auto lower = [&](std::size_t i) {
    const char letter = i < text.size() ? text[i] : '\0';
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  };
  for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (lower(1) == ending.front() && (ending.size() == 1 || lower(2) == ending.back())) return 1 + ending.size();
  }
  return 0;
}

// Returns the length of the whitespace at the start of a text, by the pattern \s*[\r\n]+|\s+(?!\S)|\s+
std::size_t spaces_at_start(std::string_view text) {
  const Run spaces = run_of(CharacterClass::kSpace, text);
  const std::size_t last_end = text.substr(0, spaces.bytes).find_last_of("\r\n");
  if (last_end != std::string_view::npos) return last_end + 1;
  return spaces.bytes == text.size() || spaces.bytes == spaces.last ? spaces.bytes : spaces.bytes - spaces.last;
}

// Returns the length of the first word by the pattern of Llama 3, with at most `digits` digits per word. Each branch is an
// alternative of the pattern.
std::size_t first_word_of_llama3(std::string_view text, std::size_t digits) {
  if (const std::size_t bytes = contraction(text); bytes > 0) return bytes;
  const Character first = first_character(text);
  const CharacterClass kind = class_of(first.code);
  if (kind == CharacterClass::kLetter) return run_of(kind, text).bytes;
  if (kind == CharacterClass::kNumber) {
    std::size_t bytes = first.bytes;
    for (std::size_t i = 1; i < digits && bytes < text.size(); ++i) {
      const Character next = first_character(text.substr(bytes));
      if (class_of(next.code) != CharacterClass::kNumber) break;
      bytes += next.bytes;
    }
    return bytes;
  }
  const std::string_view rest = text.substr(first.bytes);
  if (first.code != '\r' && first.code != '\n') {
    const std::size_t letters = run_of(CharacterClass::kLetter, rest).bytes;
    if (letters > 0) return first.bytes + letters;
  }
  const std::size_t space = first.code == ' ' ? 1 : 0;
  if (const std::size_t others = run_of(CharacterClass::kOther, text.substr(space)).bytes; others > 0) {
    return space + others + line_ends(text.substr(space + others));
  }
  return spaces_at_start(text);
}

}  // namespace

std::size_t first_word(std::string_view text, WordPattern pattern) {
  constexpr std::size_t kLlama3Digits = 3;
  if (pattern != WordPattern::kGpt2) return first_word_of_llama3(text, pattern == WordPattern::kQwen2 ? 1 : kLlama3Digits);
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.front() == '\'' && text.starts_with(ending)) return ending.size();
  }
  const std::size_t space = text.front() == ' ' && text.size() > 1 ? 1 : 0;
  const std::string_view rest = text.substr(space);
  const CharacterClass kind = class_of(first_character(rest).code);
  if (kind != CharacterClass::kSpace) return space + run_of(kind, rest).bytes;
  const Run spaces = run_of(CharacterClass::kSpace, text);
  // The last character of a run of whitespace belongs to the next word, unless it is the only character of the run or the run
  // ends the text.
  const bool to_the_end = spaces.bytes == text.size() || spaces.bytes == spaces.last;
  return to_the_end ? spaces.bytes : spaces.bytes - spaces.last;
}

}  // namespace ddprun::trainer
