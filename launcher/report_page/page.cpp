// Implementation of page.hpp. All text that comes from a run is escaped, and the page contains no external links.
#include "launcher/report_page/page.hpp"

#include <cctype>
#include <vector>

#include "common/base/error.hpp"
#include "common/system/local_time.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/report/report_metrics.hpp"
#include "launcher/report_page/chart.hpp"
#include "launcher/report_page/page_rounds.hpp"
#include "launcher/report_page/page_style.hpp"
#include "launcher/report_page/page_time.hpp"
#include "launcher/report_page/page_workers.hpp"
#include "launcher/report_page/plot_area.hpp"

namespace ddprun {
namespace {

using svg::escaped;

std::string capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string metric_row(const std::string& name, const std::string& value) {
  return value.empty() ? "" : "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
}

std::string metrics_table(const ReportJson& report, const ReportMetrics& report_metrics, const StepParts& steps) {
  std::string html = "<h2>Summary</h2>\n<table>\n";
  html += metric_row("run directory", report_text_at(report, "run_dir"));
  if (report_value(report, "last_step").is_number())
    html += metric_row("last step", format_count(report_integer_at(report, "last_step")));
  if (const ReportJson& evaluation = report_value(report, "evaluation"); evaluation.is_object())
    html += metric_row("evaluation", metrics_text(evaluation_metrics(evaluation)));
  html += metric_row("restarts", std::to_string(report_integer_at(report_value(report, "restarts"), "used")));
  for (const auto& [cause, count] : report_metrics.causes) html += metric_row("failed by " + cause, format_count(count));
  for (const auto& [rank, count] : report_metrics.ranks) html += metric_row("failed first: " + rank, format_count(count));
  if (report_metrics.steps_lost > 0)
    html += metric_row(
        "steps lost", format_count(report_metrics.steps_lost) + ", " + format_duration(report_metrics.lost_s) + " of training");
  html += metric_row("goodput", goodput_of(report_metrics));
  html += metric_row("peak memory", steps.memory_text());
  html += metric_row("skipped", steps.skipped_text());
  return html + "</table>\n";
}

// Returns the head of the page. Its security policy lets a browser load nothing, and run only the page's own script.
std::string head_html(const std::string& title, PageKind kind) {
  const bool has_script = kind != PageKind::kStays;
  std::string head =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'";
  if (has_script) head += std::string("; script-src '") + kPageScriptDigest + "'";
  head += "\">\n";
  if (kind == PageKind::kReloads)
    head += "<meta http-equiv=\"refresh\" content=\"" + std::to_string(kReloadInterval.count()) + "\">\n";
  return head + "<title>" + escaped(title.empty() ? "ddprun" : title) + "</title>\n<style>" + kPageStyle +
         "</style>\n</head>\n";
}

std::string end_html(const ReportJson& exit) {
  const bool good = report_integer_at(exit, "code", -1) == 0;
  return std::string("<p class=\"end ") + (good ? "good" : "bad") + "\">" + escaped(exit_text(exit)) + "</p>\n";
}

std::string charts_html(const Curves& curves, const std::vector<RoundSpan>& rounds) {
  std::vector<ChartMark> marks = failure_marks(rounds);
  for (const double step : curves.resumed)
    marks.push_back({ChartMark::Kind::kResumed, step, "resumed at step " + svg::decimal(step)});
  std::string charts = chart_html("Loss", "", "loss", curves.loss, marks) +
                       chart_html("Throughput", unit_of_metric("samples_per_s"), "all workers", curves.speed, marks);
  for (const auto& [metric, points] : curves.evaluated)
    charts += chart_html(capitalised(metric), unit_of_metric(metric), metric, points, marks);
  return charts.empty() ? "" : "<h2>Curves</h2>\n<div class=\"charts\">\n" + charts + "</div>\n";
}

std::string foot_html(const ReportJson& report, const PageInput& input) {
  std::string text = "made by ddprun " + report_text_at(report, "ddprun");
  if (input.live != nullptr) text += " at " + local_time(input.live->now_ns);
  if (input.kind == PageKind::kReloads)
    text += "; reloads every " + std::to_string(kReloadInterval.count()) + " s until the job ends";
  std::string foot = "<p class=\"small\">" + escaped(text) + "</p>\n";
  if (input.kind != PageKind::kStays) foot += std::string("<script>") + kPageScript + "</script>\n";
  return foot + "</body>\n</html>\n";
}

}  // namespace

std::string report_page(const PageInput& input) {
  const ReportJson report = ReportJson::parse(input.report, nullptr, false);
  if (!report.is_object() || !report_value(report, "rounds").is_array())
    throw UsageError(input.name + " is not a ddprun report");
  const ReportMetrics metrics = metrics_of(report, input.live != nullptr ? std::optional(input.live->now_ns) : std::nullopt);
  const std::string title = report_text_at(report, "title");
  std::string page = head_html(title, input.kind) + "<body>\n<h1>" + escaped(title) + "</h1>\n";
  page += input.live != nullptr ? live_state_html(*input.live) : end_html(report_value(report, "exit"));
  if (input.live != nullptr) page += workers_html(*input.live);
  if (!metrics.rounds.empty()) page += "<h2>Rounds</h2>\n" + time_line_html(metrics.rounds) + rounds_html(metrics.rounds);
  if (input.live != nullptr) page += stragglers_html(metrics);
  page += charts_html(input.curves, metrics.rounds);
  page += time_html(metrics, input.curves.parts);
  page += metrics_table(report, metrics, input.curves.parts);
  return page + foot_html(report, input);
}

}  // namespace ddprun
