// Resizes an image with Pillow's bilinear filter. The filter is a triangle as wide as the distance of the output pixels, so
// that no input is skipped. It runs over rows, then over columns, in Pillow's fixed-point numbers. These are integers, so the
// result is the same on each machine. Pure.
#pragma once

#include "trainer/picture_files/decode.hpp"

namespace ddprun::trainer {

PixelRows resampled(const PixelRows& picture, std::int64_t height, std::int64_t width);

// The shorter side becomes `shorter`. The longer one keeps the proportion, rounded down, as in torchvision's Resize.
PixelRows resized(PixelRows picture, std::int64_t shorter);

}  // namespace ddprun::trainer
