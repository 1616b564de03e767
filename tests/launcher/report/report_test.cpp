// Tests report.json over several rounds and invocations, and the texts that are generated from it.
#include "launcher/report/report.hpp"
#include "launcher/report_page/page.hpp"

#include <gtest/gtest.h>

#include <signal.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "common/base/error.hpp"
#include "launcher/report_page/svg.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kReportSecond = 1'000'000'000;

std::string page_of(const std::string& report, const std::string& metrics = {}) {
  std::istringstream lines(metrics);
  const Curves curves = curves_of(lines);
  return report_page({.report = report, .curves = curves, .name = "report.json"});
}

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ddprun_report_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    file_ = folder_ / "report.json";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Report open() { return Report(file_, {"small", "/runs/small", {"ddptrain", "config.json"}, 3, true, false}); }

  Json on_disk() const {
    std::ifstream in(file_);
    return Json::parse(in);
  }

  // Starts two workers at `begin` (in seconds). Rank 0 starts to train one second later.
  static void start_round(Report& report, int round, int restarts, std::int64_t begin) {
    report.on(RoundStarted{round, restarts, 2, begin * kReportSecond});
    for (int rank = 0; rank < 2; ++rank) report.on(WorkerStarted{rank, rank, 100 * (round + 1) + rank, begin * kReportSecond});
    report.on(WorkerReported{0, channel::PhaseChange{channel::Phase::kStarting, 0, 0}, begin * kReportSecond});
    report.on(WorkerReported{0, channel::PhaseChange{channel::Phase::kRunning, 0, 0}, (begin + 1) * kReportSecond});
  }

  static Failure killed(int rank, std::int64_t pid, std::int64_t second) {
    Failure failure;
    failure.cause = Cause::kSignal;
    failure.rank = rank;
    failure.pid = pid;
    failure.status = ExitStatus{0, SIGKILL, false};
    failure.stderr_tail = {"final message", std::string("not UTF-8: \xff")};
    failure.step = 41;
    failure.time_ns = second * kReportSecond;
    return failure;
  }

  fs::path folder_, file_;
};

TEST_F(ReportTest, AnUnfinishedRunHasNoExit) {
  Report report = open();
  report.on(RunStarted{10 * kReportSecond, 2});
  start_round(report, 0, 0, 10);
  EXPECT_TRUE(on_disk()["exit"].is_null());
  EXPECT_EQ(on_disk()["rounds"].size(), 1u);
}

TEST_F(ReportTest, ATemporaryReportIsNotWrittenAfterSuccess) {
  const auto exit_after = [&](int rounds, int exit_code) {
    fs::remove(file_);
    Report report(file_, {"small", "", {"true"}, 3, false, false, ReportFacts::Kept::kUnlessSuccessful});
    report.on(RunStarted{10 * kReportSecond, 2});
    for (int round = 0; round < rounds; ++round) start_round(report, round, round, 10 + 10 * round);
    report.on(RunEnded{exit_code, "why", rounds - 1, 40 * kReportSecond});
    return on_disk()["exit"];
  };
  EXPECT_TRUE(exit_after(1, 0).is_null());
  EXPECT_EQ(exit_after(1, 7)["code"], 7);
  EXPECT_EQ(exit_after(2, 0)["code"], 0);
}

TEST_F(ReportTest, ATemporaryReportDelaysItsFirstWrite) {
  std::vector<std::function<void()>> waiting;
  FileQueue files([](FileQueue::Work then) { then(); }, FileQueue::Mode::kInline);
  const auto opened = [&](ReportFacts::Kept kept) {
    fs::remove(file_);
    auto report = std::make_unique<Report>(file_, ReportFacts{"small", "", {"true"}, 3, false, false, kept});
    report->write_behind(files, {}, [&](std::function<void()> act) { waiting.push_back(std::move(act)); });
    report->on(RunStarted{10 * kReportSecond, 2});
    start_round(*report, 0, 0, 10);
    return report;
  };
  {
    const auto report = opened(ReportFacts::Kept::kUnlessSuccessful);
    EXPECT_FALSE(fs::exists(file_));
    ASSERT_EQ(waiting.size(), 1u);
    waiting[0]();
    EXPECT_TRUE(on_disk()["exit"].is_null());
    start_round(*report, 1, 1, 20);
    EXPECT_EQ(on_disk()["rounds"].size(), 2u);
    EXPECT_EQ(waiting.size(), 1u);
  }
  {
    const auto report = opened(ReportFacts::Kept::kUnlessSuccessful);
    RoundFailed failed{};
    failed.first = killed(0, 100, 12);
    report->on(failed);  // a failure is written without delay
    EXPECT_EQ(on_disk()["rounds"][0]["first_cause"]["rank"], 0);
    fs::remove(file_);
  }
  waiting.back()();  // the Report object that posted this callback no longer exists, so the callback must not write a file
  EXPECT_FALSE(fs::exists(file_));
  opened(ReportFacts::Kept::kAlways);
  EXPECT_TRUE(fs::exists(file_));
}

TEST_F(ReportTest, AStartInASlurmJobHasItsIdAndRestarts) {
  {
    ReportFacts facts{.title = "small", .run_dir = "", .command = {"true"}};
    facts.slurm = SlurmStart{.job = "17_3", .restarts = 2};
    Report report(file_, facts);
    report.on(RunStarted{10 * kReportSecond, 2});
    start_round(report, 0, 0, 10);
    report.on(RunEnded{85, "why", 0, 40 * kReportSecond});
  }
  EXPECT_EQ(on_disk()["invocations"][0]["slurm"]["job"], "17_3");
  EXPECT_EQ(on_disk()["invocations"][0]["slurm"]["restarts"], 2);
  EXPECT_NE(render_report(on_disk().dump(), "x").find("Slurm job 17_3, requeued 2 times before this start"), std::string::npos);
}

TEST_F(ReportTest, ARestartIsTwoRoundsWithCauseAndDecision) {
  Report report = open();
  report.on(RunStarted{10 * kReportSecond, 2});
  start_round(report, 0, 0, 10);
  report.on(WorkerEnded{1, 101, ExitStatus{0, SIGKILL, false}, false, 20 * kReportSecond});
  report.on(RoundFailed{0, killed(1, 101, 20), {}, RoundFailed::Decision::kRestart, "restart 1 of 3", 21 * kReportSecond});
  EXPECT_EQ(on_disk()["rounds"][0]["first_cause"]["signal_name"], "SIGKILL");
  start_round(report, 1, 1, 21);
  report.on(WorkerReported{
      0, channel::EvalResult{.step = 60, .epoch = 2, .figures = {{"loss", 0.25}, {"accuracy", 0.9}}, .samples = 200},
      30 * kReportSecond});
  report.on(WorkerReported{0, channel::CheckpointPublished{.step = 60, .path = "/c", .pause_s = 0.5, .save_s = 1, .bytes = 7},
                           30 * kReportSecond});
  report.on(WorkerReported{0, channel::Progress{.step = 60, .steps_total = 60}, 30 * kReportSecond});
  report.on(RunEnded{0, "done", 1, 32 * kReportSecond});

  const Json document = on_disk();
  EXPECT_EQ(document["rounds"].size(), 2u);
  EXPECT_EQ(document["rounds"][0]["decision"], "restart");
  EXPECT_EQ(document["rounds"][0]["workers"][1]["signal"], SIGKILL);
  EXPECT_EQ(document["rounds"][1]["restart_count"], 1);
  EXPECT_EQ(document["restarts"], (Json{{"used", 1}, {"budget", 3}, {"refilled_by_progress", true}}));
  EXPECT_EQ(document["last_step"], 60);
  EXPECT_EQ(document["evaluation"]["accuracy"], 0.9);
  EXPECT_EQ(document["checkpoints"]["published"], 1);
  EXPECT_EQ(document["exit"], (Json{{"code", 0}, {"why", "done"}}));
  // The round starts at 10 s and trains from 11 s. It fails at 20 s. The next round trains from 22 s to 32 s.
  EXPECT_DOUBLE_EQ(document["time"]["start_s"], 1);
  EXPECT_DOUBLE_EQ(document["time"]["training_s"], 9 + 10);
  EXPECT_DOUBLE_EQ(document["time"]["restart_s"], 2);
}

TEST_F(ReportTest, TheNextInvocationContinuesTheReport) {
  {
    Report first = open();
    first.on(RunStarted{10 * kReportSecond, 2});
    start_round(first, 0, 0, 10);
    first.on(RoundFailed{0, killed(0, 100, 20), {}, RoundFailed::Decision::kGiveUp, "budget of 0 spent", 20 * kReportSecond});
    first.on(RunEnded{137, "rank 0 failed", 0, 21 * kReportSecond});
  }
  Report second = open();
  EXPECT_EQ(second.warning(), "");
  second.on(RunStarted{50 * kReportSecond, 2});
  start_round(second, 1, 0, 50);
  EXPECT_TRUE(on_disk()["exit"].is_null());
  second.on(RunEnded{0, "done", 0, 60 * kReportSecond});
  const Json document = on_disk();
  ASSERT_EQ(document["invocations"].size(), 2u);
  EXPECT_EQ(document["invocations"][0]["exit"]["code"], 137);
  EXPECT_EQ(document["invocations"][1]["exit"]["code"], 0);
  ASSERT_EQ(document["rounds"].size(), 2u);
  EXPECT_EQ(document["rounds"][0]["invocation"], 0);
  EXPECT_EQ(document["rounds"][1]["invocation"], 1);
}

TEST_F(ReportTest, TheNextInvocationReportsAKilledAgent) {
  {
    Report killed = open();
    killed.on(RunStarted{10 * kReportSecond, 2});
    start_round(killed, 0, 0, 10);
  }
  Report next = open();
  EXPECT_NE(next.warning().find("unfinished report"), std::string::npos);
  next.on(RunStarted{20 * kReportSecond, 2});
  next.on(RunEnded{0, "done", 0, 21 * kReportSecond});
  EXPECT_TRUE(on_disk()["invocations"][0]["exit"]["code"].is_null());
  EXPECT_NE(on_disk()["invocations"][0]["exit"]["why"].get<std::string>().find("killed"), std::string::npos);
}

TEST_F(ReportTest, ADamagedReportIsKeptAside) {
  std::ofstream(file_) << "{ half";
  const Report report = open();
  EXPECT_EQ(report.warning(), "report.json was damaged; it is kept as report.json.bad-1");
  EXPECT_TRUE(fs::exists(folder_ / "report.json.bad-1"));
}

TEST_F(ReportTest, TextShowsTheFirstCauseAndTheEnd) {
  Report report = open();
  report.on(RunStarted{10 * kReportSecond, 2});
  start_round(report, 0, 0, 10);
  report.on(RoundFailed{0, killed(1, 101, 20), {}, RoundFailed::Decision::kGiveUp, "budget of 3 spent", 20 * kReportSecond});
  report.on(RunEnded{137, "rank 1 failed: signal 9 (SIGKILL)", 3, 21 * kReportSecond});
  const std::string text = render_report(report.text(), "report.json");
  for (const char* part :
       {"small  /runs/small", "exit code 137: rank 1 failed", "first cause  rank 1 (pid 101): signal 9 (SIGKILL) at step 41",
        "| final message", "decision     give up: budget of 3 spent", "3 used, budget 3"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

TEST_F(ReportTest, EarlyExitsAndPythonErrorsAreKept) {
  Report report = open();
  report.on(RunStarted{10 * kReportSecond, 2});
  start_round(report, 0, 0, 10);
  report.on(WorkerEnded{0, 100, {}, false, 15 * kReportSecond});
  Failure failure = killed(1, 101, 20);
  failure.call_stack = "Traceback:\n  a call\n";
  failure.error_file = "/logs/error.json";
  report.on(RoundFailed{0, failure, {}, RoundFailed::Decision::kGiveUp, "budget of 3 spent", 20 * kReportSecond});
  report.on(RunEnded{137, "x", 3, 21 * kReportSecond});
  const Json round = on_disk()["rounds"][0];
  EXPECT_EQ(round["left_early"], Json{0});
  EXPECT_EQ(round["first_cause"]["call_stack"], "Traceback:\n  a call\n");
  EXPECT_EQ(round["first_cause"]["error_file"], "/logs/error.json");
  const std::string text = render_report(report.text(), "report.json");
  for (const char* part : {"| Traceback:\n", "|   a call\n", "error file: /logs/error.json\n",
                           "left early   rank 0: exit code 0 while others continued\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_EQ(text.find("final message"), std::string::npos);
}

// report.json accounts for the time up to the newest event. The line for a client accounts for the time up to now.
TEST_F(ReportTest, TheLineOfARunningJobHasTheTimeUntilNow) {
  ReportDocument document({"small", "/runs/small", {"ddptrain"}, 3, true, false}, "host", 7, std::nullopt);
  const auto on = [&](const RunEvent& event) { document.on(event, 0, std::numeric_limits<std::int64_t>::max()); };
  on(RunStarted{10 * kReportSecond, 1});
  on(RoundStarted{0, 0, 1, 10 * kReportSecond});
  on(WorkerStarted{0, 0, 100, 10 * kReportSecond});
  on(WorkerReported{0, channel::PhaseChange{channel::Phase::kRunning, 0, 0}, 12 * kReportSecond});
  const std::string line = document.line(32 * kReportSecond, 0);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(Json::parse(line)["time"]["training_s"], 20.0);
  EXPECT_EQ(Json::parse(document.text())["time"]["training_s"], 0.0);
  EXPECT_EQ(Json::parse(document.line(33 * kReportSecond, 3 * kReportSecond))["time"]["training_s"], 18.0);
}

// Round 0 trains for ten seconds from step 0 to 41, saves for two seconds and evaluates for one second. Round 1 resumes at step
// 31.
TEST_F(ReportTest, TimeAndStepsAreAccountedFor) {
  using channel::Phase;
  Report report = open();
  report.on(RunStarted{8 * kReportSecond, 2});
  start_round(report, 0, 0, 10);
  const auto sends = [&](Phase phase, std::int64_t step, std::int64_t second) {
    report.on(WorkerReported{0, channel::PhaseChange{phase, step, 0}, second * kReportSecond});
  };
  sends(Phase::kSaving, 31, 18);
  // Rank 1 is already running and waits for rank 0, which still saves.
  report.on(WorkerReported{1, channel::PhaseChange{Phase::kRunning, 31, 0}, 19 * kReportSecond});
  sends(Phase::kEvaluating, 31, 20);
  sends(Phase::kRunning, 31, 21);
  report.on(WorkerReported{0, channel::Progress{.step = 40, .steps_total = 60}, 23 * kReportSecond});
  report.on(RoundFailed{0, killed(1, 101, 24), {}, RoundFailed::Decision::kRestart, "restart 1 of 3", 25 * kReportSecond});
  report.on(RoundStarted{1, 1, 2, 25 * kReportSecond});
  report.on(WorkerStarted{0, 0, 200, 25 * kReportSecond});
  sends(Phase::kRunning, 31, 26);
  report.on(RunEnded{0, "done", 1, 30 * kReportSecond});

  const Json document = on_disk();
  EXPECT_DOUBLE_EQ(document["time"]["waiting_s"], 2);
  EXPECT_DOUBLE_EQ(document["time"]["start_s"], 1);
  EXPECT_DOUBLE_EQ(document["time"]["checkpoint_s"], 2);
  EXPECT_DOUBLE_EQ(document["time"]["evaluation_s"], 1);
  EXPECT_DOUBLE_EQ(document["time"]["training_s"], 7 + 3 + 4);
  EXPECT_DOUBLE_EQ(document["time"]["restart_s"], 2);
  EXPECT_EQ(document["rounds"][0]["reached_step"], 41);
  EXPECT_EQ(document["rounds"][0]["steps_lost"], 10);
  EXPECT_EQ(document["steps_lost"], 10);
  EXPECT_DOUBLE_EQ(document["time"]["lost_s"], 10.0 * 10 / 41);
  const std::string text = render_report(report.text(), "report.json");
  for (const char* part : {"failures     signal (1); first rank 1 (1)\n", "steps lost   10, 2.4 s of training",
                           "goodput      57.1 % of 22 s", "14 s training, 1.0 s evaluating, 2.0 s checkpoints, 1.0 s starting",
                           "time line    [=", "lost         10 steps, repeated"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

// A script without step reports may spend most of its time on imports. So the report cannot contain its training time.
TEST_F(ReportTest, AScriptThatReportsNoStepHasNoGoodput) {
  Report report = open();
  report.on(RunStarted{8 * kReportSecond, 2});
  start_round(report, 0, 0, 10);
  report.on(RunEnded{0, "done", 0, 40 * kReportSecond});
  const std::string text = render_report(report.text(), "report.json");
  EXPECT_NE(text.find("  time         30 s running, 2.0 s waiting for nodes\n"), std::string::npos) << text;
  const std::string page = page_of(report.text());
  for (const char* part : {"goodput", "training", "starting"}) {
    EXPECT_EQ(text.find(part), std::string::npos) << text;
    EXPECT_EQ(page.find(part), std::string::npos) << page;
  }
}

TEST_F(ReportTest, AReplacingStandbyIsReported) {
  Report report = open();
  report.on(RunStarted{10 * kReportSecond, 2});
  start_round(report, 0, 0, 10);
  report.on(StandbyEnded{301, ExitStatus{.signal = 9}, "", 1, 15 * kReportSecond});
  report.on(StandbyEnded{302, ExitStatus{.code = 2}, "no data set", 2, 16 * kReportSecond});
  report.on(RoundFailed{0, killed(1, 101, 20), {}, RoundFailed::Decision::kRegroup, "restart 1 of 3", 20 * kReportSecond});
  report.on(RoundStarted{.round = 1, .restart_count = 1, .world_size = 2, .time_ns = 20 * kReportSecond, .regroup = true});
  report.on(WorkerStarted{1, 1, 303, 20 * kReportSecond, true});
  report.on(Regrouped{1, {0}, {1}, {1}, 1040, 0.08, 21 * kReportSecond});
  report.on(RunEnded{0, "done", 1, 30 * kReportSecond});
  const Json document = on_disk();
  EXPECT_EQ(document["rounds"][1]["workers"][0]["standby"], true);
  EXPECT_FALSE(document["rounds"][0]["workers"][0].contains("standby"));
  EXPECT_EQ(document["rounds"][1]["regroup"]["by_standby"], Json::array({1}));
  EXPECT_EQ(document["invocations"][0]["standbys_ended"]["count"], 2);
  EXPECT_EQ(document["invocations"][0]["standbys_ended"]["newest"]["exit_code"], 2);
  const std::string text = render_report(report.text(), "x");
  for (const char* part : {"    regrouped    rank 0 kept step 1,040, rank 1 replaced by a standby in 0.08 s\n",
                           "  standbys that ended while they waited: 2, the newest with exit code 2: no data set\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  const std::string page = page_of(report.text());
  EXPECT_NE(page.find("class=\"failure kept\""), std::string::npos) << page;
  EXPECT_NE(page.find("signal, SIGKILL at step 41; its work was kept</title>"), std::string::npos) << page;
  EXPECT_NE(page.find("failure whose work was kept</span>"), std::string::npos) << page;
  EXPECT_EQ(page.find(">failure</span>"), std::string::npos) << page;  // each colour has a legend only if a mark has it
}

TEST_F(ReportTest, ManyRoundsLeaveASmallReport) {
  Report report = open();
  report.on(RunStarted{10 * kReportSecond, 2});
  for (int round = 0; round < 150; ++round) {
    report.on(RoundStarted{round, round, 2, (10 + round) * kReportSecond});
    report.on(
        RoundFailed{round, killed(1, 101, 20), {}, RoundFailed::Decision::kRestart, "again", (11 + round) * kReportSecond});
  }
  const Json document = on_disk();
  ASSERT_EQ(document["rounds"].size(), 100u);
  EXPECT_EQ(document["rounds"][19]["round"], 19);
  EXPECT_EQ(document["rounds"][20]["round"], 70);
  EXPECT_EQ(document["rounds_left_out"], 50);
  EXPECT_EQ(document["failures"], (Json{{"signal", 150}}));
  EXPECT_NE(render_report(report.text(), "x").find("failures     signal (150); first"), std::string::npos);
}

TEST_F(ReportTest, ThePageIsCompleteAndHasNoScripts) {
  Report report = open();
  report.on(RunStarted{10 * kReportSecond, 2});
  start_round(report, 0, 0, 10);
  Failure failure = killed(1, 101, 20);
  failure.message = "<script>alert(1)</script> & more";
  failure.evidence = {"state T"};
  failure.log_path = "/logs/stderr.log";
  failure.log_line = 17;
  report.on(RoundFailed{0, failure, {}, RoundFailed::Decision::kGiveUp, "budget of 3 spent", 20 * kReportSecond});
  report.on(RunEnded{137, "rank 1 failed", 3, 21 * kReportSecond});
  const std::string page =
      page_of(report.text(),
              "{\"event\":\"step\",\"step\":1,\"loss\":2.5,\"samples_per_s\":10}\n{\"event\":\"restart\",\"step\":1}\n"
              "{\"event\":\"step\",\"step\":2,\"loss\":1.5,\"samples_per_s\":11}\nhalf a li");
  for (const char* part : {"<details class=\"failed\" id=", "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more", "state T",
                           "/logs/stderr.log:17", "<polyline", "class=\"resumed\"", "exit code 137: rank 1 failed"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  for (const char* part : {"<script", "http:", "https:", "src=", "href=", "refresh", "script-src"})
    EXPECT_EQ(page.find(part), std::string::npos) << part;
}

TEST(ReportPage, ALongCurveIsThinned) {
  std::ostringstream metrics;
  for (int i = 0; i < 20000; ++i) metrics << R"({"event":"step","step":)" << i << R"(,"loss":)" << i % 7 << "}\n";
  const std::string page = page_of(R"({"rounds": []})", metrics.str());
  EXPECT_LT(page.size(), 60000U);
  EXPECT_NE(page.find("loss, mean of 20 values per point"), std::string::npos);
  EXPECT_THROW(page_of("[]"), UsageError);
  EXPECT_NO_THROW(page_of(R"({"rounds": [{}, 3, "x"], "exit": 3, "time": []})"));
}

TEST(Svg, TicksAreRoundNumbers) {
  using Ticks = std::vector<double>;
  EXPECT_EQ(svg::ticks(0, 10, 5), (Ticks{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(svg::ticks(1, 199, 8), (Ticks{50, 100, 150}));
  EXPECT_EQ(svg::ticks(-0.4, 0.5, 3), (Ticks{0, 0.5}));
  EXPECT_EQ(svg::ticks(3, 3, 5), Ticks{});
  EXPECT_EQ(svg::ticks(0, std::numeric_limits<double>::infinity(), 5), Ticks{});
  for (const auto& [low, high] :
       {std::pair(0.0, 1e-9), std::pair(0.247532, 2.30929), std::pair(-1e12, 3.0), std::pair(1.0, 1e300)}) {
    const std::size_t count = svg::ticks(low, high, 6).size();
    EXPECT_TRUE(count >= 2 && count <= 7) << count << " from " << low << " to " << high;
  }
}

TEST(RenderReport, RefusesOtherDocuments) {
  EXPECT_THROW(render_report("[]", "x"), UsageError);
  EXPECT_THROW(render_report("", "x"), UsageError);
  EXPECT_NO_THROW(render_report(R"({"rounds": [{}, 3, "x"]})", "x"));
}

}  // namespace
}  // namespace ddprun
