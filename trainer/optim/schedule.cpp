// The schedules' formulas. With W = warmup_steps, T = total_steps, s the step counted from 0 and f = final_factor:
//   warm-up   s < W:  (s + 1) / W, whatever the schedule; afterwards:
//   constant  1
//   step      gamma ^ floor(epoch(s) / step_epochs), epochs counted from the run's begin, warm-up included
//   cosine    f + (1 - f) (1 + cos(pi t)) / 2      (Loshchilov & Hutter 2017, eq. 5, without restarts)
//   linear    1 + (f - 1) t
// where t = (s - W) / (T - 1 - W) runs from 0 at the first step after warm-up to 1 at the run's last step, and stays 1 beyond
// it. When that is one single step, t = 0: the step counts as the first, so that it does not train with f, which may be 0.
#include "trainer/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ddprun::trainer {
namespace {

double progress(std::int64_t step, std::int64_t first, std::int64_t last) {
  if (step <= first) {
    return 0.0;
  }
  if (step >= last) {
    return 1.0;
  }
  return static_cast<double>(step - first) / static_cast<double>(last - first);
}

}  // namespace

double learning_rate_factor(const ScheduleConfig& config, std::int64_t step, std::int64_t steps_per_epoch,
                            std::int64_t total_steps) {
  if (step < config.warmup_steps) {
    return static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  }
  const double t = progress(step, config.warmup_steps, total_steps - 1);
  switch (config.type) {
    case ScheduleConfig::Type::kConstant:
      return 1.0;
    case ScheduleConfig::Type::kStep: {
      const std::int64_t epoch = step / std::max<std::int64_t>(1, steps_per_epoch);
      return std::pow(config.gamma, static_cast<double>(epoch / config.step_epochs));
    }
    case ScheduleConfig::Type::kCosine:
      return config.final_factor + (1.0 - config.final_factor) * (1.0 + std::cos(std::numbers::pi * t)) / 2.0;
    case ScheduleConfig::Type::kLinear:
      return 1.0 + (config.final_factor - 1.0) * t;
  }
  return 1.0;
}

}  // namespace ddprun::trainer
