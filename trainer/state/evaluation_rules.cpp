// Implementation of evaluation_rules.hpp. It stores the counters in StateValues under fixed names, and applies the pure rules
// of trainer/optim/plateau.hpp to them.
#include "trainer/state/evaluation_rules.hpp"

#include "trainer/optim/batch_rule.hpp"
#include "trainer/optim/plateau.hpp"
#include "trainer/optim/schedule.hpp"
#include "trainer/state/loss_scale.hpp"
#include "trainer/state/skipped_steps.hpp"

namespace ddprun::trainer {
namespace {

constexpr const char* kLr = "plateau.lr";
constexpr const char* kBest = "plateau.best";
constexpr const char* kBad = "plateau.bad_evaluations";
constexpr const char* kCooldown = "plateau.cooldown";
constexpr const char* kMissingEvaluation = "evaluation.owed";

bool has_plateau(const TrainConfig& config) {
  return config.schedule.type == ScheduleConfig::Type::kPlateau;
}

Plateau plateau_in(const StateValues& values) {
  return {.lr = values.at(kLr),
          .best = values.at(kBest),
          .bad = static_cast<std::int64_t>(values.at(kBad)),
          .cooldown = static_cast<std::int64_t>(values.at(kCooldown))};
}

void put(StateValues& values, const Plateau& plateau) {
  values[kLr] = plateau.lr;
  values[kBest] = plateau.best;
  values[kBad] = static_cast<double>(plateau.bad);
  values[kCooldown] = static_cast<double>(plateau.cooldown);
}

// The name of the value contains the metric. So a run that resumes with a different metric does not compare this metric with
// the best value of the old metric. Do not change the name that bad_of() returns: the launcher reads this value from
// checkpoints (common/run_directory/run_directory.cpp).
std::string best_of(const EarlyStoppingConfig& config) {
  return "early_stopping." + config.metric + ".best";
}
std::string bad_of(const EarlyStoppingConfig& config) {
  return "early_stopping." + config.metric + ".bad_evaluations";
}

EarlyStop early_stop_in(const StateValues& values, const EarlyStoppingConfig& config) {
  return {.best = values.at(best_of(config)), .bad = static_cast<std::int64_t>(values.at(bad_of(config)))};
}

void put(StateValues& values, const EarlyStoppingConfig& config, const EarlyStop& early_stop) {
  values[best_of(config)] = early_stop.best;
  values[bad_of(config)] = static_cast<double>(early_stop.bad);
}

}  // namespace

void init_values(StateValues& values, const TrainConfig& config, const StateValues& saved) {
  values.clear();
  if (has_plateau(config)) put(values, initial_plateau(config.schedule, base_learning_rate(config)));
  if (config.early_stopping.patience > 0) put(values, config.early_stopping, initial_early_stop(config.early_stopping));
  if (config.optimizer.ema.decay > 0) values[kUpdatesOfAverage] = 0;
  init_loss_scale(values, config);
  init_skipped_steps(values, config);
  for (auto& [name, value] : values) {
    if (const auto found = saved.find(name); found != saved.end()) value = found->second;
  }
  if (evaluation_is_missing(saved)) mark_evaluation_missing(values);
}

void mark_evaluation_missing(StateValues& values) {
  values[kMissingEvaluation] = 1;
}

bool evaluation_is_missing(const StateValues& values) {
  return values.contains(kMissingEvaluation);
}

void clear_missing_evaluation(StateValues& values) {
  values.erase(kMissingEvaluation);
}

void update_evaluation_rules(StateValues& values, const TrainConfig& config, const MetricList& figures) {
  if (has_plateau(config)) {
    if (const auto figure = value_of(figures, config.schedule.metric)) {
      put(values, after_evaluation(config.schedule, plateau_in(values), *figure));
    }
  }
  if (config.early_stopping.patience > 0) {
    if (const auto figure = value_of(figures, config.early_stopping.metric)) {
      put(values, config.early_stopping,
          after_evaluation(config.early_stopping, early_stop_in(values, config.early_stopping), *figure));
    }
  }
}

double learning_rate(const StateValues& values, const TrainConfig& config, const RunLength& length, std::int64_t finished) {
  const double factor = learning_rate_factor(config.schedule, finished, length.steps_per_epoch, length.total_steps);
  return (has_plateau(config) ? values.at(kLr) : base_learning_rate(config)) * factor;
}

std::string reason_to_stop_early(const StateValues& values, const TrainConfig& config) {
  const EarlyStoppingConfig& rule = config.early_stopping;
  if (rule.patience == 0 || !patience_exhausted(rule, early_stop_in(values, rule))) return "";
  return rule.metric + " has not improved in " + std::to_string(early_stop_in(values, rule).bad) +
         (early_stop_in(values, rule).bad == 1 ? " evaluation" : " evaluations");
}

bool is_over(const TrainingState& state, const TrainConfig& config, const RunLength& length) {
  return state.step >= length.total_steps || !reason_to_stop_early(state.values, config).empty();
}

}  // namespace ddprun::trainer
