#include "launcher/report_page/page_time.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "launcher/events/progress.hpp"
#include "launcher/report_page/svg.hpp"

namespace ddprun {
namespace {

// The parts of the run's time, in the order of their colours. The order is fixed, so a part keeps its colour when another part
// appears. The parts training and running do not occur together (report_metrics.cpp).
constexpr std::string_view kColouredParts[] = {"training",         "evaluating",        "checkpoints", "starting",
                                               "lost to restarts", "waiting for nodes", "running"};

std::string class_of_part(const std::string& name) {
  const auto found = std::ranges::find(kColouredParts, name);
  return "part-" + std::to_string(found - std::begin(kColouredParts));
}

std::string percent_of(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * part / whole);
  return text;
}

std::string bar_of_time(const ReportMetrics& report) {
  std::string bar, legend;
  double before = 0;
  for (const auto& [name, seconds] : report.time) {
    const std::string colour = class_of_part(name);
    const std::string text = svg::escaped(name + ": " + format_duration(seconds) + ", " + percent_of(seconds, report.total_s));
    bar += "<rect class=\"" + colour + "\" x=\"" + svg::decimal(100 * before / report.total_s) + "%\" width=\"" +
           svg::decimal(100 * seconds / report.total_s) + "%\" y=\"0\" height=\"18\"><title>" + text + "</title></rect>\n";
    legend += "<span><svg class=\"key\" viewBox=\"0 0 12 11\" aria-hidden=\"true\"><rect class=\"" + colour +
              "\" width=\"11\" height=\"11\"/></svg>" + text + "</span>";
    before += seconds;
  }
  return "<svg class=\"timebar\" role=\"img\" aria-label=\"parts of the time\">\n" + bar + "</svg>\n<p class=\"legend\">" +
         legend + "</p>\n";
}

}  // namespace

std::string time_html(const ReportMetrics& report, const StepParts& steps) {
  std::string html;
  if (report.total_s > 0) html += bar_of_time(report);
  if (const std::string parts = steps.text(); !parts.empty()) html += "<p>step time: " + svg::escaped(parts) + "</p>\n";
  return html.empty() ? "" : "<h2>Where the time goes</h2>\n" + html;
}

}  // namespace ddprun
