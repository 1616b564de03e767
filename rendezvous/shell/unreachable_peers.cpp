#include "rendezvous/shell/unreachable_peers.hpp"

#include <utility>

#include "common/base/exit_code.hpp"

namespace ddprun::rendezvous {
namespace {

// Failures to connect are not reported before this time has passed since the start of this node.
constexpr milliseconds kPatience{3500};

node_action::Finish cannot_join(JobEnd end) {
  return {std::move(end), node_action::Finish::End::kGivenUp};
}

}  // namespace

UnreachablePeers::Report UnreachablePeers::failed_to_connect(const ConnectFailure& failure, Time now) {
  if (joined_) return {};
  using Kind = ConnectFailure::Kind;
  switch (failure.kind) {
    case Kind::kWrongToken:
      return cannot_join(node_end::wrong_token(failure.message));
    case Kind::kBadLocalAddress:
      return cannot_join(node_end::wrong_usage(failure.message));
    case Kind::kWrongVersion:
    case Kind::kReflected:
      return cannot_join(node_end::no_peers(failure.message));
    case Kind::kNotDdprun:
      if (waits_for_long(now)) return cannot_join(node_end::no_peers(failure.message));
      return {};
    // These failures can be temporary: the machine is still booting, the agent is not started yet or is stopped, or the job is
    // ending.
    case Kind::kUnresolvable:
    case Kind::kSilent:
    case Kind::kWrongRunId:
    case Kind::kRefused:
    case Kind::kUnreachable:
    case Kind::kLost:
      last_failure_ = failure.message;
      if (waits_for_long(now) && reported_kinds_.insert(failure.kind).second) return NoNodeAnswers{failure.message};
      return {};
    case Kind::kCancelled:
      break;
  }
  return {};
}

UnreachablePeers::Report UnreachablePeers::silent(const std::string& address, Time now) {
  if (joined_ || !waits_for_long(now) || std::exchange(silence_reported_, true)) return {};
  return NoNodeAnswers{
      "the agent at " + address +
      " accepted the connection but sent nothing. Packets may be lost on the way, or that agent may be suspended"};
}

void UnreachablePeers::explain(node_action::Finish& end) const {
  const bool found_none = !joined_ && end.exit_code == static_cast<int>(ExitCode::kPeersMissing);
  if (found_none && !last_failure_.empty()) end.why += ": " + last_failure_;
}

bool UnreachablePeers::waits_for_long(Time now) const {
  return now - started_at_ >= kPatience;
}

}  // namespace ddprun::rendezvous
