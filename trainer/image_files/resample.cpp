#include "trainer/image_files/resample.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ddprun::trainer {
namespace {

constexpr int kFractionBits = 22;

// The input pixels that contribute to one output pixel, and their weights.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights{};  // weights of pixel `first` and the pixels after it; their sum is about 2^22
};

std::vector<Taps> taps_for(std::int64_t before, std::int64_t after) {
  const double step = static_cast<double>(before) / static_cast<double>(after);
  const double reach = std::max(step, 1.0);
  std::vector<Taps> all(static_cast<std::size_t>(after));
  std::vector<double> shares;
  for (std::int64_t i = 0; i < after; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * step;
    Taps& taps = all[static_cast<std::size_t>(i)];
    taps.first = std::max<std::int64_t>(static_cast<std::int64_t>(middle - reach + 0.5), 0);
    const std::int64_t end = std::min(static_cast<std::int64_t>(middle + reach + 0.5), before);
    shares.clear();
    double sum = 0;
    for (std::int64_t pixel = taps.first; pixel < end; ++pixel) {
      const double distance = std::abs((static_cast<double>(pixel) - middle + 0.5) * (1.0 / reach));
      shares.push_back(distance < 1.0 ? 1.0 - distance : 0.0);
      sum += shares.back();
    }
    for (const double share : shares) {
      taps.weights.push_back(static_cast<std::int32_t>(0.5 + share / sum * static_cast<double>(1 << kFractionBits)));
    }
  }
  return all;
}

// Computes one output value. `stride` is the distance in bytes between the input values.
std::uint8_t weighed(const std::uint8_t* first, std::size_t stride, const Taps& taps) {
  std::int32_t sum = 1 << (kFractionBits - 1);
  for (const std::int32_t weight : taps.weights) {
    sum += *first * weight;
    first += stride;
  }
  return static_cast<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

PixelRows with_width(const PixelRows& image, std::int64_t width) {
  constexpr auto kColours = static_cast<std::size_t>(PixelRows::kColours);
  const std::vector<Taps> taps = taps_for(image.width, width);
  PixelRows made{.height = image.height, .width = width};
  made.pixels.reserve(static_cast<std::size_t>(image.height * width) * kColours);
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* const row = image.pixels.data() + static_cast<std::size_t>(y * image.width) * kColours;
    for (const Taps& each : taps) {
      const std::uint8_t* const first = row + static_cast<std::size_t>(each.first) * kColours;
      for (std::size_t colour = 0; colour < kColours; ++colour) made.pixels.push_back(weighed(first + colour, kColours, each));
    }
  }
  return made;
}

PixelRows with_height(const PixelRows& image, std::int64_t height) {
  const auto row = static_cast<std::size_t>(image.width * PixelRows::kColours);
  PixelRows made{.height = height, .width = image.width};
  made.pixels.reserve(static_cast<std::size_t>(height) * row);
  for (const Taps& each : taps_for(image.height, height)) {
    const std::uint8_t* const first = image.pixels.data() + static_cast<std::size_t>(each.first) * row;
    for (std::size_t x = 0; x < row; ++x) made.pixels.push_back(weighed(first + x, row, each));
  }
  return made;
}

}  // namespace

PixelRows resampled(const PixelRows& image, std::int64_t height, std::int64_t width) {
  if (width == image.width) return height == image.height ? image : with_height(image, height);
  PixelRows made = with_width(image, width);
  return height == image.height ? made : with_height(made, height);
}

PixelRows resized(PixelRows image, std::int64_t shorter) {
  const std::int64_t shortest = std::min(image.height, image.width);
  if (shortest == shorter) return image;
  return resampled(image, image.height * shorter / shortest, image.width * shorter / shortest);
}

}  // namespace ddprun::trainer
