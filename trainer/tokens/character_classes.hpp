// The character classes in GPT-2's pattern of words.
#pragma once

namespace ddprun::trainer {

enum class CharacterClass { kOther, kLetter, kNumber, kSpace };

// By Unicode's categories L and N, and White_Space.
CharacterClass class_of(char32_t code);

}  // namespace ddprun::trainer
