#include "launcher/report_page/chart.hpp"

#include <algorithm>

#include "launcher/events/progress.hpp"
#include "launcher/report_page/plot_area.hpp"

namespace ddprun {
namespace {

using svg::decimal;
using svg::Point;

constexpr PlotArea::Size kChartSize{.wide = 326, .high = 150, .step_ticks = 5, .value_ticks = 5};
constexpr double kChartLeft = 58, kChartRight = 16;  // space for the numbers of the y axis, and for half a number of the x axis
constexpr const char* kCurveKey =
    "<svg class=\"key\" viewBox=\"-6 -6 12 11\" aria-hidden=\"true\"><path class=\"curve\" d=\"M-6 0H6\"/></svg>";

std::string legend_of(const std::string& curve, std::size_t averaged, bool failed, bool resumed) {
  std::string legend = "<p class=\"legend\"><span>" + std::string(kCurveKey) + svg::escaped(curve);
  if (averaged > 1) legend += ", mean of " + format_count(static_cast<std::int64_t>(averaged)) + " values per point";
  legend += "</span>";
  if (failed) legend += "<span>" + std::string(kFailureKey) + "failure</span>";
  if (resumed) legend += "<span>" + std::string(kResumedKey) + "resumed at this step</span>";
  return legend + "</p>\n";
}

}  // namespace

std::string chart_html(const std::string& name, const std::string& unit, const std::string& curve,
                       const std::vector<Point>& points, const std::vector<ChartMark>& marks) {
  if (points.size() < 2) return {};
  AxisRange steps, values;
  const std::vector<Point> drawn = svg::thinned(points);
  for (const Point& point : drawn) {
    steps.take(point.x);
    values.take(point.y);
  }
  steps.take(points.front().x);
  // Steps after a failure are repeated, so a failure may be at a later step than the newest point.
  for (const ChartMark& mark : marks) {
    if (mark.step > steps.high) steps.take(mark.step);
  }
  const PlotArea area(kChartSize, steps, values);
  const std::string heading = svg::escaped(unit.empty() ? name : name + " (" + unit + ")");
  std::string html = "<section class=\"chart\"><h3>" + heading + "</h3>\n<svg viewBox=\"" + decimal(-kChartLeft) + " " +
                     decimal(-PlotArea::kAbove) + " " + decimal(kChartLeft + kChartSize.wide + kChartRight) + " " +
                     decimal(PlotArea::kAbove + kChartSize.high + PlotArea::kBelow) + "\" role=\"img\" aria-label=\"" +
                     heading + " over the steps\">\n" + area.axes();
  html += "<polyline class=\"curve\" points=\"";
  for (const Point& point : drawn) html += area.x(point.x) + "," + area.y(point.y) + " ";
  html += "\"/>\n";
  bool failed = false, resumed = false;
  for (const ChartMark& mark : marks) {
    if (mark.step < steps.low) continue;
    const bool is_failure = mark.kind == ChartMark::Kind::kFailure;
    (is_failure ? failed : resumed) = true;
    html += is_failure ? area.failure_mark(mark.step, mark.title, "currentColor")
                       : area.resumed_mark(mark.step, mark.title, "currentColor");
  }
  const std::size_t averaged = (points.size() + drawn.size() - 1) / drawn.size();
  return html + "</svg>\n" + legend_of(curve, averaged, failed, resumed) + "</section>\n";
}

}  // namespace ddprun
