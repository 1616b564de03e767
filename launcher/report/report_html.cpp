// Implementation of report_html.hpp. All text that comes from a run is escaped, and the page has no external links.
#include "launcher/report/report_html.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "common/base/check.hpp"
#include "common/base/error.hpp"
#include "common/system/local_time.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/report/report_figures.hpp"
#include "launcher/report/step_parts.hpp"
#include "launcher/report/svg.hpp"

namespace ddprun {
namespace {

using svg::decimal;
using svg::escaped;
using svg::Point;
using svg::thinned;

constexpr double kChartWide = 640, kChartHigh = 160, kLabels = 60;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --line: #8886; --good: #2a7; --bad: #d43; --kept: #c90; --ink: #357; }
.grid { fill: none; stroke: var(--line); stroke-width: .5; }
body { font: 16px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; }
svg { width: 100%; height: auto; display: block; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
details { border-left: 3px solid var(--line); padding: .3rem 0 .3rem .8rem; margin: .4rem 0; }
details.failed { border-color: var(--bad); } summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: .8rem; padding: .5rem; border: 1px solid var(--line); }
.end { font-size: 1.1rem; } .bad { color: var(--bad); } .good { color: var(--good); } .small { font-size: .85rem; opacity: .8; }
)";

double seconds_between(std::int64_t begin, std::int64_t end) {
  return static_cast<double>(end - begin) / 1e9;
}

// ---- curves ----

std::string capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

struct Curves {
  std::vector<Point> loss, speed;
  std::map<std::string, std::vector<Point>> evaluated;  // by metric name; the loss is kept separately
  StepParts parts;
  std::vector<double> restarts;  // steps at which training resumed
};

void add_point(std::vector<Point>& points, double x, const ReportJson& value) {
  if (value.is_number() && std::isfinite(value.get<double>())) points.push_back({x, value.get<double>()});
}

// The metrics in every step line of ddptrain, in addition to the parts of the step time. Other metrics come from scripts and
// get a chart each.
constexpr std::string_view kFiguresOfAStep[] = {"loss",
                                                "lr",
                                                "gradient_norm",
                                                "samples_per_s",
                                                "flops_per_s",
                                                "mfu",
                                                "skipped_steps",
                                                "peak_memory_bytes",
                                                "largest_peak_memory_bytes"};

Curves curves_of(std::istream& metrics) {
  Curves curves;
  for (std::string line; std::getline(metrics, line);) {
    const ReportJson event = ReportJson::parse(line, nullptr, false);
    const std::string kind = report_text_at(event, "event");
    if (!report_value(event, "step").is_number()) continue;
    const double step = report_number_at(event, "step");
    if (kind == "step") {
      curves.parts.take(event);
      add_point(curves.loss, step, report_value(event, "loss"));
      add_point(curves.speed, step, report_value(event, "samples_per_s"));
      for (const Figure& figure : evaluation_figures(event)) {
        const bool shown_or_no_curve = std::ranges::find(kFiguresOfAStep, figure.name) != std::end(kFiguresOfAStep) ||
                                       std::ranges::find(StepParts::kNames, figure.name) != StepParts::kNames.end();
        if (!shown_or_no_curve) add_point(curves.evaluated[figure.name], step, report_value(event, figure.name.c_str()));
      }
    } else if (kind == "eval") {
      for (const Figure& figure : evaluation_figures(event)) {
        if (figure.name != "loss") add_point(curves.evaluated[figure.name], step, figure.value);
      }
    } else if (kind == "restart" || kind == "resume" || kind == "regroup") {
      curves.restarts.push_back(step);
    }
  }
  return curves;
}

std::string chart(const std::string& title, const std::vector<Point>& all, const std::vector<double>& restarts) {
  if (all.size() < 2) return {};
  const std::vector<Point> points = thinned(all);
  const auto [low, high] = std::minmax_element(points.begin(), points.end(), [](Point a, Point b) { return a.y < b.y; });
  const double first = first_of(points, "a curve has no point").x, last = std::max(points.back().x, first + 1);
  const double bottom = low->y, top = high->y > low->y ? high->y : low->y + 1;
  const auto x = [&](double value) { return decimal((value - first) / (last - first) * kChartWide); };
  const auto y = [&](double value) { return decimal(kChartHigh - (value - bottom) / (top - bottom) * kChartHigh); };
  std::string drawn = "<h2>" + escaped(title) + "</h2>\n<svg viewBox=\"" + decimal(-kLabels) + " -8 " +
                      decimal(kChartWide + kLabels + 16) + " " + decimal(kChartHigh + 26) + "\" role=\"img\" aria-label=\"" +
                      escaped(title) + "\">\n";
  // Labels are placed outside the plot area.
  std::string lines, numbers;
  for (const double value : svg::ticks(bottom, top, 5)) {
    lines += "M0 " + y(value) + "H" + decimal(kChartWide);
    numbers += "<text x=\"-6\" y=\"" + y(value) + "\" dy=\"4\" text-anchor=\"end\">" + decimal(value) + "</text>";
  }
  for (const double step : svg::ticks(first, last, 8)) {
    lines += "M" + x(step) + " 0V" + decimal(kChartHigh);
    numbers += "<text x=\"" + x(step) + "\" y=\"" + decimal(kChartHigh + 14) + "\" text-anchor=\"middle\">" + decimal(step) +
               "</text>";
  }
  drawn += "<path class=\"grid\" d=\"" + lines + "\"/>\n";
  drawn += "<path d=\"M0 0V" + decimal(kChartHigh) + "H" + decimal(kChartWide) + "\" fill=\"none\" stroke=\"var(--line)\"/>\n";
  for (const double step : restarts) {
    if (step < first || step > last) continue;
    drawn += "<path class=\"restart\" d=\"M" + x(step) + " 0V" + decimal(kChartHigh) +
             "\" stroke=\"var(--bad)\" stroke-dasharray=\"3 3\"><title>went on at step " + decimal(step) + "</title></path>\n";
  }
  drawn += "<polyline fill=\"none\" stroke=\"var(--ink)\" stroke-width=\"1.5\" points=\"";
  for (const Point& point : points) drawn += x(point.x) + "," + y(point.y) + " ";
  drawn +=
      "\"/>\n" + numbers + "<text x=\"-6\" y=\"" + decimal(kChartHigh + 14) + "\" text-anchor=\"end\">step</text>\n</svg>\n";
  return drawn;
}

// ---- rounds ----

std::string what_ended(const ReportJson& failure) {
  std::string text = whose_failure(failure);
  if (const std::string host = report_text_at(failure, "host"); !host.empty()) text += " on " + host;
  text += ": " + report_text_at(failure, "cause");
  if (report_value(failure, "signal").is_number()) text += ", " + report_text_at(failure, "signal_name");
  if (report_value(failure, "exit_code").is_number())
    text += ", exit code " + std::to_string(report_integer_at(failure, "exit_code"));
  if (report_value(failure, "step").is_number()) text += " at step " + format_count(report_integer_at(failure, "step"));
  if (const std::string message = report_text_at(failure, "message"); !message.empty()) text += ": " + message;
  return text;
}

std::string lines_of(const ReportJson& list) {
  std::string text;
  for (const ReportJson& line : list)
    if (line.is_string()) text += escaped(line.get<std::string>()) + "\n";
  return text;
}

std::string evidence_of(const ReportJson& failure) {
  std::string html;
  if (const std::string lines = lines_of(report_value(failure, "evidence")); !lines.empty())
    html += "<p class=\"small\">evidence</p><pre>" + lines + "</pre>";
  if (const std::string stack = report_text_at(failure, "call_stack"); !stack.empty())
    html += "<pre>" + escaped(stack) + "</pre>";
  if (const std::string lines = lines_of(report_value(failure, "stderr_tail")); !lines.empty())
    html += "<p class=\"small\">last lines of stderr</p><pre>" + lines + "</pre>";
  if (const std::string log = report_text_at(failure, "log"); !log.empty()) {
    const std::int64_t line = report_integer_at(failure, "log_line");
    html += "<p class=\"small\">log: " + escaped(log) + (line > 0 ? ":" + std::to_string(line) : "") + "</p>";
  }
  return html;
}

std::string round_html(const RoundSpan& span) {
  const ReportJson& round = *span.round;
  const std::string number = "round " + std::to_string(report_integer_at(round, "round"));
  const std::string when = local_time(span.begin_ns) + ", " + format_duration(seconds_between(span.begin_ns, span.end_ns)) +
                           ", " + std::to_string(report_integer_at(round, "world_size")) + " workers";
  const ReportJson& first = report_value(round, "first_cause");
  std::string html =
      std::string("<details") + (span.failed ? " class=\"failed\"" : "") + "><summary>" + number + " &middot; " + escaped(when);
  if (span.failed) html += " &middot; <strong>" + escaped(what_ended(first)) + "</strong>";
  html += "</summary>\n";
  if (span.failed) html += evidence_of(first);
  for (const ReportJson& failure : report_value(round, "consequences"))
    html += "<details><summary>then " + escaped(what_ended(failure)) + "</summary>" + evidence_of(failure) + "</details>\n";
  for (const ReportJson& others : report_value(round, "other_consequences"))
    html += "<p>" + format_count(report_integer_at(others, "count")) + " more: " + escaped(report_text_at(others, "cause")) +
            "</p>\n";
  if (const std::int64_t lost = report_integer_at(round, "steps_lost"); lost > 0)
    html += "<p>" + format_count(lost) + " steps were done again</p>\n";
  const std::string decision = report_text_at(round, "decision"), why = report_text_at(round, "why");
  if (!decision.empty()) html += "<p>then: " + escaped(decision) + (why.empty() ? "" : " (" + escaped(why) + ")") + "</p>\n";
  return html + "</details>\n";
}

// Whether the round began with state that surviving ranks kept from the previous round.
bool keeps_state(const ReportJson& round) {
  const ReportJson& kept = report_value(report_value(round, "regroup"), "kept");
  return kept.is_array() && !kept.empty();
}

std::string time_line_html(const std::vector<RoundSpan>& rounds) {
  if (rounds.empty()) return {};
  std::int64_t begin = first_of(rounds, "a time line has no round").begin_ns, end = begin + 1;
  for (const RoundSpan& round : rounds) end = std::max(end, round.end_ns);
  const double scale = kChartWide / static_cast<double>(end - begin);
  std::string svg =
      "<h2>Rounds</h2>\n<svg viewBox=\"0 0 " + decimal(kChartWide) + " 40\" role=\"img\" aria-label=\"time line\">\n";
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    const RoundSpan& round = rounds[i];
    // The surviving ranks kept their state, so the next round continues the work of this one.
    const bool kept = round.failed && i + 1 < rounds.size() && keeps_state(*rounds[i + 1].round);
    const double x = static_cast<double>(round.begin_ns - begin) * scale;
    const double wide = std::max(1.0, static_cast<double>(round.end_ns - round.begin_ns) * scale - 1);
    const std::string cause = report_text_at(report_value(*round.round, "first_cause"), "cause");
    svg += "<rect class=\"round\" x=\"" + decimal(x) + "\" y=\"2\" height=\"20\" width=\"" + decimal(wide) +
           "\" fill=\"var(--" +
           (kept           ? "kept"
            : round.failed ? "bad"
                           : "good") +
           ")\"><title>round " + std::to_string(report_integer_at(*round.round, "round")) +
           (cause.empty() ? "" : ": " + escaped(cause)) + (kept ? "; its work was kept" : "") + "</title></rect>\n";
  }
  return svg + "<text x=\"0\" y=\"36\">" + local_time(begin) + "</text><text x=\"" + decimal(kChartWide) +
         "\" y=\"36\" text-anchor=\"end\">" + local_time(end) + "</text>\n</svg>\n";
}

std::string figure_row(const std::string& name, const std::string& value) {
  return value.empty() ? "" : "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
}

std::string figures_table(const ReportJson& report, const ReportFigures& figures, const StepParts& steps) {
  std::string html = "<h2>Figures</h2>\n<table>\n";
  html += figure_row("run directory", report_text_at(report, "run_dir"));
  if (report_value(report, "last_step").is_number())
    html += figure_row("last step", format_count(report_integer_at(report, "last_step")));
  if (const ReportJson& evaluation = report_value(report, "evaluation"); evaluation.is_object())
    html += figure_row("evaluation", figures_text(evaluation_figures(evaluation)));
  html += figure_row("restarts", std::to_string(report_integer_at(report_value(report, "restarts"), "used")));
  for (const auto& [cause, count] : figures.causes) html += figure_row("failed by " + cause, format_count(count));
  for (const auto& [rank, count] : figures.ranks) html += figure_row("first was " + rank, format_count(count));
  if (figures.steps_lost > 0)
    html +=
        figure_row("steps lost", format_count(figures.steps_lost) + ", " + format_duration(figures.lost_s) + " of training");
  for (const auto& [name, seconds] : figures.time) html += figure_row(name, format_duration(seconds));
  html += figure_row("goodput", goodput_of(figures));
  html += figure_row("a step", steps.text());
  html += figure_row("peak memory", steps.memory_text());
  html += figure_row("skipped", steps.skipped_text());
  return html + "</table>\n";
}

}  // namespace

std::string report_page(std::string_view text, std::istream& metrics, const std::string& name) {
  const ReportJson report = ReportJson::parse(text, nullptr, false);
  if (!report.is_object() || !report_value(report, "rounds").is_array()) throw UsageError(name + " is not a report of ddprun");
  const ReportFigures figures = figures_of(report);
  const std::string title = report_text_at(report, "title");
  const ReportJson& exit = report_value(report, "exit");
  const bool good = report_integer_at(exit, "code", -1) == 0;

  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escaped(title.empty() ? "ddprun" : title) + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n";
  page += "<h1>" + escaped(title) + "</h1>\n<p class=\"end " + (good ? std::string("good") : "bad") + "\">";
  page += escaped(how_it_ended(exit)) + "</p>\n" + time_line_html(figures.rounds);
  for (const RoundSpan& span : figures.rounds) page += round_html(span);
  const Curves curves = curves_of(metrics);
  page += figures_table(report, figures, curves.parts);
  page += chart("Loss", curves.loss, curves.restarts);
  page += chart("Samples a second", curves.speed, curves.restarts);
  for (const auto& [figure, points] : curves.evaluated) page += chart(capitalised(figure), points, curves.restarts);
  return page + "<p class=\"small\">made by ddprun " + escaped(report_text_at(report, "ddprun")) + "</p>\n</body>\n</html>\n";
}

}  // namespace ddprun
