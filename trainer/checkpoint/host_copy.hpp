// A copy of a checkpoint's tensors in host memory, taken between two steps, so that a thread can write it while training goes
// on. One block of memory holds it and is used again by the next copy: a run needs the size of one checkpoint beside its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <future>
#include <memory>

#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

class HostCopy {
 public:
  // Where the tensors are. Beside a device other than the CPU copies are asynchronous, `synchronize` waits for them all at
  // once, and `pin` makes the block's memory such that the device copies into it by itself: false when that can't be had, then
  // it is slower. `unpin` undoes it before the memory is given back. Both are called by any thread.
  struct Source {
    bool on_device = false;
    std::function<void()> synchronize{};
    std::function<bool(void* memory, std::size_t bytes)> pin{};
    std::function<void(void* memory)> unpin{};
  };
  HostCopy();
  explicit HostCopy(Source source);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // Makes the block in a thread, for a state of that many bytes (bytes_for): pinning some GB takes seconds, which the first
  // copy would otherwise stand still for. What fails there is tried again by take().
  void prepare(std::size_t bytes);
  // What a copy of these takes.
  static std::size_t bytes_for(const CheckpointState& state);

  // The same state with tensors that lie in the block: contiguous, on the CPU, without gradients. They are valid until the next
  // call. Throws std::bad_alloc when there is no memory for the block.
  CheckpointState take(const CheckpointState& live);

 private:
  class Block;
  Source source_;
  std::unique_ptr<Block> block_;
  std::future<std::unique_ptr<Block>> coming_;  // of prepare()
};

// Whether every floating-point element of these tensors is a number and finite. Contiguous CPU tensors only; uses one thread
// and nothing of ATen's, so it may run beside training.
bool all_finite(const std::vector<NamedTensor>& host_tensors);
// Of all its tensors.
bool all_finite(const CheckpointState& host_copy);

}  // namespace ddprun::trainer
