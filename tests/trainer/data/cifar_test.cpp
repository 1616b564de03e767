// Tests CIFAR's binary format: the samples that are read, and the files that are refused.
#include "trainer/data/cifar.hpp"

#include <gtest/gtest.h>

#include <string>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;

constexpr std::size_t kPlane = 32 * 32;

// Returns an image whose red, green and blue values identify it.
std::string image(char shade) {
  return std::string(kPlane, shade) + std::string(kPlane, static_cast<char>(shade + 1)) +
         std::string(kPlane, static_cast<char>(shade + 2));
}

void write_cifar10(const TemporaryFolder& folder) {
  for (char i = 1; i <= 5; ++i) {
    write_text(folder / ("data_batch_" + std::to_string(i) + ".bin"),
               std::string(1, i) + image(static_cast<char>(10 * i)) + std::string(1, '\x09') + image('\x01'));
  }
  write_text(folder / "test_batch.bin", std::string(1, '\0') + image('\x70'));
}

std::string refusal_of(const TemporaryFolder& folder, Cifar kind, Split split, std::int64_t max_records = kMaxCifarRecords) {
  try {
    read_cifar(folder.path(), kind, split, max_records);
  } catch (const UsageError& error) {
    const std::string text = error.what();
    return text.substr(text.find_last_of('/') + 1);
  }
  return "";
}

TEST(Cifar, ReadsTheFiveFilesOfCifar10InOrder) {
  TemporaryFolder folder;
  write_cifar10(folder);
  const Dataset train = read_cifar(folder.path(), Cifar::k10, Split::kTrain);
  EXPECT_EQ(train.images.sizes(), (std::vector<std::int64_t>{10, 3, 32, 32}));
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(train.labels[2 * i].item<std::int64_t>(), i + 1);
    EXPECT_EQ(train.labels[2 * i + 1].item<std::int64_t>(), 9);
    for (std::int64_t plane = 0; plane < 3; ++plane) {
      EXPECT_TRUE(train.images[2 * i][plane].eq(10 * (i + 1) + plane).all().item<bool>()) << i << " " << plane;
    }
  }
  const Dataset test = read_cifar(folder.path(), Cifar::k10, Split::kTest);
  EXPECT_EQ(test.size(), 1);
  EXPECT_EQ(test.labels[0].item<std::int64_t>(), 0);
}

TEST(Cifar, Cifar100UsesTheFineLabel) {
  TemporaryFolder folder;
  write_text(folder / "train.bin", std::string("\x07\x63") + image('\x05'));
  const Dataset train = read_cifar(folder.path(), Cifar::k100, Split::kTrain);
  EXPECT_EQ(train.labels[0].item<std::int64_t>(), 99);
  EXPECT_TRUE(train.images[0][2].eq(7).all().item<bool>());
}

TEST(Cifar, SamplesAreLimitedAndTheShapeNeedsNoFile) {
  TemporaryFolder folder;
  write_cifar10(folder);
  DataConfig config;
  config.type = DataConfig::Type::kCifar10;
  config.dir = folder.path();
  config.train_samples = 3;
  const Dataset train = load_images(config, Split::kTrain);
  EXPECT_EQ(train.size(), 3);
  EXPECT_EQ(train.images.size(0), 3);
  EXPECT_EQ(image_size_of(config).channels, 3);
  config.test_samples = 2;
  EXPECT_THROW(load_images(config, Split::kTest), UsageError);
}

// Memory for all records is allocated in advance. So a huge file that does not have the CIFAR format must be refused before
// the allocation.
TEST(Cifar, AFileWithTooManyRecordsIsRefused) {
  TemporaryFolder folder;
  write_cifar10(folder);
  EXPECT_EQ(refusal_of(folder, Cifar::k10, Split::kTrain, 2), "");
  EXPECT_EQ(refusal_of(folder, Cifar::k10, Split::kTrain, 1), "data_batch_1.bin' has 2 records; expected at most 1");
}

TEST(Cifar, InvalidFilesAreRefused) {
  TemporaryFolder folder;
  EXPECT_EQ(refusal_of(folder, Cifar::k10, Split::kTest),
            "test_batch.bin' does not exist; set data.dir to the folder cifar-10-batches-bin from the binary version of the "
            "data set");
  EXPECT_EQ(refusal_of(folder, Cifar::k100, Split::kTest),
            "test.bin' does not exist; set data.dir to the folder cifar-100-binary from the binary version of the data set");
  write_cifar10(folder);
  write_text(folder / "data_batch_3.bin", "\x01" + image('\x05') + "\x01");
  EXPECT_EQ(
      refusal_of(folder, Cifar::k10, Split::kTrain),
      "data_batch_3.bin' has 3074 bytes; expected a multiple of 3073 bytes, the size of a record in the binary version of "
      "CIFAR-10");
  write_text(folder / "data_batch_3.bin", "\x01" + image('\x05') + "\x0a" + image('\x05'));
  EXPECT_EQ(refusal_of(folder, Cifar::k10, Split::kTrain), "data_batch_3.bin': record 1 has label 10; expected 0..9");
  write_text(folder / "test.bin", "\x01\x64" + image('\x05'));
  EXPECT_EQ(refusal_of(folder, Cifar::k100, Split::kTest), "test.bin': record 0 has label 100; expected 0..99");
}

}  // namespace
}  // namespace ddprun::trainer
