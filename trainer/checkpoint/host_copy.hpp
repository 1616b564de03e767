// A copy of a checkpoint's tensors in host memory. The copy is made between two steps, and a thread writes it to the disk while
// training continues. The next copy reuses the same memory, so a run needs extra host memory for one checkpoint.
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
  // Describes the device of the tensors. Copies from a GPU are asynchronous, and one call of `synchronize` waits for all of
  // them. `pin` page-locks the memory of the copy, so that the device writes into it directly. If `pin` fails, it returns
  // false, and copies are slower. `unpin` is called before the memory is freed. Any thread may call `pin` and `unpin`.
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

  // Starts a thread that allocates memory for a copy of `bytes` bytes (see bytes_for()). Without this call, training would
  // stop for seconds at the first copy, because it takes that long to pin a few GB. If the allocation fails, take() tries
  // again.
  void prepare(std::size_t bytes);
  // Returns the number of bytes that a copy of this state needs.
  static std::size_t bytes_for(const CheckpointState& state);

  // Returns a copy of the state. Its tensors are contiguous, on the CPU and without gradients. They are valid until the next
  // call. Throws std::bad_alloc if the memory can't be allocated.
  CheckpointState take(const CheckpointState& live);

 private:
  class Block;
  Source source_;
  std::unique_ptr<Block> block_;
  std::future<std::unique_ptr<Block>> coming_;  // result of prepare()
};

// Returns whether every floating-point element of these tensors is finite (no NaN, no infinity). Accepts contiguous CPU tensors
// only. It uses one thread and no ATen operator, so it may run while training continues.
bool all_finite(const std::vector<NamedTensor>& host_tensors);
// Returns whether all tensors of a state are finite.
bool all_finite(const CheckpointState& host_copy);

}  // namespace ddprun::trainer
