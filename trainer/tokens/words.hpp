// Splits a text into words. Byte-level BPE merges tokens only within a word. GPT-2's pattern (Radford et al. 2019, encoder.py):
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Llama 3 has the following pattern. The pattern of Qwen2 is the same, except that it has \p{N} instead of \p{N}{1,3}:
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
#pragma once

#include <cstddef>
#include <string_view>

namespace ddprun::trainer {

enum class WordPattern { kGpt2, kLlama3, kQwen2 };

// The patterns of Llama 3 and Qwen2 as they are written in a tokenizer.json.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Returns the length in bytes of the first word. The text must be UTF-8 and not empty.
std::size_t first_word(std::string_view text, WordPattern pattern = WordPattern::kGpt2);

}  // namespace ddprun::trainer
