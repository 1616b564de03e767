#include "launcher/report_page/page_rounds.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "common/base/check.hpp"
#include "common/system/local_time.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/report_page/plot_area.hpp"
#include "launcher/report_page/svg.hpp"

namespace ddprun {
namespace {

using svg::decimal;
using svg::escaped;

constexpr double kNsPerSecond = 1e9;
constexpr const char* kKeptKey =
    "<svg class=\"key\" viewBox=\"-6 -11 12 11\" aria-hidden=\"true\"><path class=\"failure kept\" d=\"M0 -1l-5 "
    "-9h10Z\"/></svg>";

std::string failure_title(const ReportJson& failure) {
  std::string text = failed_rank_text(failure);
  if (const std::string host = report_text_at(failure, "host"); !host.empty()) text += " on " + host;
  text += ": " + report_text_at(failure, "cause");
  if (report_value(failure, "signal").is_number()) text += ", " + report_text_at(failure, "signal_name");
  if (report_value(failure, "exit_code").is_number())
    text += ", exit code " + std::to_string(report_integer_at(failure, "exit_code"));
  if (report_value(failure, "step").is_number()) text += " at step " + format_count(report_integer_at(failure, "step"));
  if (const std::string message = report_text_at(failure, "message"); !message.empty()) text += ": " + message;
  return text;
}

// ---- time line ----

// A unit of the time line's axis.
struct TimeUnit {
  const char* name;
  double seconds;
};
constexpr std::array kTimeUnits{TimeUnit{"days", 86400}, TimeUnit{"hours", 3600}, TimeUnit{"minutes", 60}};

// Returns the largest unit that fits into the time at least three times.
TimeUnit unit_of_time(double seconds) {
  const auto found = std::ranges::find_if(kTimeUnits, [&](const TimeUnit& unit) { return seconds >= 3 * unit.seconds; });
  return found == kTimeUnits.end() ? TimeUnit{"seconds", 1} : *found;
}

// Returns true if the round started with state that surviving ranks kept from the previous round.
bool keeps_state(const ReportJson& round) {
  const ReportJson& kept = report_value(report_value(round, "regroup"), "kept");
  return kept.is_array() && !kept.empty();
}

// Maps times to positions on the time line, which is as wide as the page.
struct TimeScale {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 1;
  double percent(std::int64_t ns) const {
    return 100 * static_cast<double>(ns - begin_ns) / static_cast<double>(end_ns - begin_ns);
  }
  double seconds() const { return static_cast<double>(end_ns - begin_ns) / kNsPerSecond; }
};

std::string percent_text(double percent) {
  return decimal(percent) + "%";
}

std::string axis_of_time(const TimeScale& scale, const TimeUnit& unit) {
  std::string axis = "<line class=\"axis\" x1=\"0%\" x2=\"100%\" y1=\"34\" y2=\"34\"/>\n";
  const double units = scale.seconds() / unit.seconds;
  for (const double tick : svg::ticks(0, units, 5)) {
    const std::string x = percent_text(100 * tick / units);
    axis += "<line class=\"axis\" x1=\"" + x + "\" x2=\"" + x + "\" y1=\"34\" y2=\"38\"/><text x=\"" + x +
            "\" y=\"51\" text-anchor=\"middle\">" + axis_number(tick) + "</text>\n";
  }
  return axis;
}

std::string bar_of_round(const RoundSpan& span, const TimeScale& scale) {
  constexpr double kLeast = 0.2;  // minimum width in percent, so that a short round is visible
  const double from = scale.percent(span.begin_ns), wide = std::max(kLeast, scale.percent(span.end_ns) - from);
  return "<rect class=\"round\" x=\"" + percent_text(from) + "\" y=\"15\" height=\"16\" width=\"" + percent_text(wide) +
         "\"><title>round " + std::to_string(report_integer_at(*span.round, "round")) + ", " +
         format_duration(static_cast<double>(span.end_ns - span.begin_ns) / kNsPerSecond) + "</title></rect>\n";
}

// Returns the mark of a failure. Its triangle is in a nested SVG element: SVG can place an element by percent, but not the
// points of a path.
std::string mark_of_failure(const RoundSpan& span, bool kept, const TimeScale& scale) {
  return "<svg class=\"at\" x=\"" + percent_text(scale.percent(span.end_ns)) + "\" y=\"13\"><path class=\"failure" +
         (kept ? " kept" : "") + "\" d=\"M0 0l-6 -10h12Z\"><title>round " +
         std::to_string(report_integer_at(*span.round, "round")) + ": " +
         escaped(failure_title(report_value(*span.round, "first_cause"))) + (kept ? "; its work was kept" : "") +
         "</title></path></svg>\n";
}

// ---- rounds ----

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

// Returns the id of a round's block. When the page is loaded again, its script uses these ids to find the blocks that were
// expanded.
std::string id_of_round(const ReportJson& round) {
  return "round-" + std::to_string(report_integer_at(round, "invocation")) + "-" +
         std::to_string(report_integer_at(round, "round"));
}

std::string round_html(const RoundSpan& span) {
  const ReportJson& round = *span.round;
  const std::string when =
      local_time(span.begin_ns) + ", " + format_duration(static_cast<double>(span.end_ns - span.begin_ns) / kNsPerSecond) +
      (span.runs ? " until now, " : ", ") + std::to_string(report_integer_at(round, "world_size")) + " workers";
  const ReportJson& first = report_value(round, "first_cause");
  std::string html = std::string("<details") + (span.failed ? " class=\"failed\"" : "") + " id=\"" + id_of_round(round) +
                     "\"><summary>round " + std::to_string(report_integer_at(round, "round")) + " &middot; " + escaped(when);
  if (span.failed) html += " &middot; <strong>" + escaped(failure_title(first)) + "</strong>";
  html += "</summary>\n";
  if (span.failed) html += evidence_of(first);
  int consequence = 0;
  for (const ReportJson& failure : report_value(round, "consequences")) {
    html += "<details id=\"" + id_of_round(round) + "-" + std::to_string(consequence++) + "\"><summary>then " +
            escaped(failure_title(failure)) + "</summary>" + evidence_of(failure) + "</details>\n";
  }
  for (const ReportJson& others : report_value(round, "other_consequences"))
    html += "<p>" + format_count(report_integer_at(others, "count")) + " more: " + escaped(report_text_at(others, "cause")) +
            "</p>\n";
  for (const ReportJson& one : report_value(round, "stragglers")) {
    if (const std::string straggler = straggler_text(one); !straggler.empty())
      html += "<p>straggler: " + escaped(straggler) + "</p>\n";
  }
  if (const std::int64_t lost = report_integer_at(round, "steps_lost"); lost > 0)
    html += "<p>" + format_count(lost) + " steps were repeated</p>\n";
  const std::string decision = report_text_at(round, "decision"), why = report_text_at(round, "why");
  if (!decision.empty()) html += "<p>then: " + escaped(decision) + (why.empty() ? "" : " (" + escaped(why) + ")") + "</p>\n";
  return html + "</details>\n";
}

// Returns the step of the failed worker, or the highest step that the round has reached.
std::optional<double> step_of_failure(const ReportJson& round) {
  for (const ReportJson* step :
       {&report_value(report_value(round, "first_cause"), "step"), &report_value(round, "reached_step")}) {
    if (step->is_number()) return report_number(*step);
  }
  return std::nullopt;
}

}  // namespace

std::string time_line_html(const std::vector<RoundSpan>& rounds) {
  if (rounds.empty()) return {};
  const std::int64_t begin = first_of(rounds, "a timeline has no rounds").begin_ns;
  TimeScale scale{.begin_ns = begin, .end_ns = begin + 1};
  for (const RoundSpan& round : rounds) scale.end_ns = std::max(scale.end_ns, round.end_ns);
  const TimeUnit unit = unit_of_time(scale.seconds());
  std::string bars, marks;
  bool any_lost = false, any_kept = false;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    bars += bar_of_round(rounds[i], scale);
    // If surviving ranks kept their state, the next round continues without lost work, so the mark gets a different colour.
    const bool kept = i + 1 < rounds.size() && keeps_state(*rounds[i + 1].round);
    if (!rounds[i].failed) continue;
    (kept ? any_kept : any_lost) = true;
    marks += mark_of_failure(rounds[i], kept, scale);
  }
  return "<svg class=\"timeline\" role=\"img\" aria-label=\"timeline of the rounds\">\n" + bars + axis_of_time(scale, unit) +
         marks + "</svg>\n<p class=\"legend\"><span>" + unit.name + " since " + local_time(begin) + "</span>" +
         (any_lost ? "<span>" + std::string(kFailureKey) + "failure</span>" : "") +
         (any_kept ? "<span>" + std::string(kKeptKey) + "failure whose work was kept</span>" : "") + "</p>\n";
}

std::string rounds_html(const std::vector<RoundSpan>& rounds) {
  std::string html;
  for (const RoundSpan& span : rounds) html += round_html(span);
  return html;
}

std::vector<ChartMark> failure_marks(const std::vector<RoundSpan>& rounds) {
  std::vector<ChartMark> marks;
  for (const RoundSpan& span : rounds) {
    const std::optional<double> step = span.failed ? step_of_failure(*span.round) : std::nullopt;
    if (step) marks.push_back({ChartMark::Kind::kFailure, *step, failure_title(report_value(*span.round, "first_cause"))});
  }
  return marks;
}

}  // namespace ddprun
