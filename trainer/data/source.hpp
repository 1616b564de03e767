// The origin of samples. The loader, the evaluation and the upload know data only by this interface. The first implementation
// is in pictures.hpp. Another kind of data needs another subclass and no other change.
//
// A source is pure: a sample does not depend on the caller or the time. So a batch depends neither on the number of workers nor
// on restarts, and another worker can repeat the batch of a lost one.
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

namespace ddprun::trainer {

// Label that is excluded from the loss: PyTorch's ignore_index.
inline constexpr std::int64_t kNotPredicted = -100;

// Samples as tensors; the first dimension of each is the number of samples.
struct Batch {
  std::vector<at::Tensor> tensors;
  // Weight of its mean loss within the global batch: samples, or tokens that are not masked. Depends on the data alone.
  double weight = 0;
  // Stands in for a share without weight. The sample belongs to another rank and weighs more than 0, but its loss and gradients
  // do not count.
  bool stand_in = false;
  // Mixup: the partner of each sample, in the form of `tensors`, and the fraction of the sample itself, float32 [n]. Empty
  // without mixup.
  std::vector<at::Tensor> partners{};
  at::Tensor own_part{};

  std::int64_t samples() const { return stand_in ? 0 : tensors.front().size(0); }
};

// One sample's part of a batch tensor, as a task gets it on the device: without the first dimension.
struct TensorDescription {
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::kFloat;
};

struct Description {
  std::vector<TensorDescription> tensors;
};

// Key of the random numbers, in addition to the sample. A repeated epoch draws the same numbers.
struct Draws {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

// Immutable; all calls are safe from several threads.
class Source {
 public:
  Source() = default;
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // Number of samples, at least 1. A sample's index is below it.
  virtual std::int64_t size() const = 0;
  virtual Description describe() const = 0;
  // Weight of one sample: 0 or more, and above 0 for at least one sample of each batch. Every rank computes the global batch's
  // weight from this alone.
  virtual double weight(std::int64_t /*sample*/) const { return 1; }
  // Makes these samples in this order, on the CPU. The batch's weight is the sum of theirs. Evaluation passes no draws; then
  // nothing is random. The caller owns the tensors. Throws errors that end the run: UsageError for bad data.
  virtual Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const = 0;
  // Returns the work that remains for a batch of make() after its copy to the device. It runs in that device's current stream.
  // Useful if samples are smaller in their stored form. Empty: no work remains. May outlive the source. Bitwise the same on the
  // CPU.
  virtual std::function<void(Batch&)> finish_on(c10::Device /*device*/) const { return {}; }
  // Origin of a sample's tensor, for error messages.
  virtual std::string place_of(std::int64_t sample, std::size_t tensor) const {
    return "tensor " + std::to_string(tensor) + " of sample " + std::to_string(sample);
  }
  // Distinguishes these samples from others, whatever files they come from: "60000x1x28x28 0123456789abcdef". May cover only
  // parts of them.
  virtual std::string fingerprint() const = 0;
};

// The data for training, evaluation and validation.
struct Sources {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> test;
  std::shared_ptr<const Source> validation{};  // held out of `train` (trainer/splits); null without a validation set
};

}  // namespace ddprun::trainer
