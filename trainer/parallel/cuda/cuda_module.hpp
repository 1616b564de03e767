// What ddptrain needs of CUDA beyond tensors. It is implemented in a module of its own, libddptrain_cuda.so, that
// trainer/parallel/device.cpp opens only where a GPU is used: linked in, libtorch_cuda would cost every start 0.35 s. Both
// sides are built together (kCudaModuleVersion).
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun::trainer {

struct GpuMemory {
  std::int64_t allocated_bytes = 0;       // by tensors, now
  std::int64_t peak_allocated_bytes = 0;  // since the start
  std::int64_t reserved_bytes = 0;        // by the caching allocator
  std::int64_t free_bytes = 0;            // of the device, for any process
  std::int64_t total_bytes = 0;
};

// Errors are exceptions (c10::Error).
class CudaModule {
 public:
  virtual ~CudaModule() = default;
  virtual int device_count() noexcept = 0;  // visible ones; 0 when the driver fails
  virtual std::string device_name(int device) = 0;
  virtual std::string device_uuid(int device) = 0;  // "GPU-" and 32 hexadecimal digits: one for each GPU or slice of one
  virtual void set_device(int device) = 0;
  virtual void synchronize(int device) = 0;
  virtual GpuMemory memory(int device) = 0;
  // Makes host memory such that the device copies to and from it by itself; false, with everything as before, when the system
  // gives no more of that. Takes about a second for some GB. Before the memory is given back it is unpinned. Any thread.
  virtual bool pin(int device, void* memory, std::size_t bytes) noexcept = 0;
  virtual void unpin(void* memory) noexcept = 0;
  // Gives cached memory back to the device, as after an out-of-memory error.
  virtual void empty_cache() = 0;
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                                      int device, std::chrono::milliseconds timeout) = 0;
};

inline constexpr int kCudaModuleVersion = 3;
inline constexpr const char* kCudaModuleEntry = "ddptrain_cuda_module";
// The one symbol of the module. Null when `version` isn't the module's own.
using CudaModuleEntry = CudaModule*(int version);

}  // namespace ddprun::trainer
