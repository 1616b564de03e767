// Implementation of coordinator.hpp, third part: rounds. How one is formed, released, committed, ended, judged, and how the job
// ends.
#include <algorithm>
#include <tuple>
#include <utility>

#include "common/exit_code.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/placement.hpp"

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

// ---- how a round ends ----

void Coordinator::hear(Peer& peer, const FailureReport& message) {
  if (message.round != current_.id || peer.rank < 0) return;
  if (phase_ == Phase::kRunning) {
    failure_ = message;
    end_round(OverReason::kWorkerFailure, message.message);
    return;
  }
  if (phase_ != Phase::kEnding || !failure_) return;
  // "My peer is gone" is a consequence; of the others the first in time is the cause.
  const auto key = [](const FailureReport& report) {
    return std::pair(report.cause == FailureCause::kLostPeer, report.coordinator_time_ns());
  };
  if (key(message) < key(*failure_)) failure_ = message;
}

void Coordinator::end_round(OverReason reason, const std::string& why) {
  phase_ = Phase::kEnding;
  absorb_at_.reset();
  members_changed_ = false;
  if (reason == OverReason::kMembershipChange) failure_.reset();
  RoundOver over{.round = current_.id, .reason = reason, .why = why, .failure = {}};
  if (failure_) over.failure = *failure_;
  for (const NodeId& id : round_nodes_) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || !here(found->second) || found->second.rank < 0) continue;
    Peer& peer = found->second;
    peer.owes_ready = current_.id;
    awaited_.insert(id);
    send(peer, over);
  }
  say(Notice::Kind::kRoundOver, why);
  check_ended();
}

void Coordinator::hear(Peer& peer, const Ready& message) {
  if (message.master_port != 0) peer.master_port = message.master_port;
  if (phase_ == Phase::kRunning && message.round == current_.id && peer.rank >= 0) {
    end_round(OverReason::kMembershipChange, peer.hello.hostname + " has no workers any more");
  }
  if (message.round != peer.owes_ready || awaited_.erase(peer.hello.node) == 0) return;
  peer.owes_ready = RoundId{};
  set_ready(peer, true);
  check_ended();
  consider();
}

void Coordinator::check_ended() {
  if (phase_ != Phase::kEnding || (!awaited_.empty() && settings_.rules.wait_for_ready)) return;
  if (!settings_.rules.wait_for_ready) {  // broken on purpose
    for (const NodeId& id : std::exchange(awaited_, {})) set_ready(peers_.at(id), true);
  }
  if (failure_ && !members_changed_) {
    judge();
  } else {
    gather(milliseconds{0});
    consider();
  }
}

void Coordinator::judge() {
  Verdict verdict;
  if (settings_.judge) verdict = settings_.judge(*failure_, budget_);
  if (!verdict.restart) {
    finish(verdict.exit_code, verdict.why);
    return;
  }
  const std::int32_t restarts = budget_.restart_count + 1;
  budget_ = verdict.after;
  budget_.restart_count = restarts;
  verdict_ = verdict.why;
  if (verdict.delay.count() > 0) {
    phase_ = Phase::kPausing;
    pause_ends_ = now_.steady + verdict.delay;
    return;
  }
  gather(milliseconds{0});
  consider();
}

// ---- how the job ends ----

void Coordinator::hear(Peer& peer, const Done& message) {
  if (message.round != current_.id || peer.rank < 0 || peer.done) return;
  if (phase_ != Phase::kRunning && phase_ != Phase::kSaving) return;
  peer.done = true;
  ++done_;
  unanswered_.erase(peer.hello.node);
  check_saving();
  check_done();
}

void Coordinator::check_done() {
  if (phase_ == Phase::kRunning && done_ == current_.nodes) finish(static_cast<int>(ExitCode::kDone), "done");
}

void Coordinator::hear(Peer& peer, const StopAsk& message) {
  const bool coordinates = peer.hello.node == settings_.self;
  switch (phase_) {
    case Phase::kRunning:
      if (coordinates || (peer.rank >= 0 && seated_ + spares_ready() - 1 < settings_.min_nodes)) {
        begin_saving(message.signal);
      } else if (peer.rank >= 0) {
        end_round(OverReason::kMembershipChange, peer.hello.hostname + " is leaving");
      }
      return;
    case Phase::kGathering:
    case Phase::kPausing:
    case Phase::kEnding:
      if (coordinates) finish(128 + message.signal, "stopped by signal " + std::to_string(message.signal));
      return;
    case Phase::kSaving:
    case Phase::kOver:
    case Phase::kSteppedDown:
      return;
  }
}

void Coordinator::begin_saving(std::int32_t signal) {
  phase_ = Phase::kSaving;
  stop_signal_ = signal;
  all_saved_ = true;
  agreed_step_ = -1;
  step_told_ = false;
  for (const NodeId& id : round_nodes_) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || !here(found->second) || found->second.rank < 0) continue;
    unsaved_.insert(id);
    if (!found->second.done) unanswered_.insert(id);
    send(found->second, StopAndSave{.round = current_.id, .signal = signal});
  }
  check_saving();
}

void Coordinator::hear(Peer& peer, const StopReady& message) {
  if (phase_ != Phase::kSaving || message.round != current_.id) return;
  if (step_told_) {  // asked again
    if (agreed_step_ >= 0) send(peer, StopAt{.round = current_.id, .step = agreed_step_});
    return;
  }
  if (unanswered_.erase(peer.hello.node) > 0) agreed_step_ = std::max(agreed_step_, message.started);
  check_saving();
}

void Coordinator::hear(Peer& peer, const Stopped& message) {
  if (phase_ != Phase::kSaving || message.round != current_.id) return;
  unanswered_.erase(peer.hello.node);
  if (unsaved_.erase(peer.hello.node) > 0) all_saved_ = all_saved_ && message.saved;
  check_saving();
}

void Coordinator::check_saving() {
  if (phase_ != Phase::kSaving) return;
  if (unanswered_.empty() && !step_told_) {
    step_told_ = true;
    for (const NodeId& id : round_nodes_) {
      const auto found = peers_.find(id);
      if (agreed_step_ < 0 || found == peers_.end() || !here(found->second)) continue;
      send(found->second, StopAt{.round = current_.id, .step = agreed_step_});
    }
  }
  if (!unsaved_.empty()) return;
  const bool preempted = all_saved_;
  finish(preempted ? static_cast<int>(ExitCode::kPreempted) : 128 + stop_signal_,
         "stopped by signal " + std::to_string(stop_signal_) + (preempted ? " after saving" : " before all could save"));
}

void Coordinator::finish(int exit_code, const std::string& why) {
  phase_ = Phase::kOver;
  over_ = JobOver{.exit_code = exit_code, .why = why};
  linger_ends_ = now_.steady + settings_.lease;
  for (const NodeId& id : by_age_) send(peers_.at(id), over_);
}

}  // namespace ddprun::rendezvous
