// A copy of a checkpoint's tensors in host memory. It is taken between two steps; a thread writes it while training continues.
// One block of memory holds it and is reused by the next copy. So a run needs extra host memory for one checkpoint.
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
  // Describes where the tensors are. From a device other than the CPU, copies are asynchronous, and one `synchronize` waits for
  // all of them. `pin` makes the block's memory page-locked, so that the device copies into it directly. It returns false if
  // that fails; copies are then slower. `unpin` is called before the memory is freed. Any thread may call either.
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

  // Allocates the block in a thread, for a state of `bytes` bytes (bytes_for). Pinning some GB takes seconds, for which the
  // first copy would otherwise stop training. If the allocation fails, take() tries again.
  void prepare(std::size_t bytes);
  // Returns the size of a copy of this state.
  static std::size_t bytes_for(const CheckpointState& state);

  // Returns the same state with tensors in the block: contiguous, on the CPU, without gradients. They are valid until the next
  // call. Throws std::bad_alloc if there is no memory for the block.
  CheckpointState take(const CheckpointState& live);

 private:
  class Block;
  Source source_;
  std::unique_ptr<Block> block_;
  std::future<std::unique_ptr<Block>> coming_;  // result of prepare()
};

// Whether every floating-point element of these tensors is finite (no NaN, no infinity). Accepts contiguous CPU tensors only.
// Uses one thread and no ATen operator, so it may run while training continues.
bool all_finite(const std::vector<NamedTensor>& host_tensors);
// The same for all tensors of a state.
bool all_finite(const CheckpointState& host_copy);

}  // namespace ddprun::trainer
