// Implements `ddprun plot`: draws one metric of several runs in one chart, as an SVG file without external links. A triangle in
// the colour of a run marks each step at which the run resumed after a failure. The code is pure except for the input streams.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "launcher/report_page/svg.hpp"

namespace ddprun {

inline constexpr std::size_t kMaxPlotted = 32;  // maximum number of runs
inline constexpr std::size_t kMaxNamed = 100;   // maximum number of metric names

struct PlottedMetric {
  std::vector<svg::Point> points{};  // x: step, y: value of the metric
  std::vector<double> resumed{};     // steps at which training resumed after a failure
};

struct PlottedRun {
  std::string name;
  PlottedMetric metric;
};

// Returns the points of one metric in a metrics.jsonl. The points come from the lines about steps. If no such line has the
// metric, the points come from the lines about evaluations. Damaged lines and values that are not finite numbers are skipped.
PlottedMetric read_metric(std::istream& metrics, const std::string& metric);

// Returns the sorted names of the metrics in the file, for which read_metric() finds points.
std::vector<std::string> metric_names_in(std::istream& metrics);

// Returns the SVG file. At least one run must have a point.
std::string plot_of(const std::string& metric, const std::vector<PlottedRun>& runs);

}  // namespace ddprun
