#include "rendezvous/node/announcements.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {

void Announcements::begin(const std::vector<Address>& addresses, const Address& self, nanoseconds lease, Time now) {
  addresses_.clear();
  for (const Address& address : addresses) {
    const bool known = std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end();
    if (address.port != 0 && address != self && !known) addresses_.push_back(address);
  }
  lease_ = lease;
  next_ = now + lease / 5;
}

void Announcements::end(std::vector<NodeAction>& actions) {
  for (const LinkId link : std::exchange(links_, {})) actions.emplace_back(node_action::CloseLink{link});
}

void Announcements::dial_due(const Coordinator& coordinator, Time now, std::vector<NodeAction>& actions) {
  if (addresses_.empty() || next_ > now) return;
  next_ = now + lease_;
  end(actions);
  for (const Address& address : addresses_) {
    if (coordinator.knows(address)) continue;
    const LinkId link = kDialled | kAnnounce | next_link_++;
    links_.insert(link);
    actions.emplace_back(node_action::Dial{link, address});
  }
}

}  // namespace ddprun::rendezvous
