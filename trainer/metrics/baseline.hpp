// Compares the metrics of a model with the metrics of the best constant prediction. Evaluations of tables contain both: for
// each metric X, "baseline_X" is the value of a prediction that is always the mean of the training rows, or always their most
// frequent class. A model that is not better than such a prediction has learned nothing, and the user must see this. The code
// is pure: no I/O, no clock.
#pragma once

#include <string>
#include <vector>

#include "common/base/metric.hpp"

namespace ddprun::trainer {

inline constexpr std::string_view kBaselinePrefix = "baseline_";

// Returns one line for each metric in `figures` that has a baseline. If the model is not better than the baseline, the line
// contains a warning. Returns an empty list if there are no baselines.
std::vector<std::string> baseline_lines(const MetricList& figures);

}  // namespace ddprun::trainer
