// How many floating-point operations a piece of work takes, counted while it runs: matrix products, convolutions and attention,
// forward and backward, each product with its sum as two. The formulas are those of torch.utils.flop_counter; causal attention
// counts as a whole, and what activation checkpointing computes again counts again. Costs some microseconds an operator while
// an object lives, and nothing after.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace ddprun::trainer {

// From the constructor to the destructor: what this thread does, and what autograd's threads do for it. One at a time.
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
