// Implementation of plot.hpp.
#include "launcher/report/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "launcher/report/report_figures.hpp"

namespace ddprun {
namespace {

constexpr double kPlotWide = 720, kPlotHigh = 360, kLegendLine = 18, kPlotLabels = 72;
// Eight colours that people with colour vision deficiency can distinguish (Okabe and Ito). Further curves repeat them with
// dashes.
constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888", "#b8a800"};
constexpr std::array kDashes{"", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 3\"", " stroke-dasharray=\"8 3 2 3\""};

std::string stroke_of(std::size_t run) {
  return std::string(" stroke=\"") + kColours[run % kColours.size()] + "\" stroke-width=\"1.5\"" +
         kDashes[run / kColours.size() % kDashes.size()];
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double part(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return "<text x=\"" + svg::decimal(x) + "\" y=\"" + svg::decimal(y) + "\"" + anchor + ">" + svg::escaped(text) + "</text>\n";
}

// Grid lines at round numbers, with labels outside the plot area. If all values are equal, there is one line.
std::string grid_of(const Range& steps, const Range& values) {
  const auto of = [](const Range& range, int most) {
    return range.high > range.low ? svg::ticks(range.low, range.high, most) : std::vector<double>{range.low};
  };
  std::string lines, numbers;
  for (const double value : of(values, 6)) {
    const double y = (1 - values.part(value)) * kPlotHigh;
    lines += "M0 " + svg::decimal(y) + "H" + svg::decimal(kPlotWide);
    numbers += text_at(-6, y + 4, " text-anchor=\"end\"", svg::decimal(value));
  }
  for (const double step : of(steps, 8)) {
    const double x = steps.part(step) * kPlotWide;
    lines += "M" + svg::decimal(x) + " 0V" + svg::decimal(kPlotHigh);
    numbers += text_at(x, kPlotHigh + 16, " text-anchor=\"middle\"", svg::decimal(step));
  }
  return "<path d=\"" + lines + "\" fill=\"none\" stroke=\"#ddd\"/>\n" + numbers;
}

}  // namespace

std::vector<std::string> figures_in(std::istream& metrics) {
  std::set<std::string> names;
  for (std::string line; std::getline(metrics, line);) {
    const ReportJson event = ReportJson::parse(line, nullptr, false);
    const std::string kind = report_text_at(event, "event");
    if (kind != "step" && kind != "eval") continue;
    for (const auto& [name, value] : event.items())
      if (value.is_number() && name != "step" && names.size() < kMostNamed) names.insert(name);
  }
  return {names.begin(), names.end()};
}

std::vector<svg::Point> read_figure(std::istream& metrics, const std::string& figure) {
  std::vector<svg::Point> of_steps;
  std::vector<svg::Point> of_evaluations;
  for (std::string line; std::getline(metrics, line);) {
    const ReportJson event = ReportJson::parse(line, nullptr, false);
    const std::string kind = report_text_at(event, "event");
    const ReportJson& value = report_value(event, figure.c_str());
    if ((kind != "step" && kind != "eval") || !report_value(event, "step").is_number() || !value.is_number()) continue;
    const double number = value.get<double>();
    if (!std::isfinite(number)) continue;
    (kind == "step" ? of_steps : of_evaluations).push_back({report_number_at(event, "step"), number});
  }
  return of_steps.empty() ? of_evaluations : of_steps;
}

std::string plot_of(const std::string& figure, const std::vector<PlottedRun>& runs) {
  Range steps;
  Range values;
  std::vector<std::vector<svg::Point>> curves;
  for (const PlottedRun& run : runs) {
    for (const svg::Point& point : curves.emplace_back(svg::thinned(run.points))) {
      steps.take(point.x);
      values.take(point.y);
    }
  }
  const double high = kPlotHigh + 40 + kLegendLine * static_cast<double>(runs.size());
  const std::string left = svg::decimal(-kPlotLabels), wide = svg::decimal(kPlotWide + kPlotLabels + 24);
  std::string drawn = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"" + left + " -24 " + wide + " " +
                      svg::decimal(high + 24) + "\" font-family=\"sans-serif\" font-size=\"12\">\n<title>" +
                      svg::escaped(figure) + "</title>\n<rect x=\"" + left + "\" y=\"-24\" width=\"" + wide + "\" height=\"" +
                      svg::decimal(high + 24) + "\" fill=\"white\"/>\n" + grid_of(steps, values) + "<path d=\"M0 0V" +
                      svg::decimal(kPlotHigh) + "H" + svg::decimal(kPlotWide) + "\" fill=\"none\" stroke=\"#888\"/>\n";
  for (std::size_t run = 0; run < runs.size(); ++run) {
    drawn += "<polyline fill=\"none\"" + stroke_of(run) + " points=\"";
    for (const svg::Point& point : curves[run]) {
      drawn += svg::decimal(steps.part(point.x) * kPlotWide) + "," + svg::decimal((1 - values.part(point.y)) * kPlotHigh) + " ";
    }
    drawn += "\"/>\n";
    const double y = kPlotHigh + 40 + kLegendLine * static_cast<double>(run);
    drawn += "<path d=\"M0 " + svg::decimal(y - 4) + "h24\"" + stroke_of(run) + "/>\n";
    const std::string last = runs[run].points.empty() ? ": no such figure"
                                                      : ": " + svg::decimal(runs[run].points.back().y) + " at step " +
                                                            svg::decimal(runs[run].points.back().x);
    drawn += text_at(32, y, "", runs[run].name + last);
  }
  drawn += text_at(0, -8, "", figure);
  drawn += text_at(0, kPlotHigh + 16, " text-anchor=\"end\"", "step ");
  return drawn + "</svg>\n";
}

}  // namespace ddprun
