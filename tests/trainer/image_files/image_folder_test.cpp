// Tests data sets that are folders of images: the samples, which must not depend on threads or batches, and the folders that
// are refused.
#include "trainer/image_files/image_folder.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <utility>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/image_files/generated_images.hpp"
#include "trainer/image_files/changes.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;

class ImageFolders : public testing::Test {
 protected:
  // Creates both splits, each with images of cats (12 x 20 pixels) and of dogs (16 x 9 pixels). The blue value identifies the
  // image.
  ImageFolders() {
    config_.type = DataConfig::Type::kFolder;
    config_.dir = folder_.path();
    config_.classes = 2;
    config_.image_size = 8;
    config_.mean = 0;
    config_.std = 1;
    for (const std::string split : {"train", "test"}) {
      for (std::uint8_t i = 0; i < 3; ++i) {
        write_text(folder_ / (split + "/cat/" + std::to_string(i) + ".PNG"), test::png_of(test::smooth_image(12, 20, i)));
        write_text(folder_ / (split + "/dog/" + std::to_string(i) + ".jpeg"),
                   test::jpeg_of(test::smooth_image(16, 9, static_cast<std::uint8_t>(100 + 50 * i))));
      }
      write_text(folder_ / (split + "/cat/notes.txt"), "not an image");
      write_text(folder_ / (split + "/.hidden/x.png"), "not an image");
    }
  }

  Batch all_of(const Source& source, const std::optional<Draws>& draws = {}) const {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(source.size()));
    std::iota(samples.begin(), samples.end(), 0);
    return source.make(samples, draws);
  }

  std::string refusal() const {
    try {
      all_of(*read_image_folders(config_).train);
    } catch (const UsageError& error) {
      const std::string text = error.what(), folder = folder_.path().string() + "/";
      return text.starts_with(folder) ? text.substr(folder.size()) : text;
    }
    return "";
  }

  TemporaryFolder folder_;
  DataConfig config_;
};

TEST_F(ImageFolders, SamplesAlternateBetweenClasses) {
  const Sources data = read_image_folders(config_);
  const Batch batch = all_of(*data.train);
  EXPECT_EQ(batch.tensors[0].sizes(), (std::vector<std::int64_t>{6, 3, 8, 8}));
  const std::array<float, 6> blue{0, 100, 1, 150, 2, 200};
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(batch.tensors[1][i].item<std::int64_t>(), i % 2);
    const float found = 255 * batch.tensors[0][i][2].mean().item<float>();
    EXPECT_NEAR(found, blue[static_cast<std::size_t>(i)], i % 2 == 0 ? 1e-4 : 3) << i;
  }
  EXPECT_EQ(data.train->describe().tensors[0].sizes, describe_image_folder(config_).tensors[0].sizes);
  config_.train_samples = 2;
  EXPECT_EQ(read_image_folders(config_).train->size(), 2);
}

TEST_F(ImageFolders, NothingDependsOnThreadsOrOnTheBatch) {
  config_.augment = {.crop_padding = 1, .flip = true, .random_crop = true, .erase = 0.5};
  const Draws draws{.seed = 5, .epoch = 3};
  const Batch whole = all_of(*read_image_folders(config_).train, draws);
  config_.decode_threads = 1;
  const Sources by_one = read_image_folders(config_);
  EXPECT_TRUE(at::equal(all_of(*by_one.train, draws).tensors[0], whole.tensors[0]));
  const std::array<std::int64_t, 2> some{4, 1};
  const Batch part = by_one.train->make(some, draws);
  EXPECT_TRUE(at::equal(part.tensors[0][0], whole.tensors[0][4]));
  EXPECT_TRUE(at::equal(part.tensors[0][1], whole.tensors[0][1]));
  EXPECT_FALSE(at::equal(all_of(*by_one.train, Draws{.seed = 5, .epoch = 4}).tensors[0], whole.tensors[0]));
  EXPECT_FALSE(at::equal(all_of(*by_one.train).tensors[0], whole.tensors[0]));
}

TEST_F(ImageFolders, ErrorsAreNamed) {
  const std::string image = test::png_of(test::smooth_image(12, 20, 0));
  write_text(folder_ / "train/dog/1.jpeg", image.substr(0, image.size() - 30));
  EXPECT_TRUE(refusal().starts_with("train/dog/1.jpeg: is a damaged PNG image: ")) << refusal();
  write_text(folder_ / "train/dog/1.jpeg", test::png_of(test::smooth_image(1, 1001, 0)));
  EXPECT_EQ(refusal(), "train/dog/1.jpeg: has 1001 x 1 pixels; expected the longer side to be at most 1000 times the shorter");
  const std::int64_t resize = std::exchange(config_.resize, 1024);
  write_text(folder_ / "train/dog/1.jpeg", test::png_of(test::smooth_image(1, 1000, 0)));
  EXPECT_TRUE(refusal().starts_with("train/dog/1.jpeg: would have more than 33554432 pixels")) << refusal();
  config_.resize = resize;
  std::filesystem::remove(folder_ / "train/dog/1.jpeg");
  ASSERT_EQ(::mkfifo((folder_ / "train/dog/1.jpeg").c_str(), 0600), 0);
  EXPECT_EQ(refusal(), "train/dog/1.jpeg: is not a regular file");
  std::filesystem::remove(folder_ / "train/dog/1.jpeg");
  write_text(folder_ / "train/dog/1.jpeg", "");
  EXPECT_EQ(refusal(), "train/dog/1.jpeg: is empty");
  write_text(folder_ / "train/dog/1.jpeg", image);
  EXPECT_EQ(refusal(), "");
  config_.train_samples = 7;
  EXPECT_NE(refusal().find("data.train_samples is 7, but '"), std::string::npos);
  config_.train_samples = 0;
  config_.classes = 3;
  EXPECT_EQ(refusal(), "train: has 2 class folders, but data.classes is 3; expected one folder for each class");
  config_.classes = 2;
  std::filesystem::rename(folder_ / "test/cat", folder_ / "test/cow");
  EXPECT_NE(refusal().find("test: class 0 is 'cow', but in "), std::string::npos);
  std::filesystem::create_directory(folder_ / "train/ant");
  EXPECT_EQ(refusal(), "train/ant: has no image; expected *.jpg, *.jpeg or *.png");
  config_.train_folder = "none";
  EXPECT_EQ(refusal(), "none: cannot be listed: No such file or directory; expected a folder of images");
}

TEST_F(ImageFolders, UnusedFilesAreCounted) {
  EXPECT_EQ(notes_on_image_folders(config_),
            (std::vector<std::string>{
                (folder_ / "train").string() +
                    ": 1 file is not used (1 *.txt); expected *.jpg, *.jpeg and *.png files in the folder of their class",
                (folder_ / "test").string() +
                    ": 1 file is not used (1 *.txt); expected *.jpg, *.jpeg and *.png files in the folder of their class"}));
  for (const char* name : {"train/cat/2.webp", "train/cat/3.webp", "train/cat/more/4.png", "train/5.jpg", "train/cat/README"}) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_text(folder_ / name, "x");
  }
  std::filesystem::remove(folder_ / "test/cat/notes.txt");
  EXPECT_EQ(notes_on_image_folders(config_),
            std::vector<std::string>{(folder_ / "train").string() +
                                     ": 6 files are not used (1 *.txt, 2 *.webp, 2 in other folders, 1 without an extension); "
                                     "expected *.jpg, *.jpeg and *.png files in the folder of their class"});
}

// Older versions of ddptrain applied the gamma value. If a run started with an older version, it must not continue with
// different pixels without a message. So the fingerprint changes.
TEST_F(ImageFolders, AGammaOnceAppliedChangesTheFingerprint) {
  const std::string before = read_image_folders(config_).train->fingerprint();
  EXPECT_EQ(before.find("gamma"), std::string::npos);
  std::string png = test::png_of(test::smooth_image(12, 20, 0));
  png.insert(33, std::string("\0\0\0\4gAMA\0\1\x86\xa0\x31\xe8\x96\x5f", 16));  // a gamma of 1.0
  write_text(folder_ / "train/cat/0.PNG", png);
  EXPECT_TRUE(read_image_folders(config_).train->fingerprint().ends_with(" (gamma of PNG files not applied)"));
}

TEST_F(ImageFolders, OtherImagesHaveAnotherFingerprint) {
  const std::string before = read_image_folders(config_).train->fingerprint();
  EXPECT_EQ(read_image_folders(config_).train->fingerprint(), before);
  EXPECT_TRUE(before.starts_with("6 pictures of 2 classes ")) << before;
  // Writes a different image with the same size in bytes.
  std::string bytes = test::png_of(test::smooth_image(12, 20, 9));
  const auto size = std::filesystem::file_size(folder_ / "train/cat/0.PNG");
  bytes.resize(size, '\0');
  write_text(folder_ / "train/cat/0.PNG", bytes);
  EXPECT_NE(read_image_folders(config_).train->fingerprint(), before);
}

// The crop must be the same as in torchvision's CenterCrop. Of 3 surplus pixels, 2 are before the crop and 1 is after it. A
// single surplus pixel is after the crop.
TEST(ImageChange, WithoutDrawsTheCropIsCentered) {
  DataConfig config;
  config.image_size = 8;
  config.augment = {.crop_padding = 4, .flip = true, .random_crop = true, .erase = 1};
  const ImageChange change = draw_change(config, 11, 9, 0, {});
  EXPECT_EQ(change.top, 2);
  EXPECT_EQ(change.left, 0);
  EXPECT_FALSE(change.mirror);
  EXPECT_EQ(change.erased.rows, 0);
}

TEST(ImageChange, DrawsCoverAllValidPositions) {
  DataConfig config;
  config.image_size = 8;
  config.augment = {.flip = true, .random_crop = true, .erase = 0.5};
  std::set<std::int64_t> tops, lefts;
  int mirrored = 0, erased = 0;
  for (std::int64_t sample = 0; sample < 400; ++sample) {
    const ImageChange change = draw_change(config, 10, 8, sample, Draws{.seed = 1, .epoch = 2});
    tops.insert(change.top);
    lefts.insert(change.left);
    mirrored += change.mirror ? 1 : 0;
    erased += change.erased.rows > 0 ? 1 : 0;
    EXPECT_LE(change.erased.top + change.erased.rows, 8);
    EXPECT_LE(change.erased.left + change.erased.columns, 8);
  }
  EXPECT_EQ(tops, (std::set<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(lefts, std::set<std::int64_t>{0});
  // About half of the 400 images should be mirrored. The allowed deviation of 50 is five standard deviations.
  EXPECT_NEAR(mirrored, 200, 50);
  EXPECT_NEAR(erased, 200, 50);
  config.augment = {.crop_padding = 2};
  tops.clear();
  for (std::int64_t sample = 0; sample < 400; ++sample) tops.insert(draw_change(config, 8, 8, sample, Draws{}).top);
  EXPECT_EQ(tops, (std::set<std::int64_t>{-2, -1, 0, 1, 2}));
}

// The random numbers of an epoch must not be the numbers of the previous epoch, shifted by some positions.
TEST(ImageChange, NoDrawIsRepeated) {
  DataConfig config;
  config.image_size = 8;
  config.augment = {.random_crop = true, .erase = 1};
  constexpr std::int64_t kSide = 1'000'000'000;
  std::set<std::int64_t> places;
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    const ImageChange change = draw_change(config, kSide, kSide, 0, Draws{.seed = 1, .epoch = epoch});
    places.insert({change.top, change.left});
  }
  EXPECT_EQ(places.size(), 16u);
  config.image_size = kSide;  // with this size, the position of the erased part is drawn from the next block of random numbers
  for (std::int64_t epoch = 0; epoch < 7; ++epoch) {
    const Draws here{.seed = 1, .epoch = epoch}, next{.seed = 1, .epoch = epoch + 1};
    const Erased erased = draw_change(config, kSide, kSide, 0, here).erased;
    config.image_size = 1;
    const auto first = static_cast<double>(draw_change(config, kSide, kSide, 0, next).top) / kSide;
    config.image_size = kSide;
    const double area = static_cast<double>(erased.rows) / kSide * static_cast<double>(erased.columns) / kSide;
    EXPECT_GT(std::abs(area - (0.02 + 0.31 * first)), 1e-6) << epoch;
  }
}

TEST(ImageChange, IsWrittenByChannelWithBlackPadding) {
  const PixelRows image{.height = 2, .width = 2, .pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  DataConfig config;
  config.mean = 0;
  config.std = 1.0 / 255;
  std::array<float, 12> out{};
  const auto written = [&](const ImageChange& change) {
    write_changed(image, change, 2, colour_tables(config), out.data());
    std::array<int, 12> rounded{};
    for (std::size_t i = 0; i < out.size(); ++i) rounded[i] = static_cast<int>(out[i] + 0.5F);
    return rounded;
  };
  EXPECT_EQ(written({}), (std::array<int, 12>{1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12}));
  EXPECT_EQ(written({.mirror = true}), (std::array<int, 12>{4, 1, 10, 7, 5, 2, 11, 8, 6, 3, 12, 9}));
  EXPECT_EQ(written({.top = 1, .left = -1}), (std::array<int, 12>{0, 7, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0}));
  EXPECT_EQ(written({.erased = {.top = 1, .left = 0, .rows = 1, .columns = 1}}),
            (std::array<int, 12>{1, 4, 0, 10, 2, 5, 0, 11, 3, 6, 0, 12}));
}

}  // namespace
}  // namespace ddprun::trainer
