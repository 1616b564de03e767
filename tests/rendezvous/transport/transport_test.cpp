// Tests the guarantees of the transport. Frames arrive complete, in order and from the expected peer. A refused peer gets the
// reason for its refusal.
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <malloc.h>

#include "common/base/error.hpp"
#include "rendezvous/transport/net.hpp"

namespace ddprun::test {
namespace {

using Kind = ConnectFailure::Kind;
using std::chrono::milliseconds;

TEST(Transport, CarriesFramesBothWaysInOrder) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  const auto connection = opened(net.finish_call(net.call(*agent, to(coordinator.port()))));
  ASSERT_TRUE(connection);
  ASSERT_TRUE(net.run_until([&] { return coordinator.members.size() == 1; }));
  Inbox at_agent;
  Inbox at_coordinator;
  const auto member = coordinator.members.front();
  const std::vector<std::string> frames{"", "a", std::string(1 << 20, 'x'), std::string("\0\n\xff", 3), "last"};
  // The frames are sent before the receiver has set its handlers, so the connection must keep them until then.
  for (const std::string& frame : frames) connection->send(frame);
  member->start(at_coordinator.handlers());
  connection->start(at_agent.handlers());
  for (const std::string& frame : frames) member->send(frame);
  ASSERT_TRUE(net.run_until([&] { return at_agent.frames.size() == 5 && at_coordinator.frames.size() == 5; }));
  EXPECT_EQ(at_agent.frames, frames);
  EXPECT_EQ(at_coordinator.frames, frames);
  EXPECT_EQ(member->remote(), connection->local());
  EXPECT_EQ(member->local(), connection->remote());
  EXPECT_EQ(member->local().address().to_string(), "127.0.0.1");
  EXPECT_NE(member->peer().instance, InstanceId{});

  connection->finish();
  ASSERT_TRUE(net.run_until([&] { return at_coordinator.closed && at_agent.closed; }));
  EXPECT_EQ(at_coordinator.closed->cause, Closed::Cause::kOrderly);
  EXPECT_EQ(at_agent.closed->cause, Closed::Cause::kOrderly);
  EXPECT_TRUE(net.log.empty());
}

TEST(Transport, DataSentBeforeFinishArrives) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  const auto connection = opened(net.finish_call(net.call(*agent, to(coordinator.port()))));
  ASSERT_TRUE(net.run_until([&] { return coordinator.members.size() == 1; }));
  Inbox inbox;
  // Sends more bytes than the buffers of a socket can hold.
  for (int i = 0; i < 6; ++i) connection->send(std::string(1 << 20, 'x'));
  connection->finish();
  connection->send("after the end: dropped");
  coordinator.members.front()->start(inbox.handlers());
  ASSERT_TRUE(net.run_until([&] { return inbox.closed.has_value(); }));
  EXPECT_EQ(inbox.frames.size(), 6U);
  EXPECT_EQ(inbox.closed->cause, Closed::Cause::kOrderly);
}

TEST(Transport, CloseWithoutCloseNotifyIsALoss) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  const auto connection = opened(net.finish_call(net.call(*agent, to(coordinator.port()))));
  ASSERT_TRUE(net.run_until([&] { return coordinator.members.size() == 1; }));
  Inbox inbox;
  coordinator.members.front()->start(inbox.handlers());
  connection->close();
  ASSERT_TRUE(net.run_until([&] { return inbox.closed.has_value(); }));
  EXPECT_EQ(inbox.closed->cause, Closed::Cause::kLost);
}

TEST(Transport, HandlerMayCloseItsConnection) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  const auto connection = opened(net.finish_call(net.call(*agent, to(coordinator.port()))));
  ASSERT_TRUE(net.run_until([&] { return coordinator.members.size() == 1; }));
  int frames = 0;
  bool reported = false;
  coordinator.members.front()->start({[&](std::string_view) {
                                        ++frames;
                                        coordinator.members.front()->close();
                                        coordinator.members.clear();
                                      },
                                      [&](const Closed&) { reported = true; }});
  Inbox inbox;
  connection->start(inbox.handlers());
  connection->send("one");
  connection->send("two");
  ASSERT_TRUE(net.run_until([&] { return inbox.closed.has_value(); }));
  EXPECT_EQ(frames, 1);
  EXPECT_FALSE(reported);
}

TEST(Transport, OversizedFrameIsNotSent) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  const auto connection = opened(net.finish_call(net.call(*agent, to(coordinator.port()))));
  ASSERT_TRUE(connection);
  EXPECT_THROW(connection->send(std::string((1 << 20) + 1, 'x')), InternalError);
  EXPECT_TRUE(connection->is_open());
}

struct Refusal {
  const char* token;
  const char* run_id;
  std::uint8_t version;
  Kind kind;
  const char* reported;  // a substring of the message that the refused peer reports
  const char* logged;    // a substring of the line that the coordinator logs
};

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, AreDistinguishedOnBothSides) {
  const Refusal& refusal = GetParam();
  Net net;
  Coordinator coordinator(net);
  const auto outsider = net.transport(refusal.token, refusal.run_id, {}, refusal.version);
  const ConnectFailure reported = failure(net.finish_call(net.call(*outsider, to(coordinator.port()))));
  EXPECT_EQ(reported.kind, refusal.kind) << reported.message;
  EXPECT_NE(reported.message.find(refusal.reported), std::string::npos) << reported.message;
  EXPECT_EQ(reported.message.find(refusal.token), std::string::npos);
  EXPECT_EQ(net.logged(refusal.logged), 1U) << testing::PrintToString(net.log);
  EXPECT_TRUE(coordinator.members.empty());

  const auto agent = net.transport();
  EXPECT_TRUE(opened(net.finish_call(net.call(*agent, to(coordinator.port())))));
}

INSTANTIATE_TEST_SUITE_P(
    Transport, Refusals,
    testing::Values(Refusal{kOtherToken, "job", 1, Kind::kWrongToken, "refuses this node's token",
                            "the token of the peer is not the token of this job"},
                    Refusal{kToken, "other", 1, Kind::kWrongRunId, "runs a job with another run id", "job with another run id"},
                    Refusal{kToken, "job", 3, Kind::kWrongVersion, "uses protocol version 1, this agent uses version 3",
                            "the peer uses protocol version 3, this agent uses version 1"}));

TEST(Transport, SelfConnectionIsReported) {
  Net net;
  Coordinator coordinator(net);
  const ConnectFailure reported = failure(net.finish_call(net.call(*coordinator.transport, to(coordinator.port()))));
  EXPECT_EQ(reported.kind, Kind::kReflected) << reported.message;
  EXPECT_TRUE(coordinator.members.empty());
  EXPECT_EQ(net.logged("first message of this agent"), 1U) << testing::PrintToString(net.log);
}

TEST(Transport, ClosedPortFailsAfterThePatience) {
  Net net;
  boost::asio::ip::tcp::acceptor held(net.io);  // the port is bound but not listening, so connections are refused
  held.open(boost::asio::ip::tcp::v4());
  held.bind({boost::asio::ip::address_v4::loopback(), 0});
  const auto agent = net.transport();
  const ConnectFailure reported =
      failure(net.finish_call(net.call(*agent, to(held.local_endpoint().port(), milliseconds(50)))));
  EXPECT_EQ(reported.kind, Kind::kRefused) << reported.message;
  EXPECT_NE(reported.message.find("no process listens on 127.0.0.1:"), std::string::npos) << reported.message;
}

TEST(Transport, LatePortIsJoined) {
  Net net;
  boost::asio::ip::tcp::acceptor held(net.io);
  held.open(boost::asio::ip::tcp::v4());
  held.set_option(boost::asio::socket_base::reuse_address(true));
  held.bind({boost::asio::ip::address_v4::loopback(), 0});
  const auto agent = net.transport();
  const auto call = net.call(*agent, to(held.local_endpoint().port()));
  std::unique_ptr<Coordinator> coordinator;
  boost::asio::steady_timer later(net.io, milliseconds(30));
  later.async_wait([&](const boost::system::error_code&) {
    ListenOptions options;
    options.address = "127.0.0.1";
    options.port = held.local_endpoint().port();
    coordinator = std::make_unique<Coordinator>(net, TransportLimits{}, options);
  });
  EXPECT_TRUE(opened(net.finish_call(call)));
}

TEST(Transport, SilentPortIsDistinguished) {
  Net net;
  boost::asio::ip::tcp::acceptor silent(net.io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto agent = net.transport();
  const ConnectFailure reported =
      failure(net.finish_call(net.call(*agent, to(silent.local_endpoint().port(), milliseconds(50)))));
  EXPECT_EQ(reported.kind, Kind::kSilent) << reported.message;
}

TEST(Transport, PortOfAnotherProgramIsDistinguished) {
  Net net;
  boost::asio::ip::tcp::acceptor web(net.io, {boost::asio::ip::address_v4::loopback(), 0});
  boost::asio::ip::tcp::socket visitor(net.io);
  const std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
  web.async_accept(visitor,
                   [&](const boost::system::error_code&) { boost::asio::write(visitor, boost::asio::buffer(answer)); });
  const auto agent = net.transport();
  const ConnectFailure reported = failure(net.finish_call(net.call(*agent, to(web.local_endpoint().port(), milliseconds(1)))));
  EXPECT_EQ(reported.kind, Kind::kNotDdprun) << reported.message;
}

TEST(Transport, UnresolvableNameIsDistinguished) {
  Net net;
  const auto agent = net.transport();
  ConnectOptions options = to(1, milliseconds(1));
  options.host = "no-such-host.invalid";
  const ConnectFailure reported = failure(net.finish_call(net.call(*agent, options)));
  EXPECT_EQ(reported.kind, Kind::kUnresolvable) << reported.message;
  EXPECT_NE(reported.message.find("no-such-host.invalid"), std::string::npos);
}

TEST(Transport, ForeignLocalAddressesAreRefused) {
  Net net;
  const auto agent = net.transport();
  ConnectOptions options = to(1, milliseconds(1));
  options.local_address = "192.0.2.1";  // reserved for documentation, so no machine has this address
  EXPECT_EQ(failure(net.finish_call(net.call(*agent, options))).kind, Kind::kBadLocalAddress);
  options.local_address = "eth0";
  EXPECT_EQ(failure(net.finish_call(net.call(*agent, options))).kind, Kind::kBadLocalAddress);
  ListenOptions listen;
  listen.address = "192.0.2.1";
  EXPECT_THROW(agent->listen(listen, {}), UsageError);
}

TEST(Transport, RequestedLocalAddressIsUsed) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  ConnectOptions options = to(coordinator.port());
  options.local_address = "127.0.0.9";
  const auto connection = opened(net.finish_call(net.call(*agent, options)));
  ASSERT_TRUE(connection);
  EXPECT_EQ(connection->local().address().to_string(), "127.0.0.9");
}

TEST(Transport, OnePortServesIpv4AndIpv6) {
  Net net;
  const auto server = net.transport();
  std::vector<std::shared_ptr<Connection>> members;
  const auto listener = server->listen({}, [&](std::shared_ptr<Connection> member) { members.push_back(std::move(member)); });
  const auto agent = net.transport();
  ConnectOptions options = to(listener->local().port());
  ASSERT_TRUE(opened(net.finish_call(net.call(*agent, options))));
  options.host = "localhost";  // a host name instead of an address
  ASSERT_TRUE(opened(net.finish_call(net.call(*agent, options))));
  boost::system::error_code error;
  boost::asio::ip::tcp::acceptor probe(net.io);
  probe.open(boost::asio::ip::tcp::v6());
  probe.bind({boost::asio::ip::address_v6::loopback(), 0}, error);
  if (error) GTEST_SKIP() << "no IPv6 here";
  options.host = "::1";
  ASSERT_TRUE(opened(net.finish_call(net.call(*agent, options))));
  ASSERT_TRUE(net.run_until([&] { return members.size() == 3; }));
  EXPECT_EQ(members[0]->local().address().to_string(), "127.0.0.1");
  EXPECT_EQ(members[2]->remote().address().to_string(), "::1");
}

TEST(Transport, TakenPortIsAUsageError) {
  Net net;
  Coordinator coordinator(net);
  ListenOptions options;
  options.address = "127.0.0.1";
  options.port = coordinator.port();
  try {
    coordinator.transport->listen(options, {});
    FAIL() << "two on one port";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(coordinator.port())), std::string::npos) << error.what();
  }
}

TEST(Transport, MembersOutliveThePort) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  const auto connection = opened(net.finish_call(net.call(*agent, to(coordinator.port()))));
  ASSERT_TRUE(net.run_until([&] { return coordinator.members.size() == 1; }));
  coordinator.listener->close_port();
  boost::asio::ip::tcp::acceptor next(net.io,
                                      // Another listener uses the same port, like PyTorch's store.
                                      {boost::asio::ip::address_v4::loopback(), coordinator.port()});
  Inbox inbox;
  coordinator.members.front()->start(inbox.handlers());
  connection->send("still here");
  ASSERT_TRUE(net.run_until([&] { return inbox.frames.size() == 1; }));
}

TEST(Transport, CanceledConnectEndsImmediately) {
  Net net;
  boost::asio::ip::tcp::acceptor silent(net.io, {boost::asio::ip::address_v4::loopback(), 0});
  const auto agent = net.transport();
  boost::asio::cancellation_signal stop;
  std::optional<ConnectResult> result;
  boost::asio::co_spawn(net.io, agent->connect(to(silent.local_endpoint().port(), std::chrono::hours(1))),
                        boost::asio::bind_cancellation_slot(
                            stop.slot(), [&](const std::exception_ptr&, ConnectResult r) { result = std::move(r); }));
  net.run_ready();
  stop.emit(boost::asio::cancellation_type::terminal);
  ASSERT_TRUE(net.run_until([&] { return result.has_value(); }));
  EXPECT_EQ(failure(*result).kind, Kind::kCancelled);
}

// Cancels a connect after every possible number of events. This includes cancellations between an awaited event and the
// resumption of the coroutine.
TEST(Transport, ConnectMayBeCanceledAtAnyEvent) {
  bool went_through = false;
  for (int events = 0; !went_through; ++events) {
    ASSERT_LT(events, 1000);
    Net net;
    Coordinator coordinator(net);
    const auto agent = net.transport();
    boost::asio::cancellation_signal stop;
    std::exception_ptr thrown;
    std::optional<ConnectResult> result;
    boost::asio::co_spawn(net.io, agent->connect(to(coordinator.port())),
                          boost::asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr error, ConnectResult r) {
                            thrown = std::move(error);
                            result = std::move(r);
                          }));
    for (int i = 0; i < events && !result; ++i) ASSERT_EQ(net.io.run_one_for(std::chrono::minutes(1)), 1u);
    went_through = result.has_value();
    stop.emit(boost::asio::cancellation_type::terminal);
    ASSERT_TRUE(net.run_until([&] { return result.has_value(); }));
    ASSERT_EQ(thrown, nullptr) << "after event " << events;
    if (result->connection) continue;
    EXPECT_EQ(result->failure.kind, Kind::kCancelled) << "after event " << events;
  }
}

TEST(Transport, SlowReaderIsClosed) {
  Net net;
  TransportLimits limits;
  limits.write_queue_bytes = 1 << 20;
  Coordinator coordinator(net, limits);
  const auto agent = net.transport();
  // This end never reads from the connection.
  const auto connection = opened(net.finish_call(net.call(*agent, to(coordinator.port()))));
  ASSERT_TRUE(net.run_until([&] { return coordinator.members.size() == 1; }));
  const auto member = coordinator.members.front();
  Inbox inbox;
  member->start(inbox.handlers());
  const std::string frame(64 << 10, 'x');
  std::size_t most = 0;
  for (int i = 0; i < 10000 && member->is_open(); ++i) {
    member->send(frame);
    most = std::max(most, member->queued_bytes());
  }
  EXPECT_FALSE(member->is_open());
  ASSERT_TRUE(net.run_until([&] { return inbox.closed.has_value(); }));
  EXPECT_EQ(inbox.closed->fault, PeerFault::kSlowReader);
  EXPECT_LE(most, limits.write_queue_bytes + (2 << 10));
}

TEST(Transport, AnswersAreBatchedAndSentBeforeAClose) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  const auto connection = opened(net.finish_call(net.call(*agent, to(coordinator.port()))));
  ASSERT_TRUE(net.run_until([&] { return coordinator.members.size() == 1; }));
  const auto member = coordinator.members.front();
  std::size_t held_back = 0;
  member->start({[&](std::string_view) {
                   member->send("one");
                   held_back = member->queued_bytes();
                   member->send("two");
                   member->close();
                 },
                 {}});
  Inbox inbox;
  connection->start(inbox.handlers());
  connection->send("question");
  ASSERT_TRUE(net.run_until([&] { return inbox.closed.has_value(); }));
  EXPECT_GT(held_back, 0U);
  EXPECT_EQ(inbox.frames, (std::vector<std::string>{"one", "two"}));
}

// Measures only the memory of connections, not of agents. Both ends of each connection are in this process, so the
// coordinator's ends use half of the memory.
TEST(Transport, IdleMemberUsesLittleMemory) {
  Net net;
  Coordinator coordinator(net);
  const auto agent = net.transport();
  std::vector<std::shared_ptr<Connection>> connections;
  const auto join = [&] { connections.push_back(opened(net.finish_call(net.call(*agent, to(coordinator.port()))))); };
  join();
  const std::size_t before = ::mallinfo2().uordblks;
  constexpr std::size_t kMembers = 200;
  for (std::size_t i = 0; i < kMembers; ++i) join();
  ASSERT_TRUE(net.run_until([&] { return coordinator.members.size() == kMembers + 1; }));
  Inbox inbox;
  for (const auto& member : coordinator.members) member->start(inbox.handlers());
  for (const auto& connection : connections) connection->send("hello");
  ASSERT_TRUE(net.run_until([&] { return inbox.frames.size() == kMembers + 1; }));
  const std::size_t each = (::mallinfo2().uordblks - before) / kMembers / 2;
  RecordProperty("bytes_each", static_cast<int>(each));
  EXPECT_LE(each, 40U << 10U);
}

}  // namespace
}  // namespace ddprun::test
