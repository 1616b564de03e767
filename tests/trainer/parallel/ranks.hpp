// Runs the body of a test in several real processes, which are the ranks of a job. The parent serves the job's store over
// worker channels:
//
//     TEST(Group, SumsOverRanks) {
//       auto rank = as_rank_of(3);
//       if (!rank) return;          // in the parent: the ranks have ended, and their exit codes were checked
//       ... rank->group ...
//     }
//
// Each rank runs this test program again, with a filter that selects the same test, and with the environment variables of
// torchrun.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/trainer/surroundings/fake_agent.hpp"
#include "trainer/parallel/process_group.hpp"
#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

inline constexpr std::chrono::milliseconds kTestTimeout = std::chrono::seconds(60);

struct Rank {
  WorkerEnvironment environment;
  std::unique_ptr<AgentChannel> channel;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
};

inline std::unique_ptr<Rank> join_as_rank(GroupBreaker* breaker = nullptr,
                                          DdpConfig::Backend backend = DdpConfig::Backend::kGloo) {
  ::signal(SIGPIPE, SIG_IGN);  // ddptrain ignores SIGPIPE as well
  auto rank = std::make_unique<Rank>();
  rank->environment = read_environment();
  if (rank->environment.channel_fd >= 0) {
    rank->channel = std::make_unique<AgentChannel>(rank->environment.channel_fd, channel::Hello{}, nullptr);
  }
  rank->store = make_store(rank->environment, rank->channel.get(), kTestTimeout);
  rank->group = make_process_group(rank->environment, rank->store, c10::kCPU, 0,
                                   {.timeout = kTestTimeout, .backend = backend, .bucket_bytes = 1 << 20, .breaker = breaker});
  return rank;
}

// The expected end of each rank: an exit code, or -N if signal N kills the rank.
using Endings = std::map<int, int>;

inline bool is_rank() {
  return std::getenv("RANK") != nullptr;
}

// The parent calls this. It starts the ranks of the current test, waits for them, and checks how they end. `more` has
// additional environment variables.
inline void start_ranks(int count, const Endings& endings, const std::map<std::string, std::string>& more, bool with_channel) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter = std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
  FakeAgent agent;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < count; ++rank) {
    std::vector<std::string> settings;
    for (char** one = environ; *one; ++one) settings.emplace_back(*one);
    const std::string all = std::to_string(count), own = std::to_string(rank);
    for (const auto& [name, value] : std::map<std::string, std::string>{
             {"RANK", own}, {"LOCAL_RANK", own}, {"WORLD_SIZE", all}, {"LOCAL_WORLD_SIZE", all}, {"OMP_NUM_THREADS", "1"}}) {
      settings.push_back(name + "=" + value);
    }
    for (const auto& [name, value] : more) settings.push_back(name + "=" + value);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int channel_end = -1;
    if (with_channel) {
      constexpr int kChannelFd = 60;
      channel_end = agent.connect();
      posix_spawn_file_actions_adddup2(&actions, channel_end, kChannelFd);
      settings.push_back("DDPRUN_CHANNEL=fd:" + std::to_string(kChannelFd));
    }
    std::vector<char*> environment;
    for (auto& setting : settings) environment.push_back(setting.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe", argument = filter, brief = "--gtest_brief=1";
    std::vector<char*> arguments{program.data(), argument.data(), brief.data(), nullptr};
    pid_t pid = 0;
    ASSERT_EQ(::posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments.data(), environment.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    if (channel_end >= 0) ::close(channel_end);
    pids.push_back(pid);
  }
  for (int rank = 0; rank < count; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(pids[static_cast<std::size_t>(rank)], &status, 0), pids[static_cast<std::size_t>(rank)]);
    const int ending = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    const auto expected = endings.find(rank);
    EXPECT_EQ(ending, expected == endings.end() ? 0 : expected->second) << "rank " << rank << " of " << count;
  }
}

inline std::unique_ptr<Rank> as_rank_of(int count, const Endings& endings = {}, GroupBreaker* breaker = nullptr,
                                        DdpConfig::Backend backend = DdpConfig::Backend::kGloo) {
  if (is_rank()) return join_as_rank(breaker, backend);
  start_ranks(count, endings, {}, true);
  return nullptr;
}

}  // namespace ddprun::trainer
