// Commands that run for too long, with a short limit. What they are told: whole programs,
// tests/whole_program/test_event_commands.py.
#include "launcher/beside/event_commands.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ddprun
