// Tests two jobs that share one port of a host. Each job gets its own members. If the process that listens on the port ends,
// the port stays open.
#include "rendezvous/transport/handover.hpp"

#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "common/base/error.hpp"
#include "common/system/descriptor.hpp"
#include "rendezvous/identity/hex.hpp"
#include "rendezvous/passing/passed_descriptor.hpp"
#include "rendezvous/transport/net.hpp"

namespace ddprun::test {
namespace {

using std::chrono::milliseconds;

std::uint16_t free_port(boost::asio::io_context& io) {
  const boost::asio::ip::tcp::acceptor probe(io, {boost::asio::ip::address_v4::loopback(), 0});
  return probe.local_endpoint().port();
}

struct Job {
  Job(Net& net, const char* name, std::uint16_t port)
      : transport(net.transport(kToken, name)), agent(net.transport(kToken, name)) {
    ListenOptions options;
    options.address = "127.0.0.1";
    options.port = port;
    listener = listen_on_shared_port(net.io, *transport, options,
                                     [this](std::shared_ptr<Connection> member) { members.push_back(std::move(member)); });
  }
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Transport> agent;
  std::vector<std::shared_ptr<Connection>> members;
  std::shared_ptr<Listener> listener;
};

class SharedPort : public testing::Test {
 protected:
  Net net_;
  std::uint16_t port_ = free_port(net_.io);

  void member_of(Job& job) {
    const std::size_t before = job.members.size();
    const auto connection = opened(net_.finish_call(net_.call(*job.agent, to(port_))));
    ASSERT_TRUE(connection);
    ASSERT_TRUE(net_.run_until([&] { return job.members.size() == before + 1; }));
    Inbox inbox;
    job.members.back()->start(inbox.handlers());
    connection->send("hello");
    ASSERT_TRUE(net_.run_until([&] { return inbox.frames.size() == 1; }));
    connection->close();
    job.members.back()->close();
    net_.run_ready();
  }
};

TEST_F(SharedPort, EachJobGetsItsOwnMembers) {
  Job first(net_, "first", port_);
  Job second(net_, "second", port_);
  member_of(first);
  member_of(second);
  member_of(first);
  EXPECT_EQ(first.members.size(), 2U);
  EXPECT_EQ(second.members.size(), 1U);
  EXPECT_TRUE(net_.log.empty()) << net_.log.front();
}

// Returns a connection to the Unix socket over which a job receives passed descriptors.
Descriptor sender_to(const Job& job, std::uint16_t port) {
  const std::string name =
      "ddprun/" + std::to_string(::geteuid()) + "/" + std::to_string(port) + "/" + to_hex(job.transport->run());
  sockaddr_un inbox{};
  inbox.sun_family = AF_UNIX;
  name.copy(inbox.sun_path + 1, sizeof inbox.sun_path - 1);
  Descriptor sender(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::connect(sender.get(), reinterpret_cast<const sockaddr*>(&inbox), size), 0);
  return sender;
}

// Processes that connect to this Unix socket but send no message must not exhaust the file descriptors.
TEST_F(SharedPort, InboxClosesTheOldestOfManySenders) {
  const Job job(net_, "second", port_);
  std::vector<Descriptor> senders;
  const auto is_closed = [](const Descriptor& sender) {
    char byte = 0;
    return ::recv(sender.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  for (int i = 0; i < 64; ++i) {  // the same number as kMaxSenders in handover.cpp
    senders.push_back(sender_to(job, port_));
    net_.run_ready();
  }
  EXPECT_FALSE(is_closed(senders.front()));
  senders.push_back(sender_to(job, port_));
  for (int i = 0; i < 10; ++i) net_.run_ready();
  EXPECT_TRUE(is_closed(senders.front()));
  EXPECT_FALSE(is_closed(senders.at(1)));
}

// The process that listens on the port connects to the Unix socket of the job, and passes the descriptor in a later system
// call. The job must wait for the descriptor.
TEST_F(SharedPort, InboxWaitsForALateMessage) {
  const Job job(net_, "second", port_);
  const Descriptor sender = sender_to(job, port_);
  for (int i = 0; i < 10; ++i) net_.run_ready();  // now the job has accepted the connection of the sender

  boost::asio::ip::tcp::acceptor front(net_.io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto call = net_.call(*job.agent, to(front.local_endpoint().port()));
  boost::asio::ip::tcp::socket accepted(net_.io);
  bool came = false;
  front.async_accept(accepted, [&](const boost::system::error_code& error) { came = !error; });
  ASSERT_TRUE(net_.run_until([&] { return came; }));
  ASSERT_TRUE(pass_descriptor(sender.get(), accepted.native_handle(), {})) << std::strerror(errno);
  EXPECT_TRUE(opened(net_.finish_call(call)));
  EXPECT_TRUE(net_.run_until([&] { return job.members.size() == 1; }));
}

TEST_F(SharedPort, PeerOfAThirdJobIsRefused) {
  const Job first(net_, "first", port_);
  const Job second(net_, "second", port_);
  const auto outsider = net_.transport(kToken, "third");
  EXPECT_EQ(failure(net_.finish_call(net_.call(*outsider, to(port_)))).kind, ConnectFailure::Kind::kWrongRunId);
  // The first job, which listens on the port, passes this connection to the second job, which refuses it.
  const auto impostor = net_.transport(kOtherToken, "second");
  const ConnectFailure reported = failure(net_.finish_call(net_.call(*impostor, to(port_))));
  EXPECT_EQ(reported.kind, ConnectFailure::Kind::kWrongToken) << reported.message;
}

TEST_F(SharedPort, IsPassedToAWaiterWhenItsHolderEnds) {
  auto first = std::make_unique<Job>(net_, "first", port_);
  auto second = std::make_unique<Job>(net_, "second", port_);
  Job third(net_, "third", port_);
  member_of(*second);
  first.reset();
  member_of(*second);  // now the second or the third job listens on the port
  member_of(third);
  second.reset();
  member_of(third);
  EXPECT_EQ(third.listener->local().port(), port_);
}

TEST_F(SharedPort, SecondCoordinatorOfOneJobIsRefused) {
  const Job first(net_, "first", port_);
  EXPECT_THROW(Job(net_, "first", port_), UsageError);
}

TEST_F(SharedPort, PortOfAnotherProgramIsAnError) {
  const boost::asio::ip::tcp::acceptor other(net_.io, {boost::asio::ip::address_v4::loopback(), port_});
  EXPECT_THROW(Job(net_, "first", port_), UsageError);
  EXPECT_THROW(Job(net_, "first", port_), UsageError);  // the first attempt must leave no socket behind
}

}  // namespace
}  // namespace ddprun::test
