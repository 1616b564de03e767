#include "rendezvous/member/leader_search.hpp"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxTargets = 16;

}  // namespace

LeaderSearch::LeaderSearch(const MemberSettings& settings)
    : self_(settings.listens),
      endpoints_(settings.endpoints),
      redial_(settings.redial + milliseconds(settings.node[0] % 64)),
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
    // Closes a link that was silent for one lease, and dials the address again. The other node may be unreachable, or may have
    // an outdated Hello of this node.
    if (target.link != 0 && target.dialled + lease <= now) {
      actions.emplace_back(node_action::CloseLink{target.link});
      given_up.push_back(target.link);
      target.link = 0;
      target.next_try = now;
    }
    if (target.link != 0 || target.next_try > now) continue;
    target.link = kDialled | next_link_++;
    target.dialled = now;
    actions.emplace_back(node_action::Dial{target.link, target.address});
  }
  return given_up;
}

std::optional<Time> LeaderSearch::next_deadline(nanoseconds lease) const {
  std::optional<Time> next;
  for (const Target& target : targets_) {
    keep_earlier(next, target.link != 0 ? target.dialled + lease : target.next_try);
  }
  return next;
}

Address LeaderSearch::settle(LinkId link, MemberActions& actions) {
  Address address;
  for (Target& target : targets_) {
    if (target.link == link) {
      address = target.address;
    } else if (target.link != 0) {
      actions.emplace_back(node_action::CloseLink{target.link});
      target.link = 0;
    }
  }
  return address;
}

void LeaderSearch::end(std::optional<LinkId> but, MemberActions& actions) {
  for (Target& target : targets_) {
    if (target.link != 0 && target.link != but) actions.emplace_back(node_action::CloseLink{target.link});
    target.link = 0;
  }
}

// ---- events of one link ----

LeaderSearch::Target* LeaderSearch::target_of(LinkId link) {
  const auto found = std::find_if(targets_.begin(), targets_.end(), [&](const Target& target) { return target.link == link; });
  return link == 0 || found == targets_.end() ? nullptr : &*found;
}

bool LeaderSearch::dialled(LinkId link) const {
  return const_cast<LeaderSearch*>(this)->target_of(link) != nullptr;
}

void LeaderSearch::closed(LinkId link, Time now) {
  retry(link, now + redial_);
}

void LeaderSearch::answered(LinkId link, Time now) {
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

void LeaderSearch::hint(const Address& address, bool searching, Time now) {
  if (address.port == 0 || address == self_) return;
  std::erase(hints_, address);
  hints_.push_back(address);
  if (hints_.size() > kSuccessors) hints_.pop_front();
  if (!searching) return;
  for (Target& target : targets_) {
    if (target.address == address) {
      if (target.link == 0) target.next_try = std::min(target.next_try, now);
      return;
    }
  }
  if (targets_.size() >= kMaxTargets) {
    std::erase_if(targets_, [](const Target& target) { return !target.lasting && target.link == 0; });
  }
  if (targets_.size() < kMaxTargets) targets_.push_back({.address = address, .lasting = false});
}

std::vector<Address> LeaderSearch::addresses(const std::vector<Successor>& known) const {
  std::vector<Address> addresses = endpoints_;
  for (const Successor& node : known) addresses.push_back(node.address);
  addresses.insert(addresses.end(), hints_.begin(), hints_.end());
  return addresses;
}

}  // namespace ddprun::rendezvous
