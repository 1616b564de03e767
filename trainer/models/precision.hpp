// The precision and memory layout of a model's computation (config `precision` and `channels_last`). Weights are always
// float32.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "common/config/train_config.hpp"
#include "trainer/models/model.hpp"

namespace ddprun::trainer {

// Sets for the whole process whether a GPU may compute float32 products and convolutions as TF32. fp32 forbids it in
// convolutions too, where PyTorch's default allows it. Call before the first model computes.
void use_precision(TrainConfig::Precision precision);

// Sets for the whole process whether only deterministic operators may run, as torch.use_deterministic_algorithms does. On a GPU
// it also sets what cuDNN and cuBLAS need for that. Call before a GPU is opened.
void use_determinism(bool deterministic);

// Returns the precision on that device: "fp32", "tf32 channels_last", "fp32 deterministic", ... A CPU has no TF32: it uses
// fp32.
std::string precision_text(const TrainConfig& config, c10::Device device);

// Gives weights with four dimensions the channels-last memory layout if `channels_last`. Call before any other object refers to
// their memory.
void lay_out(torch::nn::Module& model, bool channels_last);

// While it exists, this thread computes with `precision` on devices of that type. bf16 is `with torch.autocast(device_type,
// torch.bfloat16)`, fp16 the same with torch.float16. The other precisions change nothing. The training loop uses it around a
// task's forward pass. A backward pass runs outside, as PyTorch requires. Casts of weights are cached until it ends.
class Autocast {
 public:
  Autocast(TrainConfig::Precision precision, c10::DeviceType device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  c10::DeviceType device_;
  bool was_enabled_ = false;
  at::ScalarType before_ = at::kFloat;
};

// Returns [n, channels, height, width] in channels-last layout, with matching strides. A view if the order of the numbers is
// already right.
at::Tensor in_channels_last(const at::Tensor& tensor);

// Returns the logits as float32, on the images' device. With `channels_last` the images get that layout first.
at::Tensor forward(Model& model, const at::Tensor& images, bool channels_last);

}  // namespace ddprun::trainer
