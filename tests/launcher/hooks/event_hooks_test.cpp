// Tests commands for events (--on-failure, --on-checkpoint): long commands, queued commands, and a lack of free descriptors.
// tests/whole_program/test_event_commands.py tests the environment variables that the commands receive.
#include "launcher/hooks/event_hooks.hpp"

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

TEST(EventHooks, ALongCommandIsKilledAndTheNextStarts) {
  boost::asio::io_context io{1};
  std::vector<std::string> notices;
  EventHooks commands(io,
                      {.on_checkpoint = "[ $DDPRUN_EVENT_STEP = 2 ] && exit 5; sleep 1000", .command_timeout = milliseconds(1)},
                      [&notices](const std::string& text) { notices.push_back(text); });
  for (const std::int64_t step : {1, 1, 2}) commands.on(WorkerReported{0, channel::CheckpointPublished{.step = step}, 0});
  io.run();
  ASSERT_GE(notices.size(), 3U);
  EXPECT_EQ(notices[0], "--on-checkpoint has run for 0.001 s: it is killed");
  EXPECT_EQ(notices[1], "--on-checkpoint ended by signal 9");
}

// The failure's command exits only after the command for the second checkpoint has run. The second command is queued behind
// the command for the first checkpoint. So the test passes only if queued commands also run at the end of the job.
TEST(EventHooks, WaitingCommandsOfBothKindsRunAtTheEnd) {
  const std::filesystem::path done = std::filesystem::temp_directory_path() / ("done-" + std::to_string(::getpid()));
  ::setenv("DDPRUN_TEST_DONE", done.c_str(), 1);
  boost::asio::io_context io{1};
  std::vector<std::string> notices;
  EventHooks commands(io,
                      {.on_failure = "until [ -e $DDPRUN_TEST_DONE ]; do sleep 0.01; done",
                       .on_checkpoint = "[ $DDPRUN_EVENT_STEP = 1 ] || : > $DDPRUN_TEST_DONE",
                       .end_timeout = std::chrono::seconds(20)},
                      [&notices](const std::string& text) { notices.push_back(text); });
  commands.on(RoundFailed{});
  for (const std::int64_t step : {1, 2}) commands.on(WorkerReported{0, channel::CheckpointPublished{.step = step}, 0});
  commands.finish();
  EXPECT_TRUE(std::filesystem::remove(done));
  EXPECT_TRUE(notices.empty());
}

// Returns the children of this thread, including children that have exited but are not reaped. Other tests may have left
// children, so a test compares two results.
std::string children_of_this_thread() {
  std::ifstream in("/proc/thread-self/children");
  return {std::istreambuf_iterator<char>(in), {}};
}

// If no descriptor is free, the agent cannot watch the command's process, so it must not start the command.
TEST(EventHooks, WithoutDescriptorsNoCommandStarts) {
  boost::asio::io_context io{1};
  std::vector<std::string> notices;
  EventHooks commands(io, {.on_failure = "sleep 1000"}, [&notices](const std::string& text) { notices.push_back(text); });
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
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0], "--on-failure could not be started: Too many open files");
  EXPECT_EQ(children_of_this_thread(), children);
  commands.finish();
}

// The agent reserves the master port with an abstract socket. If a command inherited that socket, the port would stay reserved,
// and the next round could not use it.
TEST(EventHooks, ACommandInheritsNoAgentDescriptor) {
  boost::asio::io_context io{1};
  EventHooks commands(io, {.on_failure = ":"}, [](const std::string&) {});
  for (int i = 0; i < 50; ++i) {  // repeated, because a descriptor copy that is closed too late is visible only in some runs
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
