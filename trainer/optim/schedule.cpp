// The formulas of the schedules. W is warmup_steps, T is total_steps, s is the step counted from 0, and f is final_factor.
// For every schedule, the factor during the warm-up (s < W) is (s + 1) / W. The factors after the warm-up are:
//
//   constant, plateau    1
//   step                 gamma ^ floor(epoch(s) / step_epochs), where epoch(s) counts from the start of the run
//   cosine               f + (1 - f) (1 + cos(pi t)) / 2    (Loshchilov & Hutter 2017, eq. 5, without restarts)
//   linear               1 + (f - 1) t
//   polynomial           f + (1 - f) (1 - t)^power    (torch.optim.lr_scheduler.PolynomialLR where f = 0)
//   warmup_stable_decay  1, then in the last D steps 1 + (f - 1) (s - (T - 1 - D)) / D    (Hu et al. 2024, MiniCPM, with a
//                        linear decay), where D is decay_steps, limited to the steps after the warm-up
//   one_cycle            torch.optim.lr_scheduler.OneCycleLR with cosines: from 1 / div_factor up to 1 at step p T - 1, where p
//                        is pct_start, and down to 1 / (div_factor final_div_factor) at step T - 1
//
// Here t = (s - W) / (T - 1 - W). It rises from 0 at the first step after the warm-up to 1 at the last step of the run, and
// stays 1 after that. If only one step follows the warm-up, t is 0 in that step. So the factor in this step is not f, which
// may be 0.
#include "trainer/optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ddprun::trainer {
namespace {

double progress(std::int64_t step, std::int64_t first, std::int64_t last) {
  if (step <= first) return 0.0;
  if (step >= last) return 1.0;
  return static_cast<double>(step - first) / static_cast<double>(last - first);
}

// Interpolates from `begin` at t = 0 to `end` at t = 1 along half a cosine. The operations have the same order as in PyTorch,
// so that they round in the same way.
double along_cosine(double begin, double end, double t) {
  return end + (begin - end) / 2.0 * (std::cos(std::numbers::pi * t) + 1.0);
}

double one_cycle(const ScheduleConfig& config, std::int64_t step, std::int64_t total_steps) {
  const double first = 1.0 / config.div_factor;
  // The step at which the learning rate is highest. It need not be an integer.
  const double top = config.pct_start * static_cast<double>(total_steps) - 1.0;
  const auto last = static_cast<double>(total_steps - 1);
  const double s = std::min(static_cast<double>(step), last);
  if (s <= top) return top > 0 ? along_cosine(first, 1.0, s / top) : 1.0;
  return along_cosine(1.0, first / config.final_div_factor, (s - top) / (last - top));
}

std::int64_t first_of_decay(const ScheduleConfig& config, std::int64_t total_steps) {
  constexpr std::int64_t kTenth = 10;
  const std::int64_t steps = config.decay_steps > 0 ? config.decay_steps : std::max<std::int64_t>(1, total_steps / kTenth);
  return std::max(config.warmup_steps, total_steps - 1 - steps);
}

}  // namespace

double learning_rate_factor(const ScheduleConfig& config, std::int64_t step, std::int64_t steps_per_epoch,
                            std::int64_t total_steps) {
  if (step < config.warmup_steps) return static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  const double t = progress(step, config.warmup_steps, total_steps - 1);
  switch (config.type) {
    case ScheduleConfig::Type::kConstant:
    case ScheduleConfig::Type::kPlateau:  // evaluations determine the learning rate (trainer/state/evaluation_rules.hpp)
      return 1.0;
    case ScheduleConfig::Type::kStep: {
      const std::int64_t epoch = step / std::max<std::int64_t>(1, steps_per_epoch);
      return std::pow(config.gamma, static_cast<double>(epoch / config.step_epochs));
    }
    case ScheduleConfig::Type::kCosine:
      return config.final_factor + (1.0 - config.final_factor) * (1.0 + std::cos(std::numbers::pi * t)) / 2.0;
    case ScheduleConfig::Type::kLinear:
      return 1.0 + (config.final_factor - 1.0) * t;
    case ScheduleConfig::Type::kPolynomial:
      return config.final_factor + (1.0 - config.final_factor) * std::pow(1.0 - t, config.power);
    case ScheduleConfig::Type::kOneCycle:
      return one_cycle(config, step, total_steps);
    case ScheduleConfig::Type::kWarmupStableDecay:
      return 1.0 + (config.final_factor - 1.0) * progress(step, first_of_decay(config, total_steps), total_steps - 1);
  }
  return 1.0;
}

}  // namespace ddprun::trainer
