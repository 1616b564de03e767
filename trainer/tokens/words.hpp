// Splits a text into words by GPT-2's pattern (Radford et al. 2019, encoder.py). Byte-level BPE merges tokens only within a
// word.
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <cstddef>
#include <string_view>

namespace ddprun::trainer {

// Returns the length in bytes of the first word. The text must be UTF-8 and not empty.
std::size_t first_word(std::string_view text);

}  // namespace ddprun::trainer
