// Draws one chart in the page of `ddprun report`: a heading with the unit, a curve over the steps, marks of failures, and a
// legend below. A chart is about as wide as a phone; on a wide screen the page shows two charts in a row. The code is pure: no
// I/O, no clock.
#pragma once

#include <string>
#include <vector>

#include "launcher/report_page/svg.hpp"

namespace ddprun {

struct ChartMark {
  enum class Kind { kFailure, kResumed } kind = Kind::kFailure;
  double step = 0;
  std::string title{};
};

// Returns the chart as HTML, or "" for fewer than two points. `name` is the heading without the unit, `curve` is the name of
// the curve in the legend. Marks before the first point are omitted.
std::string chart_html(const std::string& name, const std::string& unit, const std::string& curve,
                       const std::vector<svg::Point>& points, const std::vector<ChartMark>& marks);

// Small images for legends. They have the CSS classes of the marks.
inline constexpr const char* kFailureKey =
    "<svg class=\"key\" viewBox=\"-6 -11 12 11\" aria-hidden=\"true\"><path class=\"failure\" d=\"M0 -1l-5 -9h10Z\"/></svg>";
inline constexpr const char* kResumedKey =
    "<svg class=\"key\" viewBox=\"-6 0 12 11\" aria-hidden=\"true\"><path class=\"resumed\" d=\"M0 1l-4 8h8Z\"/></svg>";

}  // namespace ddprun
