// Links over which nobody has said hello yet: each gets a while to do so, then the coordinator closes it. Owns the set of them
// and when each is due. Pure.
#pragma once

#include <deque>
#include <optional>
#include <unordered_set>
#include <utility>

#include "rendezvous/protocol/link.hpp"

namespace ddprun::rendezvous {

class Strangers {
 public:
  void add(LinkId link, Time now) {
    links_.insert(link);
    due_.emplace_back(now + kHelloTimeout, link);
  }
  void remove(LinkId link) { links_.erase(link); }
  bool contains(LinkId link) const { return links_.contains(link); }
  std::optional<Time> next_deadline() const { return due_.empty() ? std::nullopt : std::optional(due_.front().first); }
  // One whose time is over, each once. It stays a stranger until it is removed.
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
  std::deque<std::pair<Time, LinkId>> due_;  // in the order of time; those that said hello are skipped
};

}  // namespace ddprun::rendezvous
