// Implementation of coordinator.hpp, third part: rounds. How one is formed, released and committed.
#include <algorithm>
#include <tuple>
#include <utility>

#include "rendezvous/machines/coordinator.hpp"
#include "rendezvous/machines/placement.hpp"

namespace ddprun::rendezvous {

// ---- when a round starts ----

void Coordinator::gather(milliseconds call) {
  phase_ = Phase::kGathering;
  failure_.reset();
  members_changed_ = false;
  call_ends_.reset();
  absorb_at_.reset();
  join_ends_ = now_.steady + settings_.join_timeout;
  if (current_.exists()) call_ends_ = now_.steady + call;  // the first round's begins once there are enough nodes
}

// Called whenever who is here and ready may have changed.
void Coordinator::consider() {
  if (phase_ == Phase::kRunning) {
    if (seated_ < settings_.max_nodes && spares_ready() > 0 && done_ == 0 && committed_) {
      if (!absorb_at_) absorb_at_ = now_.steady + settings_.last_call;
    } else {
      absorb_at_.reset();
    }
    return;
  }
  if (phase_ != Phase::kGathering) return;
  // A change of the membership on top of one that is not known to a majority yet would take three majorities.
  if (!committed_ && settings_.rules.commit_before_change) return;
  const auto self = peers_.find(settings_.self);
  if (self == peers_.end() || !here(self->second) || !self->second.ready) return;
  if (!awaited_.empty() && settings_.rules.wait_for_ready) return;

  if (ready_ < settings_.min_nodes) {
    if (!current_.exists()) call_ends_.reset();
    if (!join_ends_) join_ends_ = now_.steady + settings_.join_timeout;
    say(Notice::Kind::kWaiting, "for nodes", ready_, settings_.min_nodes);
    return;
  }
  if (!call_ends_) {
    call_ends_ = now_.steady + settings_.last_call;
    say(Notice::Kind::kWaiting, "for more nodes", ready_, settings_.max_nodes);
  }
  const bool all_back = current_.exists() && elected_ && ready_ >= current_.nodes - 1;
  if (ready_ >= settings_.max_nodes || all_back || *call_ends_ <= now_.steady) form();
}

std::string Coordinator::waits_for() const {
  const auto self = peers_.find(settings_.self);
  if (phase_ == Phase::kRunning) return "the running round";
  if (phase_ == Phase::kPausing) return "the pause before a restart";
  if (phase_ == Phase::kSaving) return std::to_string(unsaved_.size()) + " nodes that stop";
  if (phase_ == Phase::kOver || phase_ == Phase::kSteppedDown) return "nothing";
  if (!awaited_.empty()) return std::to_string(awaited_.size()) + " nodes that stop their workers";
  if (phase_ == Phase::kEnding) return "a decision";
  if (!committed_) return "a majority to know the last round";
  if (self == peers_.end() || !here(self->second) || !self->second.ready) return "this node";
  return "nodes: " + std::to_string(ready_) + " of at least " + std::to_string(settings_.min_nodes);
}

void Coordinator::form() {
  std::vector<Peer*> nodes;
  nodes.reserve(peers_.size());
  for (auto& [id, peer] : peers_) {
    if (here(peer) && peer.ready) nodes.push_back(&peer);
  }
  // This node first, then those of the last round, then by arrival.
  const auto key = [&](const Peer* peer) {
    const std::int32_t rank = peer->rank >= 0 ? peer->rank : kMaxNodes;
    return std::tuple(peer->hello.node != settings_.self, rank, peer->order);
  };
  std::sort(nodes.begin(), nodes.end(), [&](const Peer* a, const Peer* b) { return key(a) < key(b); });
  std::vector<Candidate> candidates;
  candidates.reserve(nodes.size());
  for (const Peer* peer : nodes) {
    candidates.push_back({.kept_rank = peer->rank >= 0 ? peer->rank : peer->hello.wanted_group_rank,
                          .role = peer->hello.role,
                          .workers = peer->hello.local_world_size});
  }
  const Placement placement = place(candidates, settings_.max_nodes, settings_.rules);

  previous_ = current_;
  current_ = Config{.id = {term_, ++last_round_}, .born = term_, .nodes = static_cast<std::int32_t>(placement.seats.size())};
  installed_current_ = Tally(current_.nodes);
  installed_previous_ = Tally(previous_.nodes);
  for (auto& [id, peer] : peers_) {
    peer.previous_rank = peer.rank;
    peer.rank = -1;
    peer.installed = false;
    peer.done = false;
    if (peer.departed) installed_previous_.add(peer.previous_rank);  // it does not vote any more
  }
  committed_ = false;
  inherited_ranks_.clear();
  authority_begins_ = now_.steady;
  authority_counted_.reset();
  phase_ = Phase::kRunning;
  seated_ = current_.nodes;
  done_ = 0;
  call_ends_.reset();
  join_ends_.reset();

  std::vector<Peer*> by_rank;
  for (const struct Seat& seat : placement.seats) {
    by_rank.push_back(seat.candidate < nodes.size() ? nodes[seat.candidate] : nullptr);
  }
  release(by_rank, placement);
  consider();
}

void Coordinator::release(const std::vector<Peer*>& by_rank, const Placement& placement) {
  const auto named = [](const Peer& peer) {
    return Successor{.group_rank = peer.rank, .node = peer.hello.node, .address = peer.hello.listens};
  };
  round_nodes_.clear();
  release_ = Release{};
  release_.id = current_.id;
  release_.born = current_.born;
  release_.nodes = current_.nodes;
  release_.world_size = placement.world_size;
  release_.budget = budget_;
  release_.max_restarts = settings_.max_restarts;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] == nullptr) continue;
    Peer& peer = *by_rank[rank];
    peer.rank = static_cast<std::int32_t>(rank);
    set_ready(peer, false);
    round_nodes_.push_back(peer.hello.node);
    if (peer.hello.node == settings_.self) {
      release_.coordinator = named(peer);
    } else if (release_.successors.size() < settings_.rules.successors_named && peer.hello.listens.port != 0) {
      release_.successors.push_back(named(peer));
    }
  }
  if (by_rank.front() != nullptr) {
    const Peer& first = *by_rank.front();
    release_.master.host = settings_.master_addr.empty() ? first.hello.listens.host : settings_.master_addr;
    release_.master.port = settings_.master_port != 0 ? settings_.master_port : first.master_port;
  }
  keep_roster(by_rank);
  // In the order of group ranks: successors know before the others, which need them if this node dies just now.
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] == nullptr) continue;
    const Peer& peer = *by_rank[rank];
    Release own = release_for(peer);
    own.rank_offset = placement.seats[rank].rank_offset;
    own.role_rank_offset = placement.seats[rank].role_rank_offset;
    own.role_world_size = placement.role_sizes.at(peer.hello.role);
    send(peer, std::move(own));
  }
  for (const NodeId& id : by_age_) {
    const Peer& peer = peers_.at(id);
    if (peer.rank < 0 && here(peer)) send(peer, release_for(peer));
  }
  say(Notice::Kind::kReleased, "round " + std::to_string(current_.id.round), current_.nodes, settings_.max_nodes);
}

void Coordinator::keep_roster(const std::vector<Peer*>& by_rank) {
  if (!settings_.rules.coordinator_remembers_members) return;
  coordinator_action::KeepRoster keep;
  keep.roster.origin = current_.origin();
  for (const Peer* peer : by_rank) keep.roster.nodes.push_back(peer == nullptr ? NodeId{} : peer->hello.node);
  act(std::move(keep));
}

Release Coordinator::release_for(const Peer& peer) const {
  Release own = release_;
  own.group_rank = peer.rank;
  own.start = peer.rank >= 0;
  own.previous = previous_;
  own.previous.rank = peer.previous_rank;
  return own;
}

// ---- committed ----

void Coordinator::note_installed(Peer& peer) {
  if (std::exchange(peer.installed, true)) return;
  installed_current_.add(peer.rank);
  installed_previous_.add(peer.previous_rank);
  check_committed();
}

void Coordinator::check_committed() {
  if (committed_) return;
  if (!installed_current_.enough(settings_.rules) || !installed_previous_.enough(settings_.rules)) return;
  committed_ = true;
  forget_previous();
  std::erase_if(peers_, [](const auto& entry) { return !entry.second.link && entry.second.rank < 0; });
  consider();
}

void Coordinator::forget_previous() {
  previous_ = Config{};
  installed_previous_ = Tally();
  authority_counted_.reset();
  for (auto& [id, peer] : peers_) peer.previous_rank = -1;
}

}  // namespace ddprun::rendezvous
