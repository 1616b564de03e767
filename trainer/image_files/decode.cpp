#include "trainer/image_files/decode.hpp"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
// This must come after <cstdio>, because jpeglib.h uses FILE without including it.
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

// Pillow warns about images with more pixels than this. During decoding, a progressive JPEG takes nine bytes of memory per
// pixel, and a PNG takes up to four.
constexpr std::int64_t kMaxPixels = 89'478'485;
// A progressive JPEG usually has about ten scans. The decoder visits all blocks in each scan, even if the scan is empty. So
// without a limit, a small file with many scans could take minutes.
constexpr std::int64_t kMaxScans = 500;
constexpr std::int64_t kMaxScannedPixels = std::int64_t{1} << 31;  // maximum of the number of pixels times the number of scans
constexpr std::int64_t kScansOfAnySize = 24;

constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1a\n";

void require_size(std::int64_t height, std::int64_t width, const std::string& name) {
  if (height <= kMaxPixels / std::max<std::int64_t>(width, 1)) return;
  throw UsageError(name + ": has " + std::to_string(width) + " x " + std::to_string(height) + " pixels; expected at most " +
                   std::to_string(kMaxPixels) + " in total");
}

// libjpeg's error handler must not return, so it uses longjmp() to return to the function that called libjpeg.
struct JpegErrors {
  jpeg_error_mgr base;  // must be the first member, because the library passes a pointer to it
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
  jpeg_progress_mgr progress;
  int max_scans;
};

extern "C" void on_jpeg_error(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->message.data());
  std::longjmp(errors->back, 1);
}

// libjpeg reports a truncated or undecodable file as a warning, and leaves the rest of the image grey. We treat that as an
// error. Extra bytes before a marker are also a warning, but we accept them: some cameras write them, and they are harmless.
extern "C" void on_jpeg_message(j_common_ptr jpeg, int level) {
  constexpr std::array kDamageWarnings{JWRN_JPEG_EOF, JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_MUST_RESYNC,
                                       JWRN_ARITH_BAD_CODE};
  const bool damaged = std::ranges::any_of(kDamageWarnings, [&](int code) { return jpeg->err->msg_code == code; });
  if (level < 0 && damaged) on_jpeg_error(jpeg);
}

// Refuses an image with too many scans. libjpeg calls this function after each row of blocks.
extern "C" void count_scans(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= errors->max_scans) return;
  std::snprintf(errors->message.data(), errors->message.size(), "it has more than %d scans, the limit for an image of its size",
                errors->max_scans);
  std::longjmp(errors->back, 1);
}

struct OwnedJpeg {
  OwnedJpeg() = default;
  ~OwnedJpeg() { ::jpeg_destroy_decompress(&jpeg); }
  OwnedJpeg(const OwnedJpeg&) = delete;
  OwnedJpeg& operator=(const OwnedJpeg&) = delete;
  jpeg_decompress_struct jpeg{};
};

// begin_jpeg() and read_jpeg() call setjmp(). After an error, libjpeg jumps back to that call. So these functions must not
// have an object with a destructor, because the jump would skip the destructor.
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
  errors->base.error_exit = on_jpeg_error;
  errors->base.emit_message = on_jpeg_message;
  const auto damaged = [&] { return UsageError(name + ": is a damaged JPEG image: " + errors->message.data()); };
  if (!begin_jpeg(jpeg, *errors, bytes)) throw damaged();
  require_size(jpeg.image_height, jpeg.image_width, name);
  if (jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK) {
    throw UsageError(name + ": is a JPEG image with four colour channels (CMYK); convert it to RGB");
  }
  PixelRows decoded{.height = jpeg.image_height, .width = jpeg.image_width};
  const std::int64_t scans = kMaxScannedPixels / std::max<std::int64_t>(decoded.height * decoded.width, 1);
  errors->max_scans = static_cast<int>(std::clamp(scans, kScansOfAnySize, kMaxScans));
  errors->progress.progress_monitor = count_scans;
  jpeg.progress = &errors->progress;
  decoded.pixels.resize(static_cast<std::size_t>(decoded.height * decoded.width * PixelRows::kColours));
  if (!read_jpeg(jpeg, *errors, decoded.pixels.data())) throw damaged();
  return decoded;
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

  // Returns false at the first chunk of pixel data, at the end of the file, and in a damaged file.
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
  // Returns the rest of the file, from the chunk at which next() returned false.
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
  std::string_view chunk_{};
};

// Returns true if chunks of this type affect the stored pixel values. Other chunks contain text, or only affect the display
// (gAMA and iCCP).
bool makes_pixels(std::string_view type) {
  return type == "IHDR" || type == "PLTE" || type == "tRNS";
}

// Removes all chunks that do not affect the stored pixel values. Returns an empty string if there is nothing to remove.
// Pillow uses the pixel values as stored. libpng's simple interface would apply gAMA, and would decompress any number of text
// chunks into memory.
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
  const auto damaged = [&] { return UsageError(name + ": is a damaged PNG image: " + image.message); };
  if (::png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) throw damaged();
  require_size(image.height, image.width, name);
  const bool transparent = (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  image.format = transparent ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // libpng then interprets 16-bit values as sRGB, like 8-bit values
  PixelRows decoded{.height = image.height, .width = image.width};
  std::vector<std::uint8_t>& pixels = decoded.pixels;
  pixels.resize(PNG_IMAGE_SIZE(image));
  if (::png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr) == 0) throw damaged();
  if (!transparent) return decoded;
  auto to = pixels.begin();
  for (std::size_t from = 0; from < pixels.size(); from += 4)
    to = std::copy_n(pixels.begin() + static_cast<std::ptrdiff_t>(from), 3, to);
  pixels.erase(to, pixels.end());
  return decoded;
}

}  // namespace

bool has_png_gamma(std::string_view bytes) {
  // libpng ignores a gamma that differs by less than 5 % from the usual value, 0.45455.
  constexpr std::int64_t kUsual = 45'455, kTolerance = 2'000;
  if (!bytes.starts_with(kPngMagic)) return false;
  for (PngChunks chunks(bytes); chunks.next();) {
    if (chunks.type() != "gAMA" || chunks.data().size() != 4) continue;
    std::int64_t gamma = 0;
    for (const char byte : chunks.data()) gamma = gamma << 8 | static_cast<unsigned char>(byte);
    return gamma < kUsual - kTolerance || gamma > kUsual + kTolerance;
  }
  return false;
}

PixelRows decode_image(std::string_view bytes, const std::string& name) {
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, name);
  if (bytes.starts_with(kPngMagic)) return decode_png(bytes, name);
  throw UsageError(name + ": is neither a JPEG nor a PNG image: its first bytes match neither format");
}

}  // namespace ddprun::trainer
