// Brings micro-batches to the device that computes, where their source finishes them. To a GPU they travel on a stream of their
// own, so that the next batch comes while the last one is computed. Everything is enqueued; the host waits only when it
// is kMostAhead batches ahead, or memory on the device would grow with its lead.
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

  // A batch of that source, or of one that differs in its samples only and is finished alike, for the stream that is current on
  // the device. What needs no copy is not copied. Throws UsageError for tensors that are not those of the source's description.
  Batch take(const Batch& batch);

 private:
  struct Copies;  // null for the CPU
  void check(const Batch& batch) const;
  // What the source left to do, for the batch and what it is mixed with; then both are checked.
  void finish(Batch& batch) const;

  c10::Device device_;
  Description description_;
  std::function<void(Batch&)> finish_;  // may be empty
  std::unique_ptr<Copies> copies_;
};

}  // namespace ddprun::trainer
