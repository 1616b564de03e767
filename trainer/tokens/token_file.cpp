#include "trainer/tokens/token_file.hpp"

#include <ATen/ops/empty.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/data/fingerprint.hpp"
#include "trainer/data/samples.hpp"
#include "trainer/reading/mapped_file.hpp"
#include "trainer/tokens/container.hpp"
#include "trainer/tokens/vocabulary_file.hpp"

namespace ddprun::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read without byte swapping");

// The header of a token file of llm.c has 256 32-bit numbers. The first three are the magic, the version and the number of
// tokens. llm.c's GPT-2 and Llama 3 files have different magics and versions, which determine the number of bytes per token.
constexpr std::size_t kHeaderBytes = 1024;
struct HeaderKind {
  std::int32_t magic = 0;
  std::int32_t version = 0;
  std::size_t width = 0;  // bytes per token
};
constexpr std::array<HeaderKind, 2> kHeaderKinds{{{20240520, 1, sizeof(std::uint16_t)}, {20240801, 7, sizeof(std::uint32_t)}}};

std::array<std::int32_t, 3> header_of(std::string_view bytes) {
  std::array<std::int32_t, 3> numbers{};
  if (bytes.size() >= kHeaderBytes) std::memcpy(numbers.data(), bytes.data(), sizeof numbers);
  return numbers;
}

template <typename Number>
std::int64_t read_at(const char* from) {
  Number number = 0;
  std::memcpy(&number, from, sizeof number);
  return number;
}

struct Tokens {
  std::string_view bytes;  // the tokens, without the header
  std::size_t width = 1;   // bytes per token

  std::int64_t count() const { return static_cast<std::int64_t>(bytes.size() / width); }
  std::int64_t at(std::int64_t place) const {
    const char* const from = bytes.data() + static_cast<std::size_t>(place) * width;
    if (width == 1) return static_cast<unsigned char>(*from);
    if (width == sizeof(std::uint16_t)) return read_at<std::uint16_t>(from);
    return read_at<std::uint32_t>(from);
  }
};

void refuse_container(std::string_view bytes, const std::filesystem::path& file) {
  const std::string_view found = container_of(bytes);
  if (found.empty()) return;
  throw UsageError(
      file.string() + ": is " + std::string(found) +
      "; expected a text file, or a *.bin file of 16-bit or 32-bit tokens. Convert the file; for a NumPy array, use " +
      "array.astype('uint16').tofile('tokens.bin')");
}

Tokens tokens_in(std::string_view bytes, const std::filesystem::path& file, std::size_t width) {
  if (is_text_file(file)) return {.bytes = bytes, .width = 1};
  const auto [magic, version, count] = header_of(bytes);
  for (const HeaderKind& kind : kHeaderKinds) {
    if (magic != kind.magic) continue;
    if (version != kind.version) {
      throw UsageError(file.string() + ": has version " + std::to_string(version) + " of llm.c's header; expected version " +
                       std::to_string(kind.version) + ", with tokens of " + std::to_string(8 * kind.width) + " bits");
    }
    bytes.remove_prefix(kHeaderBytes);
    if (count < 0 || static_cast<std::size_t>(count) * kind.width != bytes.size()) {
      throw UsageError(file.string() + ": its header states " + std::to_string(count) + " tokens of " +
                       std::to_string(kind.width) + " bytes each, but " + std::to_string(bytes.size()) + " bytes follow");
    }
    return {.bytes = bytes, .width = kind.width};
  }
  if (bytes.size() % width != 0) {
    throw UsageError(file.string() + ": has " + std::to_string(bytes.size()) +
                     " bytes, which is not a multiple of the token size, " + std::to_string(width) +
                     "; a text file must not be named *.bin");
  }
  return {.bytes = bytes, .width = width};
}

std::string_view bytes_in(const std::vector<std::uint32_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(std::uint32_t)};
}

Description description_of(std::int64_t block) {
  return {.tensors = {{.sizes = {block}, .type = at::kLong}, {.sizes = {block}, .type = at::kLong}}};
}

class TokenSource : public Source {
 public:
  TokenSource(const std::filesystem::path& file, std::int64_t block, std::int64_t vocabulary, std::int64_t limit,
              const char* limit_key, const TokenReading& reading)
      : file_(file), block_(block), vocabulary_(vocabulary), end_of_document_(reading.end_of_document) {
    auto mapped = std::make_unique<MappedFile>(file);
    refuse_container(mapped->bytes(), file);
    if (reading.vocabulary && is_text_file(file)) {
      encoded_ = reading.vocabulary->encode(mapped->bytes());
      tokens_ = {.bytes = bytes_in(encoded_), .width = sizeof(std::uint32_t)};
    } else {
      mapped_ = std::move(mapped);
      tokens_ = tokens_in(mapped_->bytes(), file, reading.width);
    }
    size_ = (tokens_.count() - 1) / block_;
    if (size_ < 1) {
      throw UsageError(file.string() + ": has " + std::to_string(tokens_.count()) + " tokens; one sample of data.block_size " +
                       std::to_string(block_) + " needs " + std::to_string(block_ + 1));
    }
    size_ = samples_to_use(limit, size_, limit_key, file.string(), "samples of data.block_size " + std::to_string(block_));
  }

  std::int64_t size() const override { return size_; }
  Description describe() const override { return description_of(block_); }
  // Returns the number of tokens that the sample predicts. If documents are separated, the call reads the sample from the file.
  double weight(std::int64_t sample) const override {
    std::int64_t predicted = block_;
    for (std::int64_t i = 0; end_of_document_ && i < block_; ++i) {
      if (tokens_.at(sample * block_ + i) == *end_of_document_) --predicted;
    }
    return static_cast<double>(predicted);
  }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    const at::Tensor inputs = at::empty({count, block_}, at::kLong), targets = at::empty({count, block_}, at::kLong);
    auto* input = inputs.mutable_data_ptr<std::int64_t>();
    auto* target = targets.mutable_data_ptr<std::int64_t>();
    std::int64_t predicted = count * block_;
    for (const std::int64_t sample : samples) {
      const std::int64_t first = sample * block_;
      std::int64_t token = checked(first);
      for (std::int64_t i = 0; i < block_; ++i) {
        const bool ends = token == end_of_document_;
        *input++ = token;
        token = checked(first + i + 1);
        *target++ = ends ? kNotPredicted : token;
        if (ends) --predicted;
      }
    }
    return {.tensors = {inputs, targets}, .weight = static_cast<double>(predicted)};
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
                     "; expected a number below data.vocab_size, " + std::to_string(vocabulary_));
  }

  std::filesystem::path file_;
  std::unique_ptr<const MappedFile> mapped_;  // null if the text was encoded into encoded_
  std::vector<std::uint32_t> encoded_;
  Tokens tokens_;
  std::int64_t block_;
  std::int64_t vocabulary_;
  std::optional<std::int64_t> end_of_document_;
  std::int64_t size_ = 0;
};

}  // namespace

bool is_text_file(const std::filesystem::path& file) {
  return file.extension() != ".bin";
}

std::shared_ptr<const Source> token_source(const std::filesystem::path& file, std::int64_t block, std::int64_t vocabulary,
                                           std::int64_t limit, const char* limit_key, const TokenReading& reading) {
  return std::make_shared<TokenSource>(file, block, vocabulary, limit, limit_key, reading);
}

std::shared_ptr<const Vocabulary> vocabulary_of(const DataConfig& config) {
  if (config.tokenizer.empty()) return is_text_file(config.train_tokens) ? byte_vocabulary() : nullptr;
  auto vocabulary = read_vocabulary(config.tokenizer);
  if (vocabulary->size() <= config.vocab_size) return vocabulary;
  throw UsageError("data.tokenizer " + config.tokenizer + " has " + std::to_string(vocabulary->size()) +
                   " tokens, but data.vocab_size is " + std::to_string(config.vocab_size) + "; both must be equal");
}

std::string encode_token_file(const std::vector<std::uint32_t>& tokens, std::int64_t vocabulary_size) {
  const bool narrow = vocabulary_size <= std::int64_t{1} << 16;
  const HeaderKind& kind = kHeaderKinds[narrow ? 0 : 1];
  if (tokens.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw UsageError(std::to_string(tokens.size()) + " tokens are too many for llm.c's header; split the text into parts");
  }
  std::array<std::int32_t, kHeaderBytes / sizeof(std::int32_t)> header{kind.magic, kind.version,
                                                                       static_cast<std::int32_t>(tokens.size())};
  std::string bytes(reinterpret_cast<const char*>(header.data()), kHeaderBytes);
  if (!narrow) return bytes.append(bytes_in(tokens));
  const std::vector<std::uint16_t> halves(tokens.begin(), tokens.end());
  return bytes.append(reinterpret_cast<const char*>(halves.data()), halves.size() * sizeof(std::uint16_t));
}

Description describe_tokens(const DataConfig& config) {
  return description_of(config.block_size);
}

Sources read_tokens(const DataConfig& config) {
  const std::filesystem::path folder = config.dir;
  TokenReading reading{.width =
                           config.token_type == DataConfig::TokenType::kUint32 ? sizeof(std::uint32_t) : sizeof(std::uint16_t)};
  // Token files need no vocabulary, so an unsupported vocabulary does not prevent the training.
  const bool has_text = is_text_file(config.train_tokens) || is_text_file(config.test_tokens);
  if (!config.tokenizer.empty() && has_text) reading.vocabulary = vocabulary_of(config);
  reading.end_of_document = config.end_of_document;
  return {.train = token_source(folder / config.train_tokens, config.block_size, config.vocab_size, config.train_samples,
                                "data.train_samples", reading),
          .test = token_source(folder / config.test_tokens, config.block_size, config.vocab_size, config.test_samples,
                               "data.test_samples", reading)};
}

}  // namespace ddprun::trainer
