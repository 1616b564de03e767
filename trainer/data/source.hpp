// Where samples come from: the one thing that the loader, the evaluation and the upload know of data. pictures.hpp has the
// first kind; another kind of data is another class here, and nothing else changes.
//
// A source is pure: a sample is the same whoever asks for it, and whenever. So a batch depends neither on the number of workers
// nor on restarts, and a lost worker's batch is made again by another one.
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

// A label that no model is to predict: PyTorch's ignore_index.
inline constexpr std::int64_t kNotPredicted = -100;

// Samples made into tensors, the first dimension of each counts them.
struct Batch {
  std::vector<at::Tensor> tensors;
  // What its mean loss counts for in the global batch's: samples, or tokens that are not masked. Known from the data alone.
  double weight = 0;
  // For a share in which nothing counts: a sample that some other rank has, so its weight is above 0, but its loss and
  // gradients count for nothing.
  bool stand_in = false;
  // Mixup: with what each sample is mixed, as `tensors`, and how much of it stays its own, float32 [n]. Empty: it stays whole.
  std::vector<at::Tensor> partners{};
  at::Tensor own_part{};

  std::int64_t samples() const { return stand_in ? 0 : tensors.front().size(0); }
};

// One sample's part of each tensor of a batch, as a task gets it on the device: without the first dimension.
struct TensorDescription {
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::kFloat;
};

struct Description {
  std::vector<TensorDescription> tensors;
};

// What random numbers are keyed by, beside the sample: the same draws of a sample in each epoch of each attempt.
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

  // Samples, 1 or more; each is named by a number below it.
  virtual std::int64_t size() const = 0;
  virtual Description describe() const = 0;
  // Of one sample: 0 or more, and above 0 for each batch. Every rank knows the global batch's weight from this alone.
  virtual double weight(std::int64_t /*sample*/) const { return 1; }
  // Those samples in that order, on the CPU; the batch's weight is the sum of theirs. Without draws, which is what evaluation
  // asks for, nothing is random. The tensors are the caller's. Throws what ends the run: UsageError for bad data.
  virtual Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const = 0;
  // What is left to do with a batch of make() once it is on the device, there, in that device's current stream: what is cheaper
  // to send as it is stored. Empty: nothing. May outlive the source. Bitwise the same on the CPU.
  virtual std::function<void(Batch&)> finish_on(c10::Device /*device*/) const { return {}; }
  // Where that tensor of a sample is from, for people who look for what is wrong with it.
  virtual std::string place_of(std::int64_t sample, std::size_t tensor) const {
    return "tensor " + std::to_string(tensor) + " of sample " + std::to_string(sample);
  }
  // Tells these samples from others, whatever files they come from: "60000x1x28x28 0123456789abcdef". May be of parts of them.
  virtual std::string fingerprint() const = 0;
};

// What a run learns from and what it is evaluated on.
struct Sources {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> test;
  std::shared_ptr<const Source> validation{};  // held out of `train` (trainer/splits); null: nothing is
};

}  // namespace ddprun::trainer
