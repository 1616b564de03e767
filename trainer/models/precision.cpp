#include "trainer/models/precision.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <cstdlib>

namespace ddprun::trainer {

Autocast::Autocast(TrainConfig::Precision precision, c10::DeviceType device)
    : on_(precision == TrainConfig::Precision::kBf16 || precision == TrainConfig::Precision::kFp16), device_(device) {
  if (!on_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  before_ = at::autocast::get_autocast_dtype(device);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(device_, precision == TrainConfig::Precision::kBf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::set_autocast_enabled(device_, true);
}

Autocast::~Autocast() {
  if (!on_) return;
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, before_);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

void use_precision(TrainConfig::Precision precision) {
  const bool tf32 = precision == TrainConfig::Precision::kTf32;
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
}

// cuBLAS is deterministic only with a workspace of a fixed size, which an environment variable sets. A value that the user has
// set is not changed. Call this before other threads start, since setenv() is not safe while another thread reads the
// environment.
void use_determinism(bool deterministic) {
  at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(deterministic);
  if (deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

std::string precision_text(const TrainConfig& config, c10::Device device) {
  using Precision = TrainConfig::Precision;
  std::string text = config.precision == Precision::kBf16                       ? "bf16"
                     : config.precision == Precision::kFp16                     ? "fp16"
                     : config.precision == Precision::kTf32 && !device.is_cpu() ? "tf32"
                                                                                : "fp32";
  if (config.channels_last) text += " channels_last";
  if (config.deterministic) text += " deterministic";
  return text;
}

void lay_out(torch::nn::Module& model, bool channels_last) {
  if (!channels_last) return;
  for (at::Tensor& weights : model.parameters()) {
    if (weights.dim() == 4) weights.set_data(in_channels_last(weights.detach()));
  }
}

// With one channel or one pixel, both layouts have the same order of numbers, so contiguous() does not change the strides. But
// LibTorch selects kernels by the strides, and would then select kernels for channels first. So this function sets the strides
// explicitly.
at::Tensor in_channels_last(const at::Tensor& tensor) {
  const at::Tensor ordered = tensor.contiguous(at::MemoryFormat::ChannelsLast);
  if (ordered.suggest_memory_format() == at::MemoryFormat::ChannelsLast) return ordered;
  const std::int64_t channels = ordered.size(1), height = ordered.size(2), width = ordered.size(3);
  return ordered.as_strided(ordered.sizes(), {height * width * channels, 1, width * channels, channels});
}

at::Tensor forward(Model& model, const at::Tensor& images, bool channels_last) {
  return model.forward(channels_last ? in_channels_last(images) : images).to(at::kFloat);
}

}  // namespace ddprun::trainer
