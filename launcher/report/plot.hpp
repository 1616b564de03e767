// `ddprun plot`: one figure of several runs over each other, as an SVG that needs nothing else. Pure but for the streams.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "launcher/report/svg.hpp"

namespace ddprun {

inline constexpr std::size_t kMostPlotted = 32;  // runs
inline constexpr std::size_t kMostNamed = 100;   // figures

struct PlottedRun {
  std::string name;
  std::vector<svg::Point> points;  // step and figure
};

// The points of one figure in a metrics.jsonl, from the lines of steps or, where no step has it, of evaluations. Damaged lines
// and values that are no number are left out.
std::vector<svg::Point> read_figure(std::istream& metrics, const std::string& figure);

// The names of the figures that read_figure() finds there, sorted.
std::vector<std::string> figures_in(std::istream& metrics);

// At least one run must have a point.
std::string plot_of(const std::string& figure, const std::vector<PlottedRun>& runs);

}  // namespace ddprun
