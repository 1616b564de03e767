// Reads vocabulary files of Hugging Face's libraries.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/tokens/vocabulary.hpp"

namespace ddprun::trainer {

// `path`: a tokenizer.json, or a folder with one or with vocab.json and merges.txt. Supports byte-level BPE with GPT-2's
// pattern of words. Throws UsageError for other files, and for settings that would give other tokens than this implementation.
std::shared_ptr<const Vocabulary> read_vocabulary(const std::filesystem::path& path);

}  // namespace ddprun::trainer
