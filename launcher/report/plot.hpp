// `ddprun plot`: draws one metric of several runs in one chart, as a self-contained SVG. Pure except for the streams.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "launcher/report/svg.hpp"

namespace ddprun {

inline constexpr std::size_t kMostPlotted = 32;  // maximum number of runs
inline constexpr std::size_t kMostNamed = 100;   // maximum number of metric names

struct PlottedRun {
  std::string name;
  std::vector<svg::Point> points;  // x: step, y: value of the metric
};

// The points of one metric in a metrics.jsonl. They come from the lines of steps; if no step has the metric, from the lines of
// evaluations. Damaged lines and values that are not numbers are skipped.
std::vector<svg::Point> read_figure(std::istream& metrics, const std::string& figure);

// Sorted names of the metrics that read_figure() finds in the file.
std::vector<std::string> figures_in(std::istream& metrics);

// At least one run must have a point.
std::string plot_of(const std::string& figure, const std::vector<PlottedRun>& runs);

}  // namespace ddprun
