// The order of an inquiry's timers, on a real io_context.
#include "launcher/hang/hang_inquiry.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// The last answer comes in the same turn of the loop in which the time for answers runs out. When the first handler runs, the
// second timer's handler is already in the queue. By then it belongs to an older timer and does nothing, because messages next
// to the answer may show progress. HangState's own guard is tested in hang_state_test.cpp.
TEST(HangInquiry, AnAnswerAtTheLastMomentIsJudgedOnce) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);  // no stack tool runs meanwhile
  boost::asio::io_context io(1);
  HangSettings settings{.channel = true, .answer_time = milliseconds(20)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(1));
  bool asked = false;
  bool answered = false;
  int told = 0;
  HangInquiry::Hooks hooks;
  hooks.matters = [] { return true; };
  hooks.workers = [] { return std::vector<pid_t>{::getpid()}; };
  hooks.ask = [&](int) { asked = true; };
  hooks.found = [&](const std::vector<HangFinding>& findings) {
    ++told;
    EXPECT_EQ(findings.size(), 1u);
  };
  HangInquiry inquiry(io, settings, std::move(hooks));
  inquiry.begin_round({.workers = 1});
  while (!asked) io.run_one();

  boost::asio::steady_timer answer(io, milliseconds(1));  // due before the inquiry's own timer, and handled together with it
  answer.async_wait([&](const boost::system::error_code&) {
    inquiry.heard(0, channel::Position{.phase = channel::Phase::kRunning, .step = 7, .stage = channel::Stage::kLoading});
    answered = true;
  });
  std::this_thread::sleep_for(2 * settings.answer_time);  // the loop is blocked until both are due
  while (!answered) io.run_one();
  io.run_one();  // the handler that was already in the queue
  EXPECT_EQ(told, 0) << "an older timer's handler has judged";
  while (told == 0) io.run_one();
  io.poll();
  EXPECT_EQ(told, 1);
  ::setenv("PATH", path.c_str(), 1);
}

// Two ranks of a script. Once they report steps, their output does not count as progress, and they are queried for their
// position.
TEST(HangInquiry, AScriptThatTellsItsStepsIsBlamedByThem) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  boost::asio::io_context io(1);
  HangSettings settings{.answer_time = milliseconds(10000)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(1));
  std::vector<int> asked;
  std::vector<HangFinding> found;
  HangInquiry::Hooks hooks;
  hooks.matters = [] { return true; };
  hooks.workers = [] { return std::vector<pid_t>{::getpid(), ::getpid()}; };
  hooks.ask = [&](int rank) { asked.push_back(rank); };
  hooks.found = [&](std::vector<HangFinding> findings) { found = std::move(findings); };
  HangInquiry inquiry(io, settings, std::move(hooks));
  inquiry.begin_round({.workers = 2});
  inquiry.heard(0, channel::Progress{.step = 18});
  inquiry.heard(1, channel::Progress{.step = 17});
  while (asked.size() < 2) {
    io.run_one();
    for (const int rank : {0, 1}) inquiry.printed(rank);
  }
  for (const int rank : {0, 1}) {
    inquiry.heard(rank,
                  channel::Position{.phase = channel::Phase::kRunning, .step = 18 - rank, .stage = channel::Stage::kSomewhere});
  }
  while (found.empty()) io.run_one();
  EXPECT_FALSE(found[0].blame.has_value());
  ASSERT_TRUE(found[1].blame.has_value());
  EXPECT_NE(found[1].blame->find("it is in step 18; rank 0 waits in step 19"), std::string::npos) << *found[1].blame;
  EXPECT_NE(found[1].blame->find("no progress for"), std::string::npos) << *found[1].blame;
  ::setenv("PATH", path.c_str(), 1);
}

// It makes many steps and reports few. Its answer shows a new step, so there is no hang.
TEST(HangInquiry, AScriptWhoseAnswerShowsAnotherStepGoesOn) {
  boost::asio::io_context io(1);
  HangSettings settings{.answer_time = milliseconds(10000)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(20));
  int asked = 0;
  HangInquiry::Hooks hooks;
  hooks.matters = [] { return true; };
  hooks.workers = [] { return std::vector<pid_t>{::getpid()}; };
  hooks.ask = [&](int) { ++asked; };
  hooks.found = [](const std::vector<HangFinding>&) { FAIL() << "it has moved"; };
  HangInquiry inquiry(io, settings, std::move(hooks));
  inquiry.begin_round({.workers = 1});
  inquiry.heard(0, channel::Progress{.step = 1});
  for (int question = 1; question <= 3; ++question) {
    while (asked < question) io.run_one();
    inquiry.heard(
        0, channel::Position{.phase = channel::Phase::kRunning, .step = 1 + question, .stage = channel::Stage::kSomewhere});
  }
}

// If one of them reports no steps, no query is sent, because positions could not be compared.
TEST(HangInquiry, AScriptWhoseRanksDoNotAllTellTheirStepsIsJudgedAsBefore) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  boost::asio::io_context io(1);
  HangSettings settings{.answer_time = milliseconds(1)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(1));
  std::vector<HangFinding> found;
  HangInquiry::Hooks hooks;
  hooks.matters = [] { return true; };
  hooks.workers = [] { return std::vector<pid_t>{::getpid(), ::getpid()}; };
  hooks.ask = [](int rank) { FAIL() << "rank " << rank << " was asked"; };
  hooks.found = [&](std::vector<HangFinding> findings) { found = std::move(findings); };
  HangInquiry inquiry(io, settings, std::move(hooks));
  inquiry.begin_round({.workers = 2});
  inquiry.heard(1, channel::Progress{.step = 17});
  while (found.empty()) io.run_one();
  EXPECT_NE(found[0].blame.value_or("").find("is silent, as all workers here are"), std::string::npos);
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace ddprun
