// Implementation of tokens.hpp.
#include "trainer/data/tokens.hpp"

#include <ATen/ops/empty.h>

#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "trainer/data/fingerprint.hpp"
#include "trainer/data/mapped_file.hpp"

namespace ddprun::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie in memory");

// llm.c's: 256 numbers of 32 bits, of which the first three say what it is, in which version, and how many tokens follow.
constexpr std::size_t kHeaderBytes = 1024;
constexpr std::int32_t kMagic = 20240520;
constexpr std::int32_t kVersion = 1;

std::array<std::int32_t, 3> header_of(std::string_view bytes) {
  std::array<std::int32_t, 3> numbers{};
  if (bytes.size() >= kHeaderBytes) std::memcpy(numbers.data(), bytes.data(), sizeof numbers);
  return numbers;
}

struct Tokens {
  std::string_view bytes;  // without a header
  std::size_t width = 1;   // bytes of one

  std::int64_t count() const { return static_cast<std::int64_t>(bytes.size() / width); }
  std::int64_t at(std::int64_t place) const {
    if (width == 1) return static_cast<unsigned char>(bytes[static_cast<std::size_t>(place)]);
    std::uint16_t token = 0;
    std::memcpy(&token, bytes.data() + static_cast<std::size_t>(place) * width, sizeof token);
    return token;
  }
};

Tokens tokens_in(std::string_view bytes, const std::filesystem::path& file) {
  constexpr std::size_t kWidth = sizeof(std::uint16_t);
  if (file.extension() != ".bin") return {.bytes = bytes, .width = 1};
  if (const auto [magic, version, count] = header_of(bytes); magic == kMagic) {
    if (version != kVersion) {
      throw UsageError(file.string() + ": has version " + std::to_string(version) +
                       " of llm.c's header; version 1, with tokens of 16 bits, can be read");
    }
    bytes.remove_prefix(kHeaderBytes);
    if (count < 0 || static_cast<std::size_t>(count) * kWidth != bytes.size()) {
      throw UsageError(file.string() + ": its header says " + std::to_string(count) + " tokens of 2 bytes, and " +
                       std::to_string(bytes.size()) + " bytes follow");
    }
  }
  if (bytes.size() % kWidth != 0) {
    throw UsageError(file.string() + ": has " + std::to_string(bytes.size()) +
                     " bytes, which are no tokens of 2; text has another name than *.bin");
  }
  return {.bytes = bytes, .width = kWidth};
}

class TokenSource : public Source {
 public:
  TokenSource(const std::filesystem::path& file, std::int64_t block, std::int64_t vocabulary, std::int64_t limit,
              const char* limit_key)
      : file_(file), mapped_(file), tokens_(tokens_in(mapped_.bytes(), file)), block_(block), vocabulary_(vocabulary) {
    size_ = (tokens_.count() - 1) / block_;
    if (size_ < 1) {
      throw UsageError(file.string() + ": has " + std::to_string(tokens_.count()) + " tokens; one sample of data.block_size " +
                       std::to_string(block_) + " needs " + std::to_string(block_ + 1));
    }
    if (limit > size_) {
      throw UsageError(std::string(limit_key) + " is " + std::to_string(limit) + ", but '" + file.string() + "' holds only " +
                       std::to_string(size_) + " samples of data.block_size " + std::to_string(block_) +
                       ". Lower it, or set it to 0 for all.");
    }
    if (limit > 0) size_ = limit;
  }

  std::int64_t size() const override { return size_; }
  Description describe() const override {
    return {.tensors = {{.sizes = {block_}, .type = at::kLong}, {.sizes = {block_}, .type = at::kLong}}};
  }
  double weight(std::int64_t /*sample*/) const override { return static_cast<double>(block_); }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    const at::Tensor inputs = at::empty({count, block_}, at::kLong), targets = at::empty({count, block_}, at::kLong);
    auto* input = inputs.mutable_data_ptr<std::int64_t>();
    auto* target = targets.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t sample : samples) {
      const std::int64_t first = sample * block_;
      std::int64_t token = checked(first);
      for (std::int64_t i = 0; i < block_; ++i) {
        *input++ = token;
        *target++ = token = checked(first + i + 1);
      }
    }
    return {.tensors = {inputs, targets}, .weight = static_cast<double>(count * block_)};
  }

  std::string fingerprint() const override {
    const auto used = static_cast<std::size_t>(size_ * block_ + 1) * tokens_.width;
    return std::to_string(size_) + "x" + std::to_string(block_) + " tokens " + fingerprint_of(tokens_.bytes.substr(0, used));
  }

 private:
  std::int64_t checked(std::int64_t place) const {
    const std::int64_t token = tokens_.at(place);
    if (token < vocabulary_) return token;
    throw UsageError(file_.string() + ": token " + std::to_string(place) + " is " + std::to_string(token) +
                     "; with data.vocab_size " + std::to_string(vocabulary_) + " it has to be below that");
  }

  std::filesystem::path file_;
  MappedFile mapped_;
  Tokens tokens_;
  std::int64_t block_;
  std::int64_t vocabulary_;
  std::int64_t size_ = 0;
};

}  // namespace

std::shared_ptr<const Source> token_source(const std::filesystem::path& file, std::int64_t block, std::int64_t vocabulary,
                                           std::int64_t limit, const char* limit_key) {
  return std::make_shared<TokenSource>(file, block, vocabulary, limit, limit_key);
}

Description describe_tokens(const DataConfig& config) {
  return {.tensors = {{.sizes = {config.block_size}, .type = at::kLong}, {.sizes = {config.block_size}, .type = at::kLong}}};
}

Sources read_tokens(const DataConfig& config) {
  const std::filesystem::path folder = config.dir;
  return {.train = token_source(folder / config.train_tokens, config.block_size, config.vocab_size, config.train_samples,
                                "data.train_samples"),
          .test = token_source(folder / config.test_tokens, config.block_size, config.vocab_size, config.test_samples,
                               "data.test_samples")};
}

}  // namespace ddprun::trainer
