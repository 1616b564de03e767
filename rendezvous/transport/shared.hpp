// The state that all connections of one agent share: the job's keys, the limits, the log of bad peers, and buffers. A buffer is
// used only within one call, so an idle connection needs no buffers. Only the transport uses this state, on one thread.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "common/system/name_lookup.hpp"
#include "rendezvous/identity/tls.hpp"
#include "rendezvous/transport/fault.hpp"

namespace ddprun {

struct TransportLimits {
  std::size_t frame_bytes = 1 << 20;
  // A connection is closed if its peer reads so slowly that more bytes than this are queued. One frame may always be queued.
  std::size_t write_queue_bytes = 8 << 20;

  // Limits for connections whose peer has not proved the token yet.
  std::size_t unauthenticated = 4096;  // number of connections; at most a quarter of the process's descriptor limit
  std::size_t silent_per_source = 1024;
  std::size_t bytes_before_token = 4 << 10;
  std::chrono::milliseconds handshake_time{5000};

  // Timeouts with which TCP detects a dead network: user_timeout for unacknowledged data (TCP_USER_TIMEOUT), and the other
  // timeouts for keepalive probes on an idle connection.
  std::chrono::milliseconds user_timeout{5000};
  std::chrono::seconds probe_after{2};
  std::chrono::seconds probe_interval{1};
  int probes = 3;
  // Sets user_timeout, probe_after and probe_interval so that TCP closes the connection when the peer has not answered for
  // `silence`. A shorter interruption does not close it.
  void give_up_after(std::chrono::milliseconds silence) {
    const auto part = [&](int fifths) {
      return std::max(std::chrono::seconds(1), std::chrono::floor<std::chrono::seconds>(silence * fifths / 5));
    };
    user_timeout = silence;
    probe_after = part(2);
    probe_interval = part(1);
  }

  // finish() waits at most this long until the peer has read all data.
  std::chrono::milliseconds linger_time{2000};
};

struct TransportShared {
  TransportShared(boost::asio::io_context& loop, std::unique_ptr<TlsKeys> job_keys, std::uint8_t version,
                  const TransportLimits& all_limits, std::function<void(const std::string&)> log_line)
      : io(loop), keys(std::move(job_keys)), protocol_version(version), limits(all_limits), log(std::move(log_line)) {}

  boost::asio::io_context& io;
  std::unique_ptr<TlsKeys> keys;
  std::uint8_t protocol_version;
  TransportLimits limits;
  std::function<void(const std::string& line)> log;
  // An std::optional, so that the destructor of Transport can destroy the NameLookup early. After that, no function is posted
  // to the io_context, which may be destroyed.
  std::optional<NameLookup> names{std::in_place, [this](std::function<void()> act) { boost::asio::post(io, std::move(act)); }};

  BadPeerLog bad_peers;
  std::array<char, 64 << 10> input{};
  std::string plaintext;
  std::string frame;

  void note(PeerFault fault, const std::string& peer, std::uint8_t peer_version);
};

// Returns the endpoint as text, such as "10.0.0.7:4242" or "[fe80::1]:4242". A mapped IPv4 address of an IPv6 socket is
// written as IPv4.
std::string to_text(const boost::asio::ip::tcp::endpoint& endpoint);
boost::asio::ip::tcp::endpoint unmapped(const boost::asio::ip::tcp::endpoint& endpoint);

}  // namespace ddprun
