// Accepted links whose peer has not sent Hello yet. If the Hello does not arrive in time, the coordinator closes the link. Owns
// the set of these links and their deadlines. Pure.
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
  // A link whose deadline has passed; each is returned once. It stays in the set until remove().
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
  std::deque<std::pair<Time, LinkId>> due_;  // in the order of time; links with a Hello are skipped
};

}  // namespace ddprun::rendezvous
