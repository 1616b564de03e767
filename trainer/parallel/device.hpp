// Chooses the device of this worker. The worker calls choose_device() before its first tensor exists, since libtorch_cuda
// registers itself with ATen when it is opened. A machine without a GPU never opens it.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

#include "common/config/train_config.hpp"
#include "trainer/parallel/cuda/cuda_module.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

// Behaviour of "device": "auto" if no GPU can be used.
enum class Otherwise {
  kCpu,     // the first worker of the node reports why on stderr, unless the machine has no driver at all
  kRefuse,  // throws, for a worker that was started for a GPU
};

// cuda: device local_rank, which becomes the thread's current device. auto: cuda if the node has at least one GPU, otherwise as
// `otherwise` says. Throws UsageError if cuda is configured but the module, the driver or a GPU is missing. Also throws if this
// node has fewer GPUs than workers; the message has both numbers. DDPTRAIN_SHARE_GPU=1 lets workers share a GPU, for tests on a
// machine with one. They use Gloo, since NCCL can't share.
c10::Device choose_device(TrainConfig::Device wanted, const WorkerEnvironment& environment, Otherwise otherwise);

// True if choose_device() will return the CPU for every local rank. Opens no library.
bool is_certainly_cpu(TrainConfig::Device wanted);

// The decision of choose_device(): pure, for `gpus` visible GPUs. Returns the GPU's index, or -1 for the CPU. If each worker
// sees only its own GPU (--virtual-local-rank, srun --gpus-per-task=1), that is device 0 for every local rank.
// refuse_shared_gpu() finds workers that see the same GPU.
int choose_gpu(TrainConfig::Device wanted, const WorkerEnvironment& environment, int gpus, bool share);

// If several ranks compute on the same GPU (`uuid`), throws UsageError in all but the first. The message names this rank and
// the first one. Only the group of this generation may use `store`.
void refuse_shared_gpu(c10d::Store& store, int rank, const std::string& uuid);

// The module that choose_device() opened; null if this process computes on the CPU.
CudaModule* cuda_module() noexcept;

// True if workers of this node share a GPU, so that NCCL can't be used.
bool shares_gpu(const WorkerEnvironment& environment);

}  // namespace ddprun::trainer
