// Implementation of coordinator.hpp.
//
// Note [Why this file is long]
// It is one state machine: all functions read one phase, and any event may change it. The functions follow the life of a job:
// nodes that join, lost nodes, authority, the start of a round, its end, the end of the job, time. Parts with a separate state
// have separate files (rendezvous/presence, and saving, leaving, gathering, stragglers, leadership here).
#include "rendezvous/coordinator/coordinator.hpp"

#include <algorithm>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/exit_code.hpp"
#include "common/failure/cause.hpp"
#include "rendezvous/coordinator/entry.hpp"
#include "rendezvous/coordinator/release.hpp"

namespace ddprun::rendezvous {

Coordinator::Coordinator(CoordinatorSettings settings, const Authority& authority, Now now)
    : settings_(std::move(settings)),
      now_(now),
      term_(authority.term),
      elected_(authority.elected),
      stragglers_(settings_),
      losses_(settings_),
      membership_(authority, settings_.rules),
      leadership_(settings_, now.steady),
      founding_(settings_, authority.first),
      gathering_(settings_),
      leaving_(settings_),
      handing_over_(settings_),
      judged_(authority.judged) {
  if (authority.departed) {
    Peer& dead = peers_.know(authority.departed->node);
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
  // No request may be answered after the authority has ended.
  check_authority();
  if (phase_ != Phase::kSteppedDown) std::visit([this](const auto& concrete) { handle(concrete); }, event);
  return outbox_.take();
}

void Coordinator::handle(const coordinator_event::Closed& event) {
  strangers_.remove(event.link);
  if (const Peer* peer = peers_.behind(event.link))
    lose({peer->hello.node}, peer->straggles ? stragglers_.why() : "closed its connection");
}

void Coordinator::handle(const coordinator_event::Heard& event) {
  const auto* hello = std::get_if<Hello>(&event.message);
  const bool stranger = strangers_.contains(event.link);
  if (hello != nullptr && stranger) return greet(event.link, *hello);
  if (Peer* peer = peers_.behind(event.link)) {
    peers_.hear(*peer, now_.steady);
    std::visit([&](const auto& message) { hear(*peer, message); }, event.message);
  } else if (stranger) {
    close(event.link);
  }
}

// ---- who comes in ----

void Coordinator::greet(LinkId link, const Hello& hello) {
  if (phase_ == Phase::kOver) return turn_away(link);
  const EntryView view{settings_, term_, elected_, peers_, membership_, losses_, now_.steady};
  Entry entry = entry_of(hello, view);
  if (entry.step_down) return step_down(*std::move(entry.step_down));
  if (entry.replaces) {
    Peer& known = peers_.at(hello.node);
    // The Done of the old link may have been lost with it.
    if (entry.admitted && hello.workers == Workers::kDone) note_done(known, hello.workers_round);
    if (phase_ == Phase::kOver) return turn_away(link);
    if (entry.to_replaced) outbox_.send(known, *std::move(entry.to_replaced));
    if (settings_.rules.later_process_replaces) {
      close_and_lose({hello.node}, "came back over another connection");
      // The job's end or a handover may have waited only for the loss of this node. Then there is no job left to join.
      if (phase_ == Phase::kSteppedDown) return;
      if (phase_ == Phase::kOver) return turn_away(link);
    } else {
      peers_.keep_counting(known);
    }
  }
  if (entry.answer) act(coordinator_action::Send{link, *std::move(entry.answer)});
  if (!entry.notice.empty()) outbox_.say(NodeNotice::Kind::kRefused, std::move(entry.notice));
  if (!entry.admitted) return close(link);

  strangers_.remove(link);
  Peer& peer = peers_.know(hello.node);
  membership_.recall_ranks(peer, hello);
  peers_.connect(peer, link, hello, now_.steady);
  const bool ends = phase_ == Phase::kConcluding || phase_ == Phase::kOver;
  if (!ends && hello.ending.exists() && hello.ending.origin == membership_.current().origin()) {
    finish(hello.ending.exit_code, hello.ending.why);  // as the previous coordinator would have done
  }
  // Before the first round no node can have been elected, so any later term is free. If a job may run elsewhere, the new term
  // must be out of the reach of its elections.
  if (hello.state.promised_term > term_) {
    term_ = hello.state.promised_term + (founding_.done() ? 1 : founding_.term_apart());
  }
  welcome(peer);
}

// Answers a node that arrives after the end of the job.
void Coordinator::turn_away(LinkId link) {
  JobOver over = over_;
  over.ended_ms_ago = std::chrono::duration_cast<milliseconds>(now_.steady - over_at_).count();
  act(coordinator_action::Send{link, std::move(over)});
  close(link);
}

void Coordinator::welcome(Peer& peer) {
  peer.welcome = true;
  outbox_.send(
      peer,
      Welcome{
          .term = term_, .coordinator = settings_.self, .lease_ms = settings_.lease.count(), .stamp = stamp_of(now_.steady)});
  outbox_.say(NodeNotice::Kind::kJoined, name_of(peer.hello), peers_.connected(), settings_.max_nodes);
  if (membership_.was_committed_for(peer.hello.state)) {
    membership_.forget_previous(peers_);
    concluding_.committed();
    leadership_.count_again();
  }
  if (peer.hello.node == settings_.self && release_.coordinator.address.port == 0) {
    release_.coordinator = {.group_rank = peer.rank, .node = settings_.self, .address = peer.hello.listens};
  }
  if (phase_ == Phase::kConcluding) conclude(peer);
  const Config& current = membership_.current();
  if (current.exists()) {  // every node must know the current round before it can count as committed
    if (peer.hello.state.current.id == current.id) {
      note_installed(peer);
    } else if (peer.hello.state.current.id < current.id) {
      Release known = release_for(peer, release_, membership_.previous());
      known.start = false;
      outbox_.send(peer, std::move(known));
      note_spare(peer);
    }
  }
  peer.straggles = stragglers_.still_has_workers(peer, now_.steady);
  if (peer.straggles) {  // it may vote, but the coordinator does not wait for its workers
    peer.owes_ready = peer.hello.workers_round;
  } else if (peer.hello.workers == Workers::kRunning || peer.hello.workers == Workers::kStopping || peer.hello.failed) {
    peers_.await_workers(peer, peer.hello.workers_round, now_.steady);
    stragglers_.await(peer, now_.steady);
  } else {
    if (peer.hello.workers == Workers::kDone) note_done(peer, peer.hello.workers_round);
    // The node reconnected. It waits for the end of the round, like the nodes that stayed connected.
    if (phase_ == Phase::kRunning && peer.done) {
      round_nodes_.back(peer);
    } else {
      peers_.set_ready_once_heard(peer);
    }
  }
  consider();
}

// Sends a surplus node the reason for its wait. Otherwise that node logs nothing until the job ends.
void Coordinator::note_spare(const Peer& peer) {
  if (phase_ != Phase::kRunning || peer.rank >= 0 || round_nodes_.here() < settings_.max_nodes) return;
  const std::string all = std::to_string(settings_.max_nodes);
  outbox_.send(peer, Waiting{"the job already runs on " + all + " of " + all +
                             " nodes: this node is a spare and joins if one of them is lost"});
}

// ---- who is lost ----

void Coordinator::hear(Peer& peer, const Leave&) {
  // The failed device leaves with its node. So no restart is counted, and the others continue.
  if (phase_ == Phase::kEnding && failure_ && failure_->failed.cause == Cause::kDevice) members_changed_ = true;
  peer.departed = true;
  const bool now_committed = membership_.install(peer, peers_);  // it will not vote again, so it counts as installed
  founding_.installed(peers_);
  if (peer.hello.node == settings_.self) handing_over_.begin();
  close_and_lose({peer.hello.node}, "left");
  if (now_committed) note_committed();  // only after the loss, so that the next round does not include the node
}

void Coordinator::close_and_lose(const std::vector<NodeId>& nodes, const std::string& why) {
  std::vector<LinkId> links;
  links.reserve(nodes.size());
  for (const NodeId& node : nodes) links.push_back(existing(peers_.at(node).link, "a node is lost that is not here"));
  lose(nodes, why);
  for (const LinkId link : links) close(link);
}

// Marks all nodes as lost first, and handles the consequences once afterwards: a round's end or start, or the end of the job.
// Otherwise a decision could still count a node that is lost.
void Coordinator::lose(const std::vector<NodeId>& nodes, const std::string& why) {
  std::string ends_round;
  for (const NodeId& node : nodes) {
    std::string news = name_of(peers_.at(node).hello) + " " + why;
    if (note_lost(node, news) && ends_round.empty()) ends_round = std::move(news);
  }
  if (!ends_round.empty()) return end_round(OverReason::kMembershipChange, ends_round, Others::kHold);
  check_ended();
  check_saving();
  check_done();
  check_leaving();
  check_concluded();
  consider();
}

// Returns true if the running round cannot continue without the node.
bool Coordinator::note_lost(const NodeId& id, const std::string& news) {
  Peer& peer = peers_.at(id);
  check(peer.link.has_value(), "a node is lost twice");
  const bool runs = peer.rank >= 0 && !peer.done && (phase_ == Phase::kRunning || phase_ == Phase::kSaving);
  if (!peer.departed && (runs || peers_.awaits(id) || peer.straggles)) handing_over_.lost_with_workers(peer);
  peers_.disconnect(peer);
  if (saving_) saving_->lost(peer);
  concluding_.lost(peer);
  const bool was_welcome = std::exchange(peer.welcome, false);
  const bool in_round = peer.rank >= 0;
  if (was_welcome && phase_ != Phase::kOver) {
    outbox_.say(NodeNotice::Kind::kLost, news, peers_.connected(), settings_.max_nodes);
    if (!peer.departed && id != settings_.self && losses_.note(id, now_.steady)) {
      outbox_.say(NodeNotice::Kind::kSetAside, "lost too often", settings_.cool_down.count());
    }
  }
  const bool in_running_round = in_round && phase_ == Phase::kRunning;
  if (in_running_round) round_nodes_.lost(peer);
  leaving_.lost(peer);
  if (in_round && phase_ == Phase::kEnding && !peer.departed) members_changed_ = true;
  const bool ends_round = in_running_round && !peer.done && settings_.rules.lost_members_end_round;
  if (!in_round && peer.previous_rank < 0) peers_.forget(id);
  return ends_round;
}

void Coordinator::drop_silent() {
  const nanoseconds patience = part_of(settings_.lease, settings_.rules.give_up);
  std::vector<NodeId> silent;
  for (const Peer* peer : peers_.by_age()) {
    if (peer->heard + patience > now_.steady) break;
    silent.push_back(peer->hello.node);
  }
  if (!silent.empty()) close_and_lose(silent, "was not heard of for " + std::to_string(settings_.lease.count()) + " ms");
}

// A coordinator can't lose its own node. If the workers of that node do not end, it steps down in favor of another node, if
// there is one.
void Coordinator::check_stragglers() {
  std::string news = stragglers_.take_news(peers_, now_.steady);
  if (!news.empty()) {
    for (const Peer* peer : peers_.by_age()) {
      if (peer->here() && peer->hello.node != settings_.self) outbox_.send(*peer, Waiting{news});
    }
    outbox_.say(NodeNotice::Kind::kWaiting, std::move(news));
  }
  stragglers_.give_up_due(peers_, now_.steady);
  const Peer* const self = peers_.find(settings_.self);
  if (self != nullptr && self->straggles && peers_.awaits(settings_.self) && peers_.connected() > 1) {
    return step_down({.why = "this node " + stragglers_.why() + ": another one is to lead", .unfit = true});
  }
  std::vector<NodeId> lost;
  for (const NodeId& id : stragglers_.take_lost(peers_, now_.steady)) {
    const Peer* const peer = peers_.find(id);
    const bool is_new = std::find(lost.begin(), lost.end(), id) == lost.end();  // it may be overdue in two rounds
    if (peer != nullptr && peer->link && id != settings_.self && is_new) lost.push_back(id);
  }
  if (!lost.empty()) close_and_lose(lost, stragglers_.why());
}

// ---- authority ----

void Coordinator::hear(Peer& peer, const Ping& message) {
  if (!peer.welcome) return;
  if (message.echo > 0 && message.echo <= stamp_of(now_.steady)) {
    peer.answered = std::max(peer.answered, message.echo);
    founding_.answered();
  }
  const bool had_it = peer.installed;
  if (message.installed == round() && membership_.current().exists()) note_installed(peer);
  if (!had_it && peer.installed && !founding_.done()) {
    leadership_.answer_later(peer, message.stamp,
                             membership_);  // only an answer with a grant helps the node, and it may follow soon
  } else {
    leadership_.answer(peer, message.stamp, founding_.done(), membership_, peers_, now_, outbox_);
  }
  const bool is_ready_now = peers_.take_heard(peer);
  if (is_ready_now || (!founding_.done() && phase_ == Phase::kGathering)) consider();
}

void Coordinator::check_authority() {
  if (phase_ == Phase::kOver || !leadership_.has_ended(membership_, peers_, now_.steady)) return;
  const std::string nodes = std::to_string(membership_.current().nodes);
  step_down({.why = "less than a majority of the " + nodes + " nodes answers", .term = 0, .leader = {}});
}

void Coordinator::step_down(coordinator_action::StepDown why) {
  phase_ = Phase::kSteppedDown;
  act(std::move(why));
}

// Nodes that get the handover need not wait until this coordinator's authority ends. Returns true if this node no longer leads.
bool Coordinator::hand_over_if_due() {
  const bool between = phase_ == Phase::kEnding || phase_ == Phase::kGathering || phase_ == Phase::kPausing;
  if (!between || !handing_over_.may_happen(membership_, peers_, now_.steady)) return false;
  const auto successor = handing_over_.successor(peers_);
  std::string why = "this node leaves, and nobody is here who could lead";
  if (successor) {
    why = "this node leaves: " + name_of(peers_.at(successor->node).hello) + " is to lead";
    const HandOver message{.node = settings_.self, .to = *successor, .state = handing_over_.state(term_, membership_, peers_)};
    for (const Peer* peer : peers_.by_age()) {
      if (peer->here()) outbox_.send(*peer, message);
    }
  }
  step_down({.why = why, .term = 0, .leader = {}});
  return true;
}

void Coordinator::hear(Peer& peer, const StoreAsk& message) {
  if (phase_ != Phase::kRunning && phase_ != Phase::kSaving) return;
  if (message.round == round()) act(coordinator_action::ServeStore{*peer.link, message});
}

// ---- when a round starts ----

void Coordinator::gather(milliseconds call) {
  phase_ = Phase::kGathering;
  failure_.reset();
  members_changed_ = false;
  absorb_at_.reset();
  gathering_.begin(membership_.current(), call, now_.steady);
}

bool Coordinator::self_is_ready() const {
  const Peer* self = peers_.find(settings_.self);
  return self != nullptr && self->here() && self->ready;
}

// Call it after each event that may add or remove a node, or make it ready.
void Coordinator::consider() {
  if (phase_ == Phase::kRunning) {
    if (round_nodes_.here() < settings_.max_nodes && spares_ready() > 0 && round_nodes_.done() == 0 &&
        membership_.committed() && leaving_.empty()) {
      if (!absorb_at_) absorb_at_ = now_.steady + settings_.last_call;
    } else {
      absorb_at_.reset();
    }
    return;
  }
  if (hand_over_if_due() || phase_ != Phase::kGathering) return;
  if (!leaving_.empty() && !save_next_) return;  // the state that their workers hold may still be saved
  // A membership change before the last one is committed would need majorities of three rounds. So it waits.
  if (!membership_.committed() && settings_.rules.commit_before_change) return;
  if (!self_is_ready()) return;
  if (peers_.awaited() > 0 && settings_.rules.wait_for_ready) return;
  if (save_next_) {
    if (peers_.ready() >= settings_.min_nodes) return form();
    return save_after_stop(*save_next_, "fewer nodes are left than --nnodes requires", peers_.of_round());
  }
  const bool may_be_all = elected_ && peers_.unheard() == 0;
  if (!gathering_.enough(peers_.ready(), membership_.current(), may_be_all, now_.steady, outbox_)) return;
  if (!founding_.may_release(peers_, now_.steady, outbox_)) return;
  // No earlier coordinator got a report of this failure. As at any round's end, it costs no restart if nodes were lost as well:
  // workers fail when their peers are gone.
  if (failure_ && inherits_round() && all_are_ready()) {
    held_ = failure_->others_stay;  // workers that lost their coordinator wait as well
    return judge();
  }
  form();
}

// True if this coordinator was elected and has not released a round yet.
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
  leadership_.round_released(now_.steady);
  const Config& current = membership_.current();
  phase_ = Phase::kRunning;
  round_nodes_.begin(current.nodes, placed.by_rank, peers_);
  for (Peer* peer : placed.by_rank) {
    if (peer != nullptr) peers_.set_ready(*peer, false);
  }
  if (settings_.rules.coordinator_remembers_members) act(coordinator_action::KeepRoster{roster_of(placed, current)});
  budget_.first_number = first_number_of(placed, current, budget_.first_number);
  act(farewell_for(placed, current, settings_));
  release_ = common_release(placed, current, budget_, settings_);
  send_release(placed, release_, membership_.previous(), peers_, outbox_);
  for (const Peer* peer : peers_.by_age()) {
    if (peer->here()) note_spare(*peer);
  }
  outbox_.say(NodeNotice::Kind::kReleased, "round " + std::to_string(current.id.round), current.nodes, settings_.max_nodes);
  leaving_.clear();
  failure_.reset();
  judged_ = held_ = false;
  if (save_next_) return begin_saving(*std::exchange(save_next_, std::nullopt));
  consider();
}

void Coordinator::note_installed(Peer& peer) {
  const bool now_committed = membership_.install(peer, peers_);
  founding_.installed(peers_);
  if (now_committed) note_committed();
}

void Coordinator::note_committed() {
  concluding_.committed();
  leadership_.count_again();
  leadership_.committed(release_.successors, founding_.done(), membership_, peers_, now_, outbox_);
  peers_.forget_bystanders();
  check_concluded();
  consider();
}

void Coordinator::handle(const coordinator_event::ArbiterVotes& event) {
  const bool now_committed = membership_.arbiter_votes(event.origin, peers_);
  leadership_.count_again();
  if (const Peer* const arbiter = peers_.find(kArbiterId)) concluding_.lost(*arbiter);
  if (now_committed) note_committed();
  check_concluded();
}

std::string Coordinator::waits_for() const {
  if (phase_ == Phase::kRunning) return "the running round";
  if (phase_ == Phase::kPausing) return "the pause before a restart";
  if (phase_ == Phase::kSaving) return std::to_string(saving_->waits_for()) + " nodes that stop";
  if (phase_ == Phase::kConcluding) return std::to_string(concluding_.waits_for()) + " nodes that learn of the end";
  if (phase_ == Phase::kOver || phase_ == Phase::kSteppedDown) return "nothing";
  if (peers_.awaited() > 0) return std::to_string(peers_.awaited()) + " nodes that stop their workers";
  if (phase_ == Phase::kEnding) return "a decision";
  if (!membership_.committed()) return "a majority to know the last round";
  if (!self_is_ready()) return "this node";
  return "nodes: " + std::to_string(peers_.ready()) + " of at least " + std::to_string(settings_.min_nodes);
}

// ---- how a round ends ----

void Coordinator::hear(Peer& peer, const FailureReport& message) {
  if (message.round != membership_.current().origin() || peer.rank < 0) return;
  if (phase_ == Phase::kRunning) {
    failure_ = message;
    return end_round(OverReason::kWorkerFailure, message.message, message.others_stay ? Others::kHold : Others::kStop);
  }
  if (phase_ == Phase::kGathering && inherits_round() && !judged_ && !failure_) {  // no earlier coordinator has judged it
    failure_ = message;
    return outbox_.say(NodeNotice::Kind::kRoundOver, message.message);
  }
  if ((phase_ != Phase::kEnding && phase_ != Phase::kGathering) || !failure_) return;
  // A lost peer is a consequence of another failure. Among the other failures, the first in time is the cause.
  const auto key = [](const FailureReport& report) {
    return std::pair(report.failed.cause == Cause::kLostPeer, report.coordinator_time_ns());
  };
  if (key(message) < key(*failure_)) failure_ = message;
}

void Coordinator::end_round(OverReason reason, const std::string& why, Others others) {
  phase_ = Phase::kEnding;
  absorb_at_.reset();
  members_changed_ = false;
  held_ = others == Others::kHold;
  if (reason == OverReason::kMembershipChange) failure_.reset();
  RoundOver over{.round = round(), .reason = reason, .why = why, .failure = {}, .hold = others == Others::kHold};
  if (failure_) over.failure = *failure_;
  for (Peer* peer : peers_.in_round(round_nodes_.nodes())) {
    peers_.await_workers(*peer, round(), now_.steady);
    stragglers_.await(*peer, now_.steady);
    outbox_.send(*peer, over);
  }
  outbox_.say(NodeNotice::Kind::kRoundOver, why);
  check_leaving();
  if (phase_ == Phase::kEnding) check_ended();
}

void Coordinator::hear(Peer& peer, const Ready& message) {
  if (message.master_port != 0) peer.master_port = message.master_port;
  if (message.installed == round() && membership_.current().exists()) note_installed(peer);
  if (phase_ == Phase::kRunning && message.round == round() && peer.rank >= 0 && !peer.done) {
    // That node could not continue with the state that it held. So no node continues: the next round starts new workers on
    // every node.
    end_round(OverReason::kMembershipChange, peer.hello.hostname + " has no workers any more", Others::kStop);
  }
  if (!peers_.workers_gone(peer, message.round)) return;
  if (peer.straggles) stragglers_.forgive(peer);
  peers_.set_ready(peer, true);
  check_ended();
  consider();
}

void Coordinator::check_ended() {
  if (phase_ != Phase::kEnding || (peers_.awaited() > 0 && settings_.rules.wait_for_ready)) return;
  if (!settings_.rules.wait_for_ready) peers_.await_nobody();
  if (hand_over_if_due()) return;
  if (failure_ && !members_changed_ && !handing_over_.begun()) {
    judge();
  } else {
    gather(milliseconds{0});
    consider();
  }
}

void Coordinator::judge() {
  judged_ = true;
  const Verdict verdict = settings_.judge ? settings_.judge(*failure_, budget_) : Verdict{};
  if (!verdict.restart) return give_up(verdict);
  budget_ = verdict.after;
  if (verdict.delay.count() > 0 && !save_next_ && leaving_.empty()) {
    phase_ = Phase::kPausing;
    pause_ends_ = now_.steady + verdict.delay;
    return;
  }
  gather(milliseconds{0});
  consider();
}

// ---- how the job ends ----

void Coordinator::hear(Peer& peer, const Done& message) {
  note_done(peer, message.round);
}

// A node reports the round in which its workers were started. A successor has since given that round another term.
void Coordinator::note_done(Peer& peer, const RoundId& round) {
  if (phase_ == Phase::kConcluding || phase_ == Phase::kOver || phase_ == Phase::kSteppedDown || phase_ == Phase::kPausing)
    return;
  if (round != membership_.current().origin() || !round_nodes_.done(peer)) return;
  leaving_.lost(peer);  // the node has finished its work, so it stays until the job ends
  if (saving_) saving_->done(peer);
  check_saving();
  check_done();
}

// All nodes of the round have finished, so the job is done. It does not matter how the round ended.
void Coordinator::check_done() {
  const bool counts = phase_ == Phase::kRunning || phase_ == Phase::kEnding || phase_ == Phase::kGathering;
  if (!counts || !membership_.current().exists()) return;
  if (round_nodes_.done() == membership_.current().nodes) finish(static_cast<int>(ExitCode::kDone), "done");
}

void Coordinator::hear(Peer& peer, const StopAsk& message) {
  const bool coordinates = peer.hello.node == settings_.self;
  switch (phase_) {
    case Phase::kRunning:
      if (peer.rank < 0 && !coordinates) return let_go(peer);
      if (coordinates && peer.done) return begin_saving(message.signal);  // the coordinator leads until the end
      if (peer.done) return;
      leaving_.ask(peer, message.signal, message.saves, now_.steady);
      return check_leaving();
    case Phase::kGathering:
    case Phase::kPausing:
    case Phase::kEnding:
      if (coordinates) return stop_between_rounds(message.signal);
      if (peer.rank < 0) return let_go(peer);
      leaving_.ask(peer, message.signal, message.saves, now_.steady);
      return check_leaving();
    case Phase::kSaving:  // more nodes leave than at first; the saved state is the same
      if (goes_on_after_saving_ && peer.rank >= 0) leaving_.ask(peer, message.signal, message.saves, now_.steady);
      return;
    case Phase::kConcluding:
    case Phase::kOver:
    case Phase::kSteppedDown:
      return;
  }
}

bool Coordinator::enough_stay() const {
  if (round_nodes_.here() + spares_ready() - leaving_.count() < settings_.min_nodes) return false;
  return !leaving_.contains(settings_.self) || handing_over_.possible(leaving_, membership_, peers_);
}

void Coordinator::check_leaving() {
  if (leaving_.empty()) return;
  if (phase_ == Phase::kEnding || phase_ == Phase::kGathering || phase_ == Phase::kPausing)
    return check_leaving_between_rounds();
  if (phase_ != Phase::kRunning) return;
  if (!enough_stay()) return begin_saving(leaving_.signal());
  if (!leaving_.is_due(now_.steady)) return;
  if (leaving_.saves()) return begin_saving(leaving_.signal(), /*goes_on=*/true);
  end_round_for_leaving(Others::kHold);
}

// The round ended for another reason while stop signals were on their way. If its workers hold their state, we wait for the
// signals to other nodes, as in a running round.
void Coordinator::check_leaving_between_rounds() {
  if (save_next_) return leaving_.clear();  // the next round saves, and ends the job for all of them
  const bool can_save = held_ && phase_ != Phase::kPausing && peers_.connected() >= settings_.min_nodes;
  const bool self_stays = !leaving_.contains(settings_.self) || handing_over_.possible(leaving_, membership_, peers_);
  const bool enough = peers_.connected() - leaving_.count() >= settings_.min_nodes && self_stays;
  if (can_save && !enough) return stop_between_rounds(leaving_.signal());
  if (can_save && !leaving_.is_due(now_.steady)) return;
  let_go_of_leaving();
  consider();
}

void Coordinator::end_round_for_leaving(Others others) {
  const std::string why = leaving_.why();
  let_go_of_leaving();
  end_round(OverReason::kMembershipChange, why, others);
}

void Coordinator::let_go_of_leaving() {
  for (const NodeId& id : leaving_.take()) {
    if (Peer* const peer = peers_.find(id); peer != nullptr && peer->here()) let_go(*peer);
  }
}

// No round starts before the node has left: it counts neither as ready nor as gone.
void Coordinator::let_go(Peer& peer) {
  outbox_.send(peer, MayLeave{round()});
  if (!peer.ready || phase_ == Phase::kRunning) return;
  peers_.set_ready(peer, false);
  peers_.await_workers(peer, round(), now_.steady);
  stragglers_.await(peer, now_.steady);
}

// The waiting workers hold the state to save, and only a round can save it.
void Coordinator::stop_between_rounds(std::int32_t signal) {
  if (phase_ == Phase::kGathering && !membership_.current().exists()) {
    return finish(128 + signal, "stopped by signal " + std::to_string(signal));
  }
  if (!held_ || phase_ == Phase::kPausing) {
    return finish_unsaved(signal, failure_ ? "a round had failed" : "no round was running");
  }
  leaving_.clear();
  save_next_ = signal;
  save_next_by_ = now_.steady + settings_.ready_timeout;
  consider();
}

void Coordinator::finish_unsaved(std::int32_t signal, const std::string& why) {
  save_next_.reset();
  finish(128 + signal, "stopped by signal " + std::to_string(signal) + " without saving: " + why);
}

void Coordinator::begin_saving(std::int32_t signal, bool goes_on) {
  phase_ = Phase::kSaving;
  goes_on_after_saving_ = goes_on;
  if (!goes_on) leaving_.clear();
  saving_.emplace(StopAndSave{.round = round(), .signal = signal, .goes_on = goes_on}, peers_.in_round(round_nodes_.nodes()),
                  outbox_);
  check_saving();
}

// Ends the job. If the verdict asks for it, one of the nodes with waiting workers first saves the state that they hold.
void Coordinator::give_up(const Verdict& verdict) {
  if (!held_ || !verdict.others_save) return finish(verdict.exit_code, verdict.end());
  save_what_is_held(verdict, peers_.of_round());
}

void Coordinator::save_what_is_held(const Verdict& otherwise, const std::vector<Peer*>& nodes) {
  phase_ = Phase::kSaving;
  goes_on_after_saving_ = false;
  save_next_.reset();
  leaving_.clear();
  last_save_.emplace(otherwise, nodes);
  save_what_is_held();
}

// The stop no longer waits for a round in which all workers save together. One of `nodes` saves instead.
void Coordinator::save_after_stop(std::int32_t signal, const std::string& why, const std::vector<Peer*>& nodes) {
  save_what_is_held(Verdict{.exit_code = 128 + signal, .why = "stopped by signal " + std::to_string(signal) + ": " + why},
                    nodes);
}

void Coordinator::save_what_is_held() {
  Peer* next = last_save_->next(peers_);
  if (next == nullptr) return finish(last_save_->exit_code(false), last_save_->why(false));
  saving_.emplace(StopAndSave{.round = round(), .held = true}, std::vector{next}, outbox_);
}

void Coordinator::hear(Peer& peer, const StopReady& message) {
  if (phase_ != Phase::kSaving || message.round != round()) return;
  saving_->hear(peer, message, outbox_);
  check_saving();
}

void Coordinator::hear(Peer& peer, const Stopped& message) {
  if (phase_ != Phase::kSaving || message.round != round()) return;
  saving_->hear(peer, message);
  const bool alone = message.holds && !last_save_ && !goes_on_after_saving_ && !saving_->step_is_told();
  if (!alone) return check_saving();
  // No group can form without the workers of that node. So other nodes must not write while this one saves.
  std::vector<Peer*> nodes{&peer};
  for (Peer* other : peers_.of_round()) {
    if (other != &peer) nodes.push_back(other);
  }
  save_after_stop(saving_->signal(), "the lost workers' replacements were not ready in time", nodes);
}

void Coordinator::check_saving() {
  if (phase_ != Phase::kSaving) return;
  if (saving_->knows_step()) saving_->tell_step(peers_.in_round(round_nodes_.nodes()), outbox_);
  if (!saving_->over()) return;
  if (last_save_) {
    if (!saving_->all_saved()) return save_what_is_held();
    return finish(last_save_->exit_code(true), last_save_->why(true));
  }
  if (!goes_on_after_saving_ || !enough_stay()) return finish(saving_->exit_code(), saving_->why());
  saving_.reset();
  end_round_for_leaving(Others::kStop);
}

void Coordinator::finish(int exit_code, const std::string& why) {
  over_ = JobOver{.round = round(), .exit_code = exit_code, .why = why};
  phase_ = Phase::kConcluding;
  if (!membership_.current().exists() || !settings_.rules.ends_are_known_first) return say_over();
  concluding_.begin(membership_.current(), membership_.previous(), peers_);
  for (Peer* peer : peers_.by_age()) {
    if (peer->here()) conclude(*peer);
  }
  check_concluded();
}

void Coordinator::conclude(Peer& peer) {
  concluding_.await(peer);
  outbox_.send(peer, Conclude{{membership_.current().origin(), over_.exit_code, over_.why}});
}

void Coordinator::hear(Peer& peer, const Concluded& message) {
  if (phase_ != Phase::kConcluding || message.origin != membership_.current().origin()) return;
  concluding_.answered(peer);
  check_concluded();
}

void Coordinator::check_concluded() {
  if (phase_ == Phase::kConcluding && concluding_.enough(settings_.rules)) say_over();
}

void Coordinator::say_over() {
  phase_ = Phase::kOver;
  over_at_ = now_.steady;
  linger_ends_ = now_.steady + settings_.lease;
  for (const Peer* peer : peers_.by_age()) outbox_.send(*peer, over_);
}

// ---- time ----

void Coordinator::handle(const coordinator_event::Tick&) {
  drop_silent();
  if (phase_ == Phase::kSteppedDown) return;
  check_stragglers();
  if (phase_ == Phase::kSteppedDown) return;
  while (const auto silent = strangers_.take_due(now_.steady)) close(*silent);
  const auto due = [&](std::optional<Time>& time) {
    if (!time || *time > now_.steady) return false;
    time.reset();
    return true;
  };
  if (phase_ == Phase::kOver) {
    if (due(linger_ends_) || peers_.connected() == 0) {
      phase_ = Phase::kSteppedDown;
      act(coordinator_action::Finished{});
    }
    return;
  }
  if (due(pause_ends_) && phase_ == Phase::kPausing) gather(milliseconds{0});
  if (due(absorb_at_) && phase_ == Phase::kRunning && spares_ready() > 0 && round_nodes_.done() == 0 && leaving_.empty()) {
    const auto count = spares_ready();
    end_round(OverReason::kMembershipChange, std::to_string(count) + (count == 1 ? " node" : " nodes") + " joined",
              Others::kHold);
  }
  check_leaving();
  consider();
  if (phase_ == Phase::kGathering && gathering_.in_vain(now_.steady)) {
    const bool enough = peers_.ready() >= settings_.min_nodes;
    std::string why = enough ? founding_.why(peers_) : gathering_.why(peers_.ready());
    if (why.empty()) why = "the job waited in vain for " + waits_for();
    finish(static_cast<int>(ExitCode::kPeersMissing), why);
  }
  if (save_next_ && phase_ == Phase::kGathering && save_next_by_ <= now_.steady) {
    finish_unsaved(*save_next_, "it waited in vain for " + waits_for());
  }
}

std::optional<Time> Coordinator::next_deadline() const {
  if (phase_ == Phase::kSteppedDown) return std::nullopt;
  std::optional<Time> next;
  const auto consider_time = [&](const std::optional<Time>& time) {
    if (time && (!next || *time < *next)) next = time;
  };
  if (const auto oldest = peers_.oldest_word()) {
    consider_time(*oldest + part_of(settings_.lease, settings_.rules.give_up));
  }
  consider_time(strangers_.next_deadline());
  if (peers_.awaited() > 0) consider_time(stragglers_.next_deadline());
  if (phase_ == Phase::kOver) {
    consider_time(peers_.connected() == 0 ? std::optional<Time>(now_.steady) : linger_ends_);
    return next;
  }
  consider_time(leadership_.deadline(membership_, peers_, now_.steady));
  consider_time(handing_over_.deadline(now_.steady));
  consider_time(leadership_.alone_at(membership_, peers_, now_.steady));
  if (phase_ == Phase::kPausing) consider_time(pause_ends_);
  if (phase_ == Phase::kRunning) consider_time(absorb_at_);
  if (phase_ != Phase::kSaving && phase_ != Phase::kConcluding) consider_time(leaving_.deadline());
  if (phase_ == Phase::kGathering) {
    consider_time(gathering_.next_deadline(now_.steady));
    if (save_next_) consider_time(save_next_by_);
    if (const auto founded = founding_.next_deadline(); founded && *founded > now_.steady) consider_time(founded);
  }
  return next;
}

void Coordinator::close(LinkId link) {
  strangers_.remove(link);
  act(coordinator_action::Close{link});
}

}  // namespace ddprun::rendezvous
