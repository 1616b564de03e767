// Resizes an image with Pillow's bilinear filter. The filter is a triangle whose width grows with the distance between output
// pixels, so that no input pixel is skipped. It is applied to rows, then to columns, with Pillow's fixed-point arithmetic. All
// numbers are integers, so the result is the same on each machine.
#pragma once

#include "trainer/image_files/decode.hpp"

namespace ddprun::trainer {

PixelRows resampled(const PixelRows& image, std::int64_t height, std::int64_t width);

// Resizes the image so that its shorter side has `shorter` pixels. The longer side keeps the proportion and is rounded down, as
// in torchvision's Resize.
PixelRows resized(PixelRows image, std::int64_t shorter);

}  // namespace ddprun::trainer
