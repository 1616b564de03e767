// Implementation of decode.hpp.
#include "trainer/picture_files/decode.hpp"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
// After <cstdio>, which jpeglib.h needs.
#include <jpeglib.h>
// After jpeglib.h.
#include <jerror.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <memory>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

void require_size(std::int64_t height, std::int64_t width, const std::string& name) {
  if (height <= kMostPixels / std::max<std::int64_t>(width, 1)) return;
  throw UsageError(name + ": has " + std::to_string(width) + " x " + std::to_string(height) + " pixels; at most " +
                   std::to_string(kMostPixels) + " can be read");
}

// libjpeg wants its errors not to return: they jump back to where the library was called.
struct JpegErrors {
  jpeg_error_mgr base;  // first: the library has a pointer to this
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

extern "C" void end_jpeg(j_common_ptr jpeg) {
  auto* const errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->message.data());
  std::longjmp(errors->back, 1);
}

// A file that ends too early or cannot be decoded in between is a warning there, and the rest of the picture would be grey.
// Bytes that are too many between two parts are no damage: some cameras write them.
extern "C" void hear_jpeg(j_common_ptr jpeg, int level) {
  constexpr std::array kDamage{JWRN_JPEG_EOF, JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_MUST_RESYNC, JWRN_ARITH_BAD_CODE};
  const bool damaged = std::ranges::any_of(kDamage, [&](int code) { return jpeg->err->msg_code == code; });
  if (level < 0 && damaged) end_jpeg(jpeg);
}

struct OwnedJpeg {
  OwnedJpeg() = default;
  ~OwnedJpeg() { ::jpeg_destroy_decompress(&jpeg); }
  OwnedJpeg(const OwnedJpeg&) = delete;
  OwnedJpeg& operator=(const OwnedJpeg&) = delete;
  jpeg_decompress_struct jpeg{};
};

// Both steps jump out of the library's errors to their own begin; nothing there has a destructor that would be left out.
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

PixelRows decode_png(std::string_view bytes, const std::string& name) {
  OwnedPng owned;
  png_image& image = owned.image;
  const auto damaged = [&] { return UsageError(name + ": is a damaged PNG picture: " + image.message); };
  if (::png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) throw damaged();
  require_size(image.height, image.width, name);
  const bool transparent = (image.format & PNG_FORMAT_FLAG_ALPHA) != 0;
  image.format = transparent ? PNG_FORMAT_RGBA : PNG_FORMAT_RGB;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // as pictures for the eye are, which 8 bits are taken for
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

PixelRows decode_picture(std::string_view bytes, const std::string& name) {
  if (bytes.starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, name);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(bytes, name);
  throw UsageError(name + ": is neither a JPEG nor a PNG picture by its first bytes");
}

}  // namespace ddprun::trainer
