// What all connections of one agent share: the job's keys, the limits, the log of bad peers, and buffers that are only used
// within one call, so that an idle connection needs none of its own. Inside the transport only; one thread.
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
  // A member that reads so slowly that more than this waits for it is closed. One frame may always wait.
  std::size_t write_queue_bytes = 8 << 20;

  // Before a peer has shown the token.
  std::size_t unauthenticated = 4096;  // connections; a quarter of the descriptors allowed if that is less
  std::size_t silent_per_source = 1024;
  std::size_t bytes_before_token = 4 << 10;
  std::chrono::milliseconds handshake_time{5000};

  // A dead network is noticed by unanswered data (TCP_USER_TIMEOUT) or unanswered probes when idle.
  std::chrono::milliseconds user_timeout{5000};
  std::chrono::seconds probe_after{2};
  std::chrono::seconds probe_interval{1};
  int probes = 3;
  // These three from how long the caller waits for a silent peer: what the network bears for that long, TCP must bear.
  void give_up_after(std::chrono::milliseconds silence) {
    const auto part = [&](int of_five) {
      return std::max(std::chrono::seconds(1), std::chrono::floor<std::chrono::seconds>(silence * of_five / 5));
    };
    user_timeout = silence;
    probe_after = part(2);
    probe_interval = part(1);
  }

  // How long finish() waits for the peer to have read everything.
  std::chrono::milliseconds farewell_time{2000};
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
  // Gone with the Transport: nothing is posted to an io_context that ends.
  std::optional<NameLookup> names{std::in_place, [this](std::function<void()> act) { boost::asio::post(io, std::move(act)); }};

  BadPeerLog bad_peers;
  std::array<char, 64 << 10> input{};
  std::string plaintext;
  std::string frame;

  void note(PeerFault fault, const std::string& peer, std::uint8_t peer_version);
};

// "10.0.0.7:4242", "[fe80::1]:4242"; an IPv4 address that came through an IPv6 socket reads as what it is.
std::string to_text(const boost::asio::ip::tcp::endpoint& endpoint);
boost::asio::ip::tcp::endpoint unmapped(const boost::asio::ip::tcp::endpoint& endpoint);

}  // namespace ddprun
