// Implementation of coordinator.hpp, fourth part: how a round ends and is judged, and how the job ends.
#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"
#include "rendezvous/machines/coordinator.hpp"

namespace ddprun::rendezvous {

// ---- how a round ends ----

void Coordinator::hear(Peer& peer, const FailureReport& message) {
  if (message.round != current_.id || peer.rank < 0) return;
  if (phase_ == Phase::kRunning) {
    failure_ = message;
    end_round(OverReason::kWorkerFailure, message.message, message.others_stay ? Others::kHold : Others::kStop);
    return;
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
  if (reason == OverReason::kMembershipChange) failure_.reset();
  RoundOver over{.round = current_.id, .reason = reason, .why = why, .failure = {}, .hold = others == Others::kHold};
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
    // It could not go on with what it held, so nobody does: the next round begins with new workers everywhere.
    end_round(OverReason::kMembershipChange, peer.hello.hostname + " has no workers any more", Others::kStop);
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
        end_round(OverReason::kMembershipChange, peer.hello.hostname + " is leaving", Others::kHold);
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
