// Text into tokens and back: by bytes, or by a byte-level BPE vocabulary (bpe.hpp). Who reads a text to train on and who writes
// one by a model call it.
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

  // Tokens count from 0 to below this.
  virtual std::int64_t size() const = 0;
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  // What a token stands for; a character of UTF-8 may be spread over several. U+FFFD for one that stands for nothing.
  virtual std::string bytes_of(std::int64_t token) const = 0;
};

// Each byte is a token.
std::shared_ptr<const Vocabulary> byte_vocabulary();

}  // namespace ddprun::trainer
