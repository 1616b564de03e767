// The precision, determinism and memory layout of a model's computation: the config keys `precision`, `deterministic` and
// `channels_last`. Weights are always stored as float32.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "common/config/train_config.hpp"
#include "trainer/models/model.hpp"

namespace ddprun::trainer {

// Sets for the whole process whether a GPU may use TF32 for matrix products and convolutions of float32. Only the precision
// tf32 allows TF32. PyTorch allows TF32 in convolutions by default, so the precision fp32 must switch TF32 off. Call this
// before the first model computes.
void use_precision(TrainConfig::Precision precision);

// Sets for the whole process whether only deterministic operators may run, as torch.use_deterministic_algorithms does. For
// GPUs it also sets the options that make cuDNN and cuBLAS deterministic. Call this before a GPU is used.
void use_determinism(bool deterministic);

// Returns a description of the settings on this device: "fp32", "tf32 channels_last", "fp32 deterministic", ... For tf32 on a
// CPU it returns fp32, since a CPU has no TF32.
std::string precision_text(const TrainConfig& config, c10::Device device);

// If `channels_last` is true, converts weights with four dimensions to the channels-last memory layout. The weights get new
// memory, so call this function before another object refers to the old memory.
void lay_out(torch::nn::Module& model, bool channels_last);

// Enables autocast for this thread while the object exists. bf16 and fp16 correspond to `with torch.autocast(device_type,
// torch.bfloat16)` and torch.float16 in Python. Does nothing for other precisions. The training loop uses this class for the
// forward pass of a task. The backward pass must run after the object is destroyed, as PyTorch requires. Until then, converted
// weights are cached.
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

// Converts a tensor [n, channels, height, width] to the channels-last layout, and sets the strides accordingly. The result
// shares the memory of `tensor` if the numbers are already in the right order.
at::Tensor in_channels_last(const at::Tensor& tensor);

// Runs the model. With `channels_last`, first converts the images to the channels-last layout. Returns the logits as float32 on
// the images' device.
at::Tensor forward(Model& model, const at::Tensor& images, bool channels_last);

}  // namespace ddprun::trainer
