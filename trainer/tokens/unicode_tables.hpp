// Unicode's tables for composed.cpp. `tests/trainer/tokens/make_golden.py normalization FILE` generates them.
#pragma once

#include <cstdint>
#include <span>

namespace ddprun::trainer {

// A canonical decomposition into two characters, or into one if `second` is 0. `first` may have a decomposition too.
struct Decomposition {
  char32_t code;
  char32_t first;
  char32_t second;
};

// All decompositions except the decompositions of Hangul syllables, sorted by `code`.
std::span<const Decomposition> decompositions();

// The characters of this list are decomposed, but are never the result of a composition. The list is sorted.
std::span<const char32_t> uncomposed_characters();

// The combining class of a character, from 1 to 254; 0 for a character that does not combine with the one before it.
std::uint8_t combining_class(char32_t code);

}  // namespace ddprun::trainer
