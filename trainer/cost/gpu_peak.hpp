// Peak speed of a GPU: the dense matrix products of NVIDIA's data sheets. The model FLOPs utilization (MFU) of a run is a
// fraction of it.
#pragma once

#include <optional>
#include <string_view>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Floating-point operations per second in that precision. `name` is the name that CUDA reports for the device. Returns nullopt
// if the table lacks the device.
std::optional<double> gpu_peak(std::string_view name, TrainConfig::Precision precision);

}  // namespace ddprun::trainer
