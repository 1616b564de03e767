// Converts text to tokens and back: by bytes, or by a byte-level BPE vocabulary (bpe.hpp). Used to read training text and to
// write generated text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

// Immutable; calls are safe from several threads.
class Vocabulary {
 public:
  Vocabulary() = default;
  virtual ~Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  // Number of tokens; they count from 0.
  virtual std::int64_t size() const = 0;
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  // The bytes that a token represents. A UTF-8 character may extend over several tokens. U+FFFD for a number without a token.
  virtual std::string bytes_of(std::int64_t token) const = 0;
};

// Each byte is a token.
std::shared_ptr<const Vocabulary> byte_vocabulary();

}  // namespace ddprun::trainer
