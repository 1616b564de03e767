// A metric of an evaluation, such as the accuracy: its name and its value. The worker channel, checkpoints, metrics.jsonl,
// TensorBoard, the console and the report all identify a metric by its name. None of them has a fixed list of metrics, so a new
// metric needs no change in them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

struct Metric {
  std::string name;  // "loss", "accuracy", "top5_accuracy", ...
  double value = 0;
  bool operator==(const Metric&) const = default;
};

// Metrics in the order in which the task reports them.
using MetricList = std::vector<Metric>;

// Names that no metric may have, because records that contain metrics use these names for other fields.
inline constexpr std::string_view kReservedMetricNames[] = {"event", "time_ns", "type", "step", "epoch", "samples"};

inline std::optional<double> value_of(const MetricList& figures, std::string_view name) {
  const auto found = std::ranges::find(figures, name, &Metric::name);
  return found == figures.end() ? std::nullopt : std::optional(found->value);
}

// Returns the metric as text, such as "loss 0.2671". A metric whose name ends in "accuracy" is a fraction of 1: "accuracy
// 90.41 %".
std::string metric_text(const Metric& figure);
// Returns all metrics as text, such as "accuracy 90.41 %, loss 0.2671". Metrics of the test set come before metrics of the
// validation samples. Within each group, the model's metrics come before the baselines (baseline_loss), and the loss is last.
// The result is empty if there are no metrics.
std::string metrics_text(const MetricList& figures);
// Returns the first metric of metrics_text(), such as "accuracy 90.41 %".
std::string headline_of(const MetricList& figures);

}  // namespace ddprun
