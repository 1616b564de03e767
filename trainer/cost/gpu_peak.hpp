// Returns the peak speed of a GPU for dense matrix products, from NVIDIA's data sheets. This speed is the denominator of a
// run's model FLOPs utilization (MFU).
#pragma once

#include <optional>
#include <string_view>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Returns the peak for `precision`, in floating-point operations per second, or nullopt if the device is unknown. `name` is the
// name that CUDA reports for the device.
std::optional<double> gpu_peak(std::string_view name, TrainConfig::Precision precision);

}  // namespace ddprun::trainer
