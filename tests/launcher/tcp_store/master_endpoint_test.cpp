// Tests MasterEndpoint with a guardian process that does not respond, and with ports that other programs take. The store of a
// round must not listen while the previous store is still listening. The loss of a port between two rounds must not end the
// job.
#include "launcher/tcp_store/master_endpoint.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <boost/asio/ip/tcp.hpp>

#include "common/system/descriptor.hpp"
#include "tests/rendezvous/transport/raw_peer.hpp"

namespace ddprun {
namespace {

// A guardian process that does not run. Requests, and the sockets in them, stay in its queue until receive_all() is called.
class StoppedGuardian : private GuardianLink::Agent {
 public:
  StoppedGuardian() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    theirs_ = Descriptor(ends[1]);
    link_.emplace(io_, GuardianProcess{.pid = -1, .socket = ends[0], .older_children = {}},
                  static_cast<GuardianLink::Agent&>(*this));
    link_->abandon();
  }
  GuardianLink& link() { return *link_; }
  void receive_next() const {
    pollfd ready{theirs_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 20'000) == 1) receive_all();
  }
  // Receives the queued messages, and closes the descriptors that they contain.
  void receive_all() const {
    guardian::Request request;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * guardian::kMaxDescriptors)> control{};
    for (;;) {
      iovec part{&request, sizeof request};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      if (::recvmsg(theirs_.get(), &message, MSG_DONTWAIT) <= 0) return;
      const cmsghdr* header = CMSG_FIRSTHDR(&message);
      if (header == nullptr) continue;
      for (int i = 0; i < request.descriptors; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + sizeof fd * static_cast<std::size_t>(i), sizeof fd);
        ::close(fd);
      }
    }
  }

 private:
  void on_notice(const guardian::Notice& /*notice*/) override {}
  void on_guardian_death() override {}

  boost::asio::io_context io_;
  Descriptor theirs_;
  std::optional<GuardianLink> link_;
};

// A multi-node job that consists of this node only. The node is the coordinator and runs rank 0.
class OneNode : private JobLink::Agent {
 public:
  using MeetPort = rendezvous::NodeShellSettings::MeetPort;
  explicit OneNode(const Plan& plan, MeetPort closing = MeetPort::kStays) {
    ::unsetenv("HOME");  // without a home folder the node writes no record
    ::unsetenv("XDG_STATE_HOME");
    NetworkStart start;
    start.shell.token = "5f0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d83";
    start.shell.run_id = "job";
    start.shell.meet_host = "127.0.0.1";
    start.shell.closing = closing;
    if (closing == MeetPort::kServesStore) start.shell.meet_port = static_cast<std::uint16_t>(plan.master_port);
    start.shell.lead = rendezvous::NodeShellSettings::Lead::kYes;
    start.shell.node.coordinator.master_addr = plan.master_addr;
    start.shell.node.coordinator.master_port = static_cast<std::uint16_t>(plan.master_port);
    link_.emplace(io_, std::move(start), plan, static_cast<JobLink::Agent&>(*this));
    link_->begin();
    while (!released_) {
      if (io_.run_one_for(std::chrono::minutes(1)) == 0) throw std::runtime_error("no round is released");
    }
  }
  JobLink* link() { return &*link_; }
  // Runs until the node has processed all earlier connections to `port`. It sends an HTTP request on a new connection, and the
  // node closes that connection after it has processed the earlier connections.
  void read_connections(int port) {
    test::RawPeer last(static_cast<std::uint16_t>(port));
    last.send("GET / HTTP/1.1");
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!last.closed()) {
      if (io_.run_one_until(limit) == 0) throw std::runtime_error("the node reads no connection");
    }
  }

 private:
  void feed(const AgentEvent& event) override {
    released_ = released_ || std::holds_alternative<agent_event::RoundReleased>(event);
  }
  void publish(const RunEvent& /*event*/) override {}
  void set_deadline(std::optional<std::chrono::nanoseconds> /*since_boot*/) override {}
  void answer_worker(int /*local_rank*/, const channel::StoreReply& /*reply*/) override {}
  void set_death_notice(const guardian::DeathNotice& /*notice*/) override {}

  boost::asio::io_context io_;
  bool released_ = false;
  std::optional<JobLink> link_;
};

struct Round {
  int port;
  bool agent_store;
};

Round round_of(MasterEndpoint& endpoint, const Plan& plan, StoppedGuardian& guardian) {
  endpoint.take(plan, nullptr, guardian.link());
  WorkerSettings settings;
  endpoint.fill(settings);
  endpoint.serve_store(guardian.link());
  return {settings.master_port, settings.agent_store};
}

// Acts as a server of another program at `port`.
struct OtherServer {
  explicit OtherServer(int port) : acceptor(io, {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)}) {}
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor;
};

Plan plan_with(PortNeed need) {
  Plan plan;
  plan.agent_store = true;
  plan.master_addr = "127.0.0.1";
  plan.master_port = HeldPort::any().port();
  plan.master_port_need = need;
  return plan;
}

// If the old and the new store listened on the same port, the kernel would pass some of the new workers' connections to the
// old store.
TEST(MasterEndpoint, AnOldStoreForcesAnotherPort) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  const Plan plan = plan_with(PortNeed::kIfFree);
  const Round first = round_of(endpoint, plan, guardian);
  EXPECT_TRUE(first.agent_store);
  EXPECT_EQ(first.port, plan.master_port);
  const Round second = round_of(endpoint, plan, guardian);
  EXPECT_TRUE(second.agent_store);
  EXPECT_NE(second.port, first.port);
}

TEST(MasterEndpoint, WithAFixedPortRankZeroHostsTheStore) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  const Plan plan = plan_with(PortNeed::kExactly);
  EXPECT_TRUE(round_of(endpoint, plan, guardian).agent_store);
  const Round second = round_of(endpoint, plan, guardian);
  EXPECT_FALSE(second.agent_store);
  EXPECT_EQ(second.port, plan.master_port);
  guardian.receive_all();
  std::thread running([&] { guardian.receive_next(); });
  EXPECT_TRUE(round_of(endpoint, plan, guardian).agent_store) << "the guardian has ended the first store";
  running.join();
}

// Another program takes the port while rank 0 runs on another node. No UsageError may be thrown in this case, because it would
// end the job with "wrong command line".
TEST(MasterEndpoint, IfThePortIsTakenLaterRankZeroHosts) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  Plan plan = plan_with(PortNeed::kExactly);
  plan.agent_store = false;
  OneNode node(plan);
  endpoint.take(plan, node.link(), guardian.link());
  endpoint.release();
  const OtherServer other(plan.master_port);
  EXPECT_NO_THROW(endpoint.take(plan, node.link(), guardian.link()));
  WorkerSettings settings;
  endpoint.fill(settings);
  EXPECT_EQ(settings.master_port, plan.master_port);
}

// The agent forks to run an --on-failure command. For a moment the child process holds copies of the agent's sockets, which
// must not prevent a new store at the port.
TEST(MasterEndpoint, PortNameSurvivesAForkedDescriptor) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  const Plan plan = plan_with(PortNeed::kExactly);
  OneNode node(plan);
  endpoint.take(plan, node.link(), guardian.link());
  const pid_t copy = ::fork();
  if (copy == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  endpoint.take(plan, node.link(), guardian.link());
  ::kill(copy, SIGKILL);
  ::waitpid(copy, nullptr, 0);
  WorkerSettings settings;
  endpoint.fill(settings);
  EXPECT_EQ(settings.master_port, plan.master_port);
  EXPECT_TRUE(settings.agent_store);
}

// With the static rendezvous, the agent itself listens on the port and passes new clients to the newest store. So the old
// store may still be running.
TEST(MasterEndpoint, AtTheAgentsPortANewStoreDoesNotWaitForTheOldOne) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  const Plan plan = plan_with(PortNeed::kExactly);
  OneNode node(plan, OneNode::MeetPort::kServesStore);
  for (int round = 0; round < 2; ++round) {
    endpoint.take(plan, node.link(), guardian.link());
    WorkerSettings settings;
    endpoint.fill(settings);
    EXPECT_EQ(settings.master_port, plan.master_port);
    EXPECT_TRUE(settings.agent_store);
    endpoint.serve_store(guardian.link());
  }
}

// If rank 0 hosts the store, the agent's store will not open. So a client that connected before the round must not wait at
// the agent.
TEST(MasterEndpoint, NoClientWaitsAtTheAgentIfRankZeroHosts) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  Plan plan = plan_with(PortNeed::kExactly);
  plan.agent_store = false;
  OneNode node(plan, OneNode::MeetPort::kServesStore);
  test::RawPeer client(static_cast<std::uint16_t>(plan.master_port));
  client.send(std::string_view("\0abcd", 5));  // VALIDATE
  node.read_connections(plan.master_port);
  ASSERT_FALSE(client.closed()) << "it does not wait";
  endpoint.take(plan, node.link(), guardian.link());
  EXPECT_TRUE(client.closed());
}

// If the agent's store cannot listen, rank 0 opens the port. If rank 0 fails as well, the restart policy restarts the
// workers.
TEST(MasterEndpoint, IfTheStoreCannotListenRankZeroHosts) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  Plan plan = plan_with(PortNeed::kExactly);
  plan.agent_store = false;  // without a store of the agent, rank 0 may bind the port; in this test, `other` binds it
  EXPECT_FALSE(round_of(endpoint, plan, guardian).agent_store);
  const OtherServer other(plan.master_port);
  plan.agent_store = true;
  std::optional<Round> second;
  ASSERT_NO_THROW(second = round_of(endpoint, plan, guardian));
  EXPECT_FALSE(second->agent_store);
  EXPECT_EQ(second->port, plan.master_port);
}

}  // namespace
}  // namespace ddprun
