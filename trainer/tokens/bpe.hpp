// Byte-level BPE (Sennrich et al. 2016, as GPT-2 has it): a text is cut into words, each word's bytes are tokens, and pairs of
// neighbours are merged by the order of the merges, until there is none left. The same tokens as Hugging Face's tokenizers
// give. Bytes that are no UTF-8 become U+FFFD, as Python's "replace" makes them before a tokenizer of its sees them.
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
    std::string bytes;  // what it stands for
    std::uint32_t id = 0;
  };
  std::vector<Token> tokens;                                // a token for each of the 256 bytes among them
  std::vector<std::pair<std::string, std::string>> merges;  // in bytes, the first one first
  std::vector<Token> added;                                 // looked for in the text before it is cut into words
  bool prefix_space = false;                                // a space is put before a text that begins with none
  bool whole_words = false;                                 // a word that is a token is taken as it is, whatever the merges say
};

// Throws UsageError for a byte without a token and for a merge of what is no token, or into none.
std::shared_ptr<const Vocabulary> make_bpe(const Bpe& bpe);

}  // namespace ddprun::trainer
