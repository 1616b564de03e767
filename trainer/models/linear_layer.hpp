// Base class of all linear layers in the models. low_rank.hpp can add a low-rank update to such a layer. Without an update, the
// layer computes only the product with its weight.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace ddprun::trainer {

class LinearLayer : public torch::nn::Module {
 public:
  enum class Layout { kOutputsFirst, kInputsFirst };  // order of the dimensions of the weight

  // The forward pass: x [..., inputs] -> [..., outputs]. Without a low-rank update it returns product(x). With an update it
  // returns product(x) + B(A(x)) * scale, as PEFT's lora.Linear without dropout does.
  at::Tensor of(const at::Tensor& x) const;

  // Adds a low-rank update. Registers the parameters "lora_A.weight" [rank, inputs], initialized as in PEFT, and
  // "lora_B.weight" [outputs, rank], which is 0. The scale is alpha / rank. The random numbers come from the default CPU
  // generator. Call this at most once.
  void add_update(std::int64_t rank, double alpha);

  // These functions return the numbers of inputs and outputs.
  std::int64_t inputs() const { return weight.size(layout_ == Layout::kInputsFirst ? 0 : 1); }
  std::int64_t outputs() const { return weight.size(layout_ == Layout::kInputsFirst ? 1 : 0); }

  at::Tensor weight;

 protected:
  LinearLayer(at::Tensor initial, Layout layout) : weight(register_parameter("weight", std::move(initial))), layout_(layout) {}
  virtual at::Tensor product(const at::Tensor& x) const = 0;

 private:
  Layout layout_;
  double scale_ = 0;
  at::Tensor a_;  // a_ is lora_A.weight, and b_ is lora_B.weight; both are undefined if there is no update
  at::Tensor b_;
};

}  // namespace ddprun::trainer
