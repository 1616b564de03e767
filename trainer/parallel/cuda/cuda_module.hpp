// The CUDA functions that ddptrain needs in addition to tensors. They are in a separate module, libddptrain_cuda.so.
// trainer/parallel/device.cpp opens it only if a GPU is used: linked to the program, libtorch_cuda would cost every start 0.35
// s. Program and module are built together (kCudaModuleVersion).
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
  std::int64_t allocated_bytes = 0;       // used by tensors now
  std::int64_t peak_allocated_bytes = 0;  // since the start
  std::int64_t reserved_bytes = 0;        // held by the caching allocator
  std::int64_t free_bytes = 0;            // free on the device, for any process
  std::int64_t total_bytes = 0;
};

// Errors are exceptions (c10::Error).
class CudaModule {
 public:
  virtual ~CudaModule() = default;
  virtual int device_count() noexcept = 0;  // visible devices; 0 if the driver fails
  virtual std::string device_name(int device) = 0;
  virtual std::string device_uuid(int device) = 0;  // "GPU-" and 32 hexadecimal digits, unique for each GPU or MIG slice
  virtual void set_device(int device) = 0;
  virtual void synchronize(int device) = 0;
  virtual GpuMemory memory(int device) = 0;
  // Makes host memory page-locked, so that the device copies to and from it directly. Returns false and changes nothing if the
  // system grants no more page-locked memory. Takes about a second for some GB. The memory must be unpinned before it is freed.
  // Any thread.
  virtual bool pin(int device, void* memory, std::size_t bytes) noexcept = 0;
  virtual void unpin(void* memory) noexcept = 0;
  // Returns cached memory to the device, for example after an out-of-memory error.
  virtual void empty_cache() = 0;
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                                      int device, std::chrono::milliseconds timeout) = 0;
};

inline constexpr int kCudaModuleVersion = 3;
inline constexpr const char* kCudaModuleEntry = "ddptrain_cuda_module";
// The only symbol of the module. Returns null if `version` differs from the module's own.
using CudaModuleEntry = CudaModule*(int version);

}  // namespace ddprun::trainer
