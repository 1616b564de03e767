// The vocabulary that is used for a text file if the config has no tokenizer: each byte is a token.
#include "trainer/tokens/utf8.hpp"
#include "trainer/tokens/vocabulary.hpp"

namespace ddprun::trainer {
namespace {

class Bytes : public Vocabulary {
 public:
  std::int64_t size() const override { return 256; }

  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> tokens;
    tokens.reserve(text.size());
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
  }

  std::string bytes_of(std::int64_t token) const override {
    return token >= 0 && token < size() ? std::string(1, static_cast<char>(token)) : std::string(kReplacementBytes);
  }
};

}  // namespace

std::shared_ptr<const Vocabulary> byte_vocabulary() {
  return std::make_shared<Bytes>();
}

}  // namespace ddprun::trainer
