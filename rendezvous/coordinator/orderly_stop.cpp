#include "rendezvous/coordinator/orderly_stop.hpp"

#include <utility>

namespace ddprun::rendezvous {

namespace decision = stop_decision;

OrderlyStop::OrderlyStop(const CoordinatorSettings& settings, const Membership& membership, const RoundProgress& round_progress,
                         const LeadershipTransfer& leadership_transfer, Peers& peers, LateNodes& late_nodes, Outbox& outbox)
    : settings_(settings),
      membership_(membership),
      round_progress_(round_progress),
      leadership_transfer_(leadership_transfer),
      peers_(peers),
      late_nodes_(late_nodes),
      outbox_(outbox),
      drain_(settings) {}

// ---- nodes that leave ----

StopDecision OrderlyStop::requested(Peer& peer, const StopRequest& message, Round round, Time now) {
  if (round == Round::kJobEnds) return decision::Wait{};
  if (round == Round::kSaving) {  // Another node requests to leave during a save, which continues unchanged.
    if (continues_after_saving_ && peer.rank >= 0) drain_.request_leave(peer, message.signal, message.saves, now);
    return decision::Wait{};
  }
  const bool coordinates = peer.hello.node == settings_.self;
  if (coordinates && round != Round::kRunning) return stop_between_rounds(message.signal, round, now);
  if (!coordinates && peer.rank < 0) {
    allow_to_leave(peer, round, now);
    return decision::Wait{};
  }
  if (round == Round::kRunning && peer.done) {
    if (!coordinates) return decision::Wait{};
    // The workers of the coordinator's node have finished, but the node must coordinate until the job ends. So this node
    // cannot leave alone, and a stop signal to this node ends the job.
    return save(message.signal, /*continues=*/false, now);
  }
  drain_.request_leave(peer, message.signal, message.saves, now);
  return check_leaving(round, now);
}

void OrderlyStop::lost(const Peer& peer) {
  if (save_) save_->lost(peer);
  drain_.lost(peer);
}

void OrderlyStop::done(const Peer& peer) {
  if (save_) save_->done(peer);
  drain_.lost(peer);
}

bool OrderlyStop::enough_stay() const {
  // While a round runs, `ready` counts only spares, so no node is counted twice.
  return round_progress_.connected() + peers_.ready() - drain_.count() >= settings_.min_nodes && self_stays();
}

bool OrderlyStop::self_stays() const {
  return !drain_.contains(settings_.self) || leadership_transfer_.possible(drain_);
}

StopDecision OrderlyStop::check_leaving(Round round, Time now) {
  if (drain_.empty() || round == Round::kSaving || round == Round::kJobEnds) return decision::Wait{};
  if (round != Round::kRunning) return check_leaving_between_rounds(round, now);
  if (!enough_stay()) return save(drain_.signal(), /*continues=*/false, now);
  if (!drain_.is_due(now)) return decision::Wait{};
  if (drain_.saves()) return save(drain_.signal(), /*continues=*/true, now);
  return end_round(round, /*hold=*/true, now);
}

// Handles stop signals after the round has ended for another reason. If the workers have kept their state, the coordinator
// waits for signals to further nodes, as in a running round.
StopDecision OrderlyStop::check_leaving_between_rounds(Round round, Time now) {
  if (save_next_) {  // The next round saves the state and ends the job for all nodes, so no node leaves before that round.
    drain_.clear();
    return decision::Wait{};
  }
  const bool can_save = round == Round::kHeld && peers_.connected() >= settings_.min_nodes;
  const bool enough = peers_.connected() - drain_.count() >= settings_.min_nodes && self_stays();
  if (can_save && !enough) return stop_between_rounds(drain_.signal(), round, now);
  if (can_save && !drain_.is_due(now)) return decision::Wait{};
  allow_all_to_leave(round, now);
  return decision::Advance{};
}

StopDecision OrderlyStop::end_round(Round round, bool hold, Time now) {
  decision::EndRound end{.why = drain_.why(), .hold = hold};
  allow_all_to_leave(round, now);
  return end;
}

void OrderlyStop::allow_all_to_leave(Round round, Time now) {
  for (const NodeId& id : drain_.take()) {
    if (Peer* const peer = peers_.find(id); peer != nullptr && peer->connected()) allow_to_leave(*peer, round, now);
  }
}

// Allows the node to leave. If the round has ended, the node no longer counts as ready, and the coordinator waits until the
// workers of the node have ended. So no round starts before the node has left.
void OrderlyStop::allow_to_leave(Peer& peer, Round round, Time now) {
  outbox_.send(peer, MayLeave{membership_.current().id});
  if (!peer.ready || round == Round::kRunning) return;
  peers_.set_ready(peer, false);
  peers_.await_workers(peer, membership_.current().id, now);
  late_nodes_.await(peer, now);
}

// ---- the job stops between two rounds ----

// Decides how to stop the whole job while no round is running. If held workers have kept their state, the next round starts
// only to save that state.
StopDecision OrderlyStop::stop_between_rounds(std::int32_t signal, Round round, Time now) {
  if (round == Round::kNone) return decision::Finish{job_end::stopped(signal)};
  if (round != Round::kHeld)
    return finish_unsaved(signal, round == Round::kFailed ? "a round had failed" : "no round was running");
  drain_.clear();
  save_next_ = {signal, now + settings_.ready_timeout};
  return decision::Advance{};
}

StopDecision OrderlyStop::finish_unsaved(std::int32_t signal, const std::string& why) {
  save_next_.reset();
  return decision::Finish{job_end::stopped_without_saving(signal, why)};
}

StopDecision OrderlyStop::round_started(Time now) {
  drain_.clear();
  if (!save_next_) return decision::Advance{};
  return save(std::exchange(save_next_, std::nullopt)->signal, /*continues=*/false, now);
}

StopDecision OrderlyStop::save_without_round() {
  return salvage_after_stop(save_next_->signal, "fewer nodes are left than --nnodes requires", peers_.round_members());
}

// ---- saving ----

StopDecision OrderlyStop::save(std::int32_t signal, bool continues, Time now) {
  continues_after_saving_ = continues;
  if (!continues) drain_.clear();
  save_.emplace(StopAndSave{.round = membership_.current().id, .signal = signal, .continues = continues},
                peers_.in_round(round_progress_.nodes()), outbox_);
  return check_saving(now);
}

StopDecision OrderlyStop::receive(const Peer& peer, const StopReady& message, Time now) {
  save_->receive(peer, message, outbox_);
  return check_saving(now);
}

StopDecision OrderlyStop::receive(Peer& peer, const Stopped& message, Time now) {
  save_->receive(peer, message);
  const bool alone = message.holds && !salvage_save_ && !continues_after_saving_ && !save_->step_is_sent();
  if (!alone) return check_saving(now);
  // The workers of this node could not join the process group, so the nodes cannot save together. One node must save alone,
  // and the coordinator tries this node first. Two nodes must not write at the same time. So the coordinator sends the order
  // to another node only if all earlier nodes have failed.
  std::vector<Peer*> nodes{&peer};
  for (Peer* other : peers_.round_members()) {
    if (other != &peer) nodes.push_back(other);
  }
  return salvage_after_stop(save_->signal(), "the lost workers' replacements were not ready in time", nodes);
}

StopDecision OrderlyStop::check_saving(Time now) {
  if (save_->knows_step()) save_->send_step(peers_.in_round(round_progress_.nodes()), outbox_);
  if (!save_->over()) return decision::Save{};
  if (salvage_save_) {
    if (!save_->all_saved()) return salvage_by_next_node();
    return decision::Finish{job_end::after_failure_and_save(salvage_save_->otherwise())};
  }
  if (!continues_after_saving_ || !enough_stay())
    return decision::Finish{job_end::stopped_and_saved(save_->signal(), save_->all_saved())};
  save_.reset();
  return end_round(Round::kSaving, /*hold=*/false, now);
}

StopDecision OrderlyStop::salvage(const Verdict& otherwise, const std::vector<Peer*>& nodes) {
  continues_after_saving_ = false;
  save_next_.reset();
  drain_.clear();
  salvage_save_.emplace(otherwise, nodes);
  return salvage_by_next_node();
}

// Cancels the common save. Instead, the coordinator orders one node after the other to save alone, until one of them has
// saved.
StopDecision OrderlyStop::salvage_after_stop(std::int32_t signal, const std::string& why, const std::vector<Peer*>& nodes) {
  return salvage(job_end::stopped_while_waiting(signal, why), nodes);
}

StopDecision OrderlyStop::salvage_by_next_node() {
  Peer* const next = salvage_save_->next(peers_);
  if (next == nullptr) return decision::Finish{job_end::after_failure(salvage_save_->otherwise())};
  save_.emplace(StopAndSave{.round = membership_.current().id, .held = true}, std::vector{next}, outbox_);
  return decision::Save{};
}

}  // namespace ddprun::rendezvous
