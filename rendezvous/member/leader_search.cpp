// Implementation of leader_search.hpp.
#include "rendezvous/member/leader_search.hpp"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMostTargets = 16;

}  // namespace

LeaderSearch::LeaderSearch(const MemberSettings& settings)
    : self_(settings.listens),
      endpoints_(settings.endpoints),
      redial_(settings.redial + milliseconds(settings.id[0] % 64)),
      next_link_(settings.first_link) {}

void LeaderSearch::begin(const std::vector<Successor>& known) {
  targets_.clear();
  const auto add = [&](const Address& address, bool lasting) {
    const bool there = std::any_of(targets_.begin(), targets_.end(), [&](const Target& t) { return t.address == address; });
    if (address.port != 0 && address != self_ && !there) targets_.push_back({.address = address, .lasting = lasting});
  };
  for (const Successor& node : known) add(node.address, /*lasting=*/true);
  for (const Address& endpoint : endpoints_) add(endpoint, /*lasting=*/true);
  for (const Address& hint : hints_) add(hint, /*lasting=*/false);
}

std::vector<LinkId> LeaderSearch::dial_due(nanoseconds lease, Time now, MemberActions& actions) {
  std::vector<LinkId> given_up;
  for (Target& target : targets_) {
    // A candidate that sends nothing for one lease may be unreachable, and its knowledge of this node is outdated.
    if (target.link != 0 && target.dialled + lease <= now) {
      actions.emplace_back(member_action::Close{target.link});
      given_up.push_back(target.link);
      target.link = 0;
      target.next_try = now;
    }
    if (target.link != 0 || target.next_try > now) continue;
    target.link = kDialled | next_link_++;
    target.dialled = now;
    actions.emplace_back(member_action::Dial{target.link, target.address});
  }
  return given_up;
}

std::optional<Time> LeaderSearch::next_deadline(nanoseconds lease) const {
  std::optional<Time> next;
  for (const Target& target : targets_) {
    const Time due = target.link != 0 ? target.dialled + lease : target.next_try;
    if (!next || due < *next) next = due;
  }
  return next;
}

Address LeaderSearch::settle(LinkId link, MemberActions& actions) {
  Address address;
  for (Target& target : targets_) {
    if (target.link == link) {
      address = target.address;
    } else if (target.link != 0) {
      actions.emplace_back(member_action::Close{target.link});
      target.link = 0;
    }
  }
  return address;
}

void LeaderSearch::end(std::optional<LinkId> but, MemberActions& actions) {
  for (Target& target : targets_) {
    if (target.link != 0 && target.link != but) actions.emplace_back(member_action::Close{target.link});
    target.link = 0;
  }
}

// ---- of one link ----

LeaderSearch::Target* LeaderSearch::target_of(LinkId link) {
  const auto found = std::find_if(targets_.begin(), targets_.end(), [&](const Target& target) { return target.link == link; });
  return link == 0 || found == targets_.end() ? nullptr : &*found;
}

bool LeaderSearch::dialled(LinkId link) const {
  return link != 0 && std::any_of(targets_.begin(), targets_.end(), [&](const Target& target) { return target.link == link; });
}

void LeaderSearch::closed(LinkId link, Time now) {
  retry(link, now + redial_);
}

void LeaderSearch::heard(LinkId link, Time now) {
  if (Target* target = target_of(link)) target->dialled = now;
}

void LeaderSearch::retry(LinkId link, Time at) {
  Target* const target = target_of(link);
  if (target == nullptr) return;
  target->link = 0;
  target->next_try = at;
}

void LeaderSearch::retry_lasting(LinkId link, Time at) {
  if (Target* target = target_of(link)) target->lasting = true;
  retry(link, at);
}

// ---- hints ----

void LeaderSearch::hint(const Address& address, bool looking, Time now) {
  if (address.port == 0 || address == self_) return;
  std::erase(hints_, address);
  hints_.push_back(address);
  if (hints_.size() > kSuccessors) hints_.pop_front();
  if (!looking) return;
  for (Target& target : targets_) {
    if (target.address == address) {
      if (target.link == 0) target.next_try = std::min(target.next_try, now);
      return;
    }
  }
  if (targets_.size() >= kMostTargets) {
    std::erase_if(targets_, [](const Target& target) { return !target.lasting && target.link == 0; });
  }
  if (targets_.size() < kMostTargets) targets_.push_back({.address = address, .lasting = false});
}

std::vector<Address> LeaderSearch::places(const std::vector<Successor>& known) const {
  std::vector<Address> places = endpoints_;
  for (const Successor& node : known) places.push_back(node.address);
  places.insert(places.end(), hints_.begin(), hints_.end());
  return places;
}

}  // namespace ddprun::rendezvous
