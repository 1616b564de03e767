// How fast a GPU can be at most: the dense matrix products of NVIDIA's data sheets. A part of it is the model FLOPs utilization
// (MFU) of a run.
#pragma once

#include <optional>
#include <string_view>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Floating-point operations a second in that precision, by the name that CUDA gives the device; nothing for one that is not in
// the table.
std::optional<double> gpu_peak(std::string_view name, TrainConfig::Precision precision);

}  // namespace ddprun::trainer
