// Commands that run too long, with a short limit. tests/whole_program/test_event_commands.py tests the facts that commands
// receive.
#include "launcher/beside/event_commands.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

TEST(EventCommands, OneThatRunsForTooLongIsKilledAndTheNextOneStarts) {
  boost::asio::io_context io{1};
  std::vector<std::string> said;
  EventCommands commands(io,
                         {.on_checkpoint = "[ $DDPRUN_EVENT_STEP = 2 ] && exit 5; sleep 1000", .of_a_command = milliseconds(1)},
                         [&said](const std::string& text) { said.push_back(text); });
  for (const std::int64_t step : {1, 1, 2}) commands.on(WorkerSpoke{0, channel::CheckpointPublished{.step = step}, 0});
  io.run();
  ASSERT_GE(said.size(), 3U);
  EXPECT_EQ(said[0], "--on-checkpoint has run for 0.001 s: it is killed");
  EXPECT_EQ(said[1], "--on-checkpoint ended by signal 9");
}

// The command of the failure ends only after the second checkpoint's command has run, which waits for the first one's.
TEST(EventCommands, AtTheEndNeitherKindKeepsWhatWaitsBehindTheOther) {
  const std::filesystem::path done = std::filesystem::temp_directory_path() / ("done-" + std::to_string(::getpid()));
  ::setenv("DDPRUN_TEST_DONE", done.c_str(), 1);
  boost::asio::io_context io{1};
  std::vector<std::string> said;
  EventCommands commands(io,
                         {.on_failure = "until [ -e $DDPRUN_TEST_DONE ]; do sleep 0.01; done",
                          .on_checkpoint = "[ $DDPRUN_EVENT_STEP = 1 ] || : > $DDPRUN_TEST_DONE",
                          .at_the_end = std::chrono::seconds(20)},
                         [&said](const std::string& text) { said.push_back(text); });
  commands.on(RoundFailed{});
  for (const std::int64_t step : {1, 2}) commands.on(WorkerSpoke{0, channel::CheckpointPublished{.step = step}, 0});
  commands.finish();
  EXPECT_TRUE(std::filesystem::remove(done));
  EXPECT_TRUE(said.empty());
}

// The list includes children that have ended but are not reaped yet. Other tests may have left some.
std::string children_of_this_thread() {
  std::ifstream in("/proc/thread-self/children");
  return {std::istreambuf_iterator<char>(in), {}};
}

// Without a free descriptor the agent could not wait for the end of the process.
TEST(EventCommands, WithoutADescriptorNoneIsStarted) {
  boost::asio::io_context io{1};
  std::vector<std::string> said;
  EventCommands commands(io, {.on_failure = "sleep 1000"}, [&said](const std::string& text) { said.push_back(text); });
  const std::string children = children_of_this_thread();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = ::dup(STDIN_FILENO);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  const rlimit none_left{.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  commands.on(RoundFailed{});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0], "--on-failure could not be started: Too many open files");
  EXPECT_EQ(children_of_this_thread(), children);
  commands.finish();
}

// An inherited descriptor would keep the name of the master port, which the next round needs.
TEST(EventCommands, ACommandInheritsNoDescriptorOfTheAgent) {
  boost::asio::io_context io{1};
  EventCommands commands(io, {.on_failure = ":"}, [](const std::string&) {});
  for (int i = 0; i < 50; ++i) {  // a copy that is closed too late is visible only in some runs
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    commands.on(RoundFailed{});
    ::close(ends[1]);
    char none = 0;
    EXPECT_EQ(::read(ends[0], &none, 1), 0) << "another process can still write to the pipe";
    ::close(ends[0]);
    commands.finish();
  }
}

}  // namespace
}  // namespace ddprun
