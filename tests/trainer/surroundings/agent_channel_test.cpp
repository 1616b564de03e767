// Tests the worker's end of the channel with an agent that runs in this process, and the c10d store that uses the channel.
#include "trainer/surroundings/agent_channel.hpp"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/trainer/surroundings/fake_agent.hpp"
#include "trainer/parallel/channel_store.hpp"

namespace ddprun::trainer {
namespace {

using namespace std::chrono_literals;

TEST(AgentChannel, SendsHelloFirstAndClosesOnExec) {
  FakeAgent agent;
  const int fd = agent.connect();
  channel::Hello hello;
  hello.version = "0.1.0";
  hello.pid = 42;
  AgentChannel channel(fd, hello, nullptr);
  EXPECT_EQ(agent.wait_for_message<channel::Hello>().version, "0.1.0");
  EXPECT_EQ(agent.wait_for_message<channel::Hello>().pid, 42);
  EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

TEST(AgentChannel, DeliversMessagesOfTheAgent) {
  FakeAgent agent;
  std::promise<channel::FromAgent> received;
  AgentChannel channel(agent.connect(), {}, [&](const channel::FromAgent& message) { received.set_value(message); });
  channel::Stop stop;
  stop.mode = channel::Stop::Mode::kSave;
  stop.deadline_ms = 500;
  agent.send_to_worker(stop);
  const auto message = received.get_future().get();
  ASSERT_TRUE(std::holds_alternative<channel::Stop>(message));
  EXPECT_EQ(std::get<channel::Stop>(message).deadline_ms, 500);
}

TEST(AgentChannel, LosingTheAgentEndsRequestsButNotTheWorker) {
  FakeAgent agent;
  std::promise<void> gone;
  AgentChannel channel(agent.connect(), {}, nullptr, [&] { gone.set_value(); });
  auto waiting = std::async(std::launch::async, [&] {
    channel::StoreRequest request;
    request.op = channel::StoreRequest::Op::kWait;
    request.keys = {"absent"};
    request.timeout_ms = -1;
    return channel.request(request);
  });
  agent.wait_until_parked(1);
  agent.disconnect();
  EXPECT_THROW(waiting.get(), std::runtime_error);
  gone.get_future().get();
  EXPECT_FALSE(channel.connected());
  channel.send(channel::Progress{});
  EXPECT_THROW(channel.request({}), std::runtime_error);
}

TEST(ChannelStore, KeepsBinaryValues) {
  FakeAgent agent;
  AgentChannel channel(agent.connect(), {}, nullptr);
  ChannelStore store(channel, 1s);
  std::vector<std::uint8_t> value(100000);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::uint8_t>(i);
  store.set("key", value);
  EXPECT_EQ(store.get("key"), value);
}

TEST(ChannelStore, CountsComparesDeletesAndChecks) {
  FakeAgent agent;
  AgentChannel channel(agent.connect(), {}, nullptr);
  ChannelStore store(channel, 1s);
  EXPECT_EQ(store.add("n", 2), 2);
  EXPECT_EQ(store.add("n", 3), 5);
  EXPECT_EQ(store.compareSet("c", "", "one"), "one");
  EXPECT_EQ(store.compareSet("c", "two", "three"), "one");
  EXPECT_EQ(store.compareSet("c", "one", "three"), "three");
  EXPECT_EQ(store.compareSet("absent", "expected", "new"), "expected");
  EXPECT_TRUE(store.check({"n", "c"}));
  EXPECT_FALSE(store.check({"n", "absent"}));
  EXPECT_EQ(store.getNumKeys(), 2);
  EXPECT_TRUE(store.deleteKey("n"));
  EXPECT_FALSE(store.deleteKey("n"));
  store.append("list", {1, 2});
  store.append("list", {3});
  EXPECT_EQ(store.get("list"), (std::vector<std::uint8_t>{1, 2, 3}));
}

TEST(ChannelStore, NamesTheMissingKeys) {
  FakeAgent agent;
  AgentChannel channel(agent.connect(), {}, nullptr);
  ChannelStore store(channel, 1500ms);
  try {
    store.wait({"never/a", "never/b"}, 20ms);
    FAIL() << "expected a timeout";
  } catch (const c10::DistStoreError& error) {
    EXPECT_NE(std::string(error.what()).find("wait timeout after 20ms, keys: never/a, never/b"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(store.get("never"), c10::DistStoreError);
}

TEST(ChannelStore, ServesSeveralThreads) {
  FakeAgent agent;
  AgentChannel first(agent.connect(), {}, nullptr), second(agent.connect(), {}, nullptr);
  ChannelStore reading(first, 0ms), writing(second, 0ms);
  std::vector<std::future<std::string>> readers;
  for (int i = 0; i < 8; ++i) {
    readers.push_back(std::async(std::launch::async, [&, i] { return reading.get_to_str("key" + std::to_string(i)); }));
  }
  agent.wait_until_parked(8);
  for (int i = 7; i >= 0; --i) writing.set("key" + std::to_string(i), "value" + std::to_string(i));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(readers[static_cast<std::size_t>(i)].get(), "value" + std::to_string(i));
}

}  // namespace
}  // namespace ddprun::trainer
