// Text as tokens, as a Source: a sample is a run of data.block_size tokens and the token that follows each. Samples lie one
// after the other in the file; what is left at its end is not used. Batches are {tokens int64 [n, block], next tokens int64 [n,
// block]}, and each sample counts for its tokens. What follows the end of a document is not predicted: it is kNotPredicted in
// the batch and counts for nothing. Files are mapped and not read whole:
//   *.bin  tokens of 16 or 32 bits, little-endian: bare as nanoGPT writes them, or behind a header of llm.c, which says which
//   other  text: each byte is a token, or a vocabulary says what is; then the file is encoded whole, into memory
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/tokens/vocabulary.hpp"

namespace ddprun::trainer {

// How files that do not say it themselves are read.
struct TokenReading {
  std::size_t width = 2;                              // bytes of a token in a *.bin without a header: 2 or 4
  std::shared_ptr<const Vocabulary> vocabulary = {};  // of text; null: bytes
  std::optional<std::int64_t> end_of_document = {};   // absent: no documents are told apart
};

// `limit`: so many samples of it, 0 for all; `limit_key` names it. Throws UsageError for a file that is none of these or has no
// whole sample. A token that is not below `vocabulary` is refused by make(), which names its place.
std::shared_ptr<const Source> token_source(const std::filesystem::path& file, std::int64_t block, std::int64_t vocabulary,
                                           std::int64_t limit, const char* limit_key, const TokenReading& reading = {});

// The vocabulary of the config's text. Null: its tokens come from a file, and what they stand for is not known. Throws
// UsageError where it is larger than data.vocab_size.
std::shared_ptr<const Vocabulary> vocabulary_of(const DataConfig& config);

// A token file of 16 or 32 bits behind llm.c's header, whichever so many tokens of a vocabulary need.
std::string encode_token_file(const std::vector<std::uint32_t>& tokens, std::int64_t vocabulary_size);

// Whether a file of that name is read as text.
bool is_text_file(const std::filesystem::path& file);

// From the config alone.
Description describe_tokens(const DataConfig& config);

Sources read_tokens(const DataConfig& config);

}  // namespace ddprun::trainer
