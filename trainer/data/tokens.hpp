// Text as tokens, as a Source: a sample is a run of data.block_size tokens and the token that follows each. Samples lie one
// after the other in the file; what is left at its end is not used. Batches are {tokens int64 [n, block], next tokens int64 [n,
// block]}, and each sample counts for its tokens. Files are mapped and not read whole:
//   *.bin  tokens of 16 bits, little-endian: bare as nanoGPT writes them, or behind the header of llm.c
//   other  text: each byte is a token
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// `limit`: so many samples of it, 0 for all; `limit_key` names it. Throws UsageError for a file that is none of these or has no
// whole sample. A token that is not below `vocabulary` is refused by make(), which names its place.
std::shared_ptr<const Source> token_source(const std::filesystem::path& file, std::int64_t block, std::int64_t vocabulary,
                                           std::int64_t limit, const char* limit_key);

// From the config alone.
Description describe_tokens(const DataConfig& config);

Sources read_tokens(const DataConfig& config);

}  // namespace ddprun::trainer
