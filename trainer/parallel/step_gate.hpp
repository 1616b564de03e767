// Holds a step back that a device has queued, when the group that sums its gradients is given up. A GPU runs behind the host:
// when a peer is lost, the updates of steps that the host has left behind are still to come, and would use sums that were cut
// off. The host cannot take back what is queued, but it can shut the gate: from then on no queued update changes anything.
//
// Around each step of training, all of it enqueued in this order on the device's current stream:
//
//     the gradients' exchanges;  judge(group);  the optimizer's update, gated by verdict();  count()
//
// What the ranks have then is at most one step apart, as on CPUs: see the note in step_gate.cpp. Nothing uses it yet
// (docs/internals/decisions/recovery/nccl-gate.md says what is missing).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>

#include "trainer/parallel/cuda/cuda_module.hpp"

namespace ddprun::trainer {

class StepGate {
 public:
  // For steps on `device`. `cuda`: of a GPU, and outlives this. Throws c10::Error where a GPU's driver maps no host memory.
  explicit StepGate(c10::Device device, CudaModule* cuda = nullptr);
  // The device has nothing queued that was enqueued here.
  ~StepGate();
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // Any thread, at once, without a call of CUDA. Comes before anything that cuts a sum off: an abort of the communicator, a
  // shutdown of its connections.
  void shut() noexcept;
  // For the next group. The device has nothing queued any more; counting begins anew.
  void open();

  // Enqueues the step's verdict, which all ranks exchange. `group`: that of the gradients, null in a world of one. Throws what
  // its all-reduce does.
  void judge(c10d::ProcessGroup* group);
  // 1: held back, this step and all that follow; 0: let be. As of the newest judge(), once the device is there. The same tensor
  // for ever: what an optimizer's gate() takes.
  const at::Tensor& verdict() const { return verdict_; }
  // Enqueues: one more step is done, if it was let be.
  void count();
  // Since open(). Waits for the device.
  std::int64_t steps_done() const;

 private:
  CudaModule* cuda_;
  MappedMemory memory_;
  float on_cpu_ = 0;
  float* flag_;         // written by the host
  at::Tensor flag_of_;  // read by the device
  at::Tensor verdict_;
  at::Tensor done_;
};

}  // namespace ddprun::trainer
