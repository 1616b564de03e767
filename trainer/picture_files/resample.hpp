// A picture in another size, by Pillow's bilinear filter, which is a triangle as wide as the step between the new pixels (so
// that nothing is skipped), first over rows and then over columns, in its fixed-point numbers: integers, so the same on each
// machine. Pure.
#pragma once

#include "trainer/picture_files/decode.hpp"

namespace ddprun::trainer {

PixelRows resampled(const PixelRows& picture, std::int64_t height, std::int64_t width);

// Its shorter side becomes `shorter`, and the longer one keeps the proportion, rounded down, as torchvision's Resize has it.
PixelRows resized(PixelRows picture, std::int64_t shorter);

}  // namespace ddprun::trainer
