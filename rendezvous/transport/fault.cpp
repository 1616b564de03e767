#include "rendezvous/transport/fault.hpp"

namespace ddprun {

std::string describe(PeerFault fault, std::uint8_t own_version, std::uint8_t peer_version) {
  switch (fault) {
    case PeerFault::kNotTls:
      return "refused: the peer does not use ddprun's protocol (no TLS)";
    case PeerFault::kNoKey:
      return "refused: the peer uses TLS, but is not a ddprun agent";
    case PeerFault::kWrongToken:
      return "refused: the token of the peer is not the token of this job. Give every node the same token (ddprun token)";
    case PeerFault::kWrongRunId:
      return "refused: the peer belongs to a job with another run id";
    case PeerFault::kWrongVersion:
      return "refused: the peer uses protocol version " + std::to_string(peer_version) + ", this agent uses version " +
             std::to_string(own_version) + ". Install the same ddprun on every node";
    case PeerFault::kReflected:
      return "refused: the peer sent back the first message of this agent; either the agent connected to itself, or a program "
             "echoes its messages";
    case PeerFault::kSilent:
      return "closed: the peer did not present the token in time";
    case PeerFault::kTooManyBytes:
      return "closed: the peer sent too many bytes before it presented the token";
    case PeerFault::kCrowdedOut:
      return "closed: this connection was the oldest of too many connections that have not presented the token";
    case PeerFault::kNoDescriptors:
      return "closed: no file descriptors are left (ulimit -n)";
    case PeerFault::kBroken:
      return "closed: data on this connection was changed, lost or repeated in transit";
    case PeerFault::kFrameTooLarge:
      return "closed: the peer announced a message above the size limit";
    case PeerFault::kSlowReader:
      return "closed: the peer does not read its messages";
    case PeerFault::kNone:
    case PeerFault::kCount:
      break;
  }
  return "closed";
}

std::optional<std::string> BadPeerLog::note(PeerFault fault, std::string_view peer, std::string_view what, TimePoint now) {
  Kind& kind = kinds_[static_cast<std::size_t>(fault)];
  ++kind.total;
  if (kind.logged_at && now < *kind.logged_at + kInterval) {
    ++kind.suppressed;
    return std::nullopt;
  }
  std::string line = std::string(peer) + " " + std::string(what);
  if (kind.suppressed > 0)
    line += " (and " + std::to_string(kind.suppressed) + " similar connections since the last such line)";
  kind.logged_at = now;
  kind.suppressed = 0;
  return line;
}

}  // namespace ddprun
