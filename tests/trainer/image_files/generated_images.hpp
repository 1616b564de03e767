// Creates image files for the tests of image_files, with the same libraries that read them.
#pragma once

#include <jpeglib.h>
#include <png.h>
#include <cstddef>
#include <cstdio>

#include <cstdlib>
#include <string>

#include "trainer/image_files/decode.hpp"

namespace ddprun::test {

// Returns a smooth image, which JPEG changes only slightly. Red rises to the right, green rises downwards, and blue is
// constant.
inline trainer::PixelRows smooth_image(std::int64_t height, std::int64_t width, std::uint8_t blue) {
  trainer::PixelRows image{.height = height, .width = width};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<std::uint8_t>(255 * x / width));
      image.pixels.push_back(static_cast<std::uint8_t>(255 * y / height));
      image.pixels.push_back(blue);
    }
  }
  return image;
}

// Returns a PNG file. `format` is the format of `pixels`, such as PNG_FORMAT_RGB.
inline std::string png_of(std::int64_t height, std::int64_t width, png_uint_32 format, const void* pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height);
  image.width = static_cast<png_uint_32>(width);
  image.format = format;
  png_alloc_size_t size = 0;
  ::png_image_write_to_memory(&image, nullptr, &size, 0, pixels, 0, nullptr);
  std::string bytes(size, '\0');
  ::png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels, 0, nullptr);
  bytes.resize(size);
  return bytes;
}

inline std::string png_of(const trainer::PixelRows& image) {
  return png_of(image.height, image.width, PNG_FORMAT_RGB, image.pixels.data());
}

// Returns a JPEG file. `components` is the number of channels of `colours`, such as 3 for JCS_RGB.
inline std::string jpeg_of(std::int64_t height, std::int64_t width, int components, J_COLOR_SPACE colours,
                           const std::uint8_t* pixels, bool progressive = false) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = ::jpeg_std_error(&errors);
  ::jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  ::jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.input_components = components;
  jpeg.in_color_space = colours;
  ::jpeg_set_defaults(&jpeg);
  ::jpeg_set_quality(&jpeg, 95, TRUE);
  if (progressive) ::jpeg_simple_progression(&jpeg);
  ::jpeg_start_compress(&jpeg, TRUE);
  for (std::int64_t row = 0; row < height; ++row) {
    auto* line = const_cast<JSAMPROW>(pixels + row * width * components);
    ::jpeg_write_scanlines(&jpeg, &line, 1);
  }
  ::jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<const char*>(memory), size);
  ::jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return bytes;
}

inline std::string progressive_jpeg_of(const trainer::PixelRows& image) {
  return jpeg_of(image.height, image.width, 3, JCS_RGB, image.pixels.data(), /*progressive=*/true);
}

inline std::string jpeg_of(const trainer::PixelRows& image) {
  return jpeg_of(image.height, image.width, 3, JCS_RGB, image.pixels.data());
}

}  // namespace ddprun::test
