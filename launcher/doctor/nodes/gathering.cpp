#include "launcher/doctor/nodes/gathering.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::doctor {
namespace {

constexpr std::size_t kMaxRefused = 4;  // the lines become a part of one finding

}  // namespace

Gathering::Gathering(NodeReport own, const Rules& rules, Time now) : rules_(rules), started_(now), deadline_(now + rules.wait) {
  members_.push_back({.link = kSelf, .report = std::move(own)});
}

Gathering::Actions Gathering::start(Time now) {
  return rules_.max_nodes <= 1 ? test_peers(now) : Actions();
}

Gathering::Actions Gathering::arrived(Link link, NodeReport report, std::string address, Time now) {
  if (phase_ != Phase::kWaiting) {
    return {Refuse{link, "the doctors of " + std::to_string(members_.size()) +
                             " nodes have met already: start ddprun doctor on all nodes at the same time, and check --nnodes"}};
  }
  if (member(link) != nullptr) return {};
  members_.push_back({.link = link, .report = std::move(report), .address = std::move(address)});
  Actions actions{SendClockQuery{link}};
  if (members_.size() == static_cast<std::size_t>(rules_.max_nodes)) {
    const Actions more = test_peers(now);
    actions.insert(actions.end(), more.begin(), more.end());
  }
  return actions;
}

void Gathering::clock(Link link, const NodeClock& clock) {
  if (Member* const node = member(link); node != nullptr && phase_ != Phase::kDone) node->clock = clock;
}

Gathering::Actions Gathering::answered(Link link, PeerResults results) {
  Member* const node = member(link);
  if (node == nullptr || phase_ != Phase::kTesting || node->has_answered) return {};
  node->results = std::move(results);
  node->has_answered = true;
  return conclude_if_complete();
}

Gathering::Actions Gathering::lost(Link link) {
  Member* const node = member(link);
  if (node == nullptr || phase_ == Phase::kDone) return {};
  if (phase_ == Phase::kWaiting) {
    std::erase_if(members_, [link](const Member& one) { return one.link == link; });
    return {};
  }
  node->is_lost = !node->has_answered;
  return conclude_if_complete();
}

Gathering::Actions Gathering::tick(Time now) {
  if (phase_ == Phase::kDone || now < deadline_) return {};
  return phase_ == Phase::kWaiting ? test_peers(now) : conclude();
}

void Gathering::refused(std::string line) {
  if (refused_.size() < kMaxRefused) refused_.push_back(std::move(line));
}

Attendance Gathering::attendance() const {
  return {.min_nodes = rules_.min_nodes,
          .max_nodes = rules_.max_nodes,
          .waited_s = std::chrono::duration<double>(waited_).count(),
          .refused = refused_};
}

Gathering::Member* Gathering::member(Link link) {
  const auto found = std::ranges::find(members_, link, &Member::link);
  return found == members_.end() ? nullptr : &*found;
}

Gathering::Actions Gathering::test_peers(Time now) {
  phase_ = Phase::kTesting;
  waited_ = now - started_;
  deadline_ = now + rules_.answer;
  Actions actions;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    PeerList list = peers_of(i);
    if (list.peers.empty()) {
      members_[i].has_answered = true;
    } else {
      actions.emplace_back(SendPeers{members_[i].link, std::move(list)});
    }
  }
  const Actions more = conclude_if_complete();
  actions.insert(actions.end(), more.begin(), more.end());
  return actions;
}

PeerList Gathering::peers_of(std::size_t node) const {
  PeerList list;
  const std::size_t others = std::min(members_.size() - 1, kMaxPeers);
  for (std::size_t i = 1; i <= others; ++i) {
    const std::size_t id = (node + i) % members_.size();
    const Member& peer = members_[id];
    // Note: loopback. A node on the machine of the first node may have come over a loopback address. Other machines cannot use
    // that address, and on them it would name another node.
    const bool is_usable = !is_loopback_address(peer.address) || node == 0 || is_loopback_address(members_[node].address);
    list.peers.push_back({.id = static_cast<int>(id),
                          .host = peer.report.host,
                          .address = peer.address,
                          .port = is_usable ? peer.report.port : std::uint16_t{0}});
  }
  return list;
}

Gathering::Actions Gathering::conclude_if_complete() {
  const bool complete = std::ranges::all_of(members_, [](const Member& one) { return one.has_answered || one.is_lost; });
  return complete ? conclude() : Actions();
}

Gathering::Actions Gathering::conclude() {
  phase_ = Phase::kDone;
  compared_.clear();
  for (const Member& one : members_) {
    compared_.push_back({.host = one.report.host,
                         .rank = one.report.rank,
                         .address = one.address,
                         .facts = one.report.facts,
                         .clock = one.clock,
                         .results = one.results.results,
                         .is_complete = one.has_answered});
  }
  label_nodes(compared_);
  return {Conclude{}};
}

}  // namespace ddprun::doctor
