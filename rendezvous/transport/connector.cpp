#include "rendezvous/transport/connector.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <random>
#include <variant>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "common/base/rounding.hpp"
#include "rendezvous/transport/close_on_exec.hpp"

namespace ddprun {
namespace {

using boost::asio::awaitable;
using boost::asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Kind = ConnectFailure::Kind;

constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{500};
constexpr double kPauseGrowth = 1.6;

// The result of an asynchronous operation for which a coroutine waits until a deadline. The operation and the coroutine share
// this object, because either of them may end first.
template <class Result>
struct Awaited {
  explicit Awaited(boost::asio::io_context& io) : timer(io) {}
  void set(Result value) {
    result = std::move(value);
    timer.cancel();
  }
  std::optional<Result> result;
  boost::asio::steady_timer timer;
};

enum class WaitEnd { kResult, kDeadline, kCancelled };

// Note: cancellation. A cancellation may arrive after the awaited event, but before this coroutine resumes. At that moment no
// timer is pending, so the cancellation cannot end a wait. By default, the next co_await of Asio then throws. run_connector()
// turns off that behavior, because an open connection must first be closed. So each wait checks for a cancellation itself.
template <class Result>
awaitable<WaitEnd> wait_for(std::shared_ptr<Awaited<Result>> awaited, Clock::time_point deadline) {
  if (!awaited->result) {
    const auto state = co_await boost::asio::this_coro::cancellation_state;
    if (state.cancelled() != boost::asio::cancellation_type::none) co_return WaitEnd::kCancelled;
    awaited->timer.expires_at(deadline);
    const auto [error] = co_await awaited->timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    if (!awaited->result) co_return error ? WaitEnd::kCancelled : WaitEnd::kDeadline;
  }
  co_return WaitEnd::kResult;
}

using Endpoints = std::vector<tcp::endpoint>;

// Returns true if the kernel has retransmitted packets or waits for an acknowledgement. In this case the reason why no data
// arrives may be the network and not the peer.
bool packets_were_lost(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && (info.tcpi_total_retrans > 0 || info.tcpi_unacked > 0);
}

class Connector {
 public:
  Connector(std::shared_ptr<TransportShared> shared, ConnectOptions options)
      : shared_(std::move(shared)),
        options_(std::move(options)),
        deadline_(Clock::now() + options_.patience),
        where_((options_.host.find(':') == std::string::npos ? options_.host : "[" + options_.host + "]") + ":" +
               std::to_string(options_.port)) {}

  awaitable<ConnectResult> run() {
    auto pause = kFirstPause;
    for (;;) {
      ConnectResult result = co_await try_once();
      if (result.connection || !waiting_helps(result.failure.kind)) co_return result;
      const auto resume = Clock::now() + jittered(pause);
      if (resume >= deadline_) co_return result;
      const auto timer = std::make_shared<Awaited<int>>(shared_->io);
      if (co_await wait_for(timer, resume) == WaitEnd::kCancelled) co_return cancelled();
      pause = std::min(kLongestPause,
                       std::chrono::milliseconds(round_to_nearest(kPauseGrowth * static_cast<double>(pause.count()))));
    }
  }

 private:
  static bool waiting_helps(Kind kind) {
    switch (kind) {
      case Kind::kUnresolvable:
      case Kind::kRefused:
      case Kind::kUnreachable:
      case Kind::kSilent:
      case Kind::kLost:
      case Kind::kNotDdprun:  // the program that uses the port now may end soon
        return true;
      case Kind::kBadLocalAddress:
      case Kind::kWrongToken:
      case Kind::kWrongRunId:
      case Kind::kWrongVersion:
      case Kind::kReflected:
      case Kind::kCancelled:
        break;
    }
    return false;
  }

  // Multiplies the pause by a random factor. Without this factor, a thousand agents that wait for one coordinator would all
  // connect at the same moment.
  std::chrono::microseconds jittered(std::chrono::milliseconds pause) {
    std::uniform_real_distribution<double> factor(0.8, 1.2);
    return std::chrono::microseconds(round_to_nearest(factor(random_) * 1000.0 * static_cast<double>(pause.count())));
  }

  ConnectFailure failed(Kind kind, const std::string& what) const {
    return {kind, "cannot join the job at " + where_ + ": " + what};
  }
  ConnectFailure cancelled() const { return failed(Kind::kCancelled, "stopped"); }

  awaitable<ConnectResult> try_once() {
    std::optional<tcp::endpoint> local;
    if (!options_.local_address.empty()) {
      error_code error;
      local.emplace(boost::asio::ip::make_address(options_.local_address, error), 0);
      if (error) {
        co_return failed(Kind::kBadLocalAddress, "--local-addr " + options_.local_address +
                                                     " is not an IP address: use an address of this machine (ip addr)");
      }
    }
    std::variant<Endpoints, ConnectFailure> resolved = co_await resolve();
    if (auto* const failure = std::get_if<ConnectFailure>(&resolved)) co_return std::move(*failure);
    Endpoints endpoints = std::get<Endpoints>(std::move(resolved));
    if (local) {
      std::erase_if(endpoints, [&](const tcp::endpoint& e) { return e.address().is_v4() != local->address().is_v4(); });
      if (endpoints.empty()) {
        const std::string version = local->address().is_v4() ? "IPv4" : "IPv6";
        co_return failed(Kind::kBadLocalAddress, "--local-addr " + options_.local_address + " is an " + version +
                                                     " address, but the host " + options_.host + " has no " + version +
                                                     " address: use another --local-addr");
      }
    }
    std::optional<ConnectFailure> best_failure;
    for (const tcp::endpoint& endpoint : endpoints) {
      ConnectResult result = co_await attempt(endpoint, local);
      if (result.connection || result.failure.kind == Kind::kCancelled) co_return result;
      // Keeps the failure of the attempt that made the most progress. The values of the enum Kind are sorted by progress.
      if (!best_failure || result.failure.kind > best_failure->kind) best_failure = std::move(result.failure);
      if (Clock::now() >= deadline_) break;
    }
    co_return std::move(*best_failure);
  }

  awaitable<std::variant<Endpoints, ConnectFailure>> resolve() {
    error_code error;
    // A numeric address needs no lookup, and therefore no thread.
    if (const auto address = boost::asio::ip::make_address(options_.host, error); !error) {
      co_return Endpoints{{address, options_.port}};
    }
    if (!shared_->names) co_return cancelled();
    const auto answer = std::make_shared<Awaited<NameAnswer>>(shared_->io);
    shared_->names->query(options_.host, [answer](const NameAnswer& found) { answer->set(found); });
    const WaitEnd end = co_await wait_for(answer, std::max(deadline_, Clock::now() + std::chrono::seconds(1)));
    if (end == WaitEnd::kCancelled) co_return cancelled();
    const bool answered = end == WaitEnd::kResult;
    Endpoints endpoints;
    for (const std::string& number : answered ? answer->result->addresses : std::vector<std::string>()) {
      if (const auto address = boost::asio::ip::make_address(number, error); !error)
        endpoints.emplace_back(address, options_.port);
    }
    if (!endpoints.empty()) co_return endpoints;
    co_return failed(Kind::kUnresolvable, "the name " + options_.host + " has no address (" +
                                              (answered ? answer->result->error : "no answer in time") +
                                              "). Check the name, or use an IP address");
  }

  awaitable<ConnectResult> attempt(tcp::endpoint endpoint, std::optional<tcp::endpoint> local) {
    const std::string address = to_text(endpoint);
    const auto socket = std::make_shared<tcp::socket>(shared_->io);
    error_code error;
    open_close_on_exec(*socket, endpoint.protocol(), error);
    if (!error && local) {
      socket->bind(*local, error);
      if (error) {
        co_return failed(Kind::kBadLocalAddress, "--local-addr " + options_.local_address + " cannot be used: " +
                                                     error.message() + ". Use an address of this machine (ip addr)");
      }
    }
    if (error) co_return failed(Kind::kUnreachable, address + ": " + error.message());

    const auto connected = std::make_shared<Awaited<error_code>>(shared_->io);
    socket->async_connect(endpoint, [connected, socket](const error_code& result) { connected->set(result); });
    const auto end = co_await wait_for(connected, end_of_attempt());
    if (end != WaitEnd::kResult) {
      error_code ignored;
      socket->close(ignored);
      if (end == WaitEnd::kCancelled) co_return cancelled();
      co_return failed(Kind::kUnreachable,
                       "no answer from " + address + ". Check that the node is up and that no firewall blocks this port");
    }
    if (const error_code result = *connected->result) co_return not_connected(address, result);
    co_return co_await start_handshake(std::move(*socket), address);
  }

  Clock::time_point end_of_attempt() const {
    // An attempt gets at least 100 ms, even after the deadline, so that the network can report the reason of a failure.
    return std::max(std::min(Clock::now() + options_.attempt, deadline_), Clock::now() + std::chrono::milliseconds(100));
  }

  ConnectFailure not_connected(const std::string& address, const error_code& error) const {
    if (error == boost::asio::error::connection_refused) {
      return failed(Kind::kRefused, "no process listens on " + address +
                                        " (connection refused). Start ddprun on that node, or check the address and port");
    }
    return failed(Kind::kUnreachable,
                  address + ": " + error.message() + ". Check the address and the network between the nodes");
  }

  awaitable<ConnectResult> start_handshake(tcp::socket socket, std::string address) {
    const int fd = socket.native_handle();
    error_code ignored;
    const tcp::endpoint remote = socket.remote_endpoint(ignored);
    socket.native_non_blocking(true, ignored);
    set_socket_options(fd, shared_->limits);
    const auto connection = std::make_shared<Connection>(shared_, std::move(socket), remote, TlsRole::kClient);
    const auto done = std::make_shared<Awaited<Connection::Handshake>>(shared_->io);
    connection->start_handshake({{}, [done](const Connection::Handshake& result) { done->set(result); }});
    const auto end = co_await wait_for(done, end_of_attempt());
    if (end == WaitEnd::kResult) {
      if (done->result->end == Connection::Handshake::End::kOpen) co_return connection;
      co_return refused(address, *done->result);
    }
    const bool lossy = packets_were_lost(fd);
    connection->close();
    if (end == WaitEnd::kCancelled) co_return cancelled();
    if (lossy) {
      co_return failed(Kind::kUnreachable,
                       "packets are lost on the way to " + address + ". Check the network between the nodes");
    }
    co_return failed(
        Kind::kSilent,
        address + " accepts connections but sends nothing. Check that ddprun uses that port, and that the node is alive");
  }

  ConnectFailure refused(const std::string& address, const Connection::Handshake& result) const {
    if (result.end == Connection::Handshake::End::kLost) {
      return failed(Kind::kLost, address + " closed the connection before it answered (" + result.detail +
                                     "). Check that ddprun uses that port, and that its agent has not ended");
    }
    switch (result.fault) {
      case PeerFault::kWrongToken:
        return failed(Kind::kWrongToken, address +
                                             " refuses this node's token: the job there has another token. Copy the token from "
                                             "there (ddprun token --show) and pass it with --token-file or DDPRUN_TOKEN");
      case PeerFault::kWrongRunId:
        return failed(Kind::kWrongRunId,
                      "the agent at " + address +
                          " runs a job with another run id. Give both nodes the same --rdzv-id, or use another port");
      case PeerFault::kWrongVersion:
        return failed(Kind::kWrongVersion, "the agent at " + address + " uses protocol version " +
                                               std::to_string(result.peer_version) + ", this agent uses version " +
                                               std::to_string(shared_->protocol_version) +
                                               ". Install the same ddprun on every node");
      case PeerFault::kReflected:
        return failed(Kind::kReflected, address +
                                            " is this agent itself, or a program that echoes its messages. Check that the "
                                            "address is that of the coordinator and not of this machine");
      default:
        return failed(Kind::kNotDdprun, "the program at " + address + " is not an agent of this job (" +
                                            (result.detail.empty() ? "no shared key" : result.detail) + "). Check the port");
    }
  }

  std::shared_ptr<TransportShared> shared_;
  ConnectOptions options_;
  Clock::time_point deadline_;
  std::string where_;
  // Does not use std::random_device, because it executes CPUID for each connection, which is slow on a virtual machine.
  std::minstd_rand random_{static_cast<std::minstd_rand::result_type>(Clock::now().time_since_epoch().count())};
};

}  // namespace

awaitable<ConnectResult> run_connector(std::shared_ptr<TransportShared> shared, ConnectOptions options) {
  co_await boost::asio::this_coro::throw_if_cancelled(false);
  Connector connector(std::move(shared), std::move(options));
  co_return co_await connector.run();
}

}  // namespace ddprun
