#include "launcher/doctor/nodes/peer_tests.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/name_lookup.hpp"

namespace ddprun::doctor {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr const char* kNoAnswer = "no answer in time";

std::string endpoint_text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(endpoint.port());
}

// The callbacks share this object. It is destroyed together with the last callback, at the latest with the event loop.
struct Tests : std::enable_shared_from_this<Tests> {
  explicit Tests(boost::asio::io_context& loop)
      : io(loop), timer(loop), names([&loop](std::function<void()> act) { boost::asio::post(loop, std::move(act)); }) {}

  void start(const PeerList& list, const PeerTestSettings& settings) {
    timer.expires_after(kPeerLimit);
    timer.async_wait([self = shared_from_this()](const error_code& error) {
      if (!error) self->finish();
    });
    results.results.reserve(list.peers.size());  // open() and resolve() use the positions
    for (const NodePeer& peer : list.peers) {
      const std::size_t at = results.results.size();
      results.results.push_back({.id = peer.id});
      if (!peer.host.empty() && peer.host != settings.own_host) resolve(at, peer.host);
      if (peer.port != 0 && !peer.address.empty()) open(at, peer, settings.local_address);
    }
    if (pending == 0) finish();
  }

  void resolve(std::size_t at, const std::string& host) {
    ++pending;
    results.results[at].name_problem = kNoAnswer;
    // The resolver may never answer. A strong reference would then keep this object alive after the end of the event loop.
    names.query(host, [weak = weak_from_this(), at](const NameAnswer& answer) {
      const auto self = weak.lock();
      if (!self || self->is_finished) return;
      PeerResult& result = self->results.results[at];
      result.addresses = answer.addresses;
      result.name_problem = answer.addresses.empty() ? (answer.error.empty() ? "no address" : answer.error) : "";
      self->finish_one();
    });
  }

  void open(std::size_t at, const NodePeer& peer, const std::string& local_address) {
    PeerResult& result = results.results[at];
    error_code error;
    const tcp::endpoint target(boost::asio::ip::make_address(peer.address, error), peer.port);
    const auto socket = std::make_shared<tcp::socket>(io);
    if (!error) socket->open(target.protocol(), error);
    if (!error && !local_address.empty()) {
      const auto local = boost::asio::ip::make_address(local_address, error);
      if (!error && local.is_v4() == target.address().is_v4()) socket->bind({local, 0}, error);
    }
    if (error) {
      result.connect_problem = peer.address + ": " + error.message();
      return;
    }
    ++pending;
    sockets.push_back(socket);
    result.connect_problem = endpoint_text(target) + ": " + kNoAnswer;
    socket->async_connect(target, [self = shared_from_this(), at, target](const error_code& failure) {
      if (self->is_finished) return;
      self->results.results[at].connect_problem = failure ? endpoint_text(target) + ": " + failure.message() : "";
      self->finish_one();
    });
  }

  void finish_one() {
    if (--pending == 0) finish();
  }

  void finish() {
    if (std::exchange(is_finished, true)) return;
    timer.cancel();
    for (const auto& socket : sockets) {
      error_code ignored;
      socket->close(ignored);
    }
    done(std::move(results));
  }

  boost::asio::io_context& io;
  boost::asio::steady_timer timer;
  NameLookup names;
  std::vector<std::shared_ptr<tcp::socket>> sockets;
  PeerResults results;
  std::function<void(PeerResults)> done;
  int pending = 0;
  bool is_finished = false;
};

}  // namespace

void test_peers(boost::asio::io_context& io, PeerList list, const PeerTestSettings& settings,
                std::function<void(PeerResults)> done) {
  const auto tests = std::make_shared<Tests>(io);
  tests->done = std::move(done);
  // The tests start in the event loop, since `done` must not be called before this function returns.
  boost::asio::post(io, [tests, list = std::move(list), settings] { tests->start(list, settings); });
}

}  // namespace ddprun::doctor
