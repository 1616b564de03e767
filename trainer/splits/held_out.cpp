#include "trainer/splits/held_out.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/data/sampler.hpp"

namespace ddprun::trainer {
namespace {

// Changes the seed of the permutation that selects the held-out samples. This permutation must be independent of the
// permutations that shuffle the epochs, whose seed is `seed + epoch`.
constexpr std::uint64_t kOwnSeed = 0x76616c6964617465;

class SourceSubset : public Source {
 public:
  SourceSubset(std::shared_ptr<const Source> whole, std::vector<std::int64_t> samples)
      : whole_(std::move(whole)), samples_(std::move(samples)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  Description describe() const override { return whole_->describe(); }
  double weight(std::int64_t sample) const override { return whole_->weight(number_of(sample)); }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const override {
    std::vector<std::int64_t> numbers(samples.size());
    std::ranges::transform(samples, numbers.begin(), [this](std::int64_t sample) { return number_of(sample); });
    return whole_->make(numbers, draws);
  }

  std::function<void(Batch&)> finish_on(c10::Device device) const override { return whole_->finish_on(device); }

  std::string place_of(std::int64_t sample, std::size_t tensor) const override {
    return whole_->place_of(number_of(sample), tensor);
  }

  std::string fingerprint() const override { return std::to_string(size()) + " of " + whole_->fingerprint(); }

 private:
  std::int64_t number_of(std::int64_t sample) const { return samples_[static_cast<std::size_t>(sample)]; }

  std::shared_ptr<const Source> whole_;
  std::vector<std::int64_t> samples_;
};

std::int64_t held_out_of(const ValidationConfig& config, std::int64_t samples) {
  const bool by_number = config.samples > 0;
  const std::int64_t held_out = by_number ? config.samples : std::llround(config.fraction * static_cast<double>(samples));
  if (held_out > 0 && held_out < samples) return held_out;
  throw UsageError(std::string(by_number ? "data.validation.samples" : "data.validation.fraction") + " holds out " +
                   std::to_string(held_out) + " of " + std::to_string(samples) +
                   " training samples; at least 1 must be held out, and 1 must remain for training");
}

}  // namespace

SplitSamples split_samples(const TrainConfig& config, std::int64_t samples) {
  std::vector<std::int64_t> order = epoch_order(samples, config.seed ^ kOwnSeed, 0);
  const std::int64_t held_out = config.data.validation.is_set() ? held_out_of(config.data.validation, samples) : 0;
  SplitSamples split{.train = {order.begin() + held_out, order.end()}, .validation = {order.begin(), order.begin() + held_out}};
  std::ranges::sort(split.train);
  std::ranges::sort(split.validation);
  return split;
}

Sources hold_out(Sources data, const TrainConfig& config) {
  if (!config.data.validation.is_set()) return data;
  SplitSamples split = split_samples(config, data.train->size());
  data.validation = std::make_shared<SourceSubset>(data.train, std::move(split.validation));
  data.train = std::make_shared<SourceSubset>(std::move(data.train), std::move(split.train));
  return data;
}

}  // namespace ddprun::trainer
