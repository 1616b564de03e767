// Cuts a text into the words within which byte-level BPE merges, as GPT-2 does (Radford et al. 2019, encoder.py):
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <cstddef>
#include <string_view>

namespace ddprun::trainer {

// Bytes of the first word of a text in UTF-8 that is not empty.
std::size_t first_word(std::string_view text);

}  // namespace ddprun::trainer
