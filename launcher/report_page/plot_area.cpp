#include "launcher/report_page/plot_area.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "launcher/report_page/svg.hpp"

namespace ddprun {
namespace {

using svg::decimal;

constexpr double kTick = 4;  // length of a tick mark
constexpr const char* kAxisColour = "#888";

// Returns the positions of the tick marks. If all values of an axis are equal, it has one tick mark.
std::vector<double> ticks_of(const AxisRange& range, int most) {
  if (range.high > range.low) return svg::ticks(range.low, range.high, most);
  return range.high == range.low ? std::vector<double>{range.low} : std::vector<double>{};
}

bool is_whole(double value) {
  constexpr double kMaxCounted = 1e15;
  return !(value > -kMaxCounted && value < kMaxCounted) || static_cast<double>(static_cast<std::int64_t>(value)) == value;
}

std::string triangle(const char* kind, const std::string& path, const std::string& attributes, const std::string& title) {
  return std::string("<path class=\"") + kind + "\" d=\"" + path + "\" " + attributes + "><title>" + svg::escaped(title) +
         "</title></path>\n";
}

}  // namespace

std::string axis_number(double value) {
  const double size = value < 0 ? -value : value;
  constexpr std::array kSuffixes{std::pair(1e12, "T"), std::pair(1e9, "G"), std::pair(1e6, "M")};
  for (const auto& [from, suffix] : kSuffixes) {
    if (size >= from && size < 1000 * from) return decimal(value / from) + suffix;
  }
  return decimal(value);
}

std::string unit_of_metric(std::string_view name) {
  constexpr std::array kUnits{std::pair("samples_per_s", "samples/s"), std::pair("flops_per_s", "FLOP/s"),
                              std::pair("accuracy", "fraction"), std::pair("mfu", "fraction")};
  for (const auto& [metric, unit] : kUnits) {
    if (name == metric) return unit;
  }
  if (name.ends_with("_bytes")) return "bytes";
  return name.ends_with("_ms") ? "ms" : "";
}

std::string PlotArea::x(double step) const {
  return decimal(steps_.part(step) * size_.wide);
}

std::string PlotArea::y(double value) const {
  return decimal((1 - values_.part(value)) * size_.high);
}

std::string PlotArea::axes() const {
  const std::string wide = decimal(size_.wide), high = decimal(size_.high);
  std::string grid, ticks, numbers;
  for (const double value : ticks_of(values_, size_.value_ticks)) {
    grid += "M0 " + y(value) + "H" + wide;
    ticks += "M" + decimal(-kTick) + " " + y(value) + "H0";
    numbers += "<text x=\"-8\" y=\"" + y(value) + "\" dy=\"4\" text-anchor=\"end\">" + axis_number(value) + "</text>\n";
  }
  for (const double step : ticks_of(steps_, size_.step_ticks)) {
    if (!is_whole(step)) continue;  // a tick mark must be at a whole step
    grid += "M" + x(step) + " 0V" + high;
    ticks += "M" + x(step) + " " + high + "v" + decimal(kTick);
    numbers += "<text x=\"" + x(step) + "\" y=\"" + decimal(size_.high + 21) + "\" text-anchor=\"middle\">" +
               axis_number(step) + "</text>\n";
  }
  return "<path class=\"grid\" d=\"" + grid + "\" fill=\"none\" stroke=\"#ddd\"/>\n<path class=\"axis\" d=\"M0 0V" + high +
         "H" + wide + ticks + "\" fill=\"none\" stroke=\"" + kAxisColour + "\"/>\n" + numbers + "<text x=\"" +
         decimal(size_.wide / 2) + "\" y=\"" + decimal(size_.high + 35) + "\" text-anchor=\"middle\">step</text>\n";
}

std::string PlotArea::failure_mark(double step, const std::string& title, const std::string& colour) const {
  return triangle("failure", "M" + x(step) + " -1l-5 -9h10Z", "fill=\"" + colour + "\"", title);
}

std::string PlotArea::resumed_mark(double step, const std::string& title, const std::string& colour) const {
  return triangle("resumed", "M" + x(step) + " " + decimal(size_.high + 1) + "l-4 8h8Z",
                  "fill=\"none\" stroke=\"" + colour + "\"", title);
}

}  // namespace ddprun
