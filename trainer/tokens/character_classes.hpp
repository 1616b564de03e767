// The character classes that GPT-2's pattern uses to split a text into words (words.hpp).
#pragma once

namespace ddprun::trainer {

enum class CharacterClass { kOther, kLetter, kNumber, kSpace };

// Returns the class of a character. Letters and numbers are Unicode's categories L and N. Spaces are the characters with the
// property White_Space.
CharacterClass class_of(char32_t code);

}  // namespace ddprun::trainer
