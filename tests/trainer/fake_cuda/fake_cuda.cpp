// Replaces libddptrain_cuda.so on a machine without a GPU. It supports all calls before the first kernel, but it cannot
// compute. It simulates $FAKE_CUDA_DEVICES GPUs, which have the same UUID. If $FAKE_CUDA_VERSION is set, it behaves like a
// module of a different version.
#include <cstdlib>
#include <stdexcept>

#include "trainer/parallel/cuda/cuda_module.hpp"

namespace ddprun::trainer {
namespace {

class FakeCuda final : public CudaModule {
 public:
  int device_count() noexcept override {
    const char* const count = std::getenv("FAKE_CUDA_DEVICES");
    return count ? std::atoi(count) : 0;
  }
  std::string device_name(int) override { return "no GPU at all"; }
  std::string device_uuid(int) override { return "GPU-0123"; }
  void set_device(int) override {}
  void synchronize(int) override {}
  GpuMemory memory(int) override { return {}; }
  bool pin(int, void*, std::size_t) noexcept override { return false; }
  void unpin(void*) noexcept override {}
  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, int,
                                              std::chrono::milliseconds) override {
    throw std::runtime_error("there is no NCCL here");
  }
};

}  // namespace
}  // namespace ddprun::trainer

extern "C" __attribute__((visibility("default"))) ddprun::trainer::CudaModule* ddptrain_cuda_module(int version) {
  static ddprun::trainer::FakeCuda cuda;
  return version == ddprun::trainer::kCudaModuleVersion && !std::getenv("FAKE_CUDA_VERSION") ? &cuda : nullptr;
}
