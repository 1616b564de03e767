#include "trainer/synthetic/synthetic_source.hpp"

#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/dataset.hpp"
#include "trainer/tables/table.hpp"
#include "trainer/tokens/token_file.hpp"

namespace ddprun::trainer {
namespace {

// Keys for the generator Philox. Because of the different keys, each kind of random numbers has an independent stream.
enum class DrawKind : std::uint64_t { kSample, kNoise, kTexture, kToken };

constexpr std::int64_t kPlaces = std::int64_t{1} << 20;  // number of offsets in the noise array at which a piece may start
constexpr const char* kMadeUp = ", made up (1)";  // part of the fingerprints; increase the number when the samples change

at::Philox4_32 draws_of(DrawKind what, std::uint64_t number) {
  return at::Philox4_32(static_cast<std::uint64_t>(what), number);
}

std::uint64_t number_of(Split split, std::int64_t sample) {
  return 2 * static_cast<std::uint64_t>(sample) + static_cast<std::uint64_t>(split);
}

std::int64_t below(std::int64_t limit, std::uint32_t draw) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(draw) * static_cast<std::uint64_t>(limit) >> 32);
}

// Maps the random bits `draw` to a uniform distribution with mean 0 and standard deviation `deviation`. Uses only sums and
// products, which every machine rounds in the same way.
float uniform(std::uint32_t draw, float deviation) {
  constexpr float kSquareRootOfThree = 1.7320508F;
  constexpr float kStep = 1.0F / (1 << 23);
  return (static_cast<float>(draw >> 8) * kStep - 1.0F) * (kSquareRootOfThree * deviation);
}

// Returns noise of mean 0 and variance 1/2. Two pieces of this noise are added, so the sum has variance 1.
std::shared_ptr<const std::vector<float>> half_variance_noise(std::int64_t count) {
  constexpr float kSquareRootOfHalf = 0.70710678F;
  at::Philox4_32 draw = draws_of(DrawKind::kNoise, 0);
  auto numbers = std::make_shared<std::vector<float>>(static_cast<std::size_t>(count));
  for (float& number : *numbers) number = uniform(draw(), kSquareRootOfHalf);
  return numbers;
}

using Texture = std::array<float, kTexture>;

Texture texture_of(std::uint64_t number) {
  constexpr float kStrength = 0.5F;
  at::Philox4_32 draw = draws_of(DrawKind::kTexture, number);
  Texture texture{};
  for (float& one : texture) one = uniform(draw(), kStrength);
  return texture;
}

std::string shape_text(std::int64_t samples, const std::vector<std::int64_t>& shape) {
  std::string text = std::to_string(samples);
  for (const std::int64_t size : shape) text += "x" + std::to_string(size);
  return text;
}

class Rows : public Source {
 public:
  Rows(const DataConfig& config, Split split, std::int64_t size, std::shared_ptr<const std::vector<float>> noise)
      : config_(config), split_(split), size_(size), numbers_(c10::multiply_integers(config.shape)), noise_(std::move(noise)) {}

  std::int64_t size() const override { return size_; }
  Description describe() const override { return describe_row(config_.shape, config_.predict); }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    std::vector<std::int64_t> sizes{count};
    sizes.insert(sizes.end(), config_.shape.begin(), config_.shape.end());
    const bool numbers = config_.predict == DataConfig::Predict::kNumber;
    const at::Tensor inputs = at::empty(sizes, at::kFloat);
    const at::Tensor targets = numbers ? at::empty({count, 1}, at::kFloat) : at::empty({count}, at::kLong);
    auto* input = inputs.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < count; ++i, input += numbers_) {
      at::Philox4_32 draw = draws_of(DrawKind::kSample, number_of(split_, samples[static_cast<std::size_t>(i)]));
      const std::int64_t one = below(kPlaces, draw()), other = below(kPlaces, draw());
      if (numbers) {
        const float target = uniform(draw(), 1);
        targets.mutable_data_ptr<float>()[i] = target;
        write(one, other, texture_of(0), target, input);
      } else {
        const std::int64_t label = below(config_.classes, draw());
        targets.mutable_data_ptr<std::int64_t>()[i] = label;
        write(one, other, texture_of(static_cast<std::uint64_t>(label)), 1, input);
      }
    }
    return {.tensors = {inputs, targets}, .weight = static_cast<double>(count)};
  }

  std::string fingerprint() const override {
    return shape_text(size_, config_.shape) +
           (config_.predict == DataConfig::Predict::kNumber ? " with a number"
                                                            : " of " + std::to_string(config_.classes) + " classes") +
           kMadeUp;
  }

 private:
  void write(std::int64_t one, std::int64_t other, Texture texture, float strength, float* to) const {
    for (float& number : texture) number *= strength;
    const float* first = noise_->data() + one;
    const float* second = noise_->data() + other;
    for (std::int64_t left = numbers_; left > 0; left -= kTexture) {
      const std::int64_t count = std::min(left, kTexture);
      for (std::int64_t i = 0; i < count; ++i) to[i] = first[i] + second[i] + texture[static_cast<std::size_t>(i)];
      first += count;
      second += count;
      to += count;
    }
  }

  DataConfig config_;
  Split split_;
  std::int64_t size_;
  std::int64_t numbers_;  // numbers per sample
  std::shared_ptr<const std::vector<float>> noise_;
};

class TokenRuns : public Source {
 public:
  TokenRuns(const DataConfig& config, Split split, std::int64_t size) : config_(config), split_(split), size_(size) {}

  std::int64_t size() const override { return size_; }
  Description describe() const override { return describe_tokens(config_); }
  double weight(std::int64_t /*sample*/) const override { return static_cast<double>(config_.block_size); }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    const std::int64_t block = config_.block_size;
    const at::Tensor inputs = at::empty({count, block}, at::kLong), targets = at::empty({count, block}, at::kLong);
    auto* input = inputs.mutable_data_ptr<std::int64_t>();
    auto* target = targets.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t sample : samples) {
      at::Philox4_32 draw = draws_of(DrawKind::kToken, number_of(split_, sample));
      std::int64_t token = below(config_.vocab_size, draw());
      for (std::int64_t i = 0; i < block; ++i) {
        *input++ = token;
        token = after(token, draw);
        *target++ = token;
      }
    }
    return {.tensors = {inputs, targets}, .weight = static_cast<double>(count * block)};
  }

  std::string fingerprint() const override {
    return shape_text(size_, {config_.block_size}) + " of " + std::to_string(config_.vocab_size) + " tokens" + kMadeUp;
  }

 private:
  std::int64_t after(std::int64_t token, at::Philox4_32& draw) const {
    if (below(4, draw()) == 0) return below(config_.vocab_size, draw());
    return (7 * token + 3) % config_.vocab_size;
  }

  DataConfig config_;
  Split split_;
  std::int64_t size_;
};

std::int64_t samples_or_default(std::int64_t requested) {
  return requested == 0 ? kSyntheticSamples : requested;
}

}  // namespace

Description describe_synthetic(const TrainConfig& config) {
  const DataConfig& data = config.data;
  return config.model.is_language_model() ? describe_tokens(data) : describe_row(data.shape, data.predict);
}

Sources make_synthetic(const TrainConfig& config) {
  const DataConfig& data = config.data;
  const std::int64_t train = samples_or_default(data.train_samples), test = samples_or_default(data.test_samples);
  if (config.model.is_language_model()) {
    return {.train = std::make_shared<TokenRuns>(data, Split::kTrain, train),
            .test = std::make_shared<TokenRuns>(data, Split::kTest, test)};
  }
  const auto noise = half_variance_noise(kPlaces + c10::multiply_integers(data.shape));
  return {.train = std::make_shared<Rows>(data, Split::kTrain, train, noise),
          .test = std::make_shared<Rows>(data, Split::kTest, test, noise)};
}

}  // namespace ddprun::trainer
