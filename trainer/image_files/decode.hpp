// Decodes JPEG and PNG files with libjpeg-turbo and libpng. The first bytes of a file determine its format; its name does not
// matter. The functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

// A decoded image: the red, green and blue values of each pixel, row by row.
struct PixelRows {
  static constexpr std::int64_t kColours = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels{};  // [height, width, 3]
};

// Decodes an image to three colours with 8 bits each. Grey images and images with 16 bits per colour are converted. Ignores
// transparency, gamma (gAMA), colour profiles and EXIF orientation, as Pillow's convert("RGB") does. Throws UsageError, whose
// message starts with `name`, if the file is neither JPEG nor PNG, is damaged or truncated, has four colours (CMYK), or has
// more than 89,478,485 pixels. Also refuses a progressive JPEG with too many scans: the limit is 2^31 divided by the number of
// pixels, but at least 24 and at most 500.
PixelRows decode_image(std::string_view bytes, const std::string& name);

// Returns whether a PNG file has a gamma value that earlier versions of ddprun applied and this version ignores. Reads only
// the chunks before the pixels.
bool has_png_gamma(std::string_view bytes);

}  // namespace ddprun::trainer
