// See step_gate.hpp.
//
// Note [Why the verdict is exchanged]
// A flag that each rank reads for itself is not enough. A rank that holds step k back goes on with what it has queued: its
// gradients of step k+1 are those of weights that have not had step k, and a peer whose flag is not set yet would add them to
// its own. So what a rank has held back it tells in every later step's exchange, behind the gradients: who gets such a gradient
// gets the word with it.
//
// Note [Why the flag is read again]
// The exchange of the verdict may itself be cut off, and then it says anything. It is cut off by this rank only after its own
// flag was set, so the flag that is read behind the exchange tells. A peer's end does not end NCCL's kernel, which waits until
// it is aborted here.
//
// From both follows that the ranks are at most one step apart. One that holds step k back although others let it be is in no
// later exchange without saying so.
#include "trainer/parallel/step_gate.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <cmath>
#include <vector>

namespace ddprun::trainer {

StepGate::StepGate(c10::Device device, CudaModule* cuda) : cuda_(cuda) {
  void* seen_by_device = &on_cpu_;
  flag_ = &on_cpu_;
  if (cuda_ != nullptr) {
    memory_ = cuda_->map(device.index(), sizeof(float));
    flag_ = static_cast<float*>(memory_.host);
    seen_by_device = memory_.on_device;
  }
  const auto options = at::TensorOptions(at::kFloat).device(device);
  flag_of_ = at::for_blob(seen_by_device, {}).options(options).target_device(device).make_tensor();
  verdict_ = at::zeros({}, options);
  done_ = at::zeros({}, options.dtype(at::kDouble));
}

StepGate::~StepGate() {
  flag_of_.reset();
  if (cuda_ != nullptr) cuda_->unmap(memory_);
}

void StepGate::shut() noexcept {
  std::atomic_ref<float>(*flag_).store(1);
}

void StepGate::open() {
  std::atomic_ref<float>(*flag_).store(0);
  verdict_.zero_();
  done_.zero_();
}

void StepGate::judge(c10d::ProcessGroup* group) {
  const at::NoGradGuard no_gradients;
  at::Tensor own = at::maximum(verdict_, flag_of_);
  if (group != nullptr) {
    std::vector<at::Tensor> one{own};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    group->allreduce(one, options)->wait();
  }
  at::maximum_out(verdict_, own, flag_of_);
  verdict_.ne_(0);  // what an exchange that was cut off has left may be any number or none: then the flag is 1, and this is 1
}

void StepGate::count() {
  const at::NoGradGuard no_gradients;
  done_.add_(1).sub_(verdict_);
}

std::int64_t StepGate::steps_done() const {
  return std::llround(done_.item<double>());
}

}  // namespace ddprun::trainer
