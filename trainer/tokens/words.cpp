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

}  // namespace

std::size_t first_word(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.front() == '\'' && text.starts_with(ending)) return ending.size();
  }
  const std::size_t space = text.front() == ' ' && text.size() > 1 ? 1 : 0;
  const std::string_view rest = text.substr(space);
  const CharacterClass kind = class_of(first_character(rest).code);
  if (kind != CharacterClass::kSpace) return space + run_of(kind, rest).bytes;
  const Run spaces = run_of(CharacterClass::kSpace, text);
  // The last space of a run belongs to the next word. But if the run has only one space or ends the text, the space belongs to
  // the run.
  const bool to_the_end = spaces.bytes == text.size() || spaces.bytes == spaces.last;
  return to_the_end ? spaces.bytes : spaces.bytes - spaces.last;
}

}  // namespace ddprun::trainer
