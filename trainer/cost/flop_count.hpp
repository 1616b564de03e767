// Counts the floating-point operations that run while a FlopCount object exists: matrix products, convolutions and attention,
// forward and backward. A multiply-add counts as two operations. The formulas are the same as in torch.utils.flop_counter.
// Causal attention counts as full attention, and operations that activation checkpointing repeats are counted again. Counting
// costs some microseconds per operator.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace ddprun::trainer {

// Counts from the constructor to the destructor, on this thread and on the autograd threads that run its backward passes. Only
// one object may exist at a time.
class FlopCount {
 public:
  FlopCount();
  ~FlopCount();
  FlopCount(const FlopCount&) = delete;
  FlopCount& operator=(const FlopCount&) = delete;

  std::int64_t counted() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace ddprun::trainer
