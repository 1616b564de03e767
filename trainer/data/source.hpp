// The interface of a source of samples. The loader, the evaluation and the upload access data only through it, so a new kind of
// data needs only a new subclass. images.hpp is an example.
//
// A source is pure: a sample does not depend on the caller or the time. So a batch depends neither on the number of workers nor
// on restarts. Another worker can make the same batch again after a worker was lost.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddprun {
struct TablePlan;
}

namespace ddprun::trainer {

// Label that is excluded from the loss, with the value of PyTorch's ignore_index.
inline constexpr std::int64_t kNotPredicted = -100;

// Samples as tensors. The first dimension of each tensor is the number of samples.
struct Batch {
  std::vector<at::Tensor> tensors;
  // Weight of the batch's mean loss within the global batch: the number of samples, or of tokens that are not masked. Depends
  // on the data alone.
  double weight = 0;
  // True for a rank that has no samples of weight above 0 in this step. The batch then contains a sample of another rank, so
  // that the rank takes part in the collectives. The loss and the gradients of this batch have no effect.
  bool stand_in = false;
  // Mixup: the partner of each sample, as tensors like `tensors`, and the weight of the sample itself, float32 [n]. `partners`
  // is empty if mixup is off.
  std::vector<at::Tensor> partners{};
  at::Tensor own_part{};

  std::int64_t samples() const { return stand_in ? 0 : tensors.front().size(0); }
};

// Shape and type of one sample in a batch tensor, in the form that the task receives on the device. The shape does not include
// the batch tensor's first dimension.
struct TensorDescription {
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::kFloat;
};

struct Description {
  std::vector<TensorDescription> tensors;
  // The column plan (common/tables/column_plan.hpp) of data.type "table"; null for other data.
  std::shared_ptr<const TablePlan> table{};
};

// Together with the index of a sample, these values are the key of the sample's random numbers. A repeated epoch draws the
// same numbers.
struct Draws {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

// A source is immutable. Several threads may call all functions.
class Source {
 public:
  Source() = default;
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // Returns the number of samples, at least 1. The index of a sample is below this number.
  virtual std::int64_t size() const = 0;
  virtual Description describe() const = 0;
  // Returns the weight of one sample: 0 or more, and above 0 for at least one sample of each batch. Every rank computes the
  // weight of the global batch from these weights alone.
  virtual double weight(std::int64_t /*sample*/) const { return 1; }
  // Returns the samples with these indices, in this order, on the CPU. The batch's weight is the sum of the samples' weights.
  // Evaluation passes no draws, so its samples contain no random numbers. The caller owns the tensors. Throws errors that end
  // the run: UsageError for bad data.
  virtual Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const = 0;
  // Returns a function that converts a batch of make() after its copy to the device; empty if no conversion is needed. It runs
  // in the device's current stream. This is useful if the stored form of a sample is smaller, because fewer bytes are copied.
  // The function may outlive the source. Its results must be bit-identical on all devices.
  virtual std::function<void(Batch&)> finish_on(c10::Device /*device*/) const { return {}; }
  // Returns the origin of a sample's tensor, for error messages.
  virtual std::string place_of(std::int64_t sample, std::size_t tensor) const {
    return "tensor " + std::to_string(tensor) + " of sample " + std::to_string(sample);
  }
  // Returns a text that distinguishes these samples from other samples: "60000x1x28x28 0123456789abcdef". The text does not
  // depend on the names of the files. It may cover only parts of the samples.
  virtual std::string fingerprint() const = 0;
};

// The data for training, evaluation and validation.
struct Sources {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> test;
  std::shared_ptr<const Source> validation{};  // samples held out of `train` (trainer/splits); null if no samples are held out
  std::string plan{};  // JSON text of the column plan of a table; empty for other data. The run directory stores it.
  std::vector<std::string> notes{};  // lines for the user about the data, which rank 0 prints at the first start
};

}  // namespace ddprun::trainer
