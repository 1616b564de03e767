// Moves micro-batches to the device that computes, where their source finishes them. Copies to a GPU have a stream of their
// own, so the next batch arrives while the last one is computed. Everything is enqueued. The host waits only if it is
// kMostAhead batches ahead; otherwise device memory would grow with its lead.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "trainer/data/source.hpp"

namespace ddprun::trainer {

class Upload {
 public:
  static constexpr std::size_t kMostAhead = 4;

  Upload(const Source& source, c10::Device device);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Copies a batch to the device, for the stream that is current there. The batch must be of the constructor's source, or of
  // one that differs only in its samples. On the CPU nothing is copied. Throws UsageError if the tensors do not match the
  // source's description.
  Batch take(const Batch& batch);

 private:
  struct Copies;  // null on the CPU
  void check(const Batch& batch) const;
  // Finishes the batch and its mixup partners as the source requires; then checks both.
  void finish(Batch& batch) const;

  c10::Device device_;
  Description description_;
  std::function<void(Batch&)> finish_;  // may be empty
  std::unique_ptr<Copies> copies_;
};

}  // namespace ddprun::trainer
