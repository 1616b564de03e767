// Reads vocabulary files of the Hugging Face libraries tokenizers and transformers.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/tokens/vocabulary.hpp"

namespace ddprun::trainer {

// Reads a vocabulary. `path` is a tokenizer.json, or a folder with tokenizer.json or with vocab.json and merges.txt. Supports
// byte-level BPE with the word pattern of GPT-2, Llama 3 or Qwen2, and the normalization NFC. Throws UsageError for other
// vocabularies, and for settings with which Hugging Face's tokenizers would give different tokens.
std::shared_ptr<const Vocabulary> read_vocabulary(const std::filesystem::path& path);

}  // namespace ddprun::trainer
