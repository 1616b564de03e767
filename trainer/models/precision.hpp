// What a model computes in, as the config's `precision` and `channels_last` say. Weights are float32 in every precision.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "common/config/train_config.hpp"
#include "trainer/models/model.hpp"

namespace ddprun::trainer {

// Sets what holds for the whole process: whether a GPU may compute float32 products and convolutions as TF32. fp32 means that
// it may not, in convolutions either, where PyTorch's own default is that it may. Before the first model computes.
void use_precision(TrainConfig::Precision precision);

// Sets for the whole process whether only operators may run that compute the same bits each time, as
// torch.use_deterministic_algorithms does; on a GPU also what cuDNN and cuBLAS need for that. Before a GPU is opened.
void use_determinism(bool deterministic);

// "fp32", "tf32 channels_last", "fp32 deterministic", ...: what it is on such a device. TF32 is nothing that a CPU has: there
// it is fp32.
std::string precision_text(const TrainConfig& config, c10::Device device);

// Weights with four dimensions get the memory layout that `channels_last` asks for. Before anything else refers to their
// memory.
void lay_out(torch::nn::Module& model, bool channels_last);

// While it lives, this thread computes with a device of that type as `precision` says: bf16 is `with
// torch.autocast(device_type, torch.bfloat16)`, fp16 the same with torch.float16, the others leave everything as it is. The
// loop has one around whatever a task does in a forward pass; a backward pass runs outside, as PyTorch asks for. Casts of
// weights are kept until it ends.
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

// [n, channels, height, width] in that layout, also by its strides. A view where the order of the numbers is already that one.
at::Tensor in_channels_last(const at::Tensor& tensor);

// The logits as float32, on the images' device. With channels_last the images are laid out so.
at::Tensor forward(Model& model, const at::Tensor& images, bool channels_last);

}  // namespace ddprun::trainer
