// Implementation of cuda_module.hpp, which is compiled into libddptrain_cuda.so.
#include "trainer/parallel/cuda/cuda_module.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace ddprun::trainer {
namespace {

class Cuda final : public CudaModule {
 public:
  int device_count() noexcept override { return c10::cuda::device_count(); }

  std::string device_name(int device) override {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return properties.name;
  }

  std::string device_uuid(int device) override {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    std::string text = "GPU-";
    for (const char byte : properties.uuid.bytes) {
      for (const int digit : {(byte >> 4) & 15, byte & 15}) text += "0123456789abcdef"[digit];
    }
    return text;
  }

  void set_device(int device) override { c10::cuda::set_device(static_cast<c10::DeviceIndex>(device)); }

  void synchronize(int device) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    c10::cuda::device_synchronize();
  }

  GpuMemory memory(int device) override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
    GpuMemory memory;
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    memory.free_bytes = static_cast<std::int64_t>(free_bytes);
    memory.total_bytes = static_cast<std::int64_t>(total_bytes);
    if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return memory;  // no tensor has been allocated yet
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    memory.allocated_bytes = stats.allocated_bytes[kAll].current;
    memory.peak_allocated_bytes = stats.allocated_bytes[kAll].peak;
    memory.reserved_bytes = stats.reserved_bytes[kAll].current;
    return memory;
  }

  bool pin(int device, void* memory, std::size_t bytes) noexcept override {
    try {
      // The current device is a setting of each thread, and a new thread has none.
      c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    } catch (const c10::Error&) {
      return false;
    }
    if (cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());  // clears the error; otherwise the check after the next kernel would report it
    return false;
  }

  void unpin(void* memory) noexcept override {
    if (cudaHostUnregister(memory) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }

  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                                              int device, std::chrono::milliseconds timeout) override {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world_size, std::move(options));
    backend->setBoundDeviceId(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
    return backend;
  }
};

}  // namespace
}  // namespace ddprun::trainer

extern "C" __attribute__((visibility("default"))) ddprun::trainer::CudaModule* ddptrain_cuda_module(int version) {
  static ddprun::trainer::Cuda cuda;
  return version == ddprun::trainer::kCudaModuleVersion ? &cuda : nullptr;
}
