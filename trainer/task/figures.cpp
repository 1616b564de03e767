#include "trainer/task/figures.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>

#include "common/base/error.hpp"
#include "common/base/metric.hpp"

namespace ddprun::trainer {

Figures::Figures(std::vector<std::string> names, c10::Device device)
    : names_(std::move(names)),
      sums_(at::zeros({static_cast<std::int64_t>(names_.size())}, at::TensorOptions(device).dtype(at::kDouble))),
      weights_(names_.size()) {
  for (auto name = names_.begin(); name != names_.end(); ++name) {
    if (std::find(names_.begin(), name, *name) != name) throw UsageError("the task has two metrics called '" + *name + "'");
    if (std::ranges::find(kReservedMetricNames, *name) == std::end(kReservedMetricNames) && !name->empty()) continue;
    throw UsageError("the task has a metric called '" + *name + "', which is a reserved name; rename it");
  }
}

void Figures::add(std::string_view name, const at::Tensor& sum, double weight) {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) {
    std::string known;
    for (const std::string& each : names_) known += (known.empty() ? "" : ", ") + each;
    throw UsageError("the task reports the metric '" + std::string(name) + "', which it does not declare; its metrics are " +
                     known);
  }
  const auto index = std::distance(names_.begin(), found);
  sums_.select(0, index).add_(sum);
  weights_[static_cast<std::size_t>(index)] += weight;
}

std::vector<double> Figures::sums_and_weights() const {
  const at::Tensor read = sums_.cpu();
  std::vector<double> both;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    both.push_back(read.const_data_ptr<double>()[i]);
    both.push_back(weights_[i]);
  }
  return both;
}

std::vector<std::string> metrics_of_evaluation(const TrainConfig& config, std::vector<std::string> of_task) {
  if (!config.data.validation.is_set()) return of_task;
  std::vector<std::string> all = of_task;
  for (const std::string& name : of_task) {
    all.push_back(std::string(kValidationPrefix) + name);
    if (std::ranges::find(of_task, all.back()) == of_task.end()) continue;
    throw UsageError("the task has a metric called '" + all.back() +
                     "', but data.validation adds a metric with the same name; rename the metric of the task");
  }
  return all;
}

void require_metrics(const TrainConfig& config, const std::vector<std::string>& figures) {
  std::string known;
  for (const std::string& each : figures) known += (known.empty() ? "" : ", ") + each;
  const auto require = [&](bool used, const std::string& what, const std::string& figure, const std::string& key) {
    if (!used || std::ranges::find(figures, figure) != figures.end()) return;
    throw UsageError(what + " uses the metric '" + figure + "' (" + key +
                     "), which the evaluation of this model does not report; its metrics are " + known);
  };
  require(config.checkpoint.keep_best > 0, "checkpoint.keep_best", config.checkpoint.best_by, "checkpoint.best_by");
  require(config.schedule.type == ScheduleConfig::Type::kPlateau, "the schedule", config.schedule.metric, "schedule.metric");
  require(config.early_stopping.patience > 0, "early stopping", config.early_stopping.metric, "early_stopping.metric");
}

}  // namespace ddprun::trainer
