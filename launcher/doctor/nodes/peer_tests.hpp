// Tests the peers of this node, all at the same time: resolves their host names, and opens a TCP connection to each of them.
// No data is sent. The socket of the peer only listens and never accepts, so the kernel completes the connection. This test is
// enough to find firewalls, network policies, missing routes and wrong addresses, and needs no TLS handshake.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/doctor/nodes/node_report.hpp"

namespace ddprun::doctor {

// After this time, a name or connection without an answer is a problem.
inline constexpr std::chrono::milliseconds kPeerLimit{3'000};

struct PeerTestSettings {
  std::string own_host{};       // a peer with this host name is on this machine, and its name is not resolved
  std::string local_address{};  // numeric; empty if the kernel selects it
};

// Calls `done` once from the event loop, at most kPeerLimit later. A peer with port 0 gets no connection.
void test_peers(boost::asio::io_context& io, PeerList list, const PeerTestSettings& settings,
                std::function<void(PeerResults)> done);

}  // namespace ddprun::doctor
