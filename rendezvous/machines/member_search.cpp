// Implementation of member.hpp, fourth part: looking for a coordinator. Whom to dial, when, and what to say there.
#include <algorithm>

#include "common/base/exit_code.hpp"
#include "rendezvous/machines/member.hpp"

namespace ddprun::rendezvous {
namespace {

using StopReason = member_action::StopWorkers::Reason;
constexpr std::size_t kMostTargets = 16;

}  // namespace

void Member::lose_leader(const std::string& why, bool at_once) {
  leader_.reset();
  grant_is_leaders_ = false;
  pending_start_.reset();
  // Broken on purpose, it goes on without a grant.
  const bool may_go_on = at_once && !settings_.rules.grant_ends_workers;
  // Who is left will be in a round of the successor's: what it waits for is its word, which needs no grant.
  if (workers_ == Workers::kRunning && !saving_ && !may_go_on) {
    stop_workers({.reason = StopReason::kCoordinatorLost, .at_once = at_once, .why = why, .hold = !at_once});
  }
  if (saving_ && !has_workers()) {
    return finish(saved_ ? static_cast<int>(ExitCode::kPreempted) : 128 + stop_signal_, "stopped by a signal");
  }
  phase_ = Phase::kLooking;
  looking_since_ = now_.steady;
  say(Notice::Kind::kLooking, why);
  set_targets();
}

// Without itself: its own address as others see it may be none that it knows as its own.
std::vector<Successor> Member::others_of_the_record() const {
  if (!record_.standing.current.exists()) return {};
  std::vector<Successor> nodes{record_.coordinator};
  nodes.insert(nodes.end(), record_.successors.begin(), record_.successors.end());
  std::erase_if(nodes, [&](const Successor& node) { return node.node == settings_.id; });
  return nodes;
}

// The coordinator may only have lost the connection, and who restarts is a candidate too: so it is dialled as well.
void Member::set_targets() {
  targets_.clear();
  const auto add = [&](const Address& address) {
    const bool known = std::any_of(targets_.begin(), targets_.end(), [&](const Target& t) { return t.address == address; });
    if (address.port != 0 && address != settings_.listens && !known) targets_.push_back(Target{.address = address});
  };
  for (const Successor& node : others_of_the_record()) add(node.address);
  for (const Address& endpoint : settings_.endpoints) add(endpoint);
  for (const Address& hint : hints_) {
    const std::size_t before = targets_.size();
    add(hint);
    if (targets_.size() > before) targets_.back().lasting = false;
  }
}

std::vector<Address> Member::known_places() const {
  std::vector<Address> places = settings_.endpoints;
  for (const Successor& node : others_of_the_record()) places.push_back(node.address);
  places.insert(places.end(), hints_.begin(), hints_.end());
  return places;
}

void Member::dial_due() {
  for (Target& target : targets_) {
    // A candidate that says nothing for a lease may be out of reach, and what it knows of this node is old.
    if (target.link != 0 && target.dialled + lease_ <= now_.steady) {
      act(member_action::Close{target.link});
      waiting_votes_.erase(target.link);
      target.link = 0;
      target.next_try = now_.steady;
    }
    if (target.link != 0 || target.next_try > now_.steady) continue;
    target.link = kDialled | next_link_++;
    target.open = false;
    target.dialled = now_.steady;
    act(member_action::Dial{target.link, target.address});
  }
}

void Member::say_hello(LinkId link, const std::string& local_host) {
  if (phase_ != Phase::kLooking || (link != kSelfLink && target_of(link) == nullptr)) {
    act(member_action::Close{link});
    return;
  }
  act(member_action::Send{link, hello(local_host)});
}

Hello Member::hello(const std::string& local_host) {
  Hello hello;
  hello.node = settings_.id;
  hello.incarnation = settings_.incarnation;
  hello.attempt = ++hellos_;
  hello.run = settings_.run;
  hello.wanted_group_rank = settings_.wanted_group_rank;
  hello.role = settings_.role;
  hello.local_world_size = settings_.local_world_size;
  hello.hostname = settings_.hostname;
  hello.listens = settings_.listens;
  if (hello.listens.host.empty()) hello.listens.host = local_host;
  hello.master_port = master_port_;
  hello.wants_job = settings_.wants_job && !was_welcome_;
  hello.workers = workers_;
  hello.workers_round = workers_round_;
  hello.standing = record_.standing;
  return hello;
}

void Member::also_try(const Address& address) {
  if (address.port == 0 || address == settings_.listens) return;
  std::erase(hints_, address);
  hints_.push_back(address);
  if (hints_.size() > kSuccessors) hints_.pop_front();
  if (phase_ != Phase::kLooking) return;
  for (Target& target : targets_) {
    if (target.address == address) {
      if (target.link == 0) target.next_try = std::min(target.next_try, now_.steady);
      return;
    }
  }
  if (targets_.size() >= kMostTargets) {
    std::erase_if(targets_, [](const Target& target) { return !target.lasting && target.link == 0; });
  }
  if (targets_.size() < kMostTargets) targets_.push_back(Target{.address = address, .lasting = false});
}

}  // namespace ddprun::rendezvous
