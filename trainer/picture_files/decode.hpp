// JPEG and PNG files as pixels, by libjpeg-turbo and libpng. A picture's kind is told by its first bytes, not by its name. Safe
// from several threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

// Red, green and blue of each pixel, row by row.
struct PixelRows {
  static constexpr std::int64_t kColours = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels{};  // [height, width, 3]
};

// Grey is made into three colours, 16 bits a colour into 8; transparency is left out, and so are gamma (gAMA), colour profiles
// and EXIF orientation, as Pillow's convert("RGB") does. Throws UsageError beginning with `name`: neither JPEG nor PNG,
// damaged, cut off, four colours (CMYK), more than 89,478,485 pixels, or more than 500 scans of a progressive JPEG (24 to 500,
// such that pixels times scans are at most 2^31).
PixelRows decode_picture(std::string_view bytes, const std::string& name);

// Whether a PNG file has a gamma that earlier versions applied and this one does not. Looks at the chunks before the pixels.
bool has_png_gamma(std::string_view bytes);

}  // namespace ddprun::trainer
