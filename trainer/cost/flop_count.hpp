// Counts the floating-point operations of a piece of work while it runs: matrix products, convolutions and attention, forward
// and backward. A multiply-add counts as two operations. The formulas are those of torch.utils.flop_counter. Causal attention
// counts in full, and so do operations that activation checkpointing repeats. Costs some microseconds per operator while an
// object lives, and nothing afterwards.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace ddprun::trainer {

// Counts from the constructor to the destructor, on this thread and on autograd's threads that work for it. Only one object may
// live at a time.
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
