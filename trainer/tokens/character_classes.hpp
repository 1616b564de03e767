// What GPT-2's pattern of words asks of a character.
#pragma once

namespace ddprun::trainer {

enum class CharacterClass { kOther, kLetter, kNumber, kSpace };

// Unicode's categories L and N, and White_Space.
CharacterClass class_of(char32_t code);

}  // namespace ddprun::trainer
