// Implementation of decode.hpp.
#include "trainer/picture_files/decode.hpp"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
// must come after <cstdio>, which jpeglib.h needs
#include <jpeglib.h>
// must come after jpeglib.h
#include <jerror.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

// Pillow's limit for a warning. While it is decoded, a progressive JPEG takes nine bytes per pixel, a PNG up to four.
constexpr std::int64_t kMostPixels = 89'478'485;
// A progressive JPEG has about ten scans. Each visits all blocks, even if it is empty, so a small file could take minutes.
constexpr std::int64_t kMostScans = 500;
constexpr std::int64_t kMostScannedPixels = std::int64_t{1} << 31;  // pixels times scans
constexpr std::int64_t kScansOfAnySize = 24;

constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1a\n";

void require_size(std::int64_t height, std::int64_t width, const std::string& name) {
  if (height <= kMostPixels / std::max<std::int64_t>(width, 1)) return;
  throw UsageError(name + ": has " + std::to_string(width) + " x " + std::to_string(height) + " pixels; at most " +
                   std::to_string(kMostPixels) + " can be read");
}

// libjpeg's error handler must not return, so it jumps back to the call of the library.
struct JpegErrors {
  jpeg_error_mgr base;  // first: the library has a pointer to it
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
  jpeg_progress_mgr progress;
  int most_scans;
};

extern "C" void end_jpeg(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->message.data());
  std::longjmp(errors->back, 1);
}

// libjpeg reports a truncated or undecodable file as a warning, and leaves the rest of the image grey. We treat that as an
// error. Extra bytes between two parts are no damage: some cameras write them.
extern "C" void hear_jpeg(j_common_ptr jpeg, int level) {
  constexpr std::array kDamage{JWRN_JPEG_EOF, JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_MUST_RESYNC, JWRN_ARITH_BAD_CODE};
  const bool damaged = std::ranges::any_of(kDamage, [&](int code) { return jpeg->err->msg_code == code; });
  if (level < 0 && damaged) end_jpeg(jpeg);
}

// libjpeg calls it after each row of blocks.
extern "C" void count_scans(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= errors->most_scans) return;
  std::snprintf(errors->message.data(), errors->message.size(), "it has more than %d scans, the limit for its size",
                errors->most_scans);
  std::longjmp(errors->back, 1);
}

struct OwnedJpeg {
  OwnedJpeg() = default;
  ~OwnedJpeg() { ::jpeg_destroy_decompress(&jpeg); }
  OwnedJpeg(const OwnedJpeg&) = delete;
  OwnedJpeg& operator=(const OwnedJpeg&) = delete;
  jpeg_decompress_struct jpeg{};
};

// Both functions set a jump target that errors of the library return to. No destructor is skipped by that jump.
bool begin_jpeg(jpeg_decompress_struct& jpeg, JpegErrors& errors, std::string_view bytes) {
  if (setjmp(errors.back) != 0) return false;
  ::jpeg_create_decompress(&jpeg);
  ::jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  ::jpeg_read_header(&jpeg, TRUE);
  return true;
}

bool read_jpeg(jpeg_decompress_struct& jpeg, JpegErrors& errors, std::uint8_t* pixels) {
  if (setjmp(errors.back) != 0) return false;
  jpeg.out_color_space = JCS_RGB;
  ::jpeg_start_decompress(&jpeg);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels + std::size_t{jpeg.output_scanline} * jpeg.output_width * PixelRows::kColours;
    ::jpeg_read_scanlines(&jpeg, &row, 1);
  }
  ::jpeg_finish_decompress(&jpeg);
  return true;
}

PixelRows decode_jpeg(std::string_view bytes, const std::string& name) {
  const auto errors = std::make_unique<JpegErrors>();
  OwnedJpeg owned;
  jpeg_decompress_struct& jpeg = owned.jpeg;
  jpeg.err = ::jpeg_std_error(&errors->base);
  errors->base.error_exit = end_jpeg;
  errors->base.emit_message = hear_jpeg;
  const auto damaged = [&] { return UsageError(name + ": is a damaged JPEG picture: " + errors->message.data()); };
  if (!begin_jpeg(jpeg, *errors, bytes)) throw damaged();
  require_size(jpeg.image_height, jpeg.image_width, name);
  if (jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK) {
    throw UsageError(name + ": is a JPEG picture of four colours (CMYK); convert it to RGB");
  }
  PixelRows picture{.height = jpeg.image_height, .width = jpeg.image_width};
  const std::int64_t scans = kMostScannedPixels / std::max<std::int64_t>(picture.height * picture.width, 1);
  errors->most_scans = static_cast<int>(std::clamp(scans, kScansOfAnySize, kMostScans));
  errors->progress.progress_monitor = count_scans;
  jpeg.progress = &errors->progress;
  picture.pixels.resize(static_cast<std::size_t>(picture.height * picture.width * PixelRows::kColours));
  if (!read_jpeg(jpeg, *errors, picture.pixels.data())) throw damaged();
  return picture;
}

struct OwnedPng {
  OwnedPng() { image.version = PNG_IMAGE_VERSION; }
  ~OwnedPng() { ::png_image_free(&image); }
  OwnedPng(const OwnedPng&) = delete;
  OwnedPng& operator=(const OwnedPng&) = delete;
  png_image image{};
};

// Iterates over the chunks of a PNG file: length, type, data, CRC.
class PngChunks {
 public:
  explicit PngChunks(std::string_view bytes) : rest_(bytes.substr(std::min(kPngMagic.size(), bytes.size()))) {}

  // Returns false at the first chunk of pixels, at the end, and in a damaged file.
  bool next() {
    rest_.remove_prefix(chunk_.size());
    chunk_ = {};
    constexpr std::size_t kAround = 12;
    if (rest_.size() < kAround) return false;
    std::size_t length = 0;
    for (const char byte : rest_.substr(0, 4)) length = length << 8 | static_cast<unsigned char>(byte);
    if (length > rest_.size() - kAround || rest_.substr(4, 4) == "IDAT") return false;
    chunk_ = rest_.substr(0, length + kAround);
    return true;
  }
  std::string_view type() const { return chunk_.substr(4, 4); }
  std::string_view data() const { return chunk_.substr(8, chunk_.size() - 12); }
  std::string_view whole() const { return chunk_; }
  // The bytes from the chunk at which next() stopped.
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
  std::string_view chunk_{};
};

// Whether the chunk defines the pixels. All others define their display, such as gAMA and iCCP, or hold texts.
bool makes_pixels(std::string_view type) {
  return type == "IHDR" || type == "PLTE" || type == "tRNS";
}

// Pillow takes the values as stored. libpng's simple interface would apply gAMA, and would decompress any number of text chunks
// into memory. So those chunks are removed. Returns an empty string if there are none.
std::string without_other_chunks(std::string_view bytes) {
  PngChunks chunks(bytes);
  bool others = false;
  std::string kept(kPngMagic);
  while (chunks.next()) {
    if (makes_pixels(chunks.type())) {
      kept += chunks.whole();
    } else {
      others = true;
    }
  }
  return others ? kept.append(chunks.rest()) : "";
}

PixelRows decode_png(std::string_view bytes, const std::string& name) {
  const std::string smaller = without_other_chunks(bytes);
  if (!smaller.empty()) bytes = smaller;
  OwnedPng owned;
  png_image& image = owned.image;
  const auto damaged = [&] { return UsageError(name + ": is a damaged PNG picture: " + image.message); };
  if (::png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) throw damaged();
  require_size(image.height, image.width, name);
  const bool transparent = (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  image.format = transparent ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // treats 16-bit values as sRGB, as 8-bit values are
  PixelRows picture{.height = image.height, .width = image.width};
  std::vector<std::uint8_t>& pixels = picture.pixels;
  pixels.resize(PNG_IMAGE_SIZE(image));
  if (::png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr) == 0) throw damaged();
  if (!transparent) return picture;
  auto to = pixels.begin();
  for (std::size_t from = 0; from < pixels.size(); from += 4)
    to = std::copy_n(pixels.begin() + static_cast<std::ptrdiff_t>(from), 3, to);
  pixels.erase(to, pixels.end());
  return picture;
}

}  // namespace

bool has_png_gamma(std::string_view bytes) {
  constexpr std::int64_t kUsual = 45'455, kTolerance = 2'000;  // libpng ignores a gamma that differs less than 5 %
  if (!bytes.starts_with(kPngMagic)) return false;
  for (PngChunks chunks(bytes); chunks.next();) {
    if (chunks.type() != "gAMA" || chunks.data().size() != 4) continue;
    std::int64_t gamma = 0;
    for (const char byte : chunks.data()) gamma = gamma << 8 | static_cast<unsigned char>(byte);
    return gamma < kUsual - kTolerance || gamma > kUsual + kTolerance;
  }
  return false;
}

PixelRows decode_picture(std::string_view bytes, const std::string& name) {
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, name);
  if (bytes.starts_with(kPngMagic)) return decode_png(bytes, name);
  throw UsageError(name + ": is neither a JPEG nor a PNG picture by its first bytes");
}

}  // namespace ddprun::trainer
