// A data source for a file of tokens. A sample is data.block_size consecutive tokens, together with the token that follows each
// of them. Samples are adjacent in the file, and an incomplete sample at its end is not used. A batch is {tokens int64 [n,
// block], next tokens int64 [n, block]}. The weight of a sample is the number of tokens that it predicts. If documents are
// separated, the first token of a document is not predicted from the document before it. Its target is kNotPredicted and has no
// weight. Files are memory-mapped:
//   *.bin  tokens of 16 or 32 bits, little-endian: either bare, as in nanoGPT, or after llm.c's header, which shows the width
//   other  text: either each byte is a token, or a vocabulary encodes the whole file into memory
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

// Properties of a token file that cannot be read from the file.
struct TokenReading {
  std::size_t width = 2;                              // bytes per token in a *.bin file without a header: 2 or 4
  std::shared_ptr<const Vocabulary> vocabulary = {};  // vocabulary of a text file; if null, each byte is a token
  std::optional<std::int64_t> end_of_document = {};   // token that ends a document; nullopt if documents are not separate
};

// Opens a token file. `limit` is the maximum number of samples; 0 means all. `limit_key` is its config key, for messages.
// Throws UsageError if the file has a different format or no complete sample. make() throws UsageError with the position of a
// token that is not below `vocabulary`.
std::shared_ptr<const Source> token_source(const std::filesystem::path& file, std::int64_t block, std::int64_t vocabulary,
                                           std::int64_t limit, const char* limit_key, const TokenReading& reading = {});

// Returns the vocabulary with which the text files of the config are encoded. Returns null if the config has only files of
// tokens, whose vocabulary is unknown. Throws UsageError if the vocabulary is larger than data.vocab_size.
std::shared_ptr<const Vocabulary> vocabulary_of(const DataConfig& config);

// Returns the content of a token file with llm.c's header. Tokens have 16 bits, or 32 bits if the vocabulary has more than
// 65536 tokens.
std::string encode_token_file(const std::vector<std::uint32_t>& tokens, std::int64_t vocabulary_size);

// Returns true if a file with this name is read as text, and false if it is read as tokens.
bool is_text_file(const std::filesystem::path& file);

// Describes the samples. Uses only the config, and reads no files.
Description describe_tokens(const DataConfig& config);

Sources read_tokens(const DataConfig& config);

}  // namespace ddprun::trainer
