// Finds the special entries of a vocab.json. They are matched in a text before it is cut or merged, as in transformers.
//
// vocab.json and merges.txt do not mark them. Three other files of the same folder may: special_tokens_map.json,
// tokenizer_config.json and added_tokens.json. Without them, an entry is special if three conditions hold: no merge produces it
// (so that it could never occur), it has more than one byte, and it is in brackets, such as "<s>" or "[PAD]". tokenizers' own
// trainers write special tokens in this form. "<|endoftext|>" is always special: GPT-2's tokenizer has it by default.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/tokens/bpe.hpp"

namespace ddprun::trainer {

// Adds them to `bpe.added`, and reads add_prefix_space of tokenizer_config.json. `vocabulary` is the content of vocab.json;
// `bpe` has its tokens and merges. Throws UsageError that begins with the file's path: the file is damaged, a token has no
// number or strips adjacent spaces, or the tokenizer class has another pattern of words.
void add_special_tokens(Bpe& bpe, const nlohmann::json& vocabulary, const std::filesystem::path& folder);

}  // namespace ddprun::trainer
