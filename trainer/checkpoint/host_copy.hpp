// A copy of a checkpoint's tensors in host memory, taken between two steps, so that a thread can write it while training goes
// on. One block of memory holds it and is used again by the next copy: a run needs the size of one checkpoint beside its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

class HostCopy {
 public:
  // Where the tensors are. For a device other than the CPU the block is pinned, copies are asynchronous, and `synchronize`
  // waits for them all at once.
  struct Source {
    bool on_device = false;
    std::function<void()> synchronize{};
  };
  HostCopy();
  explicit HostCopy(Source source);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // The same state with tensors that lie in the block: contiguous, on the CPU, without gradients. They are valid until the next
  // call. Throws std::bad_alloc, or c10::Error for pinned memory, when there is no memory for the block.
  CheckpointState take(const CheckpointState& live);

 private:
  class Block;
  Source source_;
  std::unique_ptr<Block> block_;
};

// Whether every floating-point element of these tensors is a number and finite. Contiguous CPU tensors only; uses one thread
// and nothing of ATen's, so it may run beside training.
bool all_finite(const std::vector<NamedTensor>& host_tensors);

}  // namespace ddprun::trainer
