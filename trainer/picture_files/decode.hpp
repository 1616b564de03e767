// Decodes JPEG and PNG files with libjpeg-turbo and libpng. The first bytes of a file determine its format, not its name. Safe
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

// Converts grey to three colours and 16 bits per colour to 8. Ignores transparency, gamma (gAMA), colour profiles and EXIF
// orientation, as Pillow's convert("RGB") does. Throws UsageError that begins with `name`: the file is neither JPEG nor PNG, is
// damaged or truncated, has four colours (CMYK), or has more than 89,478,485 pixels. A progressive JPEG may have at most 500
// scans (24 to 500, such that pixels times scans are at most 2^31).
PixelRows decode_picture(std::string_view bytes, const std::string& name);

// Whether a PNG file has a gamma that earlier versions applied and this version ignores. Reads the chunks before the pixels.
bool has_png_gamma(std::string_view bytes);

}  // namespace ddprun::trainer
