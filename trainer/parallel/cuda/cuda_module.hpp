// The CUDA functions that ddptrain calls directly. (Operations on tensors go through ATen.) They are in a separate shared
// library, libddptrain_cuda.so, which trainer/parallel/device.cpp opens only if a GPU is used. If the program were linked to
// libtorch_cuda, each start would take 0.35 s longer, even on a CPU. The program and the library must come from the same build,
// which a comparison of kCudaModuleVersion checks.
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
  std::int64_t allocated_bytes = 0;       // bytes that tensors of this process use now
  std::int64_t peak_allocated_bytes = 0;  // maximum of allocated_bytes since the process started
  std::int64_t reserved_bytes = 0;        // bytes that this process's caching allocator has reserved
  std::int64_t free_bytes = 0;            // bytes that are free on the device, for any process
  std::int64_t total_bytes = 0;
};

// The functions throw c10::Error, except those marked noexcept. `device` is the index of a visible GPU.
class CudaModule {
 public:
  virtual ~CudaModule() = default;
  virtual int device_count() noexcept = 0;  // number of visible GPUs; 0 if the driver reports an error
  virtual std::string device_name(int device) = 0;
  virtual std::string device_uuid(int device) = 0;  // "GPU-" and 32 hexadecimal digits, unique for each GPU or MIG slice
  virtual void set_device(int device) = 0;
  virtual void synchronize(int device) = 0;
  virtual GpuMemory memory(int device) = 0;
  // Makes host memory page-locked, so that the GPU can copy to and from it directly. Returns false and changes nothing if the
  // system refuses, for example because of a limit on page-locked memory. The call takes about a second for a few GB. Call
  // unpin() before the memory is freed. Any thread may call pin() and unpin().
  virtual bool pin(int device, void* memory, std::size_t bytes) noexcept = 0;
  virtual void unpin(void* memory) noexcept = 0;
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                                      int device, std::chrono::milliseconds timeout) = 0;
};

inline constexpr int kCudaModuleVersion = 4;
inline constexpr const char* kCudaModuleEntry = "ddptrain_cuda_module";
// Type of the only function that the library exports. It returns null if `version` differs from the kCudaModuleVersion of the
// library.
using CudaModuleEntry = CudaModule*(int version);

}  // namespace ddprun::trainer
