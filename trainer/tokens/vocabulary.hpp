// Converts text to tokens and back, either by bytes or by a byte-level BPE vocabulary (bpe.hpp). It encodes training text and
// decodes generated text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

// A vocabulary is immutable, so several threads can use it.
class Vocabulary {
 public:
  Vocabulary() = default;
  virtual ~Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  // Returns the number of tokens. Valid tokens are 0 to size() - 1.
  virtual std::int64_t size() const = 0;
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  // Returns the bytes that a token represents, or U+FFFD for an unknown token. The bytes may be only a part of a UTF-8
  // character.
  virtual std::string bytes_of(std::int64_t token) const = 0;
};

// Returns the vocabulary in which each byte is a token.
std::shared_ptr<const Vocabulary> byte_vocabulary();

}  // namespace ddprun::trainer
