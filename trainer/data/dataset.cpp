// Combines the image file and the label file of a split (IDX format), or reads CIFAR's files, and computes the normalization.
// A process calls this code once, when it starts. Throws UsageError if the files do not match each other or the config.
#include "trainer/data/dataset.hpp"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <future>
#include <span>

#include "common/base/error.hpp"
#include "trainer/data/cifar.hpp"
#include "trainer/data/idx_file.hpp"
#include "trainer/data/samples.hpp"

namespace ddprun::trainer {
namespace {

at::Tensor checked_labels(const IdxFile& file, std::int64_t classes, std::int64_t samples) {
  const std::span<const std::uint8_t> bytes(file.bytes.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(samples));
  const auto wrong = std::find_if(bytes.begin(), bytes.end(), [classes](std::uint8_t label) { return label >= classes; });
  if (wrong != bytes.end()) {
    throw UsageError(c10::str("'", file.path.string(), "': sample ", wrong - bytes.begin(), " has label ", int{*wrong},
                              "; expected 0..", classes - 1, ". Check the file, or data.classes (now ", classes, ")."));
  }
  return file.bytes.narrow(0, 0, samples).to(at::kLong);
}

std::int64_t samples_of_split(const DataConfig& config, Split split, std::int64_t found, const std::string& path) {
  if (split == Split::kTest) return samples_to_use(config.test_samples, found, "data.test_samples", path);
  return samples_to_use(config.train_samples, found, "data.train_samples", path);
}

struct Sums {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  std::uint64_t squares = 0;
};

Sums sum_pixels(std::span<const std::uint8_t> pixels) {
  // The sums within a block fit into 32 bits (2^15 * 255^2 < 2^32), so that the compiler can vectorize the inner loop.
  constexpr std::size_t kBlock = std::size_t{1} << 15;
  Sums sums{.count = pixels.size()};
  for (std::size_t begin = 0; begin < pixels.size(); begin += kBlock) {
    std::uint32_t sum = 0;
    std::uint32_t squares = 0;
    for (const std::uint8_t pixel : pixels.subspan(begin, std::min(kBlock, pixels.size() - begin))) {
      const std::uint32_t value = pixel;
      sum += value;
      squares += value * value;
    }
    sums.sum += sum;
    sums.squares += squares;
  }
  return sums;
}

}  // namespace

Dataset load_idx(const DataConfig& config, Split split, const InflatedFiles& shared) {
  const bool train = split == Split::kTrain;
  const IdxFile labels = read_idx_file(config.dir, train ? config.train_labels : config.test_labels, IdxKind::kLabels);
  const IdxFile images = read_idx_file(config.dir, train ? config.train_images : config.test_images, IdxKind::kImages, shared);
  const std::int64_t found = images.bytes.size(0);
  if (labels.bytes.size(0) != found) {
    throw UsageError(c10::str("'", images.path.string(), "' has ", found, " images but '", labels.path.string(), "' has ",
                              labels.bytes.size(0),
                              " labels; expected the same number. Check that both files are from the same data set."));
  }
  const std::int64_t samples = samples_of_split(config, split, found, images.path.string());
  Dataset dataset;
  dataset.labels = checked_labels(labels, config.classes, samples);
  at::Tensor kept = images.bytes.narrow(0, 0, samples);
  // Copy the samples if only a part is used. A view would keep the whole decompressed file in memory.
  dataset.images = (samples < found ? kept.clone() : kept).unsqueeze(1);
  return dataset;
}

Dataset load_images(const DataConfig& config, Split split, const InflatedFiles& shared) {
  if (config.type == DataConfig::Type::kIdx) return load_idx(config, split, shared);
  Dataset dataset = read_cifar(config.dir, config.type == DataConfig::Type::kCifar10 ? Cifar::k10 : Cifar::k100, split);
  const std::int64_t found = dataset.size();
  const std::int64_t samples = samples_of_split(config, split, found, config.dir);
  if (samples == found) return dataset;
  return {.images = dataset.images.narrow(0, 0, samples).clone(), .labels = dataset.labels.narrow(0, 0, samples).clone()};
}

ImageSize image_size_of(const DataConfig& config) {
  if (config.type != DataConfig::Type::kIdx) return kCifarImage;
  const auto dimensions = read_idx_dimensions(config.dir, config.train_images, IdxKind::kImages);
  return {.channels = 1, .height = dimensions[1], .width = dimensions[2]};
}

Normalization normalization_of(const DataConfig& config, const Dataset& train) {
  if (config.mean && config.std) return {*config.mean, *config.std};
  const Sums sums = sum_pixels({train.images.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(train.images.numel())});
  // n^2 * variance = n * sum(x^2) - sum(x)^2. The integer result is exact in 128 bits, so that the rounding is the same on
  // every machine.
  using Wide = unsigned __int128;
  const Wide scaled_variance = Wide{sums.count} * sums.squares - Wide{sums.sum} * sums.sum;
  if (scaled_variance == 0) {
    throw UsageError(
        "all pixels of the training images are equal, so their standard deviation is 0. "
        "Check the data set, or set data.mean and data.std.");
  }
  const auto n = static_cast<double>(sums.count);
  return {static_cast<double>(sums.sum) / n / 255.0, std::sqrt(static_cast<double>(scaled_variance)) / n / 255.0};
}

DataSets load_data_sets(const DataConfig& config, const InflatedFiles& shared) {
  auto test = std::async(std::launch::async, [&] { return load_images(config, Split::kTest, shared); });
  DataSets data;
  data.train = load_images(config, Split::kTrain, shared);
  data.normalization = normalization_of(config, data.train);
  data.test = test.get();
  return data;
}

}  // namespace ddprun::trainer
