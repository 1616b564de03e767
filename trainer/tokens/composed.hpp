// Unicode's normalization form NFC (Unicode Standard Annex #15), which Qwen's tokenizers apply to a text before they split it.
//
// Some characters have two spellings: "é" is one code point, or an "e" followed by an accent. NFC replaces both spellings by
// the same one, in three steps. Each character is decomposed as far as possible. Accents on the same letter are sorted by
// their combining class. Then each letter is composed with the accents that follow it, if the result is a character.
#pragma once

#include <string>
#include <string_view>

namespace ddprun::trainer {

// Returns the text in form NFC. The text must be UTF-8.
std::string composed(std::string_view text);

}  // namespace ddprun::trainer
