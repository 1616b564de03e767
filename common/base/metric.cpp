// Implementation of metric.hpp. The console and the report call these functions.
#include "common/base/metric.hpp"

#include <array>
#include <cstdio>

namespace ddprun {
namespace {

bool take_prefix(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

// Sorts the metrics for users: first the metrics of the test set, then the metrics of the validation samples. In each group,
// the metrics of the model come first, and then the baselines. The loss is the last metric of the group.
MetricList as_shown(MetricList figures) {
  std::ranges::stable_sort(figures, {}, [](const Metric& figure) {
    std::string_view name = figure.name;
    const bool of_validation = take_prefix(name, "validation_"), of_baseline = take_prefix(name, "baseline_");
    return (of_validation ? 4 : 0) + (of_baseline ? 2 : 0) + (name == "loss" ? 1 : 0);
  });
  return figures;
}

}  // namespace

std::string metric_text(const Metric& figure) {
  const bool share = figure.name.ends_with("accuracy");
  std::array<char, 400> number{};  // enough for the largest double, which has 309 digits before its decimal point
  std::snprintf(number.data(), number.size(), share ? " %.2f %%" : " %.4f", share ? 100 * figure.value : figure.value);
  return figure.name + number.data();
}

std::string metrics_text(const MetricList& figures) {
  std::string text;
  for (const Metric& figure : as_shown(figures)) text += (text.empty() ? "" : ", ") + metric_text(figure);
  return text;
}

std::string headline_of(const MetricList& figures) {
  return figures.empty() ? "" : metric_text(as_shown(figures).front());
}

}  // namespace ddprun
