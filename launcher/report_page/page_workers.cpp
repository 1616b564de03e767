#include "launcher/report_page/page_workers.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "launcher/report_page/svg.hpp"

namespace ddprun {
namespace {

using svg::escaped;

struct WorkerColumn {
  const char* heading;
  std::string (*text)(const LiveWorker& worker);
};
constexpr WorkerColumn kWorkerColumns[] = {
    {"rank", [](const LiveWorker& worker) { return worker.texts.rank; }},
    {"node", [](const LiveWorker& worker) { return worker.node; }},
    {"state", [](const LiveWorker& worker) { return worker.texts.state; }},
    {"step", [](const LiveWorker& worker) { return worker.texts.step; }},
    {"last message", [](const LiveWorker& worker) { return worker.texts.silent.empty() ? "" : worker.texts.silent + " ago"; }},
    {"own step time", [](const LiveWorker& worker) { return worker.texts.own; }},
    {"waiting per step", [](const LiveWorker& worker) { return worker.texts.waiting; }},
    {"memory", [](const LiveWorker& worker) { return worker.texts.memory; }},
    {"GPU", [](const LiveWorker& worker) { return worker.texts.gpu; }},
    {"pid", [](const LiveWorker& worker) { return worker.texts.pid; }},
    {"log", [](const LiveWorker& worker) { return worker.log; }}};

std::string paragraph(const char* kind, const std::string& text) {
  return text.empty() ? "" : std::string("<p class=\"") + kind + "\">" + escaped(text) + "</p>\n";
}

}  // namespace

std::string live_state_html(const LiveJob& job) {
  std::string html = paragraph("end good", job.state) + paragraph("progress", job.progress);
  if (job.steps_total > 0) {
    const std::int64_t done = std::clamp<std::int64_t>(job.step, 0, job.steps_total);
    html += "<progress max=\"" + std::to_string(job.steps_total) + "\" value=\"" + std::to_string(done) + "\"></progress>\n";
  }
  if (!job.last_failure.empty()) html += paragraph("bad", "last failure: " + job.last_failure);
  return html + paragraph("bad", job.note);
}

std::string workers_html(const LiveJob& job) {
  if (job.workers.empty()) return {};
  std::vector<WorkerColumn> shown;
  for (const WorkerColumn& column : kWorkerColumns) {
    if (std::ranges::any_of(job.workers, [&](const LiveWorker& worker) { return !column.text(worker).empty(); }))
      shown.push_back(column);
  }
  std::string html = "<h2>Workers</h2>\n<div class=\"wide\"><table class=\"workers\">\n<tr>";
  for (const WorkerColumn& column : shown) html += std::string("<th>") + column.heading + "</th>";
  html += "</tr>\n";
  for (const LiveWorker& worker : job.workers) {
    html += "<tr>";
    for (const WorkerColumn& column : shown) html += "<td>" + escaped(column.text(worker)) + "</td>";
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string stragglers_html(const ReportMetrics& report) {
  std::map<std::pair<std::int64_t, std::string>, std::string> newest;  // key: rank and kind
  if (!report.rounds.empty() && report.rounds.back().runs) {
    for (const ReportJson& one : report_value(*report.rounds.back().round, "stragglers"))
      newest[{report_integer_at(one, "rank", -1), report_text_at(one, "kind")}] = straggler_text(one);
  }
  std::string items;
  for (const auto& [rank, text] : newest) {
    if (!text.empty()) items += "<li>" + escaped(text) + "</li>\n";
  }
  return "<h2>Stragglers</h2>\n" +
         (items.empty() ? "<p>no rank is slower than the others now</p>\n" : "<ul>\n" + items + "</ul>\n");
}

}  // namespace ddprun
