// Tests the reader of IDX files. Plain and gzip files give the same samples, and each kind of bad file has its own error
// message.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/data/dataset.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

std::string number(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string images(std::uint32_t n, std::uint32_t height = 2, std::uint32_t width = 3) {
  std::string bytes = number(0x803) + number(n) + number(height) + number(width);
  for (std::uint32_t i = 0; i < n * height * width; ++i) {
    bytes += static_cast<char>(i * 7);
  }
  return bytes;
}

std::string labels(std::uint32_t n) {
  std::string bytes = number(0x801) + number(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    bytes += static_cast<char>(i % 10);
  }
  return bytes;
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class IdxTest : public testing::Test {
 protected:
  IdxTest() {
    std::string pattern = (fs::temp_directory_path() / "idx-test-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    config_.dir = folder_.string();
  }
  ~IdxTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) { std::ofstream(folder_ / name, std::ios::binary) << bytes; }
  void write_images(const std::string& bytes) { write(config_.train_images, bytes); }
  void write_labels(const std::string& bytes) { write(config_.train_labels, bytes); }
  void write_images_gz(const std::string& bytes) { write(config_.train_images + ".gz", bytes); }

  Dataset load() { return load_idx(config_, Split::kTrain); }

  std::string error() {
    try {
      load();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }

  void expect_error(const std::vector<std::string>& parts) {
    const std::string message = error();
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "expected: " << part << "\nfound: " << message;
    }
  }

  fs::path folder_;
  DataConfig config_;
};

void expect_images(const Dataset& data, std::int64_t n) {
  ASSERT_EQ(data.images.sizes(), (std::vector<std::int64_t>{n, 1, 2, 3}));
  EXPECT_TRUE(data.images.is_contiguous());
  EXPECT_EQ(data.size(), n);
  for (std::int64_t i = 0; i < n * 6; ++i) {
    EXPECT_EQ(data.images.const_data_ptr<std::uint8_t>()[i], static_cast<std::uint8_t>(i * 7));
  }
  for (std::int64_t i = 0; i < n; ++i) {
    EXPECT_EQ(data.labels.const_data_ptr<std::int64_t>()[i], i % 10);
  }
}

TEST_F(IdxTest, ReadsPlainFiles) {
  write_images(images(12));
  write_labels(labels(12));
  expect_images(load(), 12);
}

TEST_F(IdxTest, ReadsGzipFiles) {
  write_images_gz(gzip(images(12)));
  write(config_.train_labels + ".gz", gzip(labels(12)));
  expect_images(load(), 12);
}

// A temporary lack of memory must not be reported as an error of the config.
TEST_F(IdxTest, ALackOfMemoryIsReportedAsSuch) {
  constexpr std::int64_t kSamples = 1 << 24;
  const auto number = [](std::uint32_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8), static_cast<char>(n)};
  };
  write_labels(labels(12));
  write_images(number(0x803) + number(kSamples) + number(8) + number(8));
  fs::resize_file(folder_ / config_.train_images, 16 + kSamples * 64);  // a sparse file of 1 GiB, which uses no disk blocks
  const auto load_with_few_descriptors = [this] {
    const rlimit few{.rlim_cur = 64 << 20, .rlim_max = 64 << 20};  // this limit applies only to new mappings
    ::setrlimit(RLIMIT_AS, &few);
    try {
      load();
    } catch (const Error& error) {
      ::_exit(static_cast<int>(error.code()));
    }
    ::_exit(0);
  };
  EXPECT_EXIT(load_with_few_descriptors(), testing::ExitedWithCode(static_cast<int>(ExitCode::kOutOfMemory)), "");
}

TEST_F(IdxTest, MapsTheFileInflatedByAnotherWorker) {
  write_images_gz(gzip(images(12)));
  write_labels(labels(12));
  std::map<std::string, std::string> offered;
  InflatedFiles one, other;
  one.offer = [&](const std::string& file, const std::string& memory) { offered[file] = memory; };
  other.find = [&](const std::string& file) { return offered[file]; };
  std::optional<Dataset> inflated = load_idx(config_, Split::kTrain, one);
  expect_images(*inflated, 12);
  ASSERT_NE(offered[config_.train_images + ".gz"], "");

  write_images_gz("\x1f\x8b and nothing sound");
  const Dataset mapped = load_idx(config_, Split::kTrain, other);
  inflated.reset();
  expect_images(mapped, 12);
  // The memory with the inflated file no longer exists, so load_idx() reads the file again. The file is now damaged.
  EXPECT_THROW(load_idx(config_, Split::kTrain, other), UsageError);
  offered[config_.train_images + ".gz"] = "1 0 42";
  write_images_gz(gzip(images(12)));
  expect_images(load_idx(config_, Split::kTrain, other), 12);
}

TEST_F(IdxTest, DoesNotShareADamagedFile) {
  write_images_gz(gzip(images(12)).substr(0, 40));
  write_labels(labels(12));
  std::string memory = "unknown";
  InflatedFiles one;
  one.offer = [&](const std::string&, const std::string& name) { memory = name; };
  EXPECT_THROW(load_idx(config_, Split::kTrain, one), UsageError);
  EXPECT_EQ(memory, "");
}

TEST_F(IdxTest, ReadsTheImageSizeFromTheHeader) {
  // The image file ends after its header, and the label file does not exist.
  const std::string header = images(12).substr(0, 16);
  write_images_gz(gzip(header));
  const ImageSize compressed = image_size_of(config_);
  EXPECT_EQ(std::tie(compressed.channels, compressed.height, compressed.width), std::make_tuple(1, 2, 3));
  write_images(header);
  const ImageSize plain = image_size_of(config_);
  EXPECT_EQ(std::tie(plain.channels, plain.height, plain.width), std::make_tuple(1, 2, 3));
  write_images(header.substr(0, 15));
  EXPECT_THROW(image_size_of(config_), UsageError);
}

TEST_F(IdxTest, ReadsAGzipFileOfSeveralMembers) {
  const std::string bytes = images(12);
  write_images_gz(gzip(bytes.substr(0, 9)) + gzip(bytes.substr(9)));
  write_labels(labels(12));
  expect_images(load(), 12);
}

// A compressed file must be refused if its header declares more data than the file can contain. This must happen before memory
// is allocated for the data.
TEST_F(IdxTest, RefusesAGzipFileThatClaimsTooMuch) {
  write_labels(labels(12));
  std::string noise;
  for (std::uint32_t i = 0, x = 1; i < 200'000; ++i) noise += static_cast<char>((x = x * 1664525 + 1013904223) >> 24);
  std::string header = images(12).substr(0, 16);
  header.replace(4, 4, std::string("\x01\0\0\0", 4));  // the header claims 100 MB of images
  write_images_gz(gzip(header + noise));
  expect_error({"a gzip file may expand to at most 256 times its size"});
}

TEST_F(IdxTest, RefusesAGzipFileOfTooManyMembers) {
  write_labels(labels(12));
  const std::string empty = gzip("");
  std::string file = gzip(images(12));
  for (int i = 0; i <= 1 << 20; ++i) file += empty;
  write_images_gz(file);
  expect_error({"has more than 1048576 gzip members"});
}

TEST_F(IdxTest, RefusesAPipeWithoutWaiting) {
  write_labels(labels(12));
  const fs::path path = folder_ / config_.train_images;
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error({path.string(), "is not a regular file", "data.dir"});
  fs::remove(path);
  fs::create_directory(path);
  expect_error({path.string(), "is not a regular file", "data.dir"});
}

TEST_F(IdxTest, ReportsWhyAFileCannotBeOpened) {
  write_labels(labels(12));
  const fs::path path = folder_ / config_.train_images;
  fs::create_symlink(path, path);
  expect_error({"cannot access '" + path.string() + "'", "Too many levels of symbolic links", "data.dir"});
  fs::remove(path);
  expect_error({"found neither '" + path.string() + "' nor"});
  EXPECT_EQ(error().find("folder '"), std::string::npos) << error();

  config_.dir = (folder_ / config_.train_labels).string();
  expect_error({"'" + config_.dir + "' is not a folder", "data.dir"});
  config_.dir = (folder_ / "nowhere").string();
  expect_error({"the folder '" + config_.dir + "' does not exist", "data.dir"});

  config_.dir = folder_.string();
  fs::permissions(folder_, fs::perms::none);
  const bool root = ::geteuid() == 0;  // root may read every folder, so the test becomes another user
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "this root can't be another user";
  const std::string closed = error();
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(folder_, fs::perms::owner_all);
  EXPECT_NE(closed.find("cannot access '" + (folder_ / config_.train_labels).string() + "': Permission denied"),
            std::string::npos)
      << closed;
}

TEST_F(IdxTest, PrefersThePlainFile) {
  write_images(images(12));
  write_images_gz("not gzip at all");
  write_labels(labels(12));
  expect_images(load(), 12);
}

TEST_F(IdxTest, ReadsTheTestSplitFromItsOwnFiles) {
  write(config_.test_images, images(3));
  write(config_.test_labels, labels(3));
  expect_images(load_idx(config_, Split::kTest), 3);
}

TEST_F(IdxTest, LimitsTheSamples) {
  write_images(images(12));
  write_labels(labels(12));
  config_.train_samples = 5;
  expect_images(load(), 5);
}

TEST_F(IdxTest, SurvivesRemovalOfTheFile) {
  write_images(images(12));
  write_labels(labels(12));
  const Dataset data = load();
  fs::remove(folder_ / config_.train_images);
  expect_images(data, 12);
}

TEST_F(IdxTest, RefusesMoreSamplesThanThereAre) {
  write_images(images(12));
  write_labels(labels(12));
  config_.train_samples = 13;
  expect_error({"data.train_samples is 13", "only 12"});
}

TEST_F(IdxTest, NamesBothTriedPathsOfAMissingFile) {
  expect_error({(folder_ / config_.train_labels).string() + "'", (folder_ / config_.train_labels).string() + ".gz'"});
}

TEST_F(IdxTest, ReportsAMissingFolder) {
  config_.dir = (folder_ / "nowhere").string();
  expect_error({"does not exist"});
}

TEST_F(IdxTest, RefusesAFolderInTheFilesPlace) {
  fs::create_directory(folder_ / config_.train_labels);
  expect_error({"not a regular file"});
}

TEST_F(IdxTest, NamesTheMagicFoundAndExpected) {
  write_images(labels(12) + "padding");
  write_labels(labels(12));
  expect_error({"expected magic number 0x00000803", "found 0x00000801"});
}

TEST_F(IdxTest, NamesBytesExpectedAndFoundOfATruncatedFile) {
  write_images(images(12).substr(0, 50));
  write_labels(labels(12));
  expect_error({"truncated", "88 bytes", "found 50"});
}

TEST_F(IdxTest, RefusesAFileThatEndsWithinItsHeader) {
  write_labels(labels(12));
  for (const std::size_t length : {0U, 1U, 3U, 4U, 15U}) {
    write_images(images(12).substr(0, length));
    expect_error({"truncated", "found " + std::to_string(length)});
  }
}

TEST_F(IdxTest, RefusesAFileThatIsTooLong) {
  write_images(images(12) + "x");
  write_labels(labels(12));
  expect_error({"too long", "88 bytes", "found 89"});
}

TEST_F(IdxTest, RefusesAGzipFileCutAnywhere) {
  write_labels(labels(12));
  const std::string whole = gzip(images(12));
  for (std::size_t length = 2; length < whole.size(); ++length) {
    write_images_gz(whole.substr(0, length));
    expect_error({"truncated"});
  }
}

TEST_F(IdxTest, RefusesAGzipFileWithAFlippedBit) {
  write_labels(labels(100));
  std::string damaged = gzip(images(100));
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // change a bit of the CRC
  write_images_gz(damaged);
  expect_error({"damaged"});
}

TEST_F(IdxTest, RefusesTrailingBytesAfterGzip) {
  write_labels(labels(12));
  write_images_gz(gzip(images(12)) + "garbage");
  expect_error({"damaged"});
}

TEST_F(IdxTest, ChecksTheLengthInsideAGzipFile) {
  write_labels(labels(12));
  write_images_gz(gzip(images(12).substr(0, 50)));
  expect_error({"truncated", "88 bytes", "50 after"});
  write_images_gz(gzip(images(12) + "x"));
  expect_error({"too long", "88 bytes"});
}

TEST_F(IdxTest, AllocatesNothingForAFalseHeader) {
  write_labels(labels(12));
  const std::string false_size = number(0x803) + number(0xffffffff) + number(0x7fff) + number(0x7fff);
  write_images_gz(gzip(false_size + "few"));
  expect_error({"truncated"});
  write_images_gz(gzip(number(0x803) + number(0xffffffff) + number(0xffffffff) + number(0xffffffff)));
  expect_error({"impossible IDX header"});
}

TEST_F(IdxTest, RefusesAnEmptySet) {
  write_images(images(0));
  write_labels(labels(12));
  expect_error({"is empty"});
}

TEST_F(IdxTest, RefusesDifferentCounts) {
  write_images(images(12));
  write_labels(labels(11));
  expect_error({"12 images", "11 labels"});
}

TEST_F(IdxTest, NamesTheSampleWhoseLabelIsOutOfRange) {
  write_images(images(12));
  write_labels(labels(12));
  config_.classes = 8;
  expect_error({"sample 8 has label 8", "0..7"});
}

}  // namespace
}  // namespace ddprun::trainer
