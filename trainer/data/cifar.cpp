#include "trainer/data/cifar.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/reading/mapped_file.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPixels = kCifarImage.channels * kCifarImage.height * kCifarImage.width;

std::vector<std::string> files_of(Cifar kind, Split split) {
  if (kind == Cifar::k100) return {split == Split::kTrain ? "train.bin" : "test.bin"};
  if (split == Split::kTest) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

struct RecordShape {
  std::int64_t labels = 1;  // number of label bytes per record; the last one is used
  std::int64_t classes = 10;
  std::int64_t bytes() const { return labels + kPixels; }
};

void require_there(const fs::path& file, Cifar kind) {
  std::error_code none;
  if (fs::exists(file, none)) return;
  throw UsageError(c10::str("'", file.string(), "' does not exist; set data.dir to the folder ",
                            kind == Cifar::k10 ? "cifar-10-batches-bin" : "cifar-100-binary",
                            " from the binary version of the data set"));
}

}  // namespace

Dataset read_cifar(const fs::path& folder, Cifar kind, Split split, std::int64_t max_records) {
  const RecordShape record = kind == Cifar::k10 ? RecordShape{} : RecordShape{.labels = 2, .classes = 100};
  std::vector<fs::path> paths;
  std::int64_t count = 0;
  for (const std::string& name : files_of(kind, split)) {
    const fs::path file = folder / name;
    require_there(file, kind);
    std::error_code none;
    const auto size = static_cast<std::int64_t>(fs::file_size(file, none));
    if (none || size % record.bytes() != 0) {
      throw UsageError(c10::str("'", file.string(), "' has ", size, " bytes; expected a multiple of ", record.bytes(),
                                " bytes, the size of a record in the binary version of CIFAR-", record.classes));
    }
    if (size / record.bytes() > max_records) {
      throw UsageError(
          c10::str("'", file.string(), "' has ", size / record.bytes(), " records; expected at most ", max_records));
    }
    paths.push_back(file);
    count += size / record.bytes();
  }
  Dataset dataset{.images = at::empty({count, kCifarImage.channels, kCifarImage.height, kCifarImage.width}, at::kByte),
                  .labels = at::empty({count}, at::kLong)};
  auto* image = dataset.images.mutable_data_ptr<std::uint8_t>();
  auto* label = dataset.labels.mutable_data_ptr<std::int64_t>();
  const auto* const end = label + count;
  for (const fs::path& file : paths) {
    const MappedFile mapped(file);
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(mapped.bytes().data());
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(mapped.bytes().size()) / record.bytes() && label != end; ++i) {
      const std::uint8_t* const from = begin + i * record.bytes();
      const std::uint8_t found = from[record.labels - 1];
      if (found >= record.classes) {
        throw UsageError(
            c10::str("'", file.string(), "': record ", i, " has label ", int{found}, "; expected 0..", record.classes - 1));
      }
      *label++ = found;
      image = std::copy_n(from + record.labels, kPixels, image);
    }
  }
  return dataset;
}

}  // namespace ddprun::trainer
