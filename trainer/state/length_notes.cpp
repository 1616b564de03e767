#include "trainer/state/length_notes.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include "trainer/optim/batch_rule.hpp"
#include "trainer/optim/schedule.hpp"

namespace ddprun::trainer {
namespace {

std::string rate_text(double rate) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", rate);
  return text.data();
}

std::string steps_text(std::int64_t steps) {
  return std::to_string(steps) + (steps == 1 ? " step" : " steps");
}

std::string past_last_epoch(const TrainConfig& config, const RunLength& length) {
  const std::int64_t of_epochs = length.epochs * length.steps_per_epoch;
  if (config.max_steps <= of_epochs) return "";
  const std::int64_t needed = (config.max_steps + length.steps_per_epoch - 1) / length.steps_per_epoch;
  return "max_steps is " + std::to_string(config.max_steps) + ", but the run ends after " + steps_text(of_epochs) +
         ": epochs is " + std::to_string(length.epochs) + ", and each epoch has " + steps_text(length.steps_per_epoch) +
         ". Set epochs to " + std::to_string(needed) + " to reach max_steps";
}

std::string warmup_past_end(const TrainConfig& config, const RunLength& length) {
  const std::int64_t warm_up = config.schedule.warmup_steps;
  if (warm_up <= length.total_steps) return "";
  const double reached =
      learning_rate_factor(config.schedule, length.total_steps - 1, length.steps_per_epoch, length.total_steps);
  return "the warm-up (schedule.warmup_steps " + std::to_string(warm_up) + ") is longer than the run of " +
         steps_text(length.total_steps) + ": the learning rate reaches " + rate_text(reached * base_learning_rate(config)) +
         " instead of " + rate_text(base_learning_rate(config)) + ". Lower schedule.warmup_steps, or train longer";
}

// Warns if the learning rate jumps up. The learning rate of a step depends on the total number of steps. So if a finished run
// is extended, its decayed rate jumps up at the first new step.
std::string rate_jump(const TrainConfig& config, const RunLength& length, std::int64_t step, std::int64_t planned_before) {
  if (step == 0 || planned_before == 0 || planned_before >= length.total_steps || step >= length.total_steps) return "";
  const auto rate = [&](std::int64_t at, std::int64_t total) {
    return base_learning_rate(config) * learning_rate_factor(config.schedule, at, length.steps_per_epoch, total);
  };
  constexpr double kNoticeable = 1.01;
  const double last = rate(step - 1, planned_before), next = rate(step, length.total_steps);
  if (step < config.schedule.warmup_steps || next <= kNoticeable * last) return "";
  return "the run was extended from " + std::to_string(planned_before) + " to " + steps_text(length.total_steps) +
         ", which stretches its schedule: the learning rate rises from " + rate_text(last) + " in step " +
         std::to_string(step) + " to " + rate_text(next) + " in step " + std::to_string(step + 1) +
         ". To avoid this, start a new run from these weights with model.init";
}

std::string saves_by_time(const TrainConfig& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  const bool by_time = checkpoint.every_seconds > 0 || checkpoint.every == CheckpointConfig::Every::kAuto;
  if (checkpoint.local_dir.empty() || !by_time || config.log.every_steps == 1) return "";
  return "with checkpoint.local_dir, time-based checkpoints are saved only at logged steps, so they may be up to " +
         std::to_string(config.log.every_steps) + " steps (log.every_steps) late";
}

}  // namespace

std::vector<std::string> length_notes(const TrainConfig& config, const RunLength& length, std::int64_t step,
                                      std::int64_t planned_before) {
  std::vector<std::string> notes;
  for (std::string note : {past_last_epoch(config, length), warmup_past_end(config, length),
                           rate_jump(config, length, step, planned_before), saves_by_time(config)}) {
    if (!note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace ddprun::trainer
