// JPEG and PNG files decoded to pixels, refused files, and resizing with Pillow's values.
#include "trainer/picture_files/decode.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>

#include "common/base/error.hpp"
#include "tests/trainer/picture_files/made_pictures.hpp"
#include "trainer/picture_files/resample.hpp"

namespace ddprun::trainer {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::string refusal_of_picture(const std::string& bytes) {
  try {
    decode_picture(bytes, "cat");
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

TEST(DecodePicture, OfPngEachPixelIsWhatWasWritten) {
  const PixelRows picture = test::smooth_picture(5, 7, 200);
  const PixelRows decoded = decode_picture(test::png_of(picture), "cat");
  EXPECT_EQ(decoded.height, 5);
  EXPECT_EQ(decoded.width, 7);
  EXPECT_EQ(decoded.pixels, picture.pixels);
}

TEST(DecodePicture, OtherKindsOfPngBecomeThreeColoursOfEightBits) {
  const Bytes grey{0, 100, 255}, clear{10, 20, 30, 0, 40, 50, 60, 128, 70, 80, 90, 255};
  EXPECT_EQ(decode_picture(test::png_of(1, 3, PNG_FORMAT_GRAY, grey.data()), "cat").pixels,
            (Bytes{0, 0, 0, 100, 100, 100, 255, 255, 255}));
  // The colours of a transparent pixel count, without a background.
  EXPECT_EQ(decode_picture(test::png_of(1, 3, PNG_FORMAT_RGBA, clear.data()), "cat").pixels,
            (Bytes{10, 20, 30, 40, 50, 60, 70, 80, 90}));
}

// Adds one more chunk after IHDR.
std::string with_chunk(const std::string& png, const std::string& type, const std::string& data) {
  constexpr std::size_t kBehindHeader = 33;
  const auto four = [](std::size_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
  };
  const std::string named = type + data;
  const std::size_t crc = ::crc32(0, reinterpret_cast<const Bytef*>(named.data()), static_cast<uInt>(named.size()));
  return png.substr(0, kBehindHeader) + four(data.size()) + named + four(crc) + png.substr(kBehindHeader);
}

std::string gamma_of(std::uint32_t gamma) {
  return {static_cast<char>(gamma >> 24), static_cast<char>(gamma >> 16), static_cast<char>(gamma >> 8),
          static_cast<char>(gamma)};
}

// Pillow uses the stored numbers of each kind and ignores gamma, which describes only their display.
TEST(DecodePicture, TheGammaOfAPngChangesNoPixel) {
  Bytes bytes(16 * 16 * 4);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  std::vector<std::uint16_t> wide(16 * 16 * 3);
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<std::uint16_t>(i * 81);
  const std::vector<std::string> pictures{
      test::png_of(16, 16, PNG_FORMAT_RGB, bytes.data()),       test::png_of(16, 16, PNG_FORMAT_GRAY, bytes.data()),
      test::png_of(16, 16, PNG_FORMAT_RGBA, bytes.data()),      test::png_of(16, 16, PNG_FORMAT_GA, bytes.data()),
      test::png_of(16, 16, PNG_FORMAT_LINEAR_RGB, wide.data()), test::png_of(16, 16, PNG_FORMAT_LINEAR_Y, wide.data())};
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    // libpng writes gAMA 1.0 into images of 16 bits; their numbers are also used unchanged.
    const Bytes plain = decode_picture(pictures[i], "cat").pixels;
    if (i == 0) {
      EXPECT_EQ(plain, Bytes(bytes.begin(), bytes.begin() + 16 * 16 * 3));
    }
    for (const std::uint32_t gamma : {45'455U, 100'000U, 55'556U, 22'727U}) {
      EXPECT_EQ(decode_picture(with_chunk(pictures[i], "gAMA", gamma_of(gamma)), "cat").pixels, plain) << i << ": " << gamma;
    }
  }
}

TEST(DecodePicture, OnlyAGammaThatChangedPixelsMakesOtherData) {
  const Bytes grey{0, 100, 255};
  const std::string plain = test::png_of(1, 3, PNG_FORMAT_GRAY, grey.data());
  EXPECT_FALSE(has_png_gamma(plain));
  EXPECT_FALSE(has_png_gamma(with_chunk(plain, "gAMA", gamma_of(45'455))));
  EXPECT_TRUE(has_png_gamma(with_chunk(plain, "gAMA", gamma_of(100'000))));
  EXPECT_TRUE(has_png_gamma(with_chunk(plain, "gAMA", gamma_of(22'727))));
  EXPECT_FALSE(has_png_gamma(""));
  EXPECT_FALSE(has_png_gamma(plain.substr(0, 40)));
}

// Each text of a few kilobytes could unpack to megabytes.
TEST(DecodePicture, ChunksThatMakeNoPixelsAreNotRead) {
  const std::string png = test::png_of(test::smooth_picture(5, 5, 1));
  EXPECT_EQ(decode_picture(with_chunk(png, "zTXt", "no text"), "cat").pixels, decode_picture(png, "cat").pixels);
  EXPECT_EQ(decode_picture(with_chunk(png, "iCCP", "no profile"), "cat").pixels, decode_picture(png, "cat").pixels);
}

TEST(DecodePicture, LimitsAreNamed) {
  std::string png = test::png_of(test::smooth_picture(5, 5, 1));
  const auto put = [](std::string& bytes, std::size_t at, const std::string& text) { bytes.replace(at, text.size(), text); };
  put(png, 16, gamma_of(65'535) + gamma_of(65'535));  // width and height
  const auto crc = static_cast<std::uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(png.data()) + 12, 17));
  put(png, 29, gamma_of(crc));
  EXPECT_EQ(refusal_of_picture(png), "cat: has 65535 x 65535 pixels; at most 89478485 can be read");

  // Repeated scans of the same coefficients are legal, and each costs as much time as a whole image.
  std::string jpeg = test::progressive_jpeg_of(test::smooth_picture(16, 16, 1));
  EXPECT_EQ(refusal_of_picture(jpeg), "");
  const std::size_t first_scan = jpeg.find("\xff\xda");
  const std::size_t second_scan = jpeg.find("\xff\xc4", first_scan);
  ASSERT_NE(second_scan, std::string::npos);
  std::string many = jpeg.substr(0, second_scan);
  const std::string scan = jpeg.substr(first_scan, second_scan - first_scan);
  for (int i = 0; i < 600; ++i) many += scan;
  many += jpeg.substr(second_scan);
  EXPECT_EQ(refusal_of_picture(many), "cat: is a damaged JPEG picture: it has more than 500 scans, the limit for its size");
}

// A smooth image of quality 95 differs by at most 6 of 256 levels: half a level for each step of the transformation and of the
// colours.
TEST(DecodePicture, OfJpegItIsNearlyWhatWasWritten) {
  const PixelRows picture = test::smooth_picture(40, 64, 90);
  const PixelRows decoded = decode_picture(test::jpeg_of(picture), "cat");
  EXPECT_EQ(decoded.height, 40);
  EXPECT_EQ(decoded.width, 64);
  EXPECT_LE(largest_difference(decoded, picture), 6);
  const Bytes grey(64, 77);
  EXPECT_EQ(decode_picture(test::jpeg_of(8, 8, 1, JCS_GRAYSCALE, grey.data()), "cat").pixels, Bytes(192, 77));
}

TEST(DecodePicture, WhatIsDamagedIsRefused) {
  const std::string png = test::png_of(test::smooth_picture(30, 30, 1)), jpeg = test::jpeg_of(test::smooth_picture(30, 30, 1));
  EXPECT_TRUE(refusal_of_picture(png.substr(0, png.size() / 2)).starts_with("cat: is a damaged PNG picture: "));
  std::string flipped = png;
  flipped[png.size() / 2] ^= 0x10;
  EXPECT_TRUE(refusal_of_picture(flipped).starts_with("cat: is a damaged PNG picture: ")) << refusal_of_picture(flipped);
  EXPECT_EQ(refusal_of_picture(jpeg.substr(0, jpeg.size() - 40)), "cat: is a damaged JPEG picture: Premature end of JPEG file");
  EXPECT_TRUE(refusal_of_picture(jpeg.substr(0, 30)).starts_with("cat: is a damaged JPEG picture: "));
  std::string overwritten = jpeg;  // its end is present
  for (std::size_t i = jpeg.size() / 2; i + 2 < jpeg.size(); ++i) overwritten[i] = '\xaa';
  EXPECT_TRUE(refusal_of_picture(overwritten).starts_with("cat: is a damaged JPEG picture: "));
  const Bytes four(8 * 8 * 4, 9);
  EXPECT_EQ(refusal_of_picture(test::jpeg_of(8, 8, 4, JCS_CMYK, four.data())),
            "cat: is a JPEG picture of four colours (CMYK); convert it to RGB");
  EXPECT_EQ(refusal_of_picture("GIF89a"), "cat: is neither a JPEG nor a PNG picture by its first bytes");
  EXPECT_EQ(refusal_of_picture(""), "cat: is neither a JPEG nor a PNG picture by its first bytes");
}

PixelRows patterned() {
  PixelRows picture{.height = 5, .width = 7};
  for (int y = 0; y < 5; ++y) {
    for (int x = 0; x < 7; ++x) {
      for (int c = 0; c < 3; ++c) picture.pixels.push_back(static_cast<std::uint8_t>(x * 37 + y * 59 + c * 83 + x * y * 11));
    }
  }
  return picture;
}

// The values of Image.resize((width, height), Image.BILINEAR) of Pillow 12, to the bit.
TEST(Resampled, HasPillowsNumbers) {
  EXPECT_EQ(resampled(patterned(), 4, 3).pixels,
            (Bytes{49,  132, 174, 130, 161, 100, 169, 87,  106, 129, 143, 92,  157, 112, 120, 130, 143, 104,
                   177, 74,  119, 124, 132, 122, 115, 128, 143, 151, 115, 158, 144, 129, 129, 126, 126, 127}));
  EXPECT_EQ(resampled(patterned(), 2, 4).pixels, (Bytes{83,  128, 130, 133, 143, 124, 154, 131, 104, 141, 111, 107,
                                                        170, 83,  126, 141, 135, 138, 125, 122, 117, 124, 128, 142}));
  std::uint64_t sum = 0, place = 0;
  for (const std::uint8_t value : resampled(patterned(), 8, 11).pixels) sum += value * ++place;
  EXPECT_EQ(sum, 4518870U);
}

TEST(Resized, TheShorterSideBecomesThatLongAndTheOtherFollows) {
  const PixelRows wide = resized(test::smooth_picture(10, 25, 3), 4), tall = resized(test::smooth_picture(25, 10, 3), 10);
  EXPECT_EQ(wide.height, 4);
  EXPECT_EQ(wide.width, 10);
  EXPECT_EQ(tall.pixels, test::smooth_picture(25, 10, 3).pixels);
}

}  // namespace
}  // namespace ddprun::trainer
