// Byte-level BPE (Sennrich et al. 2016, in GPT-2's form): cuts a text into words, and makes each byte a token. Then it merges
// neighbouring pairs in the order of the merges, until none is left. Gives the same tokens as Hugging Face's tokenizers.
// Invalid UTF-8 becomes U+FFFD, as with Python's "replace" before one of its tokenizers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/tokens/vocabulary.hpp"

namespace ddprun::trainer {

struct Bpe {
  struct Token {
    std::string bytes;  // the bytes that the token represents
    std::uint32_t id = 0;
  };
  std::vector<Token> tokens;                                // must have a token for each of the 256 bytes
  std::vector<std::pair<std::string, std::string>> merges;  // pairs of bytes; the first merge has priority
  std::vector<Token> added;                                 // matched in the text before it is cut into words
  bool prefix_space = false;                                // puts a space before a text that begins with none
  bool whole_words = false;                                 // a word that is a token is not split, whatever the merges say
};

// Throws UsageError for a byte without a token, and for a merge whose parts or result are not tokens.
std::shared_ptr<const Vocabulary> make_bpe(const Bpe& bpe);

}  // namespace ddprun::trainer
