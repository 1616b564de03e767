#include "trainer/exported/tensor_source.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/data/fingerprint.hpp"
#include "trainer/data/samples.hpp"
#include "trainer/reading/mapped_file.hpp"

namespace ddprun::trainer {
namespace {

// One tensor of the file. The values of a sample are contiguous, and the samples follow each other.
struct Column {
  std::string name;
  TensorDescription sample;
  const char* first = nullptr;
  std::size_t sample_bytes = 0;
};

const StoredTensor& find_wanted(const std::vector<StoredTensor>& stored, const ExportedTensor& wanted,
                                const std::filesystem::path& file) {
  const auto found = std::ranges::find(stored, wanted.name, &StoredTensor::name);
  if (found == stored.end()) {
    std::string names;
    for (const StoredTensor& tensor : stored) names += (names.empty() ? "" : ", ") + tensor.name;
    throw UsageError(file.string() + ": has no tensor '" + wanted.name +
                     "', which is an input of the model; its tensors: " + (names.empty() ? "none" : names));
  }
  if (!found->problem.empty()) throw UsageError(file.string() + ": " + found->problem);
  const bool counts = !found->sizes.empty();
  const ExportedTensor sample{
      .name = found->name,
      .type = found->type,
      .sizes = counts ? std::vector(found->sizes.begin() + 1, found->sizes.end()) : std::vector<std::int64_t>{}};
  if (counts && sample.type == wanted.type && sample.sizes == wanted.sizes) return *found;
  throw UsageError(file.string() + ": a sample is " + batch_text({sample}) + (counts ? "" : " without a first dimension") +
                   ", but the model takes " + batch_text({wanted}) +
                   "; the file needs the number of samples as an additional first dimension");
}

// Returns the number of samples in the file. Throws UsageError if the tensors have different numbers of samples.
std::int64_t samples_in(const std::vector<StoredTensor>& stored, const std::vector<ExportedTensor>& wanted,
                        const std::filesystem::path& file) {
  const StoredTensor& first = find_wanted(stored, wanted.front(), file);
  for (const ExportedTensor& each : wanted) {
    const StoredTensor& other = find_wanted(stored, each, file);
    if (other.sizes[0] == first.sizes[0]) continue;
    throw UsageError(file.string() + ": '" + first.name + "' has " + std::to_string(first.sizes[0]) + " samples, but '" +
                     other.name + "' has " + std::to_string(other.sizes[0]) + "; expected the same number");
  }
  if (first.sizes[0] == 0) throw UsageError(file.string() + ": has no samples");
  return first.sizes[0];
}

void require_truth(const Column& column, std::int64_t samples, const std::string& name, const std::filesystem::path& file) {
  const std::span bytes(column.first, static_cast<std::size_t>(samples) * column.sample_bytes);
  if (std::ranges::all_of(bytes, [](char byte) { return byte == 0 || byte == 1; })) return;
  throw UsageError(file.string() + ": '" + name + "' has dtype BOOL, but contains bytes other than 0 and 1");
}

class TensorSource : public Source {
 public:
  TensorSource(const std::filesystem::path& file, const std::vector<ExportedTensor>& wanted, std::int64_t limit,
               const char* limit_key)
      : file_(file.string()), mapped_(file) {
    const std::vector<StoredTensor> stored = list_safetensors(mapped_.bytes(), file);
    const std::int64_t found = samples_in(stored, wanted, file);
    size_ = samples_to_use(limit, found, limit_key, file.string());
    for (const ExportedTensor& each : wanted) {
      const StoredTensor& tensor = find_wanted(stored, each, file);
      columns_.push_back({.name = each.name,
                          .sample = {.sizes = each.sizes, .type = each.type},
                          .first = mapped_.bytes().data() + tensor.begin,
                          .sample_bytes = static_cast<std::size_t>(tensor.bytes / found)});
      if (each.type == at::kBool) require_truth(columns_.back(), found, each.name, file);
    }
  }

  std::int64_t size() const override { return size_; }

  Description describe() const override {
    Description description;
    for (const Column& column : columns_) description.tensors.push_back(column.sample);
    return description;
  }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    Batch batch{.tensors = {}, .weight = static_cast<double>(samples.size())};
    for (const Column& column : columns_) batch.tensors.push_back(copied_rows(column.first, column.sample, samples));
    return batch;
  }

  std::string place_of(std::int64_t sample, std::size_t tensor) const override {
    return "'" + columns_[tensor].name + "' of sample " + std::to_string(sample) + " in " + file_;
  }

  // Hashes evenly spaced pieces of each tensor, because the file may be larger than memory.
  std::string fingerprint() const override {
    Checksum checksum;
    for (const Column& column : columns_) {
      const std::string_view bytes(column.first, static_cast<std::size_t>(size_) * column.sample_bytes);
      for (const std::string_view piece : spread_pieces(bytes)) checksum.add(piece);
    }
    return std::to_string(size_) + " x (" + batch_text(describe()) + ") " + checksum.xxh3_128();
  }

 private:
  std::string file_;
  MappedFile mapped_;
  std::int64_t size_ = 0;
  std::vector<Column> columns_;
};

std::filesystem::path data_file(const TrainConfig& config, const std::string& name) {
  return std::filesystem::path(config.data.dir) / name;
}

}  // namespace

std::shared_ptr<const Source> tensor_source(const std::filesystem::path& file, const std::vector<ExportedTensor>& wanted,
                                            std::int64_t limit, const char* limit_key) {
  return std::make_shared<TensorSource>(file, wanted, limit, limit_key);
}

Description describe_tensors(const TrainConfig& config) {
  const std::vector<ExportedTensor> wanted = read_batch_of(config.model.path);
  const std::filesystem::path file = data_file(config, config.data.train);
  samples_in(list_safetensors(file), wanted, file);
  Description description;
  for (const ExportedTensor& tensor : wanted) description.tensors.push_back({.sizes = tensor.sizes, .type = tensor.type});
  return description;
}

Sources read_tensor_sources(const TrainConfig& config) {
  const std::vector<ExportedTensor> wanted = read_batch_of(config.model.path);
  return {.train = tensor_source(data_file(config, config.data.train), wanted, config.data.train_samples, "data.train_samples"),
          .test = tensor_source(data_file(config, config.data.test), wanted, config.data.test_samples, "data.test_samples")};
}

}  // namespace ddprun::trainer
