// Text as tokens, as a Source. A sample is data.block_size consecutive tokens and the next token of each. Samples follow each
// other in the file, and the rest at its end is unused. Batches are {tokens int64 [n, block], next tokens int64 [n, block]},
// and a sample's weight is its number of predicted tokens. The token after the end of a document is not predicted: it is
// kNotPredicted in the batch and has no weight. Files are mapped and not read whole:
//   *.bin  tokens of 16 or 32 bits, little-endian: bare as in nanoGPT, or behind a header of llm.c, which defines the width
//   other  text: each byte is a token, or a vocabulary encodes the whole file into memory
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

// Reading options for files that do not define them.
struct TokenReading {
  std::size_t width = 2;                              // bytes per token in a *.bin without a header: 2 or 4
  std::shared_ptr<const Vocabulary> vocabulary = {};  // for text; null: each byte is a token
  std::optional<std::int64_t> end_of_document = {};   // nullopt: documents are not separated
};

// `limit`: maximum number of samples, 0 for all; `limit_key` names its config key. Throws UsageError if the file has none of
// these formats or no whole sample. make() refuses a token that is not below `vocabulary` and names its place.
std::shared_ptr<const Source> token_source(const std::filesystem::path& file, std::int64_t block, std::int64_t vocabulary,
                                           std::int64_t limit, const char* limit_key, const TokenReading& reading = {});

// The vocabulary of the config's text. Null if tokens come from a file and their meaning is unknown. Throws UsageError if it is
// larger than data.vocab_size.
std::shared_ptr<const Vocabulary> vocabulary_of(const DataConfig& config);

// Encodes a token file with llm.c's header, with 16 or 32 bits per token, as the size of the vocabulary requires.
std::string encode_token_file(const std::vector<std::uint32_t>& tokens, std::int64_t vocabulary_size);

// Whether a file with that name is read as text.
bool is_text_file(const std::filesystem::path& file);

// Uses the config alone.
Description describe_tokens(const DataConfig& config);

Sources read_tokens(const DataConfig& config);

}  // namespace ddprun::trainer
