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

// The last answer comes in the very turn of the loop in which the time for answers runs out: the second timer's handler is in
// the queue already when the first one is served.
TEST(HangInquiry, AnAnswerAtTheLastMomentIsJudgedOnce) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);  // no tool that takes stacks meanwhile
  boost::asio::io_context io(1);
  HangSettings settings{.channel = true, .answer_time = milliseconds(20)};
  settings.limits.watch = true;
  settings.limits.given.fill(milliseconds(1));
  bool asked = false;
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

  boost::asio::steady_timer answer(io, milliseconds(1));  // due before the inquiry's own timer, and served with it
  answer.async_wait([&](const boost::system::error_code&) {
    inquiry.heard(0, channel::Position{.phase = channel::Phase::kRunning, .step = 7, .stage = channel::Stage::kLoading});
  });
  std::this_thread::sleep_for(2 * settings.answer_time);  // the loop is held up until both are due
  while (told == 0) io.run_one();
  io.poll();
  EXPECT_EQ(told, 1);
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace ddprun
