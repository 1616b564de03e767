#include "trainer/image_files/changes.hpp"

#include <ATen/core/PhiloxRNGEngine.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ddprun::trainer {
namespace {

// Returns the offset of a centred crop in an image that is `more` pixels larger than the crop. An offset of N + 1/2 is rounded
// to the nearest even number, as Python's round() does.
std::int64_t middle_of(std::int64_t more) {
  const std::int64_t half = more / 2;
  return more % 2 == 0 ? half : half + (half % 2 == 0 ? 0 : 1);
}

class RandomNumbers {
 public:
  RandomNumbers(const Draws& draws, std::int64_t sample)
      : philox_(draws.seed, static_cast<std::uint64_t>(sample), kBlocksOfEpoch * static_cast<std::uint64_t>(draws.epoch)) {}

  // A Philox block is four random numbers. A sample needs at most 16 blocks in one epoch, so no number is used in two epochs.
  static constexpr std::uint64_t kBlocksOfEpoch = 16;

  // Returns a random integer from 0 to end - 1.
  std::int64_t below(std::int64_t end) { return static_cast<std::int64_t>(philox_() * static_cast<std::uint64_t>(end) >> 32); }
  bool either() { return (philox_() & 1U) != 0; }
  double between(double low, double high) { return low + (high - low) * (static_cast<double>(philox_()) / 4294967296.0); }

 private:
  at::Philox4_32 philox_;
};

// Chooses a random rectangle to erase, as torchvision's RandomErasing does with its default parameters.
Erased draw_erased(RandomNumbers& draw, std::int64_t size) {
  constexpr double kMinArea = 0.02, kMaxArea = 0.33, kMinProportion = 0.3, kMaxProportion = 3.3;
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    const double area = static_cast<double>(size * size) * draw.between(kMinArea, kMaxArea);
    const double proportion = std::exp(draw.between(std::log(kMinProportion), std::log(kMaxProportion)));
    const auto rows = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * proportion)));
    const auto columns = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / proportion)));
    const std::int64_t top = draw.below(std::max<std::int64_t>(size - rows + 1, 1));
    const std::int64_t left = draw.below(std::max<std::int64_t>(size - columns + 1, 1));
    if (rows < size && columns < size) return {.top = top, .left = left, .rows = rows, .columns = columns};
  }
  return {};
}

}  // namespace

ColourTables colour_tables(const DataConfig& config) {
  constexpr std::array<Normalization, PixelRows::kColours> kImageNet{{{0.485, 0.229}, {0.456, 0.224}, {0.406, 0.225}}};
  ColourTables tables;
  for (std::size_t colour = 0; colour < tables.size(); ++colour) {
    tables[colour] = make_pixel_table(config.mean && config.std ? Normalization{*config.mean, *config.std} : kImageNet[colour]);
  }
  return tables;
}

ImageChange draw_change(const DataConfig& config, std::int64_t height, std::int64_t width, std::int64_t sample,
                        const std::optional<Draws>& draws) {
  const std::int64_t size = config.image_size;
  const ImageChange center_crop{.top = middle_of(height - size), .left = middle_of(width - size)};
  if (!draws) return center_crop;
  const AugmentConfig& augment = config.augment;
  const std::int64_t padding = augment.crop_padding;
  RandomNumbers draw(*draws, sample);
  const std::int64_t top = draw.below(height + 2 * padding - size + 1) - padding;
  const std::int64_t left = draw.below(width + 2 * padding - size + 1) - padding;
  const bool mirror = draw.either();
  ImageChange change = center_crop;
  if (augment.random_crop || padding > 0) change = {.top = top, .left = left};
  change.mirror = mirror && augment.flip;
  if (augment.erase > 0 && draw.between(0, 1) < augment.erase) change.erased = draw_erased(draw, size);
  return change;
}

void write_changed(const PixelRows& image, const ImageChange& change, std::int64_t image_size, const ColourTables& tables,
                   float* out) {
  for (std::int64_t colour = 0; colour < PixelRows::kColours; ++colour) {
    const PixelTable& table = tables[static_cast<std::size_t>(colour)];
    for (std::int64_t row = 0; row < image_size; ++row) {
      const std::int64_t y = row + change.top;
      for (std::int64_t column = 0; column < image_size; ++column) {
        const std::int64_t x = (change.mirror ? image_size - 1 - column : column) + change.left;
        const bool outside = y < 0 || y >= image.height || x < 0 || x >= image.width;
        *out++ = outside ? table[0]
                         : table[image.pixels[static_cast<std::size_t>((y * image.width + x) * PixelRows::kColours + colour)]];
      }
    }
  }
  const Erased& erased = change.erased;
  for (std::int64_t plane = 1; plane <= PixelRows::kColours; ++plane) {
    for (std::int64_t row = erased.top; row < erased.top + erased.rows; ++row) {
      std::fill_n(out - plane * image_size * image_size + row * image_size + erased.left, erased.columns, 0.0F);
    }
  }
}

}  // namespace ddprun::trainer
