// Implementation of gathering.hpp.
#include "rendezvous/coordinator/gathering.hpp"

#include <algorithm>

namespace ddprun::rendezvous {

void Gathering::begin(const Config& last, milliseconds call, Time now) {
  join_ends_ = now + join_timeout_;
  call_ends_.reset();
  if (last.exists()) call_ends_ = now + call;
}

bool Gathering::enough(std::int64_t ready, const Config& last, bool may_be_all, Time now, Outbox& outbox) {
  if (ready < min_nodes_) {
    if (!last.exists()) call_ends_.reset();
    outbox.say(NodeNotice::Kind::kWaiting, "for nodes", ready, min_nodes_);
    return false;
  }
  if (!call_ends_) {
    call_ends_ = now + last_call_;
    outbox.say(NodeNotice::Kind::kWaiting, "for more nodes", ready, max_nodes_);
  }
  const bool all_back = last.exists() && may_be_all && ready >= last.nodes - 1;
  return ready >= max_nodes_ || all_back || *call_ends_ <= now;
}

// If the call is already over, the round waits for another event, which will call enough() again.
Time Gathering::next_deadline(Time now) const {
  return call_ends_ && *call_ends_ > now ? std::min(*call_ends_, join_ends_) : join_ends_;
}

std::string Gathering::why(std::int64_t ready) const {
  return std::to_string(ready) + " of at least " + std::to_string(min_nodes_) + " nodes came within " +
         std::to_string(join_timeout_.count() / 1000) + " s";
}

}  // namespace ddprun::rendezvous
