// Implementation of founding.hpp.
#include "rendezvous/coordinator/founding.hpp"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMany = 64;

}  // namespace

bool Founding::may_release(const Peers& peers, Time now, Outbox& outbox) {
  if (done_) return true;
  if (first_.alone_after && *first_.alone_after <= now) return done_ = true;
  if (answers_missing_ > 0 && peers.all().size() > kMany) return false;
  // A dead connection is noticed late. So a peer counts only for one lease after the newest stamp that it has sent back.
  const auto answers = [&](const auto& each) {
    const Peer& peer = each.second;
    return peer.here() && (each.first == self_ || time_of(peer.answered) + lease_ > now);
  };
  const auto count = std::count_if(peers.all().begin(), peers.all().end(), answers);
  answers_missing_ = first_.nodes - count;
  if (answers_missing_ <= 0) return true;
  if (!first_.alone_after) {
    outbox.say(NodeNotice::Kind::kWaiting, "for nodes, since an earlier start of this job may still run elsewhere", count,
               first_.nodes);
  }
  return false;
}

void Founding::installed(const Peers& peers) {
  if (done_ || (--installs_missing_ > 0 && peers.all().size() > kMany)) return;
  // A node that has left cannot be in another round either.
  const auto has_it = [](const auto& each) { return (each.second.here() || each.second.departed) && each.second.installed; };
  installs_missing_ = first_.nodes - std::count_if(peers.all().begin(), peers.all().end(), has_it);
  done_ = installs_missing_ <= 0;
}

std::string Founding::why(const Peers& peers) const {
  if (done_) return "";
  return "an earlier start of this job may still run on other nodes: only " + std::to_string(peers.connected()) + " of the " +
         std::to_string(first_.nodes) + " nodes came with which it cannot. --force-new-job says that it does not run";
}

}  // namespace ddprun::rendezvous
