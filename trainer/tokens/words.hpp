// A text cut into the words within which byte-level BPE merges, as GPT-2 (Radford et al. 2019, encoder.py) does it:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <cstddef>
#include <string_view>

namespace ddprun::trainer {

// The bytes of the first word of a text in UTF-8 that is not empty.
std::size_t first_word(std::string_view text);

}  // namespace ddprun::trainer
