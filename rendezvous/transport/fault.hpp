// The faults of peers and connections as texts, and the log of bad peers. The log gets the first line of each kind of fault
// immediately. After that, the log gets at most one line in ten seconds, with the number of suppressed lines. So a hostile
// peer cannot fill the log file. The code is pure (no I/O, no clock). connection.cpp and listener.cpp use it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/identity/tls.hpp"

namespace ddprun {

// Returns a text for the log: what the peer did wrong, and the consequence.
std::string describe(PeerFault fault, std::uint8_t own_version, std::uint8_t peer_version);

class BadPeerLog {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kInterval{10};

  // Counts a fault. Returns the line to log now; nullopt if this kind of fault was logged within kInterval.
  std::optional<std::string> note(PeerFault fault, std::string_view peer, std::string_view what, TimePoint now);
  std::uint64_t count(PeerFault fault) const { return kinds_[static_cast<std::size_t>(fault)].total; }

 private:
  struct Kind {
    std::uint64_t total = 0;
    std::uint64_t suppressed = 0;
    std::optional<TimePoint> logged_at;
  };
  std::array<Kind, static_cast<std::size_t>(PeerFault::kCount)> kinds_;
};

}  // namespace ddprun
