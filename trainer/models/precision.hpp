// What a model computes in, as the config's `precision` and `channels_last` say. Weights are float32 in every precision.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>

#include "common/config/train_config.hpp"
#include "trainer/models/model.hpp"

namespace ddprun::trainer {

// Sets what holds for the whole process: whether a GPU may compute float32 products and convolutions as TF32. fp32 means that
// it may not, in convolutions either, where PyTorch's own default is that it may. Before the first model computes.
void use_precision(TrainConfig::Precision precision);

// "fp32", "tf32 channels_last", ...: what it is on such a device. TF32 is nothing that a CPU has: there it is fp32.
std::string precision_text(const TrainConfig& config, c10::Device device);

// Weights with four dimensions get the memory layout that `channels_last` asks for. Before anything else refers to their
// memory.
void lay_out(torch::nn::Module& model, bool channels_last);

// The logits as float32, on the images' device. bf16: under PyTorch's autocast. With channels_last the images are laid out so.
at::Tensor forward(Model& model, const at::Tensor& images, const TrainConfig& config);

}  // namespace ddprun::trainer
