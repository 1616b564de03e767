// Tests HangMonitor: the order of its timers and messages on a real io_context, and which reports of workers count as
// progress.
#include "launcher/hang/hang_monitor.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// Simulated workers, each with the pid of this process. The two functions receive the monitor's queries to workers, and its
// findings.
struct Workers final : HangMonitor::Agent {
  explicit Workers(std::size_t count) : pids(count, ::getpid()) {}
  bool progress_matters() const override { return true; }
  std::vector<pid_t> worker_pids() const override { return pids; }
  void query_position(int rank) override { query(rank); }
  std::optional<std::uintmax_t> bytes_in_files() const override { return 0; }
  std::optional<StackTool> find_tool(bool python) override { return find_stack_tool(python); }
  void report_hang(std::vector<HangFinding> findings) override { found(std::move(findings)); }

  std::vector<pid_t> pids;
  std::function<void(int rank)> query;
  std::function<void(std::vector<HangFinding>)> found;
};

// A worker's answer and the timeout for answers are due in the same iteration of the event loop. When the answer is handled,
// the timeout's handler is already queued and cannot be cancelled. That handler must have no effect, because messages after the
// answer may still show progress. hang_state_test.cpp tests the same check in HangState.
TEST(HangMonitor, ALateAnswerIsJudgedOnce) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);  // no stack tool is found, so none is started
  boost::asio::io_context io(1);
  HangSettings settings{.channel = true, .answer_time = milliseconds(20)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(1));
  bool queried = false;
  bool answered = false;
  int reported = 0;
  Workers workers(1);
  workers.query = [&](int) { queried = true; };
  workers.found = [&](const std::vector<HangFinding>& findings) {
    ++reported;
    EXPECT_EQ(findings.size(), 1u);
  };
  HangMonitor monitor(io, settings, workers);
  monitor.begin_round({.workers = 1});
  while (!queried) io.run_one();

  boost::asio::steady_timer answer(io, milliseconds(1));  // this answer is due before the timeout for answers
  answer.async_wait([&](const boost::system::error_code&) {
    monitor.on_message(0, channel::Position{.phase = channel::Phase::kRunning, .step = 7, .stage = channel::Stage::kLoading});
    answered = true;
  });
  std::this_thread::sleep_for(2 * settings.answer_time);  // blocks the loop until both timers are due
  while (!answered) io.run_one();
  io.run_one();  // runs the timeout's handler, which was already queued
  EXPECT_EQ(reported, 0) << "an older timer's handler has judged";
  while (reported == 0) io.run_one();
  io.poll();
  EXPECT_EQ(reported, 1);
  ::setenv("PATH", path.c_str(), 1);
}

// A script has two ranks. After both have reported steps, their output no longer counts as progress, and the monitor queries
// their positions instead.
TEST(HangMonitor, AScriptIsJudgedByItsSteps) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  boost::asio::io_context io(1);
  HangSettings settings{.answer_time = milliseconds(10000)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(1));
  std::vector<int> queried;
  std::vector<HangFinding> found;
  Workers workers(2);
  workers.query = [&](int rank) { queried.push_back(rank); };
  workers.found = [&](std::vector<HangFinding> findings) { found = std::move(findings); };
  HangMonitor monitor(io, settings, workers);
  monitor.begin_round({.workers = 2});
  monitor.on_message(0, channel::Progress{.step = 18});
  monitor.on_message(1, channel::Progress{.step = 17});
  while (queried.size() < 2) {
    io.run_one();
    for (const int rank : {0, 1}) monitor.printed(rank);
  }
  for (const int rank : {0, 1}) {
    monitor.on_message(
        rank, channel::Position{.phase = channel::Phase::kRunning, .step = 18 - rank, .stage = channel::Stage::kSomewhere});
  }
  while (found.empty()) io.run_one();
  EXPECT_FALSE(found[0].blame.has_value());
  ASSERT_TRUE(found[1].blame.has_value());
  EXPECT_NE(found[1].blame->find("it is in step 18; rank 0 waits in step 19"), std::string::npos) << *found[1].blame;
  EXPECT_NE(found[1].blame->find("no progress for"), std::string::npos) << *found[1].blame;
  ::setenv("PATH", path.c_str(), 1);
}

// The rank finishes many steps but reports only a few of them. Its answer contains a new step, so the rank does not hang.
TEST(HangMonitor, AnAnswerWithANewStepIsProgress) {
  boost::asio::io_context io(1);
  HangSettings settings{.answer_time = milliseconds(10000)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(20));
  int queried = 0;
  Workers workers(1);
  workers.query = [&](int) { ++queried; };
  workers.found = [](const std::vector<HangFinding>&) { FAIL() << "it has moved"; };
  HangMonitor monitor(io, settings, workers);
  monitor.begin_round({.workers = 1});
  monitor.on_message(0, channel::Progress{.step = 1});
  for (int question = 1; question <= 3; ++question) {
    while (queried < question) io.run_one();
    monitor.on_message(
        0, channel::Position{.phase = channel::Phase::kRunning, .step = 1 + question, .stage = channel::Stage::kSomewhere});
  }
}

// If one of two ranks reports no steps, the positions of the ranks cannot be compared. So no query is sent.
TEST(HangMonitor, WithoutStepsOfAllRanksOutputIsJudged) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  boost::asio::io_context io(1);
  HangSettings settings{.answer_time = milliseconds(1)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(1));
  std::vector<HangFinding> found;
  Workers workers(2);
  workers.query = [](int rank) { FAIL() << "rank " << rank << " was queried"; };
  workers.found = [&](std::vector<HangFinding> findings) { found = std::move(findings); };
  HangMonitor monitor(io, settings, workers);
  monitor.begin_round({.workers = 2});
  monitor.on_message(1, channel::Progress{.step = 17});
  while (found.empty()) io.run_one();
  EXPECT_NE(found[0].blame.value_or("").find("reports nothing, like all other workers on this node"), std::string::npos);
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace ddprun
