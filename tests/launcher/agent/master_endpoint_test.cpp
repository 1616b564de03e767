// The store of a round listens only after the store of the round before is closed.
#include "launcher/agent/master_endpoint.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>

#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

// A guardian that is stopped: its requests, and the sockets that travel with them, stay in the queue.
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
  // Receives what is in the queue, and closes the descriptors that came with it.
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

Plan plan_with(PortNeed need) {
  Plan plan;
  plan.agent_store = true;
  plan.master_addr = "127.0.0.1";
  plan.master_port = HeldPort::any().port();
  plan.master_port_need = need;
  return plan;
}

// The kernel would give it a part of the new workers' connections.
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

}  // namespace
}  // namespace ddprun
