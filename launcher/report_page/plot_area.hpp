// The plot area of a chart: it maps steps and values to coordinates, and draws axes, grid lines, tick marks with numbers, and
// marks of failures. All labels and marks are outside the area, so they cover no curve. `ddprun plot` (plot.cpp) and the page
// of `ddprun report` (chart.cpp) use it. The code is pure: no I/O, no clock.
//
// The origin of the coordinates is the upper left corner of the area. Marks of failures need kAbove units above it; marks of
// resumed steps, tick numbers and the name of the x axis need kBelow units below it.
//
// Colours are attributes of the elements, for an SVG file. The style sheet of a page overrides them by the classes of the
// elements.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

namespace ddprun {

struct AxisRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Returns the relative position of a value: 0 at `low`, 1 at `high`. If `low` and `high` are equal, the position is the
  // middle.
  double part(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

// Returns the text of a number at a tick mark, such as "0.25" or "1200". From one million on, the text has an SI suffix, such
// as "1.5M".
std::string axis_number(double value);

// Returns the unit of a metric of metrics.jsonl, such as "samples/s". Returns "" if the metric has no unit, or if it comes from
// a script and its unit is unknown.
std::string unit_of_metric(std::string_view name);

class PlotArea {
 public:
  static constexpr double kAbove = 14, kBelow = 38;

  struct Size {
    double wide = 0;
    double high = 0;
    int step_ticks = 8;  // maximum number of tick marks
    int value_ticks = 6;
  };
  PlotArea(Size size, AxisRange steps, AxisRange values) : size_(size), steps_(steps), values_(values) {}

  std::string x(double step) const;
  std::string y(double value) const;
  // Returns the axes with grid lines, tick marks at round numbers, and "step" below the x axis.
  std::string axes() const;
  // Returns a filled triangle above the area, which points down at the step. `title` appears when the pointer is on it.
  std::string failure_mark(double step, const std::string& title, const std::string& colour) const;
  // Returns an outlined triangle below the x axis, which points up at the step at which training continued.
  std::string resumed_mark(double step, const std::string& title, const std::string& colour) const;

 private:
  Size size_;
  AxisRange steps_, values_;
};

}  // namespace ddprun
