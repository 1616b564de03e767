// The accepted links over which no Hello (the first message of a node) has arrived yet. If the Hello does not arrive within 5
// s, the coordinator closes the link. This class owns the set of these links and their deadlines. The code is pure: no I/O, no
// clock.
#pragma once

#include <deque>
#include <optional>
#include <unordered_set>
#include <utility>

#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class PendingConnections {
 public:
  void add(LinkId link, Time now) {
    links_.insert(link);
    due_.emplace_back(now + kHelloTimeout, link);
  }
  void remove(LinkId link) { links_.erase(link); }
  bool contains(LinkId link) const { return links_.contains(link); }
  std::optional<Time> next_deadline() const { return due_.empty() ? std::nullopt : std::optional(due_.front().first); }
  // Returns a link whose deadline has passed; nullopt if there is none. Returns each link only once. The caller must then call
  // remove().
  std::optional<LinkId> take_due(Time now) {
    while (!due_.empty() && due_.front().first <= now) {
      const LinkId link = due_.front().second;
      due_.pop_front();
      if (contains(link)) return link;
    }
    return std::nullopt;
  }

 private:
  static constexpr milliseconds kHelloTimeout{5000};

  std::unordered_set<LinkId> links_;
  std::deque<std::pair<Time, LinkId>> due_;  // Sorted by time. Entries of removed links are skipped.
};

}  // namespace ddprun::rendezvous
