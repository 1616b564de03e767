// Implementation of resample.hpp.
#include "trainer/picture_files/resample.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ddprun::trainer {
namespace {

constexpr int kFractionBits = 22;

// The input pixels of one output pixel, and their weights.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights{};  // weights of pixel `first` and its successors; their sum is about 2^22
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

// Computes one output value; `stride` is the distance between its inputs.
std::uint8_t weighed(const std::uint8_t* first, std::size_t stride, const Taps& taps) {
  std::int32_t sum = 1 << (kFractionBits - 1);
  for (const std::int32_t weight : taps.weights) {
    sum += *first * weight;
    first += stride;
  }
  return static_cast<std::uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

PixelRows with_width(const PixelRows& picture, std::int64_t width) {
  constexpr auto kColours = static_cast<std::size_t>(PixelRows::kColours);
  const std::vector<Taps> taps = taps_for(picture.width, width);
  PixelRows made{.height = picture.height, .width = width};
  made.pixels.reserve(static_cast<std::size_t>(picture.height * width) * kColours);
  for (std::int64_t y = 0; y < picture.height; ++y) {
    const std::uint8_t* const row = picture.pixels.data() + static_cast<std::size_t>(y * picture.width) * kColours;
    for (const Taps& each : taps) {
      const std::uint8_t* const first = row + static_cast<std::size_t>(each.first) * kColours;
      for (std::size_t colour = 0; colour < kColours; ++colour) made.pixels.push_back(weighed(first + colour, kColours, each));
    }
  }
  return made;
}

PixelRows with_height(const PixelRows& picture, std::int64_t height) {
  const auto row = static_cast<std::size_t>(picture.width * PixelRows::kColours);
  PixelRows made{.height = height, .width = picture.width};
  made.pixels.reserve(static_cast<std::size_t>(height) * row);
  for (const Taps& each : taps_for(picture.height, height)) {
    const std::uint8_t* const first = picture.pixels.data() + static_cast<std::size_t>(each.first) * row;
    for (std::size_t x = 0; x < row; ++x) made.pixels.push_back(weighed(first + x, row, each));
  }
  return made;
}

}  // namespace

PixelRows resampled(const PixelRows& picture, std::int64_t height, std::int64_t width) {
  if (width == picture.width) return height == picture.height ? picture : with_height(picture, height);
  PixelRows made = with_width(picture, width);
  return height == picture.height ? made : with_height(made, height);
}

PixelRows resized(PixelRows picture, std::int64_t shorter) {
  const std::int64_t shortest = std::min(picture.height, picture.width);
  if (shortest == shorter) return picture;
  return resampled(picture, picture.height * shorter / shortest, picture.width * shorter / shortest);
}

}  // namespace ddprun::trainer
