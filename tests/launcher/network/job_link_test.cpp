// Tests JobLink with the agents of a job in one process, connected over loopback. The tests cover store clients at the
// agent's port, the master's address on each node, and the notice about a loopback address.
#include "launcher/network/job_link.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "rendezvous/passing/passed_descriptor.hpp"
#include "tests/rendezvous/transport/raw_peer.hpp"

namespace ddprun {
namespace {

using Shell = rendezvous::NodeShellSettings;
using test::RawPeer;

constexpr std::string_view kFirstQuery("\0abcd", 5);  // VALIDATE, which a client of a script's store sends first

Plan static_job(const std::string& host, int port) {
  Plan plan;
  plan.kind = Plan::Kind::kProgram;
  plan.rendezvous.host = host;
  plan.rendezvous.port = port;
  return plan;
}

NetworkStart start_of(const Plan& plan, Shell::Lead lead, int nodes) {
  ::unsetenv("HOME");  // without a home folder the node writes no record
  ::unsetenv("XDG_STATE_HOME");
  NetworkStart start;
  start.shell.token = "5f0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d83";
  start.shell.run_id = "job";
  start.shell.lead = lead;
  start.shell.meet_host = plan.rendezvous.host;
  start.shell.meet_port = static_cast<std::uint16_t>(plan.rendezvous.port);
  start.shell.closing = Shell::MeetPort::kServesStore;
  start.shell.node.coordinator.min_nodes = start.shell.node.coordinator.max_nodes = nodes;
  start.shell.node.coordinator.master_addr = plan.rendezvous.host;
  start.shell.node.coordinator.master_port = static_cast<std::uint16_t>(plan.rendezvous.port);
  return start;
}

class LinkedNode final : private JobLink::Agent {
 public:
  LinkedNode(boost::asio::io_context& io, Plan plan, NetworkStart start)
      : plan_(std::move(plan)), link_(io, std::move(start), plan_, *this) {
    link_.begin();
  }
  JobLink& link() { return link_; }
  bool is_released() const { return is_released_; }
  const std::string& notices() const { return notices_; }

 private:
  void feed(const AgentEvent& event) override {
    is_released_ = is_released_ || std::holds_alternative<agent_event::RoundReleased>(event);
  }
  void publish(const RunEvent& event) override {
    if (const auto* changed = std::get_if<NodesChanged>(&event)) notices_ += changed->notice.text + "\n";
  }
  void set_deadline(std::optional<std::chrono::nanoseconds> /*since_boot*/) override {}
  void answer_worker(int /*local_rank*/, const channel::StoreReply& /*reply*/) override {}
  void set_death_notice(const guardian::DeathNotice& /*notice*/) override {}

  Plan plan_;
  bool is_released_ = false;
  std::string notices_;
  JobLink link_;
};

class LinkedJob : public testing::Test {
 protected:
  // The nodes are already destroyed. But the handlers of their cancelled operations still own connections, so these handlers
  // must run.
  void TearDown() override {
    io_.restart();
    io_.poll();
  }
  // Runs the loop until `holds` returns true. Returns false after a minute. The agents exchange messages all the time, so the
  // loop would not end by itself.
  bool run_until(const std::function<bool()>& holds) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    io_.restart();
    while (!holds()) {
      if (io_.run_one_until(limit) == 0) return false;
    }
    return true;
  }
  std::string notices_at(const std::string& host, const std::string& local_address) {
    const Plan plan = static_job(host, HeldPort::any().port());
    NetworkStart start = start_of(plan, Shell::Lead::kYes, 2);
    start.shell.local_address = local_address;
    return LinkedNode(io_, plan, std::move(start)).notices();
  }

  boost::asio::io_context io_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

RawPeer client_of(const Plan& plan) {
  RawPeer client(static_cast<std::uint16_t>(plan.rendezvous.port));
  client.send(kFirstQuery);
  return client;
}

// The workers of other nodes may start before the workers of this node. Their store clients must wait until this node's store
// opens.
TEST_F(LinkedJob, StoreClientAfterTheReleaseWaitsForTheStore) {
  const Plan plan = static_job("127.0.0.1", HeldPort::any().port());
  LinkedNode node(io_, plan, start_of(plan, Shell::Lead::kYes, 1));
  ASSERT_TRUE(run_until([&] { return node.is_released(); }));
  EXPECT_TRUE(node.link().listens_for_store());
  RawPeer client = client_of(plan);
  RawPeer other(static_cast<std::uint16_t>(plan.rendezvous.port));
  other.send("GET / HTTP/1.1");
  ASSERT_TRUE(run_until([&] { return other.closed(); }));  // the node has now read the client's query as well
  ASSERT_FALSE(client.closed());
  const ListeningSockets store =
      node.link().open_store({.master_addr = "127.0.0.1", .port = plan.rendezvous.port, .many_machines = true});
  const auto passed = receive_passed_descriptor(store.at(0).get());
  ASSERT_TRUE(passed);
  EXPECT_EQ(passed->bytes, kFirstQuery);
}

TEST_F(LinkedJob, StoreClientBeforeTheFirstReleaseIsRefused) {
  const Plan plan = static_job("127.0.0.1", HeldPort::any().port());
  const LinkedNode node(io_, plan, start_of(plan, Shell::Lead::kYes, 2));
  RawPeer client = client_of(plan);
  EXPECT_TRUE(run_until([&] { return client.closed(); }));
}

// The job already runs on the only node that it needs, so every other node is surplus.
TEST_F(LinkedJob, SurplusNodeOfAnotherCommandIsRefused) {
  const Plan plan = static_job("127.0.0.1", HeldPort::any().port());
  NetworkStart first = start_of(plan, Shell::Lead::kYes, 1);
  first.shell.program = "one";
  LinkedNode leads(io_, plan, std::move(first));
  ASSERT_TRUE(run_until([&] { return leads.is_released(); }));
  const auto answer_to = [&](const std::string& program, int nodes) {
    NetworkStart start = start_of(plan, Shell::Lead::kNo, 1);
    start.shell.program = program;
    start.shell.node.member.min_nodes = start.shell.node.member.max_nodes = nodes;
    const LinkedNode surplus(io_, plan, std::move(start));
    const std::size_t before = leads.notices().size();
    const auto refused = [&] { return leads.notices().find(':', before) != std::string::npos; };
    run_until([&] { return refused() || has(surplus.notices(), "waits as a spare"); });
    return leads.notices().substr(before) + surplus.notices();
  };
  EXPECT_TRUE(has(answer_to("two", 0), "another program"));
  EXPECT_TRUE(has(answer_to("one", 2), "--nnodes 2"));
  EXPECT_TRUE(has(answer_to("one", 1), "waits as a spare"));
}

// Behind a NAT or a tunnel, nodes reach the first node at different addresses. Each node must use the address in its own
// command.
TEST_F(LinkedJob, EachNodeUsesItsOwnMasterAddress) {
  const int port = HeldPort::any().port();
  const Plan first = static_job("127.0.0.1", port);
  const Plan second = static_job("localhost", port);
  LinkedNode leads(io_, first, start_of(first, Shell::Lead::kYes, 2));
  LinkedNode follows(io_, second, start_of(second, Shell::Lead::kNo, 2));
  ASSERT_TRUE(run_until([&] { return leads.is_released() && follows.is_released(); }));
  EXPECT_EQ(leads.link().master().host, "127.0.0.1");
  EXPECT_EQ(follows.link().master().host, "localhost");
  EXPECT_EQ(follows.link().master().port, port);
}

// Rank 0 hosts the master, so it uses the address in the coordinator's message that started the round.
TEST_F(LinkedJob, RankZeroUsesTheAddressOfTheRelease) {
  const Plan plan = static_job("localhost", HeldPort::any().port());
  NetworkStart start = start_of(plan, Shell::Lead::kYes, 1);
  start.shell.node.coordinator.master_addr = "127.0.0.1";
  LinkedNode node(io_, plan, std::move(start));
  ASSERT_TRUE(run_until([&] { return node.is_released(); }));
  EXPECT_EQ(node.link().master().host, "127.0.0.1");
}

// After a change of the coordinator the master has a different port. So the master address in this node's own command does
// not apply.
TEST_F(LinkedJob, MasterAtAnotherPortIsNotReplaced) {
  const Plan plan = static_job("127.0.0.1", HeldPort::any().port());
  const Plan second = static_job("localhost", plan.rendezvous.port);
  NetworkStart start = start_of(plan, Shell::Lead::kYes, 2);
  start.shell.node.coordinator.master_port = static_cast<std::uint16_t>(HeldPort::any().port());
  const int port = start.shell.node.coordinator.master_port;
  LinkedNode leads(io_, plan, std::move(start));
  LinkedNode follows(io_, second, start_of(second, Shell::Lead::kNo, 2));
  ASSERT_TRUE(run_until([&] { return leads.is_released() && follows.is_released(); }));
  EXPECT_EQ(follows.link().master().host, "127.0.0.1");
  EXPECT_EQ(follows.link().master().port, port);
}

TEST_F(LinkedJob, LoopbackAddressIsReported) {
  const std::string text = "nodes on other machines cannot reach this node: ";
  EXPECT_TRUE(has(notices_at("localhost", ""), text + "localhost is"));
  EXPECT_TRUE(has(notices_at("127.0.0.1", ""), text + "127.0.0.1 is"));
  EXPECT_TRUE(has(notices_at("", "127.0.0.1"), text + "127.0.0.1 is"));
  EXPECT_TRUE(has(notices_at("127.0.0.1", "10.1.2.3"), text + "127.0.0.1 is"));
  EXPECT_FALSE(has(notices_at("", "10.1.2.3"), text));
}

}  // namespace
}  // namespace ddprun
