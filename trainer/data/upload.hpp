// Copies micro-batches to the compute device, where the function from Source::finish_on() converts them. Copies to a GPU use a
// separate stream, so the next batch is copied while the previous one is computed. All work is asynchronous. The host waits
// only if it is kMaxAhead batches ahead of the device, since each queued batch needs device memory.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "trainer/data/source.hpp"

namespace ddprun::trainer {

class Upload {
 public:
  static constexpr std::size_t kMaxAhead = 4;

  Upload(const Source& source, c10::Device device);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Copies a batch to the device. The copy is ready for use on the current stream. The batch must come from the source passed
  // to the constructor, or from a source that differs only in its samples. On the CPU nothing is copied. Throws UsageError if
  // the tensors do not match the source's description.
  Batch take(const Batch& batch);

 private:
  struct Copies;  // defined in upload.cpp; copies_ is null on the CPU
  void check(const Batch& batch) const;
  // Converts the batch and its mixup partners with the source's function, and then checks both.
  void finish(Batch& batch) const;

  c10::Device device_;
  Description description_;
  std::function<void(Batch&)> finish_;  // may be empty
  std::unique_ptr<Copies> copies_;
};

}  // namespace ddprun::trainer
