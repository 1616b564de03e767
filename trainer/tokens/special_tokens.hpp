// Finds the special tokens of a vocab.json. Special tokens are found in a text before the text is split into words, as in the
// library transformers.
//
// vocab.json and merges.txt do not mark special tokens. Three other files of the folder may list them:
// special_tokens_map.json, tokenizer_config.json and added_tokens.json. If all three files are missing, an entry of vocab.json
// is special under three conditions. No merge produces the entry, so it could not occur in a text if it were not special. The
// entry has more than one byte. The entry is in brackets, such as "<s>" or "[PAD]", as the trainers of the library tokenizers
// write special tokens. "<|endoftext|>" is always special, as in GPT-2's tokenizer.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/tokens/bpe.hpp"

namespace ddprun::trainer {

// Adds the special tokens to `bpe.added`, and sets `bpe.prefix_space` and the word pattern from tokenizer_config.json.
// `vocabulary` is the content of vocab.json. `bpe` must already have its tokens and merges. Throws UsageError, starting with
// the file's path, in these cases: a file is damaged, a special token has no id, a token would strip adjacent spaces, or the
// tokenizer class has an unsupported word pattern.
void add_special_tokens(Bpe& bpe, const nlohmann::json& vocabulary, const std::filesystem::path& folder);

}  // namespace ddprun::trainer
