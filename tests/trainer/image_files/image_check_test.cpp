// Tests the check of image files: it finds damaged images before training, and decodes each valid image only once.
#include "trainer/image_files/image_check.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/image_files/generated_images.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;
namespace fs = std::filesystem;

constexpr std::chrono::minutes kLong{5};

class ImageChecks : public testing::Test {
 protected:
  ImageChecks() {
    config_.type = DataConfig::Type::kFolder;
    config_.dir = folder_.path();
    config_.classes = 2;
    config_.image_size = 8;
    config_.decode_threads = 2;
    for (const std::string split : {"train", "test"}) {
      for (const std::string kind : {"cat", "dog"}) {
        fs::create_directories(folder_ / split / kind);
        for (int i = 0; i < 20; ++i) put(split + "/" + kind + "/" + std::to_string(i) + ".png", sound());
      }
    }
    fs::create_directories(folder_ / "run");
  }

  static std::string sound() { return test::png_of(test::smooth_image(12, 20, 0)); }
  static std::string damaged() { return sound().replace(sound().size() / 2, 4, "oops"); }
  void put(const std::string& name, const std::string& bytes) const { write_text(folder_ / name, bytes); }

  // Runs the check of one rank. Returns the error message without the folder, or an empty string if no image is damaged.
  std::string found(int rank = 0, int world = 1) const {
    const auto check =
        check_images(config_, {.folder = folder_ / "run/picture-check", .rank = rank, .world = world, .warn = {}});
    try {
      check->await(kLong);
    } catch (const UsageError& error) {
      std::string text = error.what();
      const std::string folder = folder_.path().string() + "/";
      for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder)) text.erase(at, folder.size());
      return text;
    }
    return "";
  }

  TemporaryFolder folder_;
  DataConfig config_;
};

TEST_F(ImageChecks, DamagedImagesOfBothSetsAreNamed) {
  EXPECT_EQ(found(), "");
  put("test/dog/3.png", damaged());
  EXPECT_TRUE(found().starts_with("test/dog/3.png: is a damaged PNG image: ")) << found();
  EXPECT_TRUE(found().ends_with(". Replace or remove this file")) << found();
  put("train/cat/7.png", damaged());
  EXPECT_NE(found().find("test/dog/3.png: "), std::string::npos) << found();
  EXPECT_NE(found().find("train/cat/7.png: "), std::string::npos) << found();
  config_.train_samples = 2;
  EXPECT_EQ(found().find("train/cat/7.png"), std::string::npos) << "it is not used";
}

TEST_F(ImageChecks, EachRankChecksItsPart) {
  put("train/cat/7.png", damaged());
  int finders = 0;
  for (int rank = 0; rank < 3; ++rank) finders += found(rank, 3).empty() ? 0 : 1;
  EXPECT_EQ(finders, 1);
}

// When the run starts again, it recognizes a checked image by its name, size and modification time, no matter which rank has
// checked it.
TEST_F(ImageChecks, IntactImagesAreNotDecodedAgain) {
  const fs::path file = folder_ / "train/dog/5.png";
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(found(rank, 2), "");
  const fs::file_time_type before = fs::last_write_time(file);
  put("train/dog/5.png", damaged());
  fs::last_write_time(file, before);
  EXPECT_EQ(found(), "") << "name, size and time are those of the intact file";
  fs::last_write_time(file, before + std::chrono::seconds(1));
  EXPECT_TRUE(found().starts_with("train/dog/5.png: is a damaged PNG image: ")) << found();
  EXPECT_TRUE(found().starts_with("train/dog/5.png: is a damaged PNG image: ")) << "a damaged one is not remembered";
}

TEST_F(ImageChecks, UnusableResultFilesCostOnlyTime) {
  put("run/picture-check", "a file in the place of the folder");
  EXPECT_EQ(found(), "");
  put("test/dog/3.png", damaged());
  EXPECT_NE(found(), "");
}

// If the check finds a damaged image during training, it only warns, because training may not need that image for a long time.
TEST_F(ImageChecks, LaterFindingsAreWarnings) {
  put("train/dog/19.png", damaged());
  std::promise<std::string> warned;
  const auto check = check_images(
      config_, {.folder = {}, .rank = 0, .world = 1, .warn = [&](const std::string& problem) { warned.set_value(problem); }});
  bool found_immediately = false;
  try {
    check->await(std::chrono::milliseconds(0));
  } catch (const UsageError&) {
    found_immediately = true;  // the check ended before await() was called
  }
  if (found_immediately) GTEST_SKIP() << "the check had ended";
  EXPECT_NE(warned.get_future().get().find("train/dog/19.png: is a damaged PNG image"), std::string::npos);
}

TEST_F(ImageChecks, StopsWithTheRun) {
  check_images(config_, {.folder = {}, .rank = 0, .world = 1, .warn = {}});
  config_.train_folder = "none";
  EXPECT_EQ(found(), "") << "read_image_folders() reports that";
}

}  // namespace
}  // namespace ddprun::trainer
