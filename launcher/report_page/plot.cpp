// Implementation of plot.hpp. One chart has a grid, one polyline per run, and a legend below with the last value of each run.
#include "launcher/report_page/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "launcher/report/report_metrics.hpp"
#include "launcher/report_page/plot_area.hpp"

namespace ddprun {
namespace {

constexpr PlotArea::Size kPlotSize{.wide = 720, .high = 360, .step_ticks = 8, .value_ticks = 6};
constexpr double kLegendLine = 18, kPlotLeft = 72, kPlotRight = 24;
constexpr double kPlotTop = PlotArea::kAbove + 22;  // space for the marks and for the name of the metric
constexpr double kLegendTop = kPlotSize.high + PlotArea::kBelow + kLegendLine;  // y coordinate of the first line of the legend
// Eight colours that readers with a colour vision deficiency can distinguish (Okabe and Ito). From the ninth curve on, the
// colours repeat with dashed lines.
constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888", "#b8a800"};
constexpr std::array kDashes{"", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 3\"", " stroke-dasharray=\"8 3 2 3\""};

std::string colour_of(std::size_t run) {
  return kColours[run % kColours.size()];
}

std::string stroke_of(std::size_t run) {
  return " stroke=\"" + colour_of(run) + "\" stroke-width=\"1.5\"" + kDashes[run / kColours.size() % kDashes.size()];
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return "<text x=\"" + svg::decimal(x) + "\" y=\"" + svg::decimal(y) + "\"" + anchor + ">" + svg::escaped(text) + "</text>\n";
}

}  // namespace

std::vector<std::string> metric_names_in(std::istream& metrics) {
  std::set<std::string> names;
  for (std::string line; std::getline(metrics, line);) {
    const ReportJson event = ReportJson::parse(line, nullptr, false);
    const std::string kind = report_text_at(event, "event");
    if (kind != "step" && kind != "eval") continue;
    for (const auto& [name, value] : event.items())
      if (value.is_number() && name != "step" && names.size() < kMaxNamed) names.insert(name);
  }
  return {names.begin(), names.end()};
}

PlottedMetric read_metric(std::istream& metrics, const std::string& metric) {
  PlottedMetric found;
  std::vector<svg::Point> of_evaluations;
  for (std::string line; std::getline(metrics, line);) {
    const ReportJson event = ReportJson::parse(line, nullptr, false);
    const std::string kind = report_text_at(event, "event");
    if (!report_value(event, "step").is_number()) continue;
    const double step = report_number_at(event, "step");
    if (kind == "restart" || kind == "regroup") found.resumed.push_back(step);
    const ReportJson& value = report_value(event, metric.c_str());
    if ((kind != "step" && kind != "eval") || !value.is_number()) continue;
    const double number = value.get<double>();
    if (std::isfinite(number)) (kind == "step" ? found.points : of_evaluations).push_back({step, number});
  }
  if (found.points.empty()) found.points = std::move(of_evaluations);
  return found;
}

std::string plot_of(const std::string& metric, const std::vector<PlottedRun>& runs) {
  AxisRange steps;
  AxisRange values;
  std::vector<std::vector<svg::Point>> curves;
  for (const PlottedRun& run : runs) {
    for (const svg::Point& point : curves.emplace_back(svg::thinned(run.metric.points))) {
      steps.take(point.x);
      values.take(point.y);
    }
  }
  const PlotArea area(kPlotSize, steps, values);
  std::string drawn, marks, legend;
  double y = kLegendTop;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& [name, found] = runs[i];
    drawn += "<polyline fill=\"none\"" + stroke_of(i) + " points=\"";
    for (const svg::Point& point : curves[i]) drawn += area.x(point.x) + "," + area.y(point.y) + " ";
    drawn += "\"/>\n";
    for (const double step : found.resumed) {
      if (step < steps.low || step > steps.high) continue;
      marks += area.failure_mark(step, name + ": resumed at step " + svg::decimal(step) + " after a failure", colour_of(i));
    }
    const std::string last =
        found.points.empty() ? ": metric not found"
                             : ": " + svg::decimal(found.points.back().y) + " at step " + svg::decimal(found.points.back().x);
    legend += "<path d=\"M0 " + svg::decimal(y - 4) + "h24\"" + stroke_of(i) + "/>\n" + text_at(32, y, "", name + last);
    y += kLegendLine;
  }
  if (!marks.empty()) {
    legend += "<path d=\"M12 " + svg::decimal(y) + "l-5 -9h10Z\" fill=\"#444\"/>\n" +
              text_at(32, y, "", "resumed at this step after a failure");
    y += kLegendLine;
  }
  const std::string unit = unit_of_metric(metric), title = unit.empty() ? metric : metric + " (" + unit + ")";
  const std::string left = svg::decimal(-kPlotLeft), top = svg::decimal(-kPlotTop),
                    wide = svg::decimal(kPlotLeft + kPlotSize.wide + kPlotRight), high = svg::decimal(kPlotTop + y);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"" + left + " " + top + " " + wide + " " + high +
         "\" font-family=\"sans-serif\" font-size=\"12\">\n<title>" + svg::escaped(title) + "</title>\n<rect x=\"" + left +
         "\" y=\"" + top + "\" width=\"" + wide + "\" height=\"" + high + "\" fill=\"white\"/>\n" + area.axes() + drawn +
         marks + text_at(0, -PlotArea::kAbove - 6, "", title) + legend + "</svg>\n";
}

}  // namespace ddprun
