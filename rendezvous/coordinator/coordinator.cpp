// Implementation of coordinator.hpp.
//
// Note [Why this file is long] The coordinator is one state machine and cannot be split. All functions depend on the phase,
// and any event may change the phase. The functions are in the order of a job's life: nodes that join, lost nodes, authority,
// the start of a round, the end of a round, the end of the job, time. Classes with separate state are in other files: the
// membership in rendezvous/membership, and in this folder the orderly stop, the join barrier, late nodes, the lease and the
// leadership transfer.
#include "rendezvous/coordinator/coordinator.hpp"

#include <algorithm>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/overloaded.hpp"
#include "common/failure/cause.hpp"
#include "rendezvous/coordinator/entry.hpp"
#include "rendezvous/coordinator/release.hpp"

namespace ddprun::rendezvous {

Coordinator::Coordinator(CoordinatorSettings settings, const Authority& authority, Now now)
    : settings_(std::move(settings)),
      now_(now),
      term_(authority.term),
      elected_(authority.elected),
      late_nodes_(settings_),
      flap_damper_(settings_),
      membership_(authority, settings_.rules),
      bootstrap_(settings_, authority.first),
      leader_lease_(settings_, bootstrap_, membership_, peers_, now.steady),
      join_barrier_(settings_),
      leadership_transfer_(settings_, membership_, peers_),
      stop_(settings_, membership_, round_progress_, leadership_transfer_, peers_, late_nodes_, outbox_),
      judged_(authority.judged) {
  if (authority.departed) {
    Peer& dead = peers_.get_or_add(authority.departed->node);
    dead.hello.node = authority.departed->node;
    dead.rank = authority.departed->rank;
    dead.previous_rank = authority.departed->previous_rank;
    dead.departed = true;
    membership_.install(dead, peers_);
  }
  if (settings_.rules.budget_is_inherited) budget_ = authority.known.budget;
  const Config& inherited = membership_.current();
  release_.id = inherited.id;
  release_.born = inherited.born;
  release_.nodes = inherited.nodes;
  release_.arbiter = inherited.arbiter;
  release_.founder = inherited.founder;
  release_.budget = budget_;
  gather(inherited.exists() ? settings_.regroup_call : settings_.last_call);
}

std::vector<CoordinatorAction> Coordinator::on(const CoordinatorEvent& event, Now now) {
  now_ = now;
  if (phase_ == Phase::kSteppedDown) return {};
  // The lease is checked first, because a coordinator whose lease has ended must not answer any message.
  check_authority();
  if (phase_ != Phase::kSteppedDown) std::visit([this](const auto& concrete) { handle(concrete); }, event);
  return outbox_.take();
}

void Coordinator::handle(const node_event::LinkClosed& event) {
  pending_connections_.remove(event.link);
  if (const Peer* peer = peers_.by_link(event.link))
    lose({peer->hello.node}, peer->is_late ? late_nodes_.why() : "closed its connection");
}

void Coordinator::handle(const node_event::FromDialler& event) {
  const auto* hello = std::get_if<Hello>(&event.message);
  const bool is_pending = pending_connections_.contains(event.link);
  if (hello != nullptr && is_pending) return handle_hello(event.link, *hello);
  if (Peer* peer = peers_.by_link(event.link)) {
    peers_.receive(*peer, now_.steady);
    std::visit([&](const auto& message) { receive(*peer, message); }, event.message);
  } else if (is_pending) {
    close(event.link);
  }
}

void Coordinator::receive(Peer& peer, const StoreQuery& message) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kSaving) return;
  if (message.round == round()) outbox_.act(node_action::ServeStore{*peer.link, message});
}

// ---- nodes that join ----

void Coordinator::handle_hello(LinkId link, const Hello& hello) {
  if (phase_ == Phase::kOver) return reject(link);
  const EntryView view{settings_, term_, elected_, peers_, membership_, flap_damper_, now_.steady};
  Entry entry = entry_of(hello, view);
  if (entry.step_down) return step_down(*std::move(entry.step_down));
  if (entry.replaces) {
    Peer& known = peers_.at(hello.node);
    // The node's Done message may have been lost with its old connection. So a Hello that reports finished workers counts as
    // Done.
    if (entry.admitted && hello.workers == Workers::kDone) note_done(known, hello.workers_round);
    if (phase_ == Phase::kOver) return reject(link);
    if (entry.to_replaced) outbox_.send(known, *std::move(entry.to_replaced));
    if (settings_.rules.later_process_replaces) {
      close_and_lose({hello.node}, "reconnected over another connection");
      // Closing the node's old link may have completed the end of the job or a leadership transfer. In both cases the node
      // cannot join any more.
      if (phase_ == Phase::kSteppedDown) return;
      if (phase_ == Phase::kOver) return reject(link);
    } else {
      peers_.keep_counting(known);
    }
  }
  if (entry.answer) outbox_.act(node_action::ToDialler{link, *std::move(entry.answer)});
  if (!entry.notice.empty()) outbox_.notify(NodeNotice::Kind::kRefused, std::move(entry.notice));
  if (!entry.admitted) return close(link);

  pending_connections_.remove(link);
  Peer& peer = peers_.get_or_add(hello.node);
  membership_.recall_ranks(peer, hello);
  peers_.connect(peer, link, hello, now_.steady);
  const bool ends = phase_ == Phase::kCommittingEnd || phase_ == Phase::kOver;
  if (!ends && hello.ending.exists() && hello.ending.origin == membership_.current().origin()) {
    // The previous coordinator proposed the end of the job to this node. This coordinator completes that proposal.
    finish({hello.ending.exit_code, hello.ending.why});
  }
  // A node that has promised a later term is admitted only before the first round. This job has not elected a coordinator yet,
  // so every later term is unused. But another job of the same name may be running elsewhere. So the new term must be larger
  // than any term that the elections of that job can reach.
  if (hello.state.promised_term > term_) {
    term_ = hello.state.promised_term + (bootstrap_.done() ? 1 : bootstrap_.term_apart());
  }
  welcome(peer);
}

// Rejects a node that connects after the end of the job. The reply contains how long ago the job ended.
void Coordinator::reject(LinkId link) {
  JobOver over = over_;
  over.ended_ms_ago = std::chrono::duration_cast<milliseconds>(now_.steady - over_at_).count();
  outbox_.act(node_action::ToDialler{link, std::move(over)});
  close(link);
}

void Coordinator::welcome(Peer& peer) {
  peer.welcome = true;
  const Peer* const self = peers_.find(settings_.self);
  outbox_.send(peer, Welcome{.term = term_,
                             .coordinator = settings_.self,
                             .lease_ms = settings_.lease.count(),
                             .stamp = stamp_of(now_.steady),
                             .hostname = self == nullptr ? "" : self->hello.hostname});
  outbox_.notify(NodeNotice::Kind::kJoined, name_of(peer.hello), peers_.connected(), settings_.max_nodes);
  if (membership_.was_committed_for(peer.hello.state)) {
    membership_.forget_previous(peers_);
    end_commit_.committed();
    leader_lease_.count_again();
  }
  if (peer.hello.node == settings_.self && release_.coordinator.address.port == 0) {
    release_.coordinator = {.group_rank = peer.rank, .node = settings_.self, .address = peer.hello.listens};
  }
  if (phase_ == Phase::kCommittingEnd) propose_end(peer);
  const Config& current = membership_.current();
  // A round is committed only after a majority of its nodes has installed it. So a node that joins must install the current
  // round.
  if (current.exists()) {
    if (peer.hello.state.current.id == current.id) {
      note_installed(peer);
    } else if (peer.hello.state.current.id < current.id) {
      Release known = release_for(peer, release_, membership_.previous());
      known.start = false;
      outbox_.send(peer, std::move(known));
      note_spare(peer);
    }
  }
  peer.is_late = late_nodes_.still_has_workers(peer, now_.steady);
  if (peer.is_late) {  // A late node (its workers do not end) may vote, but the coordinator does not wait for its workers.
    peer.pending_ready = peer.hello.workers_round;
  } else if (peer.hello.workers == Workers::kRunning || peer.hello.workers == Workers::kStopping || peer.hello.failed) {
    peers_.await_workers(peer, peer.hello.workers_round, now_.steady);
    late_nodes_.await(peer, now_.steady);
  } else {
    if (peer.hello.workers == Workers::kDone) note_done(peer, peer.hello.workers_round);
    // The node has finished the running round and has reconnected. It waits for the end of the round, like the other nodes that
    // have finished.
    if (phase_ == Phase::kRunning && peer.done) {
      round_progress_.back(peer);
    } else {
      peers_.set_ready_once_confirmed(peer);
    }
  }
  advance();
}

// Sends a spare (a node beyond the maximum of --nnodes) the reason why it waits. Without this message, the spare would log
// nothing until the job ends.
void Coordinator::note_spare(const Peer& peer) {
  if (phase_ != Phase::kRunning || peer.rank >= 0) return;
  if (is_reserve(peer, settings_)) {
    const std::string least = std::to_string(settings_.min_nodes);
    return outbox_.send(
        peer, Waiting{"this node failed several times in the last days, so it waits as a spare, and joins only if fewer than " +
                      least + " other nodes are left (--exclude-failing-nodes)"});
  }
  if (round_progress_.connected() < settings_.max_nodes) return;
  const std::string all = std::to_string(settings_.max_nodes);
  outbox_.send(peer, Waiting{"the job already runs on " + all + " of " + all +
                             " nodes: this node waits as a spare and joins if one of them is lost"});
}

// ---- lost nodes ----

void Coordinator::receive(Peer& peer, const Leave&) {
  // The node leaves because one of its devices failed. The failure then does not count as a restart, because the failed device
  // is no longer part of the job, and the other nodes continue.
  if (phase_ == Phase::kEnding && failure_ && failure_->failed.cause == Cause::kDevice) members_changed_ = true;
  peer.departed = true;
  // A departed node does not vote again, so it counts as if it had installed the round.
  const bool now_committed = membership_.install(peer, peers_);
  bootstrap_.installed(peers_);
  if (peer.hello.node == settings_.self) leadership_transfer_.begin();
  close_and_lose({peer.hello.node}, "left");
  // This call must follow close_and_lose(). In the opposite order, a round that starts here could include the departed node.
  if (now_committed) note_committed();
}

void Coordinator::close_and_lose(const std::vector<NodeId>& nodes, const std::string& why) {
  std::vector<LinkId> links;
  links.reserve(nodes.size());
  for (const NodeId& node : nodes) links.push_back(existing(peers_.at(node).link, "a lost node has no connection"));
  lose(nodes, why);
  for (const LinkId link : links) close(link);
}

// First marks all nodes as lost, and then handles the consequences once: a round ends or starts, or the job ends. If this
// function did both steps for one node after the other, a decision could count a node that is about to be marked as lost.
void Coordinator::lose(const std::vector<NodeId>& nodes, const std::string& why) {
  std::string ends_round;
  for (const NodeId& node : nodes) {
    std::string text = name_of(peers_.at(node).hello) + " " + why;
    if (note_lost(node, text) && ends_round.empty()) ends_round = std::move(text);
  }
  if (!ends_round.empty()) return end_round(OverReason::kMembershipChange, ends_round, Others::kHold);
  settle();
}

// Marks one node as lost. Returns true if the running round cannot continue without that node.
bool Coordinator::note_lost(const NodeId& id, const std::string& text) {
  Peer& peer = peers_.at(id);
  check(peer.link.has_value(), "a node is lost twice");
  const bool runs = peer.rank >= 0 && !peer.done && (phase_ == Phase::kRunning || phase_ == Phase::kSaving);
  if (!peer.departed && (runs || peers_.awaits(id) || peer.is_late)) leadership_transfer_.lost_with_workers(peer);
  peers_.disconnect(peer);
  stop_.lost(peer);
  end_commit_.lost(peer);
  const bool was_welcome = std::exchange(peer.welcome, false);
  const bool in_round = peer.rank >= 0;
  if (was_welcome && phase_ != Phase::kOver) {
    const bool failed = !peer.departed && id != settings_.self;
    outbox_.notify(NodeNotice::Kind::kLost, text, peers_.connected(), settings_.max_nodes, failed ? peer.hello.hostname : "");
    if (!peer.departed && id != settings_.self && flap_damper_.note(id, now_.steady)) {
      outbox_.notify(NodeNotice::Kind::kSetAside, "lost too often", settings_.cool_down.count());
    }
  }
  const bool in_running_round = in_round && phase_ == Phase::kRunning;
  if (in_running_round) round_progress_.lost(peer);
  if (in_round && phase_ == Phase::kEnding && !peer.departed) members_changed_ = true;
  const bool ends_round = in_running_round && !peer.done && settings_.rules.lost_members_end_round;
  if (!in_round && peer.previous_rank < 0) peers_.forget(id);
  return ends_round;
}

void Coordinator::drop_silent() {
  const nanoseconds patience = part_of(settings_.lease, settings_.rules.give_up);
  std::vector<NodeId> silent;
  for (const Peer* peer : peers_.by_age()) {
    if (peer->last_contact + patience > now_.steady) break;
    silent.push_back(peer->hello.node);
  }
  if (!silent.empty()) close_and_lose(silent, "sent nothing for " + std::to_string(settings_.lease.count()) + " ms");
}

// Handles nodes whose workers do not end in time. The coordinator cannot drop its own node. If its own node is late, the
// coordinator steps down so that another connected node can lead.
void Coordinator::check_late_nodes() {
  std::string text = late_nodes_.take_message(peers_, now_.steady);
  if (!text.empty()) {
    for (const Peer* peer : peers_.by_age()) {
      if (peer->connected() && peer->hello.node != settings_.self) outbox_.send(*peer, Waiting{text});
    }
    outbox_.notify(NodeNotice::Kind::kWaiting, std::move(text));
  }
  late_nodes_.give_up_due(peers_, now_.steady);
  const Peer* const self = peers_.find(settings_.self);
  if (self != nullptr && self->is_late && peers_.awaits(settings_.self) && peers_.connected() > 1) {
    return step_down({.why = "this node " + late_nodes_.why() + ": another node must become the coordinator", .unfit = true});
  }
  std::vector<NodeId> lost;
  for (const NodeId& id : late_nodes_.take_lost(peers_, now_.steady)) {
    const Peer* const peer = peers_.find(id);
    // take_lost() returns a node twice if the node is overdue in two rounds
    const bool is_new = std::find(lost.begin(), lost.end(), id) == lost.end();
    if (peer != nullptr && peer->link && id != settings_.self && is_new) lost.push_back(id);
  }
  if (!lost.empty()) close_and_lose(lost, late_nodes_.why());
}

// ---- authority ----

void Coordinator::receive(Peer& peer, const Ping& message) {
  if (!peer.welcome) return;
  if (message.echo > 0 && message.echo <= stamp_of(now_.steady)) {
    peer.answered = std::max(peer.answered, message.echo);
    bootstrap_.answered();
  }
  const bool was_installed = peer.installed;
  if (message.installed == round() && membership_.current().exists()) note_installed(peer);
  if (!was_installed && peer.installed && !bootstrap_.done()) {
    // An answer that is sent now cannot contain a grant (time for which workers may run). A later answer may contain a grant.
    leader_lease_.answer_later(peer, message.stamp);
  } else {
    leader_lease_.answer(peer, message.stamp, now_, outbox_);
  }
  const bool is_ready_now = peers_.take_confirmed(peer);
  if (is_ready_now || (!bootstrap_.done() && phase_ == Phase::kGathering)) advance();
}

void Coordinator::check_authority() {
  if (phase_ == Phase::kOver || !leader_lease_.has_ended(now_.steady)) return;
  const std::string nodes = std::to_string(membership_.current().nodes);
  step_down({.why = "less than a majority of the " + nodes + " nodes answers", .term = 0, .leader = {}});
}

void Coordinator::step_down(coordinator_action::StepDown why) {
  enter(Phase::kSteppedDown);
  outbox_.act(std::move(why));
}

// Sends TransferLeadership if all its conditions are met. The receivers can then elect a coordinator immediately, without
// waiting for the end of this coordinator's lease. Returns true if this node no longer leads.
bool Coordinator::transfer_if_due() {
  if (!is_between_rounds() || !leadership_transfer_.is_ready_to_transfer(now_.steady)) return false;
  const auto successor = leadership_transfer_.successor();
  std::string why = "this node leaves the job, and no connected node can replace it as coordinator";
  if (successor) {
    why = "this node leaves: " + name_of(peers_.at(successor->node).hello) + " becomes the coordinator";
    const TransferLeadership message{.node = settings_.self, .to = *successor, .state = leadership_transfer_.state(term_)};
    for (const Peer* peer : peers_.by_age()) {
      if (peer->connected()) outbox_.send(*peer, message);
    }
  }
  step_down({.why = why, .term = 0, .leader = {}});
  return true;
}

// ---- when a round starts ----

void Coordinator::gather(milliseconds call) {
  enter(Phase::kGathering);
  failure_.reset();
  members_changed_ = false;
  absorb_at_.reset();
  join_barrier_.begin(membership_.current(), call, now_.steady);
}

bool Coordinator::self_is_ready() const {
  const Peer* self = peers_.find(settings_.self);
  return self != nullptr && self->connected() && self->ready;
}

// Starts a round if all conditions are met. If a round is running and a spare is ready, sets the time at which the round ends
// to admit the spare. Call this after each event that may add or remove a node, or make a node ready.
void Coordinator::advance() {
  if (phase_ == Phase::kRunning) {
    if (round_progress_.connected() < settings_.max_nodes && spares_ready() > 0 && round_progress_.done() == 0 &&
        membership_.committed() && !stop_.is_pending()) {
      if (!absorb_at_) absorb_at_ = now_.steady + settings_.last_call;
    } else {
      absorb_at_.reset();
    }
    return;
  }
  if (transfer_if_due() || phase_ != Phase::kGathering) return;
  if (stop_.holds_back_rounds()) return;
  // The next round waits until the current round is committed. Without this wait, a decision would need majorities of three
  // rounds.
  if (!membership_.committed() && settings_.rules.commit_before_change) return;
  if (!self_is_ready()) return;
  if (peers_.awaited() > 0 && settings_.rules.wait_for_ready) return;
  if (stop_.saves_next()) {
    if (peers_.ready() >= settings_.min_nodes) return form();
    return carry_out(stop_.save_without_round());
  }
  const bool may_be_all = elected_ && peers_.unconfirmed() == 0;
  if (!join_barrier_.enough(peers_.ready(), membership_.current(), may_be_all, now_.steady, outbox_)) return;
  if (!bootstrap_.may_release(peers_, now_.steady, outbox_)) return;
  // If this is true, the coordinator was elected, and no earlier coordinator has judged this failure (counted it as a
  // restart). The failure is judged only if all nodes of the round are connected again. If a node was lost, the failure does
  // not count, because a lost node makes the other workers fail.
  if (failure_ && inherits_round() && all_are_ready()) {
    // The surviving workers keep their state and wait during the election, if the failure report allows it.
    held_ = failure_->others_stay;
    return judge();
  }
  form();
}

// Returns true if this coordinator was elected and has not started a round yet. The current round was then started by an
// earlier coordinator.
bool Coordinator::inherits_round() const {
  return membership_.current().exists() && membership_.current().born != term_;
}

bool Coordinator::all_are_ready() const {
  const auto ready = [](const auto& each) { return each.second.rank >= 0 && each.second.ready; };
  return std::count_if(peers_.all().begin(), peers_.all().end(), ready) == membership_.current().nodes;
}

void Coordinator::form() {
  const PlacedNodes placed = place_ready(peers_, settings_);
  membership_.begin_round(term_, placed.by_rank, arbitrated(placed, settings_), peers_);
  leader_lease_.round_released(now_.steady);
  const Config& current = membership_.current();
  enter(Phase::kRunning);
  round_progress_.begin(current.nodes, placed.by_rank, peers_);
  for (Peer* peer : placed.by_rank) {
    if (peer != nullptr) peers_.set_ready(*peer, false);
  }
  if (settings_.rules.coordinator_remembers_members) outbox_.act(coordinator_action::KeepRoster{roster_of(placed, current)});
  budget_.first_number = first_number_of(placed, current, budget_.first_number);
  outbox_.act(death_notice_for(placed, current, settings_));
  release_ = common_release(placed, current, budget_, settings_);
  send_release(placed, release_, membership_.previous(), peers_, outbox_);
  for (const Peer* peer : peers_.by_age()) {
    if (peer->connected()) note_spare(*peer);
  }
  outbox_.notify(NodeNotice::Kind::kReleased, "round " + std::to_string(current.id.round), current.nodes, settings_.max_nodes);
  failure_.reset();
  judged_ = held_ = false;
  carry_out(stop_.round_started(now_.steady));
}

void Coordinator::note_installed(Peer& peer) {
  const bool now_committed = membership_.install(peer, peers_);
  bootstrap_.installed(peers_);
  if (now_committed) note_committed();
}

void Coordinator::note_committed() {
  end_commit_.committed();
  leader_lease_.count_again();
  leader_lease_.committed(release_.successors, now_, outbox_);
  peers_.forget_unranked();
  check_end_committed();
  advance();
}

void Coordinator::handle(const coordinator_event::ArbiterVotes& event) {
  const bool now_committed = membership_.arbiter_votes(event.origin, peers_);
  leader_lease_.count_again();
  if (const Peer* const arbiter = peers_.find(kArbiterId)) end_commit_.lost(*arbiter);
  if (now_committed) note_committed();
  check_end_committed();
}

std::string Coordinator::waits_for() const {
  if (phase_ == Phase::kRunning) return "the running round";
  if (phase_ == Phase::kPausing) return "the pause before a restart";
  if (phase_ == Phase::kSaving) return std::to_string(stop_.waits_for()) + " nodes to stop";
  if (phase_ == Phase::kCommittingEnd) return std::to_string(end_commit_.waits_for()) + " nodes to confirm the end of the job";
  if (phase_ == Phase::kOver || phase_ == Phase::kSteppedDown) return "nothing";
  if (peers_.awaited() > 0) return std::to_string(peers_.awaited()) + " nodes to stop their workers";
  if (phase_ == Phase::kEnding) return "the decision about the next round";
  if (!membership_.committed()) return "a majority to confirm the last round";
  if (!self_is_ready()) return "this node to be ready";
  return "nodes: " + std::to_string(peers_.ready()) + " of at least " + std::to_string(settings_.min_nodes);
}

void Coordinator::settle() {
  check_ended();
  check_saving();
  // check_done() must follow check_saving(), because all nodes may have finished during a save that does not end the job.
  check_done();
  check_leaving();
  check_end_committed();
  advance();
}

// ---- how a round ends ----

void Coordinator::receive(Peer& peer, const FailureReport& message) {
  if (message.round != membership_.current().origin() || peer.rank < 0) return;
  if (phase_ == Phase::kRunning) {
    failure_ = message;
    return end_round(OverReason::kWorkerFailure, message.message, message.others_stay ? Others::kHold : Others::kStop);
  }
  // If this is true, the coordinator that started the round is lost, and the failure has not been judged yet.
  if (phase_ == Phase::kGathering && inherits_round() && !judged_ && !failure_) {
    failure_ = message;
    return outbox_.notify(NodeNotice::Kind::kRoundOver, message.message);
  }
  if ((phase_ != Phase::kEnding && phase_ != Phase::kGathering) || !failure_) return;
  // A lost peer is always a consequence of another failure, so it is never preferred as the cause. Among the other failures,
  // the earliest is the cause.
  const auto key = [](const FailureReport& report) {
    return std::pair(report.failed.cause == Cause::kLostPeer, report.coordinator_time_ns());
  };
  if (key(message) < key(*failure_)) failure_ = message;
}

void Coordinator::end_round(OverReason reason, const std::string& why, Others others) {
  enter(Phase::kEnding);
  absorb_at_.reset();
  members_changed_ = false;
  held_ = others == Others::kHold;
  if (reason == OverReason::kMembershipChange) failure_.reset();
  RoundOver over{.round = round(), .reason = reason, .why = why, .failure = {}, .hold = others == Others::kHold};
  if (failure_) over.failure = *failure_;
  for (Peer* peer : peers_.in_round(round_progress_.nodes())) {
    peers_.await_workers(*peer, round(), now_.steady);
    late_nodes_.await(*peer, now_.steady);
    outbox_.send(*peer, over);
  }
  outbox_.notify(NodeNotice::Kind::kRoundOver, why);
  check_leaving();
  if (phase_ == Phase::kEnding) check_ended();
}

void Coordinator::receive(Peer& peer, const Ready& message) {
  if (message.master_port != 0) peer.master_port = message.master_port;
  if (message.installed == round() && membership_.current().exists()) note_installed(peer);
  if (phase_ == Phase::kRunning && message.round == round() && peer.rank >= 0 && !peer.done) {
    // The workers of this node have ended without finishing the round, so their state is lost. The next round starts new
    // workers on every node, so no node needs to keep its state.
    end_round(OverReason::kMembershipChange, peer.hello.hostname + " no longer has workers", Others::kStop);
  }
  if (!peers_.workers_gone(peer, message.round)) return;
  if (peer.is_late) late_nodes_.forgive(peer);
  peers_.set_ready(peer, true);
  settle();
}

void Coordinator::check_ended() {
  if (phase_ != Phase::kEnding || (peers_.awaited() > 0 && settings_.rules.wait_for_ready)) return;
  if (!settings_.rules.wait_for_ready) peers_.stop_awaiting_all();
  if (transfer_if_due()) return;
  if (failure_ && !members_changed_ && !leadership_transfer_.has_started()) {
    judge();
  } else {
    gather(milliseconds{0});
    advance();
  }
}

void Coordinator::judge() {
  judged_ = true;
  const Verdict verdict = settings_.judge ? settings_.judge(*failure_, budget_) : Verdict{};
  if (!verdict.restart) {
    if (held_ && verdict.others_save) return carry_out(stop_.salvage(verdict));
    return finish(job_end::after_failure(verdict));
  }
  budget_ = verdict.after;
  if (verdict.delay.count() > 0 && !stop_.is_pending()) {
    enter(Phase::kPausing);
    pause_ends_ = now_.steady + verdict.delay;
    return;
  }
  gather(milliseconds{0});
  advance();
}

// ---- how the job ends ----

void Coordinator::receive(Peer& peer, const Done& message) {
  note_done(peer, message.round);
}

// A node reports the id of the round for which its workers were started. A later coordinator may have released that round
// again under another term. So this function compares origin(), which does not change.
void Coordinator::note_done(Peer& peer, const RoundId& round) {
  if (phase_ == Phase::kCommittingEnd || phase_ == Phase::kOver || phase_ == Phase::kSteppedDown || phase_ == Phase::kPausing)
    return;
  if (round != membership_.current().origin() || !round_progress_.done(peer)) return;
  stop_.done(peer);
  check_saving();
  check_done();
}

// The job is done when all nodes of the round have finished, even if the round has meanwhile ended for another reason.
void Coordinator::check_done() {
  const bool counts = phase_ == Phase::kRunning || phase_ == Phase::kEnding || phase_ == Phase::kGathering;
  if (!counts || !membership_.current().exists()) return;
  if (round_progress_.done() == membership_.current().nodes) finish(job_end::done());
}

OrderlyStop::Round Coordinator::round_of_stop() const {
  using Round = OrderlyStop::Round;
  if (phase_ == Phase::kRunning) return Round::kRunning;
  if (phase_ == Phase::kSaving) return Round::kSaving;
  if (!is_between_rounds()) return Round::kJobEnds;
  if (phase_ == Phase::kGathering && !membership_.current().exists()) return Round::kNone;
  if (held_ && phase_ != Phase::kPausing) return Round::kHeld;
  return failure_ ? Round::kFailed : Round::kStopped;
}

void Coordinator::carry_out(const StopDecision& decision) {
  std::visit(Overloaded{[](const stop_decision::Wait&) {}, [this](const stop_decision::Advance&) { advance(); },
                        [this](const stop_decision::EndRound& end) {
                          end_round(OverReason::kMembershipChange, end.why, end.hold ? Others::kHold : Others::kStop);
                        },
                        [this](const stop_decision::Save&) { enter(Phase::kSaving); },
                        [this](const stop_decision::Finish& finishing) { finish(finishing.end); }},
             decision);
}

void Coordinator::receive(Peer& peer, const StopRequest& message) {
  carry_out(stop_.requested(peer, message, round_of_stop(), now_.steady));
}

void Coordinator::receive(Peer& peer, const StopReady& message) {
  if (phase_ == Phase::kSaving && message.round == round()) carry_out(stop_.receive(peer, message, now_.steady));
}

void Coordinator::receive(Peer& peer, const Stopped& message) {
  if (phase_ == Phase::kSaving && message.round == round()) carry_out(stop_.receive(peer, message, now_.steady));
}

void Coordinator::check_saving() {
  if (phase_ == Phase::kSaving) carry_out(stop_.check_saving(now_.steady));
}

void Coordinator::finish(const JobEnd& end) {
  over_ = JobOver{.round = round(), .exit_code = end.exit_code, .why = end.why};
  enter(Phase::kCommittingEnd);
  if (!membership_.current().exists() || !settings_.rules.end_is_committed_first) return announce_end();
  end_commit_.begin(membership_.current(), membership_.previous(), peers_);
  for (Peer* peer : peers_.by_age()) {
    if (peer->connected()) propose_end(*peer);
  }
  check_end_committed();
}

void Coordinator::propose_end(Peer& peer) {
  end_commit_.await(peer);
  outbox_.send(peer, ProposeEnd{{membership_.current().origin(), over_.exit_code, over_.why}});
}

void Coordinator::receive(Peer& peer, const EndAccepted& message) {
  if (phase_ != Phase::kCommittingEnd || message.origin != membership_.current().origin()) return;
  end_commit_.answered(peer);
  check_end_committed();
}

void Coordinator::check_end_committed() {
  if (phase_ == Phase::kCommittingEnd && end_commit_.enough(settings_.rules)) announce_end();
}

void Coordinator::announce_end() {
  enter(Phase::kOver);
  over_at_ = now_.steady;
  linger_ends_ = now_.steady + settings_.lease;
  for (const Peer* peer : peers_.by_age()) outbox_.send(*peer, over_);
}

// ---- time ----

void Coordinator::handle(const node_event::Tick&) {
  drop_silent();
  if (phase_ == Phase::kSteppedDown) return;
  check_late_nodes();
  if (phase_ == Phase::kSteppedDown) return;
  while (const auto silent = pending_connections_.take_due(now_.steady)) close(*silent);
  const auto due = [&](std::optional<Time>& time) {
    if (!time || *time > now_.steady) return false;
    time.reset();
    return true;
  };
  if (phase_ == Phase::kOver) {
    if (due(linger_ends_) || peers_.connected() == 0) {
      step_down({.why = "the job is over"});
    }
    return;
  }
  if (due(pause_ends_) && phase_ == Phase::kPausing) gather(milliseconds{0});
  if (due(absorb_at_) && phase_ == Phase::kRunning && spares_ready() > 0 && round_progress_.done() == 0 &&
      !stop_.is_pending()) {
    const auto count = spares_ready();
    end_round(OverReason::kMembershipChange, std::to_string(count) + (count == 1 ? " node" : " nodes") + " joined",
              Others::kHold);
  }
  settle();
  if (phase_ == Phase::kGathering && join_barrier_.timed_out_by(now_.steady)) {
    const bool enough = peers_.ready() >= settings_.min_nodes;
    std::string why = enough ? bootstrap_.why(peers_) : join_barrier_.why(peers_.ready());
    if (why.empty()) why = "the job timed out waiting for " + waits_for();
    finish(job_end::too_few_nodes(std::move(why)));
  }
  if (phase_ == Phase::kGathering && stop_.is_overdue(now_.steady)) {
    carry_out(stop_.give_up("timed out waiting for " + waits_for()));
  }
}

std::optional<Time> Coordinator::next_deadline() const {
  if (phase_ == Phase::kSteppedDown) return std::nullopt;
  std::optional<Time> next;
  if (const auto oldest = peers_.oldest_contact()) {
    keep_earlier(next, *oldest + part_of(settings_.lease, settings_.rules.give_up));
  }
  keep_earlier(next, pending_connections_.next_deadline());
  if (peers_.awaited() > 0) keep_earlier(next, late_nodes_.next_deadline());
  if (phase_ == Phase::kOver) {
    keep_earlier(next, peers_.connected() == 0 ? std::optional<Time>(now_.steady) : linger_ends_);
    return next;
  }
  keep_earlier(next, leader_lease_.deadline(now_.steady));
  keep_earlier(next, leadership_transfer_.deadline(now_.steady));
  keep_earlier(next, leader_lease_.alone_at(now_.steady));
  if (phase_ == Phase::kPausing) keep_earlier(next, pause_ends_);
  if (phase_ == Phase::kRunning) keep_earlier(next, absorb_at_);
  if (phase_ != Phase::kSaving && phase_ != Phase::kCommittingEnd) keep_earlier(next, stop_.leaving_deadline());
  if (phase_ == Phase::kGathering) {
    keep_earlier(next, join_barrier_.next_deadline(now_.steady));
    keep_earlier(next, stop_.save_deadline());
    keep_earlier(next, if_after(bootstrap_.next_deadline(), now_.steady));
  }
  return next;
}

void Coordinator::close(LinkId link) {
  pending_connections_.remove(link);
  outbox_.act(node_action::CloseLink{link});
}

}  // namespace ddprun::rendezvous
