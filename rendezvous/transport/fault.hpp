// The kinds of problems with a peer or a connection, as texts, and the log of bad peers. It logs the first line of each kind
// immediately, then at most one in ten seconds, with the number of suppressed ones. Pure; connection.cpp and listener.cpp use
// it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/identity/tls.hpp"

namespace ddprun {

enum class PeerFault : std::uint8_t {
  kNotTls,
  kNoKey,
  kWrongToken,
  kWrongRunId,
  kWrongVersion,
  kReflected,
  kSilent,         // no complete handshake in time
  kTalkative,      // too many bytes before the token was proved
  kCrowdedOut,     // silent, and closed to make room for others
  kNoDescriptors,  // accepted and immediately closed: no descriptor was left
  kBroken,         // a member sent an invalid record
  kFrameTooLarge,  // a member sent a frame over the limit
  kSlowReader,     // a member does not read the data that we send
  kCount,
};

PeerFault fault_of(TlsFailure failure);

// A line for the log: the peer's fault and its consequence.
std::string describe(PeerFault fault, std::uint8_t own_version, std::uint8_t peer_version);

class BadPeerLog {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kInterval{10};

  // The line to log now; nullopt if this kind was logged within kInterval.
  std::optional<std::string> note(PeerFault fault, std::string_view peer, std::string_view what, TimePoint now);
  std::uint64_t count(PeerFault fault) const { return kinds_[static_cast<std::size_t>(fault)].total; }

 private:
  struct Kind {
    std::uint64_t total = 0;
    std::uint64_t unsaid = 0;
    std::optional<TimePoint> said;
  };
  std::array<Kind, static_cast<std::size_t>(PeerFault::kCount)> kinds_;
};

}  // namespace ddprun
