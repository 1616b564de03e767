// Selects the device of this worker. The worker must call choose_device() before it creates a tensor, since libtorch_cuda
// registers its kernels with ATen when it is opened. On a machine without a GPU, libtorch_cuda is never opened.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

#include "common/config/train_config.hpp"
#include "trainer/parallel/cuda/cuda_module.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

// Selects the result of choose_device() for "device": "auto" if no GPU can be used.
enum class Fallback {
  // Use the CPU. The first worker of the node prints the reason on stderr, unless the machine has no driver.
  kCpu,
  kRefuse,  // throw UsageError; used for a worker that was started for a GPU
};

// Returns the device of this worker. For kCuda this is the GPU with index local_rank, which becomes the thread's current
// device. kAuto does the same if the node has at least one GPU; otherwise `fallback` decides. Throws UsageError if kCuda is
// configured but the module, the driver or a GPU is missing. Also throws if this node has fewer GPUs than workers; the message
// has both numbers. DDPTRAIN_SHARE_GPU=1 allows several workers on one GPU, for tests. These workers use Gloo, since NCCL does
// not support several ranks on one GPU.
c10::Device choose_device(TrainConfig::Device wanted, const WorkerEnvironment& environment, Fallback fallback);

// Returns true if choose_device() will return the CPU for every local rank. Opens no library. The result false does not mean
// that a GPU exists.
bool is_certainly_cpu(TrainConfig::Device wanted);

// Makes the decision of choose_device() for `gpus` visible GPUs. The code is pure: no I/O, no clock. Returns the index of the
// GPU, or -1 for the CPU. If there are several workers and each has a single visible GPU, returns 0 for all of them: usually
// the workers have different GPUs (--virtual-local-rank, srun --gpus-per-task=1). refuse_shared_gpu() detects workers that have
// the same GPU.
int choose_gpu(TrainConfig::Device wanted, const WorkerEnvironment& environment, int gpus, bool share);

// Throws UsageError if another rank has already called this function with the same GPU, identified by `uuid`. The message names
// both ranks. Only one generation of the process group may use `store`, since it keeps an entry for each GPU.
void refuse_shared_gpu(c10d::Store& store, int rank, const std::string& uuid);

// Returns the CUDA module that choose_device() has opened; null if this process computes on the CPU.
CudaModule* cuda_module() noexcept;

// Returns true if workers of this node share a GPU, so that NCCL cannot be used.
bool shares_gpu(const WorkerEnvironment& environment);

}  // namespace ddprun::trainer
