// Implementation of device.hpp. It finds and opens the CUDA module, which is next to the program or in lib/ of the same
// installation. The module needs libtorch_cuda, which in turn needs the driver's libraries. Each missing part has a separate
// error message.
#include "trainer/parallel/device.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

CudaModule* opened_module = nullptr;

// Returns true if the device files of the driver exist (/dev/dxg under WSL). Without them there is no GPU, and loading CUDA
// would waste 0.35 s.
bool driver_is_loaded() {
  for (const char* file : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg"}) {
    if (::access(file, F_OK) == 0) return true;
  }
  return false;
}

struct Opened {
  CudaModule* module = nullptr;
  std::string problem;
};

constexpr const char* kModuleFile = "libddptrain_cuda.so";

// Returns the path of the CUDA module, or an empty string if it is not in one of the usual folders. A program in a build tree
// may still find the module, because its RUNPATH contains the module's folder. Sets `searched` to the folders, for a message.
std::string module_file(std::string& searched) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& folder : {program, program / "lib", program / ".." / "lib", program / ".." / "lib" / "ddprun"}) {
    const auto file = (folder / kModuleFile).lexically_normal();
    if (std::filesystem::exists(file, error)) return file;
    searched += (searched.empty() ? "" : ", ") + file.parent_path().string();
  }
  return "";
}

Opened open_module() {
  std::string searched;
  const std::string file = module_file(searched);
  // RTLD_GLOBAL is needed, as for a linked library, because libtorch_cuda must register its kernels in the registries of
  // libtorch_cpu.
  void* const library = ::dlopen(file.empty() ? kModuleFile : file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    const std::string why = ::dlerror();
    if (!file.empty() || !why.starts_with(kModuleFile)) return {nullptr, "the CUDA module cannot be loaded: " + why};
    return {
        nullptr,
        "this build has no CUDA module: " + std::string(kModuleFile) + " is not in " + searched +
            ". Build ddprun with a CUDA build of LibTorch and its nvidia packages (run ./dev setup on a machine with a GPU)"};
  }
  auto* const entry = reinterpret_cast<CudaModuleEntry*>(::dlsym(library, kCudaModuleEntry));
  CudaModule* const module = entry ? entry(kCudaModuleVersion) : nullptr;
  if (!module) {
    return {nullptr,
            (file.empty() ? kModuleFile : file) + " belongs to another version of ddptrain: build or install both together"};
  }
  return {module, ""};
}

bool sharing_is_enabled() {
  const char* value = std::getenv("DDPTRAIN_SHARE_GPU");
  return value && std::string(value) == "1";
}

}  // namespace

int choose_gpu(TrainConfig::Device wanted, const WorkerEnvironment& environment, int gpus, bool share) {
  if (wanted == TrainConfig::Device::kCpu) return -1;
  if (gpus == 0) {
    if (wanted == TrainConfig::Device::kAuto) return -1;
    throw UsageError(
        "the config has \"device\": \"cuda\", but CUDA reports no GPU to this process" +
        std::string(std::getenv("CUDA_VISIBLE_DEVICES") ? " (CUDA_VISIBLE_DEVICES is set: check that it names a GPU)" : "") +
        ". Use device=cpu or device=auto, or a node with a GPU");
  }
  if (environment.local_world_size > gpus) {
    if (share) return environment.local_rank % gpus;
    // Each worker may have a different visible GPU. refuse_shared_gpu() checks this later.
    if (gpus == 1) return 0;
    throw UsageError("this node has " + std::to_string(environment.local_world_size) + " workers but only " +
                     std::to_string(gpus) +
                     " GPUs are visible to them; each worker needs a separate GPU. Use --nproc-per-node " +
                     std::to_string(gpus) + ", make more GPUs visible, or use device=cpu");
  }
  return environment.local_rank;
}

bool is_certainly_cpu(TrainConfig::Device wanted) {
  return wanted == TrainConfig::Device::kCpu || (wanted == TrainConfig::Device::kAuto && !driver_is_loaded());
}

c10::Device choose_device(TrainConfig::Device wanted, const WorkerEnvironment& environment, Fallback fallback) {
  const c10::Device cpu(c10::kCPU);
  if (wanted == TrainConfig::Device::kCpu) return cpu;
  const auto cpu_because = [&](const std::string& why) {
    if (fallback == Fallback::kRefuse) {
      throw UsageError("this worker was started for a GPU of this node but cannot use it: " + why +
                       ". To train on the CPU, set device=cpu");
    }
    if (environment.local_rank == 0) std::fprintf(stderr, "\"device\": \"auto\" selects the CPU: %s\n", why.c_str());
    return cpu;
  };
  if (!driver_is_loaded()) {
    if (wanted == TrainConfig::Device::kAuto && fallback == Fallback::kCpu) return cpu;
    if (wanted == TrainConfig::Device::kAuto) return cpu_because("the NVIDIA driver's files (/dev/nvidiactl) are missing");
    throw UsageError(
        "the config has \"device\": \"cuda\", but this machine has no NVIDIA driver (/dev/nvidiactl is missing). Use "
        "device=cpu or device=auto, or a node with a GPU; if this is a container, start it with access to the GPU");
  }
  if (!opened_module) {
    const Opened opened = open_module();
    if (!opened.module) {
      if (wanted == TrainConfig::Device::kAuto) return cpu_because(opened.problem);
      throw UsageError("the config has \"device\": \"cuda\", but " + opened.problem);
    }
    opened_module = opened.module;
  }
  const int gpu = choose_gpu(wanted, environment, opened_module->device_count(), sharing_is_enabled());
  if (gpu < 0) {
    opened_module = nullptr;
    return cpu_because("CUDA reports no GPU to this process");
  }
  opened_module->set_device(gpu);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)};
}

void refuse_shared_gpu(c10d::Store& store, int rank, const std::string& uuid) {
  const std::string text = std::to_string(rank);
  const std::vector<std::uint8_t> mine(text.begin(), text.end());
  const std::vector<std::uint8_t> first = store.compareSet("gpu/" + uuid, {}, mine);
  if (first == mine) return;
  throw UsageError("ranks " + std::string(first.begin(), first.end()) + " and " + text + " compute on the same GPU, " + uuid +
                   ". Each worker needs a separate GPU: start fewer workers, or make a different GPU visible to each "
                   "(--virtual-local-rank, srun --gpus-per-task=1)");
}

CudaModule* cuda_module() noexcept {
  return opened_module;
}

bool shares_gpu(const WorkerEnvironment& environment) {
  return opened_module && sharing_is_enabled() && environment.local_world_size > opened_module->device_count();
}

}  // namespace ddprun::trainer
