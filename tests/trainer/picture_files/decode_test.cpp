// JPEG and PNG as pixels, what is refused, and other sizes by Pillow's numbers.
#include "trainer/picture_files/decode.hpp"

#include <gtest/gtest.h>

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
  // What a transparent pixel's colours are, and not what lies behind it.
  EXPECT_EQ(decode_picture(test::png_of(1, 3, PNG_FORMAT_RGBA, clear.data()), "cat").pixels,
            (Bytes{10, 20, 30, 40, 50, 60, 70, 80, 90}));
}

// Of a smooth picture of quality 95, at most 6 of 256 levels: half a level a step of the transformation and of the colours.
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
  std::string overwritten = jpeg;  // its end is there
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

// Image.resize((width, height), Image.BILINEAR) of Pillow 12, to the bit.
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
