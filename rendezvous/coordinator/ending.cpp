// The second part of coordinator.hpp's implementation: how a round ends, and how the job does.
#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"
#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/coordinator/entry.hpp"

namespace ddprun::rendezvous {

// ---- how a round ends ----

void Coordinator::hear(Peer& peer, const FailureReport& message) {
  if (message.round != round() || peer.rank < 0) return;
  if (phase_ == Phase::kRunning) {
    failure_ = message;
    return end_round(OverReason::kWorkerFailure, message.message, message.others_stay ? Others::kHold : Others::kStop);
  }
  if (phase_ != Phase::kEnding || !failure_) return;
  // "My peer is gone" is a consequence; of the others the first in time is the cause.
  const auto key = [](const FailureReport& report) {
    return std::pair(report.cause == FailureCause::kLostPeer, report.coordinator_time_ns());
  };
  if (key(message) < key(*failure_)) failure_ = message;
}

void Coordinator::end_round(OverReason reason, const std::string& why, Others others) {
  phase_ = Phase::kEnding;
  absorb_at_.reset();
  members_changed_ = false;
  leaving_.clear();
  held_ = others == Others::kHold;
  if (reason == OverReason::kMembershipChange) failure_.reset();
  RoundOver over{.round = round(), .reason = reason, .why = why, .failure = {}, .hold = others == Others::kHold};
  if (failure_) over.failure = *failure_;
  for (Peer* peer : peers_.seated(seats_.nodes())) {
    peers_.await_workers(*peer, round(), now_.steady);
    stragglers_.await(*peer, now_.steady);
    outbox_.send(*peer, over);
  }
  outbox_.say(Notice::Kind::kRoundOver, why);
  check_ended();
}

void Coordinator::hear(Peer& peer, const Ready& message) {
  if (message.master_port != 0) peer.master_port = message.master_port;
  if (phase_ == Phase::kRunning && message.round == round() && peer.rank >= 0 && !peer.done) {
    // It could not go on with what it held, so nobody does: the next round begins with new workers everywhere.
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
  if (failure_ && !members_changed_) {
    judge();
  } else {
    gather(milliseconds{0});
    consider();
  }
}

void Coordinator::judge() {
  const Verdict verdict = settings_.judge ? settings_.judge(*failure_, budget_) : Verdict{};
  if (!verdict.restart) return finish(verdict.exit_code, verdict.why);
  const std::int32_t restarts = budget_.restart_count + 1;
  budget_ = verdict.after;
  budget_.restart_count = restarts;
  if (verdict.delay.count() > 0 && !save_next_) {
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

// A node says which round its workers were started in; a successor has given that one a term of its own.
void Coordinator::note_done(Peer& peer, const RoundId& round) {
  if (phase_ == Phase::kOver || phase_ == Phase::kSteppedDown || phase_ == Phase::kPausing) return;
  if (round != membership_.current().origin() || !seats_.done(peer)) return;
  if (saving_) saving_->done(peer);
  check_saving();
  check_done();
}

// Whatever ended the round: when all its nodes have finished, nothing is left to do.
void Coordinator::check_done() {
  const bool counts = phase_ == Phase::kRunning || phase_ == Phase::kEnding || phase_ == Phase::kGathering;
  if (!counts || !membership_.current().exists()) return;
  if (seats_.done() == membership_.current().nodes) finish(static_cast<int>(ExitCode::kDone), "done");
}

void Coordinator::hear(Peer& peer, const StopAsk& message) {
  const bool coordinates = peer.hello.node == settings_.self;
  switch (phase_) {
    case Phase::kRunning:
      if (peer.rank < 0 && !coordinates) return;
      if (coordinates) return begin_saving(message.signal);
      leaving_.ask(peer, message.signal, now_.steady);
      return check_leaving();
    case Phase::kGathering:
    case Phase::kPausing:
    case Phase::kEnding:
      if (coordinates) stop_between_rounds(message.signal);
      return;
    case Phase::kSaving:
    case Phase::kOver:
    case Phase::kSteppedDown:
      return;
  }
}

void Coordinator::check_leaving() {
  if (phase_ != Phase::kRunning || leaving_.empty()) return;
  if (seats_.here() + spares_ready() - leaving_.count() < settings_.min_nodes) return begin_saving(leaving_.signal());
  if (leaving_.is_due(now_.steady)) end_round(OverReason::kMembershipChange, leaving_.why(), Others::kHold);
}

// Workers that wait hold what would be saved, and only a round can save.
void Coordinator::stop_between_rounds(std::int32_t signal) {
  if (phase_ == Phase::kGathering && !membership_.current().exists()) {
    return finish(128 + signal, "stopped by signal " + std::to_string(signal));
  }
  if (!held_ || phase_ == Phase::kPausing) {
    return finish_unsaved(signal, failure_ ? "a round had failed" : "no round was running");
  }
  save_next_ = signal;
  consider();
}

void Coordinator::finish_unsaved(std::int32_t signal, const std::string& why) {
  save_next_.reset();
  finish(128 + signal, "stopped by signal " + std::to_string(signal) + " without saving: " + why);
}

void Coordinator::begin_saving(std::int32_t signal) {
  phase_ = Phase::kSaving;
  leaving_.clear();
  saving_.emplace(round(), signal, peers_.seated(seats_.nodes()), outbox_);
  check_saving();
}

void Coordinator::hear(Peer& peer, const StopReady& message) {
  if (phase_ != Phase::kSaving || message.round != round()) return;
  saving_->hear(peer, message, outbox_);
  check_saving();
}

void Coordinator::hear(Peer& peer, const Stopped& message) {
  if (phase_ != Phase::kSaving || message.round != round()) return;
  saving_->hear(peer, message);
  check_saving();
}

void Coordinator::check_saving() {
  if (phase_ != Phase::kSaving) return;
  saving_->tell_step(peers_.seated(seats_.nodes()), outbox_);
  if (saving_->over()) finish(saving_->exit_code(), saving_->why());
}

void Coordinator::finish(int exit_code, const std::string& why) {
  phase_ = Phase::kOver;
  over_ = JobOver{.round = round(), .exit_code = exit_code, .why = why};
  linger_ends_ = now_.steady + settings_.lease;
  for (const NodeId& id : peers_.by_age()) outbox_.send(peers_.at(id), over_);
}

}  // namespace ddprun::rendezvous
