#include "rendezvous/coordinator/join_barrier.hpp"

#include <algorithm>

namespace ddprun::rendezvous {

void JoinBarrier::begin(const Config& last, milliseconds call, Time now) {
  join_ends_ = now + settings_.join_timeout;
  call_ends_.reset();
  if (last.exists()) call_ends_ = now + call;
}

bool JoinBarrier::enough(std::int64_t ready, const Config& last, bool may_be_all, Time now, Outbox& outbox) {
  if (ready < settings_.min_nodes) {
    if (!last.exists()) call_ends_.reset();
    outbox.notify(NodeNotice::Kind::kWaiting, "for nodes", ready, settings_.min_nodes);
    return false;
  }
  if (!call_ends_) {
    call_ends_ = now + settings_.last_call;
    outbox.notify(NodeNotice::Kind::kWaiting, "for more nodes", ready, settings_.max_nodes);
  }
  const bool all_back = last.exists() && may_be_all && ready >= last.nodes - 1;
  return ready >= settings_.max_nodes || all_back || *call_ends_ <= now;
}

// When the last call (the wait for more nodes) has ended, the only remaining deadline is the join timeout. From then on, the
// round starts only after an event whose handler calls enough() again.
Time JoinBarrier::next_deadline(Time now) const {
  return call_ends_ && *call_ends_ > now ? std::min(*call_ends_, join_ends_) : join_ends_;
}

std::string JoinBarrier::why(std::int64_t ready) const {
  return std::to_string(ready) + " of at least " + std::to_string(settings_.min_nodes) + " nodes joined within " +
         std::to_string(settings_.join_timeout.count() / 1000) + " s";
}

}  // namespace ddprun::rendezvous
