// Tests image files: the pixels of decoded JPEG and PNG files, the files that are refused, and resized images, which must have
// the same values as with Pillow.
#include "trainer/image_files/decode.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>

#include "common/base/error.hpp"
#include "tests/trainer/image_files/generated_images.hpp"
#include "trainer/image_files/resample.hpp"

namespace ddprun::trainer {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::string refusal_of_image(const std::string& bytes) {
  try {
    decode_image(bytes, "cat");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

int largest_difference(const PixelRows& a, const PixelRows& b) {
  int largest = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) largest = std::max(largest, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  return largest;
}

TEST(DecodeImage, PngPixelsAreExact) {
  const PixelRows image = test::smooth_image(5, 7, 200);
  const PixelRows decoded = decode_image(test::png_of(image), "cat");
  EXPECT_EQ(decoded.height, 5);
  EXPECT_EQ(decoded.width, 7);
  EXPECT_EQ(decoded.pixels, image.pixels);
}

TEST(DecodeImage, OtherPngFormatsBecomeEightBitRgb) {
  const Bytes grey{0, 100, 255}, clear{10, 20, 30, 0, 40, 50, 60, 128, 70, 80, 90, 255};
  EXPECT_EQ(decode_image(test::png_of(1, 3, PNG_FORMAT_GRAY, grey.data()), "cat").pixels,
            (Bytes{0, 0, 0, 100, 100, 100, 255, 255, 255}));
  // A transparent pixel keeps its stored colour and is not mixed with a background.
  EXPECT_EQ(decode_image(test::png_of(1, 3, PNG_FORMAT_RGBA, clear.data()), "cat").pixels,
            (Bytes{10, 20, 30, 40, 50, 60, 70, 80, 90}));
}

// Returns the PNG with an additional chunk after the chunk IHDR.
std::string with_chunk(const std::string& png, const std::string& type, const std::string& data) {
  constexpr std::size_t kAfterHeader = 33;
  const auto four = [](std::size_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
  };
  const std::string named = type + data;
  const std::size_t crc = ::crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()));
  return png.substr(0, kAfterHeader) + four(data.size()) + named + four(crc) + png.substr(kAfterHeader);
}

std::string gamma_of(std::uint32_t gamma) {
  return {static_cast<char>(gamma >> 24), static_cast<char>(gamma >> 16), static_cast<char>(gamma >> 8),
          static_cast<char>(gamma)};
}

// Like Pillow, the decoder uses the stored pixel values. It ignores the gamma value, which only describes how to display the
// image.
TEST(DecodeImage, PngGammaChangesNoPixel) {
  Bytes bytes(16 * 16 * 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  std::vector<std::uint16_t> wide(16 * 16 * 3);
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<std::uint16_t>(i * 81);
  const std::vector<std::string> images{
      test::png_of(16, 16, PNG_FORMAT_RGB, bytes.data()),       test::png_of(16, 16, PNG_FORMAT_GRAY, bytes.data()),
      test::png_of(16, 16, PNG_FORMAT_RGBA, bytes.data()),      test::png_of(16, 16, PNG_FORMAT_GA, bytes.data()),
      test::png_of(16, 16, PNG_FORMAT_LINEAR_RGB, wide.data()), test::png_of(16, 16, PNG_FORMAT_LINEAR_Y, wide.data())};
  for (std::size_t i = 0; i < images.size(); ++i) {
    // libpng itself writes a gAMA chunk with the value 1.0 into 16-bit images. The decoder must ignore this chunk too, and
    // return the stored pixel values.
    const Bytes plain = decode_image(images[i], "cat").pixels;
    if (i == 0) {
      EXPECT_EQ(plain, Bytes(bytes.begin(), bytes.begin() + 16 * 16 * 3));
    }
    for (const std::uint32_t gamma : {45'455U, 100'000U, 55'556U, 22'727U}) {
      EXPECT_EQ(decode_image(with_chunk(images[i], "gAMA", gamma_of(gamma)), "cat").pixels, plain) << i << ": " << gamma;
    }
  }
}

TEST(DecodeImage, OnlyAnEffectiveGammaIsReported) {
  const Bytes grey{0, 100, 255};
  const std::string plain = test::png_of(1, 3, PNG_FORMAT_GRAY, grey.data());
  EXPECT_FALSE(has_png_gamma(plain));
  EXPECT_FALSE(has_png_gamma(with_chunk(plain, "gAMA", gamma_of(45'455))));
  EXPECT_TRUE(has_png_gamma(with_chunk(plain, "gAMA", gamma_of(100'000))));
  EXPECT_TRUE(has_png_gamma(with_chunk(plain, "gAMA", gamma_of(22'727))));
  EXPECT_FALSE(has_png_gamma(""));
  EXPECT_FALSE(has_png_gamma(plain.substr(0, 40)));
}

// A compressed text or profile of a few kilobytes could expand to megabytes, so these chunks must not be unpacked.
TEST(DecodeImage, AncillaryChunksAreSkipped) {
  const std::string png = test::png_of(test::smooth_image(5, 5, 1));
  EXPECT_EQ(decode_image(with_chunk(png, "zTXt", "no text"), "cat").pixels, decode_image(png, "cat").pixels);
  EXPECT_EQ(decode_image(with_chunk(png, "iCCP", "no profile"), "cat").pixels, decode_image(png, "cat").pixels);
}

TEST(DecodeImage, LimitsAreNamed) {
  std::string png = test::png_of(test::smooth_image(5, 5, 1));
  const auto put = [](std::string& bytes, std::size_t at, const std::string& text) { bytes.replace(at, text.size(), text); };
  put(png, 16, gamma_of(65'535) + gamma_of(65'535));  // writes a huge width and height into the header
  const auto crc = static_cast<std::uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(png.data()) + 12, 17));
  put(png, 29, gamma_of(crc));
  EXPECT_EQ(refusal_of_image(png), "cat: has 65535 x 65535 pixels; expected at most 89478485 in total");

  // A JPEG may repeat scans of the same coefficients. Each scan costs as much time as a whole image, so the decoder limits
  // the number of scans.
  std::string jpeg = test::progressive_jpeg_of(test::smooth_image(16, 16, 1));
  EXPECT_EQ(refusal_of_image(jpeg), "");
  const std::size_t first_scan = jpeg.find("\xff\xda");
  const std::size_t second_scan = jpeg.find("\xff\xc4", first_scan);
  ASSERT_NE(second_scan, std::string::npos);
  std::string many = jpeg.substr(0, second_scan);
  const std::string scan = jpeg.substr(first_scan, second_scan - first_scan);
  for (int i = 0; i < 600; ++i) many += scan;
  many += jpeg.substr(second_scan);
  EXPECT_EQ(refusal_of_image(many),
            "cat: is a damaged JPEG image: it has more than 500 scans, the limit for an image of its size");
}

// With quality 95, the pixels of a smooth image differ from the original by at most 6 of 256 levels. Each step of the transform
// and of the colour conversion rounds by half a level.
TEST(DecodeImage, JpegPixelsAreApproximate) {
  const PixelRows image = test::smooth_image(40, 64, 90);
  const PixelRows decoded = decode_image(test::jpeg_of(image), "cat");
  EXPECT_EQ(decoded.height, 40);
  EXPECT_EQ(decoded.width, 64);
  EXPECT_LE(largest_difference(decoded, image), 6);
  const Bytes grey(64, 77);
  EXPECT_EQ(decode_image(test::jpeg_of(8, 8, 1, JCS_GRAYSCALE, grey.data()), "cat").pixels, Bytes(192, 77));
}

TEST(DecodeImage, DamagedImagesAreRefused) {
  const std::string png = test::png_of(test::smooth_image(30, 30, 1)), jpeg = test::jpeg_of(test::smooth_image(30, 30, 1));
  EXPECT_TRUE(refusal_of_image(png.substr(0, png.size() / 2)).starts_with("cat: is a damaged PNG image: "));
  std::string flipped = png;
  flipped[png.size() / 2] ^= 0x10;
  EXPECT_TRUE(refusal_of_image(flipped).starts_with("cat: is a damaged PNG image: ")) << refusal_of_image(flipped);
  EXPECT_EQ(refusal_of_image(jpeg.substr(0, jpeg.size() - 40)), "cat: is a damaged JPEG image: Premature end of JPEG file");
  EXPECT_TRUE(refusal_of_image(jpeg.substr(0, 30)).starts_with("cat: is a damaged JPEG image: "));
  std::string overwritten = jpeg;  // a copy of the JPEG whose second half is overwritten, except for the end marker
  for (std::size_t i = jpeg.size() / 2; i + 2 < jpeg.size(); ++i) overwritten[i] = '\xaa';
  EXPECT_TRUE(refusal_of_image(overwritten).starts_with("cat: is a damaged JPEG image: "));
  const Bytes four(8 * 8 * 4, 9);
  EXPECT_EQ(refusal_of_image(test::jpeg_of(8, 8, 4, JCS_CMYK, four.data())),
            "cat: is a JPEG image with four colour channels (CMYK); convert it to RGB");
  EXPECT_EQ(refusal_of_image("GIF89a"), "cat: is neither a JPEG nor a PNG image: its first bytes match neither format");
  EXPECT_EQ(refusal_of_image(""), "cat: is neither a JPEG nor a PNG image: its first bytes match neither format");
}

PixelRows patterned() {
  PixelRows image{.height = 5, .width = 7};
  for (int y = 0; y < 5; ++y) {
    for (int x = 0; x < 7; ++x) {
      for (int c = 0; c < 3; ++c) image.pixels.push_back(static_cast<std::uint8_t>(x * 37 + y * 59 + c * 83 + x * y * 11));
    }
  }
  return image;
}

// The expected values were computed by Image.resize((width, height), Image.BILINEAR) of Pillow 12. The results must be
// bit-identical to these values.
TEST(Resampled, MatchesPillow) {
  EXPECT_EQ(resampled(patterned(), 4, 3).pixels,
            (Bytes{49,  132, 174, 130, 161, 100, 169, 87,  106, 129, 143, 92,  157, 112, 120, 130, 143, 104,
                   177, 74,  119, 124, 132, 122, 115, 128, 143, 151, 115, 158, 144, 129, 129, 126, 126, 127}));
  EXPECT_EQ(resampled(patterned(), 2, 4).pixels, (Bytes{83,  128, 130, 133, 143, 124, 154, 131, 104, 141, 111, 107,
                                                        170, 83,  126, 141, 135, 138, 125, 122, 117, 124, 128, 142}));
  std::uint64_t sum = 0, place = 0;
  for (const std::uint8_t value : resampled(patterned(), 8, 11).pixels) sum += value * ++place;
  EXPECT_EQ(sum, 4518870U);
}

TEST(Resized, TheShorterSideDeterminesTheScale) {
  const PixelRows wide = resized(test::smooth_image(10, 25, 3), 4), tall = resized(test::smooth_image(25, 10, 3), 10);
  EXPECT_EQ(wide.height, 4);
  EXPECT_EQ(wide.width, 10);
  EXPECT_EQ(tall.pixels, test::smooth_image(25, 10, 3).pixels);
}

}  // namespace
}  // namespace ddprun::trainer
