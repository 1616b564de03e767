#include "rendezvous/coordinator/bootstrap.hpp"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMany = 64;

}  // namespace

bool Bootstrap::may_release(const Peers& peers, Time now, Outbox& outbox) {
  if (done_) return true;
  if (first_.alone_after && *first_.alone_after <= now) return done_ = true;
  if (answers_missing_ > 0 && peers.all().size() > kMany) return false;
  // A lost connection is detected late. So a node counts only for one lease after the time of the newest stamp (timestamp of
  // this coordinator) that it has sent back.
  const auto answers = [&](const auto& each) {
    const Peer& peer = each.second;
    return peer.connected() && (each.first == settings_.self || time_of(peer.answered) + settings_.lease > now);
  };
  const auto count = std::count_if(peers.all().begin(), peers.all().end(), answers);
  answers_missing_ = first_.nodes - count;
  if (answers_missing_ <= 0) return true;
  if (!first_.alone_after) {
    outbox.notify(NodeNotice::Kind::kWaiting, "for nodes, since an earlier start of this job may still be running elsewhere",
                  count, first_.nodes);
  }
  return false;
}

void Bootstrap::installed(const Peers& peers) {
  if (done_ || (--installs_missing_ > 0 && peers.all().size() > kMany)) return;
  // A node that installed the round and then left cannot take part in another round, so it counts too.
  const auto has_round = [](const auto& each) {
    return (each.second.connected() || each.second.departed) && each.second.installed;
  };
  installs_missing_ = first_.nodes - std::count_if(peers.all().begin(), peers.all().end(), has_round);
  done_ = installs_missing_ <= 0;
}

std::string Bootstrap::why(const Peers& peers) const {
  if (done_) return "";
  return "an earlier start of this job may still be running on other nodes: expected " + std::to_string(first_.nodes) +
         " connected nodes to rule this out, found " + std::to_string(peers.connected()) +
         ". Start more nodes; if the earlier start no longer runs, use --force-new-job";
}

}  // namespace ddprun::rendezvous
