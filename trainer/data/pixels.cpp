// Table look-up and augmentation, one image at a time. The functions allocate no memory, since the loader calls them for every
// sample of every step.
#include "trainer/data/pixels.hpp"

#include <ATen/core/PhiloxRNGEngine.h>

#include <algorithm>

namespace ddprun::trainer {

PixelTable make_pixel_table(Normalization normalization) {
  const auto mean = static_cast<float>(normalization.mean);
  const auto std = static_cast<float>(normalization.std);
  PixelTable table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    // These three operations round three times, as in torchvision. Fewer roundings would give different bits.
    const float scaled = static_cast<float>(i) / 255.0F;
    const float centred = scaled - mean;
    table[i] = centred / std;
  }
  return table;
}

namespace {

// `black` fills the padding around the image. `take_row(from, count, to)` converts `count` input pixels to output pixels.
template <typename To, typename TakeRow>
void augment(const std::uint8_t* pixels, PlaneShape shape, To black, std::int64_t padding, Augmentation augmentation, To* out,
             TakeRow take_row) {
  // Output column x is input column x + shift. Columns below `first`, and columns from `last` upwards, lie in the padding.
  const std::int64_t shift = augmentation.left - padding;
  const std::int64_t first = std::clamp<std::int64_t>(-shift, 0, shape.width);
  const std::int64_t last = std::clamp<std::int64_t>(shape.width - shift, first, shape.width);
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    for (std::int64_t y = 0; y < shape.height; ++y, out += shape.width) {
      const std::int64_t source_y = y + augmentation.top - padding;
      if (source_y < 0 || source_y >= shape.height) {
        std::fill_n(out, shape.width, black);
        continue;
      }
      const std::uint8_t* row = pixels + (channel * shape.height + source_y) * shape.width;
      std::fill(out, out + first, black);
      take_row(row + first + shift, last - first, out + first);
      std::fill(out + last, out + shape.width, black);
      if (augmentation.mirror) std::reverse(out, out + shape.width);
    }
  }
}

}  // namespace

Augmentation draw_augmentation(const AugmentConfig& config, std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  at::Philox4_32 philox(seed, static_cast<std::uint64_t>(sample), static_cast<std::uint64_t>(epoch));
  const auto offsets = static_cast<std::uint64_t>(2 * config.crop_padding + 1);
  const auto below = [offsets](std::uint32_t draw) { return static_cast<std::int64_t>(draw * offsets >> 32); };
  Augmentation augmentation;
  augmentation.top = below(philox());
  augmentation.left = below(philox());
  augmentation.mirror = (philox() & 1U) != 0 && config.flip;
  return augmentation;
}

void normalize(const std::uint8_t* pixels, std::int64_t count, const PixelTable& table, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = table[pixels[i]];
}

void normalize_augmented(const std::uint8_t* pixels, PlaneShape shape, const PixelTable& table, std::int64_t padding,
                         Augmentation augmentation, float* out) {
  augment(pixels, shape, table[0], padding, augmentation, out,
          [&table](const std::uint8_t* from, std::int64_t count, float* to) { normalize(from, count, table, to); });
}

void copy_augmented(const std::uint8_t* pixels, PlaneShape shape, std::int64_t padding, Augmentation augmentation,
                    std::uint8_t* out) {
  augment(pixels, shape, std::uint8_t{0}, padding, augmentation, out,
          [](const std::uint8_t* from, std::int64_t count, std::uint8_t* to) { std::copy_n(from, count, to); });
}

}  // namespace ddprun::trainer
