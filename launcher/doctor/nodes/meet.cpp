#include "launcher/doctor/nodes/meet.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/error.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/rounding.hpp"
#include "common/system/boot_time.hpp"
#include "common/system/realtime.hpp"
#include "launcher/doctor/nodes/gathering.hpp"
#include "launcher/doctor/nodes/interface_mtu.hpp"
#include "launcher/doctor/nodes/peer_tests.hpp"
#include "rendezvous/identity/token_search.hpp"
#include "rendezvous/transport/port.hpp"
#include "rendezvous/transport/transport.hpp"

namespace ddprun::doctor {
namespace {

using std::chrono::milliseconds;
using Link = Gathering::Link;

constexpr const char* kRunId = "ddprun doctor";
// The doctors of different versions of ddprun must be able to meet, so this is not the version of the agents. An agent of a job
// refuses it, and a doctor refuses an agent.
constexpr std::uint8_t kDoctorVersion = kMaxProtocolVersion;
constexpr milliseconds kAttempt{4000};
constexpr milliseconds kAnswer{10'000};  // for the tests of the peers, whose own limit is kPeerLimit
// A node waits this much longer than the first node, which sends the result at its own deadline.
constexpr milliseconds kPatience{5'000};
constexpr const char* kSameCommand = "start ddprun doctor with the same options on all nodes";

milliseconds now() {
  return std::chrono::duration_cast<milliseconds>(time_since_boot());
}

std::string seconds_text(milliseconds time) {
  return std::to_string(round_to_nearest(std::chrono::duration<double>(time).count())) + " s";
}

std::string address_of(const Connection::Endpoint& endpoint) {
  return unmapped(endpoint).address().to_string();
}

std::string place_text(const DoctorPlace& place) {
  return (place.host.empty() ? "127.0.0.1" : place.host) + " port " + std::to_string(place.port);
}

// The two roles share the event loop, the transport and the port at which peers test their connections.
class Doctor {
 public:
  Doctor(const DoctorPlace& place, const Token& token, NodeReport own, const std::function<void(const std::string&)>& log)
      : place_(place),
        own_(std::move(own)),
        transport_(io_,
                   {.token = token.text(), .run_id = kRunId, .protocol_version = kDoctorVersion, .instance = new_instance_id()},
                   {}, log),
        timer_(io_) {
    open_test_port();
  }

 protected:
  // Nothing accepts the connections of this port: the kernel completes them (peer_tests.hpp).
  void open_test_port() {
    try {
      test_port_.emplace(open_port(
          io_, {.address = place_.local_address,
                .port = 0,
                .range = {static_cast<std::uint16_t>(place_.ports.low), static_cast<std::uint16_t>(place_.ports.high)},
                .hand_over = {},
                .take_foreign = {}}));
      own_.port = test_port_->local_endpoint().port();
    } catch (const Error&) {
      own_.port = 0;  // the peers then test only the name of this node
    }
  }

  void test(PeerList list, std::function<void(PeerResults)> done) {
    test_peers(io_, std::move(list), {.own_host = own_.host, .local_address = place_.local_address}, std::move(done));
  }

  const DoctorPlace& place_;
  NodeReport own_;
  boost::asio::io_context io_{1};
  Transport transport_;
  boost::asio::steady_timer timer_;
  std::optional<boost::asio::ip::tcp::acceptor> test_port_;
};

// The first node: accepts the others, and compares.
class FirstNode : private Doctor {
 public:
  // Throws UsageError if another program uses the port.
  FirstNode(const DoctorPlace& place, const Token& token, NodeReport own)
      : Doctor(place, token, std::move(own), [this](const std::string& line) { gathering_.refused(line); }),
        gathering_(own_, {.min_nodes = place.min_nodes, .max_nodes = place.max_nodes, .wait = place.wait, .answer = kAnswer},
                   now()) {
    listener_ = transport_.listen(
        {.address = place.local_address, .port = static_cast<std::uint16_t>(place.port), .hand_over = {}, .take_foreign = {}},
        [this](const std::shared_ptr<Connection>& connection) { accept(connection); });
  }

  Meeting run() {
    carry_out(gathering_.start(now()));
    arm();
    io_.run();
    return std::move(meeting_);
  }

 private:
  struct Member {
    std::shared_ptr<Connection> connection;
    std::int64_t queried_ns = 0;  // when the clock query was sent
  };

  void accept(const std::shared_ptr<Connection>& connection) {
    if (is_over_) return connection->close();
    const Link link = ++last_link_;
    members_[link] = {connection};
    if (const auto mtu = mtu_of_address(address_of(connection->local()))) gathering_.add_own_fact("mtu", std::to_string(*mtu));
    Connection::Handlers handlers;
    handlers.on_frame = [this, link](std::string_view frame) { received(link, frame); };
    handlers.on_closed = [this, link](const Closed&) {
      members_.erase(link);
      carry_out(gathering_.lost(link));
      stop_if_finished();
    };
    connection->start(std::move(handlers));
  }

  void received(Link link, std::string_view frame) {
    const auto found = members_.find(link);
    auto message = decode(frame);
    if (found == members_.end() || !message || is_over_) return;
    Member& member = found->second;
    const Overloaded take{
        [&](NodeReport& report) {
          carry_out(gathering_.arrived(link, std::move(report), address_of(member.connection->remote()), now()));
        },
        [&](const ClockReading& reading) {
          const std::int64_t answered_ns = realtime_ns();
          const std::int64_t middle_ns = member.queried_ns + (answered_ns - member.queried_ns) / 2;
          gathering_.clock(link, {.offset_s = 1e-9 * (static_cast<double>(reading.time_ns) - static_cast<double>(middle_ns)),
                                  .error_s = 0.5e-9 * static_cast<double>(answered_ns - member.queried_ns)});
        },
        [&](PeerResults& results) { carry_out(gathering_.answered(link, std::move(results))); }, [](const auto&) {}};
    std::visit(take, *message);
    arm();
  }

  void carry_out(const Gathering::Actions& actions) {
    for (const Gathering::Action& action : actions) std::visit([this](const auto& one) { carry_out(one); }, action);
  }
  void carry_out(const Gathering::SendClockQuery& action) {
    if (const auto found = members_.find(action.link); found != members_.end()) {
      found->second.queried_ns = realtime_ns();
      found->second.connection->send(encode(ClockQuery{}));
    }
  }
  void carry_out(const Gathering::SendPeers& action) {
    PeerList list = action.list;
    if (action.link == Gathering::kSelf) {
      return test(std::move(list), [this](PeerResults results) {
        carry_out(gathering_.answered(Gathering::kSelf, std::move(results)));
        arm();
      });
    }
    const auto found = members_.find(action.link);
    if (found == members_.end()) return;
    // Each node knows the first node under the address that it has connected to.
    for (NodePeer& peer : list.peers) {
      if (peer.address.empty()) peer.address = address_of(found->second.connection->local());
    }
    found->second.connection->send(encode(list));
  }
  void carry_out(const Gathering::Refuse& action) {
    if (const auto found = members_.find(action.link); found != members_.end()) {
      found->second.connection->send(encode(NodeRefusal{action.why}));
      found->second.connection->finish();
    }
  }
  void carry_out(const Gathering::Conclude&) {
    is_over_ = true;
    timer_.cancel();
    listener_.reset();
    const std::vector<ComparedNode>& nodes = gathering_.nodes();
    meeting_.comparison = compare_nodes(nodes, gathering_.attendance());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      meeting_.tables.push_back({nodes[i].label, nodes[i].address, gathering_.checks_of(i)});
    }
    const GroupResult result = result_of(meeting_.tables, meeting_.comparison, own_.host);
    for (const auto& [link, member] : members_) {
      member.connection->send(encode(result));
      member.connection->finish();
    }
    stop_if_finished();
  }

  void stop_if_finished() {
    if (is_over_ && members_.empty()) io_.stop();
  }

  void arm() {
    if (is_over_) return;
    timer_.expires_after(std::max(milliseconds(0), gathering_.deadline() - now()));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      carry_out(gathering_.tick(now()));
      arm();
    });
  }

  Gathering gathering_;
  std::shared_ptr<Listener> listener_;
  std::map<Link, Member> members_;
  Link last_link_ = Gathering::kSelf;
  bool is_over_ = false;
  Meeting meeting_;
};

// Any other node: connects to the first node, reports, and waits for the result.
class OtherNode : private Doctor {
 public:
  OtherNode(const DoctorPlace& place, const Token& token, NodeReport own) : Doctor(place, token, std::move(own), {}) {}

  Meeting run() {
    ConnectOptions options{.host = place_.host.empty() ? "127.0.0.1" : place_.host,
                           .port = static_cast<std::uint16_t>(place_.port),
                           .local_address = place_.local_address,
                           .patience = place_.wait,
                           .attempt = kAttempt};
    boost::asio::co_spawn(io_, transport_.connect(std::move(options)),
                          [this](const std::exception_ptr& error, const ConnectResult& connected) {
                            if (error) std::rethrow_exception(error);
                            connected.connection ? join(connected.connection) : report(connected.failure);
                          });
    io_.run();
    return std::move(meeting_);
  }

 private:
  void join(const std::shared_ptr<Connection>& connection) {
    connection_ = connection;
    if (const auto mtu = mtu_of_address(address_of(connection->local()))) own_.facts["mtu"] = std::to_string(*mtu);
    Connection::Handlers handlers;
    handlers.on_frame = [this](std::string_view frame) { received(frame); };
    handlers.on_closed = [this](const Closed& closed) {
      problem("the doctor of the first node at " + place_text(place_) + " ended before it sent the result" +
                  (closed.why.empty() ? "" : ": " + closed.why),
              "read its output, then start ddprun doctor on all nodes again");
    };
    connection->start(std::move(handlers));
    connection->send(encode(own_));
    timer_.expires_after(place_.wait + kAnswer + kPatience);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      problem("the doctor of the first node at " + place_text(place_) + " sent no result in time",
              "check the load of that node, then start ddprun doctor on all nodes again");
    });
  }

  void received(std::string_view frame) {
    auto message = decode(frame);
    if (!message) return;
    const Overloaded take{
        [this](const ClockQuery&) { connection_->send(encode(ClockReading{realtime_ns()})); },
        [this](PeerList& list) {
          test(std::move(list), [this](const PeerResults& results) { connection_->send(encode(results)); });
        },
        [this](const GroupResult& result) {
          meeting_.result = result;
          end();
        },
        [this](const NodeRefusal& refusal) { problem("the first node refused this node: " + refusal.why, kSameCommand); },
        [](const auto&) {}};
    std::visit(take, *message);
  }

  void report(const ConnectFailure& failure) {
    using Kind = ConnectFailure::Kind;
    switch (failure.kind) {
      case Kind::kWrongToken:
        meeting_.problems = {
            error("token", failure.message, "give all nodes the same token: ddprun token, --token-file, DDPRUN_TOKEN")};
        break;
      case Kind::kWrongRunId:
      case Kind::kWrongVersion:
        return problem("at " + place_text(place_) + ", an agent of a running job answers, and not the doctor of the first node",
                       "run the doctor before the job, or with another port");
      case Kind::kBadLocalAddress:
        return problem(failure.message, "correct --local-addr or --interface");
      default:
        return problem(
            "this node did not find the doctor of the first node within " + seconds_text(place_.wait) + ": " + failure.message,
            std::string(kSameCommand) + ", and check the address of the first node (--master-addr, --rdzv-endpoint)");
    }
  }

  void problem(const std::string& found, const std::string& remedy) {
    if (!meeting_.result) meeting_.problems = {error("nodes", found, remedy)};
    end();
  }

  void end() {
    timer_.cancel();
    if (connection_) connection_->close();
    io_.stop();
  }

  std::shared_ptr<Connection> connection_;
  Meeting meeting_;
};

Meeting meet_with(const DoctorPlace& place, const Token& token, NodeReport own) {
  using Lead = DoctorPlace::Lead;
  if (place.lead == Lead::kNo) return OtherNode(place, token, std::move(own)).run();
  std::optional<FirstNode> first;
  try {
    first.emplace(place, token, own);
  } catch (const UsageError&) {
    if (place.lead == Lead::kYes) throw;
    return OtherNode(place, token, std::move(own)).run();  // another node on this machine is the first one
  }
  return first->run();
}

}  // namespace

Meeting meet(const DoctorPlace& place, std::optional<std::string> token_variable, NodeReport& own) {
  const auto failed = [](Check check) { return Meeting{.problems = {std::move(check)}}; };
  if (place.port == 0) {
    return failed(error("nodes", "the nodes cannot meet, because the port of the first node is not fixed",
                        "give the port in --rdzv-endpoint HOST:PORT or --master-port"));
  }
  if (!place.host_can_resolve) {
    return failed(error("nodes", "the nodes cannot meet at " + place.host + ", which is neither an address nor a possible name",
                        "correct --master-addr or --rdzv-endpoint (variables PET_MASTER_ADDR, PET_RDZV_ENDPOINT)"));
  }
  try {
    const bool leads = place.lead != DoctorPlace::Lead::kNo;
    const FoundToken found = find_token({.token_file = place.token_file,
                                         .variable = std::move(token_variable),
                                         .run_dir = place.run_dir,
                                         .user_file = token_file_of_user(),
                                         .node = leads ? TokenSources::Node::kFirst : TokenSources::Node::kOther});
    own.checks.push_back(ok("token", "can contain 128 random bits; from " + found.source));
    return meet_with(place, found.token, own);
  } catch (const TokenError& problem) {
    return failed(error("token", problem.what(), "create a token with ddprun token, and give it to all nodes"));
  } catch (const Error& problem) {
    return failed(error("nodes", problem.what(), "choose another port, or end the program that uses this one"));
  }
}

}  // namespace ddprun::doctor
