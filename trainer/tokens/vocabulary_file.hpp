// Vocabularies in the files of Hugging Face's libraries.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/tokens/vocabulary.hpp"

namespace ddprun::trainer {

// A tokenizer.json, or a folder with one or with vocab.json and merges.txt: byte-level BPE with GPT-2's pattern of words.
// Throws UsageError for what is none, or has parts that would give other tokens than are read here.
std::shared_ptr<const Vocabulary> read_vocabulary(const std::filesystem::path& path);

}  // namespace ddprun::trainer
