// A layer that multiplies by a matrix, in any model. low_rank.hpp can add a low-rank update to it. Without an update it costs
// only the product.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace ddprun::trainer {

class LinearLayer : public torch::nn::Module {
 public:
  enum class Layout { kOutputsFirst, kInputsFirst };  // of the weight

  // x [..., inputs] -> [..., outputs]. Without an update: product(x). With an update (PEFT's lora.Linear without dropout):
  // product(x) + B(A(x)) * scale.
  at::Tensor of(const at::Tensor& x) const;

  // Registers "lora_A.weight" [rank, inputs], initialised as in PEFT, and "lora_B.weight" [outputs, rank], zeros; scale is
  // alpha / rank. The random numbers come from the default CPU generator. Call at most once.
  void add_update(std::int64_t rank, double alpha);

  // Widths of the input and of the output.
  std::int64_t inputs() const { return weight.size(layout_ == Layout::kInputsFirst ? 0 : 1); }
  std::int64_t outputs() const { return weight.size(layout_ == Layout::kInputsFirst ? 1 : 0); }

  at::Tensor weight;

 protected:
  LinearLayer(at::Tensor initial, Layout layout) : weight(register_parameter("weight", std::move(initial))), layout_(layout) {}
  virtual at::Tensor product(const at::Tensor& x) const = 0;

 private:
  Layout layout_;
  double scale_ = 0;
  at::Tensor a_;  // undefined without an update
  at::Tensor b_;
};

}  // namespace ddprun::trainer
