// Tests the page of a running job, and the charts of the page: axes, legends and marks.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/report_page/chart.hpp"
#include "launcher/report_page/page.hpp"
#include "launcher/report_page/page_rounds.hpp"
#include "launcher/report_page/page_style.hpp"
#include "launcher/report_page/plot_area.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kPageSecond = 1'000'000'000;

// A report of a job whose first round failed at step 41, and whose second round started at second 120 and is still running.
const char* const kRunning = R"({"title": "digits", "ddprun": "0.1.0", "exit": null, "last_step": 50,
  "invocations": [{"number": 0}], "restarts": {"used": 1}, "time": {"training_s": 90, "restart_s": 10},
  "rounds": [
    {"round": 0, "invocation": 0, "started_ns": 0, "ended_ns": 100000000000, "world_size": 2, "reached_step": 40,
     "first_cause": {"rank": 1, "host": "b", "cause": "signal", "signal": 9, "signal_name": "SIGKILL", "step": 41},
     "consequences": [], "decision": "restart", "why": "restart 1 of 3"},
    {"round": 1, "invocation": 0, "started_ns": 120000000000, "ended_ns": null, "world_size": 2, "first_cause": null,
     "stragglers": [
       {"rank": 0, "kind": "compute", "ended": false, "step": 42, "own_s": 0.05, "others_s": 0.03},
       {"rank": 1, "kind": "compute", "ended": false, "step": 43, "own_s": 0.06, "others_s": 0.03},
       {"rank": 0, "kind": "compute", "ended": true, "step": 44, "own_s": 0.03, "others_s": 0.03}]}]})";

const char* const kStatus = R"({"title": "digits", "host": "<a>", "state": "running", "seconds": 200, "restart_count": 1,
  "max_restarts": 3, "last_failure": "rank 1: signal 9",
  "progress": {"step": 50, "steps_total": 200, "line": "epoch 1/4  step 50/200  12 s left"},
  "workers": [
    {"rank": 0, "pid": 70, "state": "running", "phase": "evaluating", "step": 1050, "silent_s": 0.5, "own_s": 0.0412,
     "waiting_s": 0.001, "memory_bytes": 432013312,
     "gpu": {"percent": 87, "memory_used_bytes": 12884901888, "memory_total_bytes": 85899345920}},
    {"rank": 1, "pid": 71, "state": "ended", "how_it_ended": "signal 9", "step": null, "memory_bytes": null, "gpu": null}]})";

std::string live_page(const LiveJob* live, PageKind kind, const std::string& metrics = {}) {
  std::istringstream lines(metrics);
  const Curves curves = curves_of(lines);
  return report_page({.report = kRunning, .curves = curves, .name = "report.json", .live = live, .kind = kind});
}

void expect_parts(const std::string& page, const std::vector<const char*>& parts) {
  for (const char* part : parts) EXPECT_NE(page.find(part), std::string::npos) << part << " is not in\n" << page;
}

void expect_none(const std::string& page, const std::vector<const char*>& parts) {
  for (const char* part : parts) EXPECT_EQ(page.find(part), std::string::npos) << part << " is in\n" << page;
}

std::size_t count_of(const std::string& page, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++count;
  return count;
}

TEST(LivePage, ShowsWorkersProgressAndFailures) {
  const LiveJob live = live_job_of({nlohmann::json::parse(kStatus)}, {{0, "logs/round-001/rank-00000"}}, 200 * kPageSecond);
  const std::string page = live_page(&live, PageKind::kReloads);
  expect_parts(page, {"running for 3 min 20 s, 1 of 3 restarts used", "epoch 1/4  step 50/200  12 s left",
                      "<progress max=\"200\" value=\"50\">", "last failure: rank 1: signal 9",
                      "<td>0</td><td>&lt;a&gt;</td><td>evaluating</td><td>1,050</td><td>0.5 s ago</td><td>41.2 ms</td>"
                      "<td>1.0 ms</td><td>412 MiB</td><td>87 %, 12.0 of 80.0 GiB</td><td>70</td>"
                      "<td>logs/round-001/rank-00000</td>",
                      "<td>1</td><td>&lt;a&gt;</td><td>signal 9</td><td></td>"});
  expect_none(page, {"still running, or killed"});
}

TEST(LivePage, OmitsColumnsWithoutValues) {
  const LiveJob live =
      live_job_of({nlohmann::json::parse(R"({"workers": [{"rank": 0, "pid": 70, "state": "running"}]})")}, {}, 0);
  const std::string page = live_page(&live, PageKind::kReloads);
  expect_parts(page, {"<tr><th>rank</th><th>state</th><th>pid</th></tr>", "<tr><td>0</td><td>running</td><td>70</td></tr>"});
}

TEST(LivePage, TheNewestRoundRunsUntilNow) {
  const LiveJob live = live_job_of({nlohmann::json::parse(kStatus)}, {}, 200 * kPageSecond);
  expect_parts(live_page(&live, PageKind::kReloads), {"1 min 20 s until now, 2 workers"});
  expect_none(live_page(nullptr, PageKind::kLast), {"until now"});
}

TEST(LivePage, ShowsOnlyRanksThatAreStragglersNow) {
  const LiveJob live = live_job_of({nlohmann::json::parse(kStatus)}, {}, 200 * kPageSecond);
  const std::string page = live_page(&live, PageKind::kReloads);
  expect_parts(page, {"<li>rank 1, compute: 60.0 ms per step, the others 30.0 ms, at step 43</li>",
                      "<p>straggler: rank 0, compute: 50.0 ms per step"});  // the second one is in the block of the round
  EXPECT_EQ(count_of(page, "<li>"), 1u);
}

TEST(LivePage, ReloadsUntilTheLastPage) {
  const LiveJob live = live_job_of({nlohmann::json::parse(kStatus)}, {}, 200 * kPageSecond);
  const std::string script = std::string("<script>") + kPageScript + "</script>";
  const std::string reloads = live_page(&live, PageKind::kReloads), last = live_page(nullptr, PageKind::kLast),
                    stays = live_page(nullptr, PageKind::kStays);
  expect_parts(reloads, {"<meta http-equiv=\"refresh\" content=\"5\">", script.c_str(), "default-src 'none'"});
  expect_parts(last, {script.c_str(), "default-src 'none'"});
  expect_none(last, {"\"refresh\""});
  expect_parts(stays, {"default-src 'none'"});
  expect_none(stays, {"\"refresh\"", "<script", "script-src"});
}

TEST(LivePage, ANodeThatDoesNotAnswerLeavesANote) {
  LiveJob live = live_job_of({nlohmann::json::parse(R"({"host": "b", "workers_left_out": 120, "workers": []})")}, {}, 0);
  live.note = "1 of 2 nodes have not answered in time";
  expect_parts(live_page(&live, PageKind::kReloads), {"1 of 2 nodes have not answered", "<td>120 workers</td><td>b</td>"});
  expect_parts(live_page(nullptr, PageKind::kStays), {"still running, or killed"});
}

TEST(Page, AFailureIsAMarkAndNotAnArea) {
  const std::string page = live_page(nullptr, PageKind::kStays);
  EXPECT_EQ(count_of(page, "<rect class=\"round\""), 2u);
  expect_parts(page, {"<title>round 0: rank 1 on b: signal, SIGKILL at step 41</title></path></svg>", "seconds since ",
                      "failure</span>"});
}

TEST(Page, ChartsMarkFailuresAndResumedSteps) {
  std::string metrics;
  for (int step = 10; step <= 40; step += 10)
    metrics += R"({"event":"step","step":)" + std::to_string(step) + R"(,"loss":1.5})" + "\n";
  metrics += R"({"event":"restart","step":30})";
  const std::string page = live_page(nullptr, PageKind::kStays, metrics + "\n");
  expect_parts(page,
               {"<h3>Loss</h3>", "text-anchor=\"middle\">step</text>", "<title>rank 1 on b: signal, SIGKILL at step 41</title>",
                "<title>resumed at step 30</title>", "resumed at this step</span>"});
}

TEST(Page, TheTimeIsABarWithALegend) {
  const std::string page =
      live_page(nullptr, PageKind::kStays,
                R"({"event":"step","step":1,"loss":1,"data_ms":1,"forward_ms":2,"backward_ms":5,"waiting_ms":1,)"
                R"("optimizer_ms":1,"rest_ms":0})"
                "\n");
  expect_parts(page, {"Where the time goes", "<rect class=\"part-0\" x=\"0%\" width=\"90%\"", "training: 1 min 30 s, 90.0 %",
                      "lost to restarts: 10 s, 10.0 %", "step time: 10 ms: data 10 %"});
}

std::string small_chart(const std::vector<svg::Point>& points, const std::vector<ChartMark>& marks = {}) {
  return chart_html("Throughput", "samples/s", "all workers", points, marks);
}

TEST(Chart, HasUnitTicksAndALegendBelow) {
  const std::string chart = small_chart({{1, 100}, {1'500'000, 2'000'000}});
  expect_parts(chart, {"<h3>Throughput (samples/s)</h3>", ">500000<", ">1M<", ">1.5M<", "text-anchor=\"middle\">step</text>"});
  EXPECT_GT(chart.find("class=\"legend\""), chart.find("<polyline"));
  EXPECT_GT(chart.find("all workers"), chart.find("</svg>"));
  expect_none(chart, {"class=\"failure\"", "class=\"resumed\""});
}

TEST(Chart, HasNoTicksBetweenSteps) {
  const std::string chart = small_chart({{1, 7}, {2, 9}});
  expect_parts(chart, {"text-anchor=\"middle\">1</text>", "text-anchor=\"middle\">2</text>"});
  expect_none(chart, {"text-anchor=\"middle\">1.5</text>"});
}

TEST(Chart, OmitsMarksBeforeTheFirstPointAndShowsLaterOnes) {
  using Kind = ChartMark::Kind;
  const std::vector<ChartMark> marks{
      {Kind::kFailure, 5, "early"}, {Kind::kFailure, 45, "late"}, {Kind::kResumed, 30, "middle"}};
  const std::string chart = small_chart({{10, 1}, {40, 2}}, marks);
  expect_parts(chart, {"<title>late</title>", "<title>middle</title>"});
  expect_none(chart, {"early"});
}

TEST(Chart, NeedsTwoPoints) {
  EXPECT_EQ(small_chart({}), "");
  EXPECT_EQ(small_chart({{1, 2}}), "");
}

TEST(PlotArea, NumbersOfTicksAreShort) {
  EXPECT_EQ(axis_number(0.25), "0.25");
  EXPECT_EQ(axis_number(200000), "200000");
  EXPECT_EQ(axis_number(-2.5e6), "-2.5M");
  EXPECT_EQ(axis_number(4e10), "40G");
  EXPECT_EQ(axis_number(3e12), "3T");
}

TEST(PlotArea, MetricsHaveUnits) {
  EXPECT_EQ(unit_of_metric("samples_per_s"), "samples/s");
  EXPECT_EQ(unit_of_metric("peak_memory_bytes"), "bytes");
  EXPECT_EQ(unit_of_metric("forward_ms"), "ms");
  EXPECT_EQ(unit_of_metric("accuracy"), "fraction");
  EXPECT_EQ(unit_of_metric("loss"), "");
}

}  // namespace
}  // namespace ddprun
