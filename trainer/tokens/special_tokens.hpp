// Which entries of a vocab.json are special: matched in a text before anything is cut or merged, as transformers does it.
//
// vocab.json and merges.txt do not say it. Three files may lie in the same folder and do: special_tokens_map.json,
// tokenizer_config.json and added_tokens.json. Without them, an entry is special if no merge makes it (so that it could never
// occur), it has more than one byte and it is spelled in brackets, such as "<s>" or "[PAD]". tokenizers' own trainers leave
// special tokens in this form. "<|endoftext|>" is special in each case: GPT-2's tokenizer has it by default.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/tokens/bpe.hpp"

namespace ddprun::trainer {

// Puts them into `bpe.added`, and reads add_prefix_space of tokenizer_config.json. `vocabulary` is the content of vocab.json,
// `bpe` has its tokens and merges. Throws UsageError that begins with the file's path: damaged, a token without a number, a
// token that takes the spaces beside it, or a tokenizer class with another pattern of words.
void add_special_tokens(Bpe& bpe, const nlohmann::json& vocabulary, const std::filesystem::path& folder);

}  // namespace ddprun::trainer
