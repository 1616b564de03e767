// Implementation of fault.hpp.
#include "rendezvous/transport/fault.hpp"

namespace ddprun {

PeerFault fault_of(TlsFailure failure) {
  switch (failure) {
    case TlsFailure::kNotTls:
      return PeerFault::kNotTls;
    case TlsFailure::kWrongToken:
      return PeerFault::kWrongToken;
    case TlsFailure::kWrongRunId:
      return PeerFault::kWrongRunId;
    case TlsFailure::kWrongVersion:
      return PeerFault::kWrongVersion;
    case TlsFailure::kReflected:
      return PeerFault::kReflected;
    case TlsFailure::kBroken:
      return PeerFault::kBroken;
    case TlsFailure::kNone:
    case TlsFailure::kNoKey:
      break;
  }
  return PeerFault::kNoKey;
}

std::string describe(PeerFault fault, std::uint8_t own_version, std::uint8_t peer_version) {
  switch (fault) {
    case PeerFault::kNotTls:
      return "refused: it does not speak ddprun's protocol (no TLS)";
    case PeerFault::kNoKey:
      return "refused: it speaks TLS, but is no agent of ddprun";
    case PeerFault::kWrongToken:
      return "refused: its token is not this job's. Give every node the same token (ddprun token)";
    case PeerFault::kWrongRunId:
      return "refused: it belongs to a job with another run id";
    case PeerFault::kWrongVersion:
      return "refused: it speaks protocol version " + std::to_string(peer_version) + ", this agent version " +
             std::to_string(own_version) + ". Install the same ddprun on every node";
    case PeerFault::kReflected:
      return "refused: it sent this agent's own hello; the agent called itself, or somebody reflects its messages";
    case PeerFault::kSilent:
      return "closed: it did not show the token in time";
    case PeerFault::kTalkative:
      return "closed: it sent too much before it showed the token";
    case PeerFault::kCrowdedOut:
      return "closed: too many connections that have not shown the token, and it was the oldest of them";
    case PeerFault::kNoDescriptors:
      return "closed: no file descriptors are left (ulimit -n)";
    case PeerFault::kBroken:
      return "closed: what it sent was changed, lost or repeated on the way";
    case PeerFault::kFrameTooLarge:
      return "closed: it announced a message over the limit";
    case PeerFault::kSlowReader:
      return "closed: it does not read what it is sent";
    case PeerFault::kCount:
      break;
  }
  return "closed";
}

std::optional<std::string> BadPeerLog::note(PeerFault fault, std::string_view peer, std::string_view what, TimePoint now) {
  Kind& kind = kinds_[static_cast<std::size_t>(fault)];
  ++kind.total;
  if (kind.said && now < *kind.said + kInterval) {
    ++kind.unsaid;
    return std::nullopt;
  }
  std::string line = std::string(peer) + " " + std::string(what);
  if (kind.unsaid > 0) line += " (and " + std::to_string(kind.unsaid) + " more like it since the last such line)";
  kind.said = now;
  kind.unsaid = 0;
  return line;
}

}  // namespace ddprun
