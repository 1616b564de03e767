// Announces the address of a new coordinator. Nodes that were cut off during the election do not have the new coordinator's
// address. These nodes search at the job's addresses and at the addresses of earlier coordinators. So the coordinator dials
// those addresses once per lease, and sends a Hello with `coordinates` set. Node (node.hpp) sends that Hello and handles the
// answer. The code is pure: no I/O, no clock.
//
// This class owns the addresses to dial, which do not change while the node leads, and the links to these addresses.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/node/action.hpp"
#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class Announcements {
 public:
  // Call this when the node starts to lead. `self` is the node's own address, which is not dialed.
  void begin(const std::vector<Address>& addresses, const Address& self, nanoseconds lease, Time now);
  // Call this when the node no longer leads. Closes all links of the announcements.
  void end(std::vector<NodeAction>& actions);
  // If the next attempt is due, dials each address at which no connected node listens.
  void dial_due(const Coordinator& coordinator, Time now, std::vector<NodeAction>& actions);
  // Returns the time of the next attempt; nullopt if there is no address to dial. Call this only while the node leads.
  std::optional<Time> next_deadline() const { return addresses_.empty() ? std::nullopt : std::optional(next_); }

  bool contains(LinkId link) const { return links_.contains(link); }
  // Removes a link that was closed, or that the caller is about to close. Returns false if the link is unknown.
  bool remove(LinkId link) { return links_.erase(link) > 0; }

 private:
  std::vector<Address> addresses_;
  std::set<LinkId> links_;
  LinkId next_link_ = 1;
  nanoseconds lease_{};
  Time next_{};
};

}  // namespace ddprun::rendezvous
