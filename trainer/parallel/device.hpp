// Which device this worker computes on. The worker calls choose_device before its first tensor exists, since libtorch_cuda
// registers itself with ATen when it is opened; a machine without a GPU never opens it.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>

#include "common/config/train_config.hpp"
#include "trainer/parallel/cuda/cuda_module.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

// For "device": "auto", where no GPU can be used.
enum class Otherwise {
  kCpu,     // the first worker of the node says why on stderr, unless the machine has no driver at all
  kRefuse,  // a worker that was started for a GPU
};

// cuda: device local_rank, which becomes the thread's current one. auto: cuda where the node has at least one GPU, else as
// `otherwise` says. Throws UsageError when cuda is asked for but the module, the driver or a GPU is missing, and when GPUs are
// there but fewer than this node's workers (both numbers are named). DDPTRAIN_SHARE_GPU=1 lets workers share GPUs, through
// Gloo, since NCCL can't: for tests on a machine with one.
c10::Device choose_device(TrainConfig::Device wanted, const WorkerEnvironment& environment, Otherwise otherwise);

// True when choose_device will answer with the CPU, whichever the local rank: known without opening anything.
bool is_certainly_cpu(TrainConfig::Device wanted);

// The part of choose_device that decides: pure, for `gpus` visible ones. -1: the CPU, else the GPU's index. Where each worker
// is shown one, its own (--virtual-local-rank, srun --gpus-per-task=1), that is device 0 whatever the local rank is;
// refuse_shared_gpu() finds those who were shown the same.
int choose_gpu(TrainConfig::Device wanted, const WorkerEnvironment& environment, int gpus, bool share);

// Throws UsageError in all but one of the ranks that compute on the same GPU, known by its `uuid`; names this rank and the one
// that was first. `store`: of this generation's group alone.
void refuse_shared_gpu(c10d::Store& store, int rank, const std::string& uuid);

// The module that choose_device opened; null when this process computes on the CPU.
CudaModule* cuda_module() noexcept;

// True when workers of this node share a GPU, so that NCCL can't be used.
bool shares_gpu(const WorkerEnvironment& environment);

}  // namespace ddprun::trainer
