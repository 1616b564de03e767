// The store of a round listens only after the previous store is closed. A port that is lost between two rounds does not end
// the job.
#include "launcher/agent/master_endpoint.hpp"

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
#include <thread>

#include <boost/asio/ip/tcp.hpp>

#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

// A guardian that is stopped: its requests, and the sockets that are passed with them, stay in the queue.
class StoppedGuardian {
 public:
  StoppedGuardian() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    theirs_ = Descriptor(ends[1]);
    link_.emplace(
        io_, GuardianProcess{.pid = -1, .socket = ends[0], .older_children = {}}, [](const guardian::Notice&) {}, [] {});
    link_->abandon();
  }
  GuardianLink& link() { return *link_; }
  void receive_next() const {
    pollfd ready{theirs_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 20'000) == 1) receive_all();
  }
  // Receives the queued messages, and closes the descriptors that came with them.
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
  boost::asio::io_context io_;
  Descriptor theirs_;
  std::optional<GuardianLink> link_;
};

// A multi-node job whose only node is this one: it is the coordinator and has rank 0.
class OneNode {
 public:
  explicit OneNode(const Plan& plan) {
    ::unsetenv("HOME");  // the node must not write a record
    ::unsetenv("XDG_STATE_HOME");
    NetworkStart start;
    start.shell.token = "5f0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d83";
    start.shell.run_id = "job";
    start.shell.meet_host = "127.0.0.1";
    start.shell.lead = rendezvous::NodeShellSettings::Lead::kYes;
    start.shell.node.coordinator.master_addr = plan.master_addr;
    start.shell.node.coordinator.master_port = static_cast<std::uint16_t>(plan.master_port);
    JobLink::Hooks hooks;
    hooks.feed = [this](const AgentEvent& event) {
      released_ = released_ || std::holds_alternative<agent_event::RoundReleased>(event);
    };
    hooks.publish = [](const RunEvent&) {};
    hooks.set_deadline = [](std::optional<std::chrono::nanoseconds>) {};
    hooks.entrust = [](const guardian::LastWord&) {};
    link_.emplace(io_, std::move(start), plan, std::move(hooks));
    link_->begin();
    while (!released_) {
      if (io_.run_one_for(std::chrono::minutes(1)) == 0) throw std::runtime_error("no round is released");
    }
  }
  JobLink* link() { return &*link_; }

 private:
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
  endpoint.tell(settings);
  endpoint.serve_store(guardian.link());
  return {settings.master_port, settings.agent_store};
}

// A server of another program that listens at `port`.
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

// Otherwise the kernel would give that server a part of the new workers' connections.
TEST(MasterEndpoint, AStoreThatMayStillListenGetsNoWorkerOfTheNextRound) {
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

TEST(MasterEndpoint, WhereOnlyItsPortWillDoRankZeroTries) {
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

// An error here would end the job with "wrong command line". Another program can take the port while rank 0 is on another node.
TEST(MasterEndpoint, IfAnotherProgramTakesThePortLaterRankZeroTriesIt) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  Plan plan = plan_with(PortNeed::kExactly);
  plan.agent_store = false;
  OneNode node(plan);
  endpoint.take(plan, node.link(), guardian.link());
  endpoint.let_go();
  const OtherServer other(plan.master_port);
  EXPECT_NO_THROW(endpoint.take(plan, node.link(), guardian.link()));
  WorkerSettings settings;
  endpoint.tell(settings);
  EXPECT_EQ(settings.master_port, plan.master_port);
}

// An --on-failure command starts as a copy of the agent, and briefly holds the agent's descriptors.
TEST(MasterEndpoint, ThePortNameSurvivesACopyOfItsDescriptorInAnotherProcess) {
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
  endpoint.tell(settings);
  EXPECT_EQ(settings.master_port, plan.master_port);
  EXPECT_TRUE(settings.agent_store);
}

// Rank 0 then opens the port itself. If that fails, the restart policy retries.
TEST(MasterEndpoint, IfTheStoreCannotListenLaterRankZeroHostsIt) {
  StoppedGuardian guardian;
  MasterEndpoint endpoint;
  Plan plan = plan_with(PortNeed::kExactly);
  plan.agent_store = false;  // so the held port admits another listener
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
