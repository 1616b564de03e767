// Byte-level BPE (Sennrich et al. 2016), in the form that GPT-2 uses. A text is split into words. At first, each byte of a
// word is a token. Then pairs of adjacent tokens are merged, in the order of the list of merges, until no merge applies. For
// example, with the merges "l o" and "lo w", the word "low" becomes "l o w", then "lo w", then "low". The tokens are the same
// as with Hugging Face's tokenizers. Invalid UTF-8 is replaced by U+FFFD, as by Python's errors="replace".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/tokens/vocabulary.hpp"
#include "trainer/tokens/words.hpp"

namespace ddprun::trainer {

struct Bpe {
  struct Token {
    std::string bytes;  // text that the token represents
    std::uint32_t id = 0;
  };
  std::vector<Token> tokens;                                // must contain a token for each of the 256 byte values
  std::vector<std::pair<std::string, std::string>> merges;  // pairs of adjacent tokens to merge; earlier entries have priority
  std::vector<Token> added;                                 // special tokens, found before the text is split into words
  bool prefix_space = false;                                // if true, prepend a space to a text that starts without a space
  bool keep_whole_words = false;                            // if true, a word that is itself a token is not split
  WordPattern pattern = WordPattern::kGpt2;
  bool composes = false;  // if true, the text is normalized to Unicode's form NFC before it is split into words
};

// Throws UsageError if a byte value has no token, or if an operand or the result of a merge is not a token.
std::shared_ptr<const Vocabulary> make_bpe(const Bpe& bpe);

}  // namespace ddprun::trainer
