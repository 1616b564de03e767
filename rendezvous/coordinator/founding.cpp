// Implementation of founding.hpp.
#include "rendezvous/coordinator/founding.hpp"

#include <algorithm>

namespace ddprun::rendezvous {

bool Founding::may_release(const Peers& peers, Time now, Outbox& outbox) {
  if (done_) return true;
  if (first_.alone_after && *first_.alone_after <= now) return done_ = true;
  // A connection whose other end is gone counts no more than a lease.
  const auto answers = [&](const auto& each) {
    const Peer& peer = each.second;
    return peer.here() && (each.first == self_ || time_of(peer.answered) + lease_ > now);
  };
  const auto count = std::count_if(peers.all().begin(), peers.all().end(), answers);
  if (count >= first_.nodes) return true;
  if (!first_.alone_after) {
    outbox.say(Notice::Kind::kWaiting, "for nodes, since an earlier start of this job may still run elsewhere", count,
               first_.nodes);
  }
  return false;
}

void Founding::installed(const Peers& peers) {
  if (done_) return;
  // Who has left in order is in no other round either.
  const auto has_it = [](const auto& each) { return (each.second.here() || each.second.departed) && each.second.installed; };
  done_ = std::count_if(peers.all().begin(), peers.all().end(), has_it) >= first_.nodes;
}

std::string Founding::why(const Peers& peers) const {
  if (done_) return "";
  return "an earlier start of this job may still run on other nodes: only " + std::to_string(peers.connected()) + " of the " +
         std::to_string(first_.nodes) + " nodes came with which it cannot. --force-new-job says that it does not run";
}

}  // namespace ddprun::rendezvous
