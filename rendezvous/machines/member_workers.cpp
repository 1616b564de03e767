// Implementation of member.hpp, third part: the workers of this node, from the grant that lets them start to the end of the
// job.
#include <utility>

#include "common/base/exit_code.hpp"
#include "rendezvous/machines/member.hpp"
#include "rendezvous/machines/quorum.hpp"

namespace ddprun::rendezvous {
namespace {

using StopReason = member_action::StopWorkers::Reason;

}  // namespace

void Member::hear(LinkId link, const RoundOver& message) {
  if (!leads(link) || message.round != record_.standing.current.id || record_.standing.current.rank < 0) return;
  pending_start_.reset();
  if (workers_ == Workers::kRunning) {
    const bool failed = message.reason == OverReason::kWorkerFailure;
    stop_workers({.reason = failed ? StopReason::kWorkerFailure : StopReason::kMembershipChange,
                  .why = message.why,
                  .failure = failed ? std::optional(message.failure) : std::nullopt,
                  .hold = message.hold});
  } else if (!has_workers()) {
    workers_ = Workers::kNone;
    if (!message.hold) act(member_action::DismissHeld{message.why});
    act(member_action::Send{link, Ready{.round = message.round, .master_port = master_port_}});
  }
}

void Member::hear(LinkId link, const rendezvous::StopAndSave& message) {
  if (!leads(link) || message.round != record_.standing.current.id) return;
  saving_ = true;
  if (stop_signal_ == 0) stop_signal_ = message.signal;
  pending_start_.reset();
  if (workers_ == Workers::kRunning) {
    act(member_action::StopAndSave{message.signal});
  } else if (!has_workers()) {
    act(member_action::Send{link, Stopped{.round = message.round, .saved = workers_ == Workers::kDone}});
  }
}

void Member::hear(LinkId link, const rendezvous::StopAt& message) {
  if (leads(link) && workers_ == Workers::kRunning && message.round == workers_round_) act(member_action::StopAt{message.step});
}

void Member::hear(LinkId link, const rendezvous::JobOver& message) {
  if (!leads(link) && !(phase_ == Phase::kLooking && (target_of(link) != nullptr || link == kSelfLink))) return;
  finish(message.exit_code, message.why);
}

void Member::hear(LinkId link, const StoreAnswer& message) {
  if (leads(link) && has_workers() && message.round == workers_round_) {
    act(member_action::AnswerStore{message.rank, message.reply});
  }
}

void Member::start_if_granted() {
  // One that is about to end would end before it is renewed where answers are slow.
  const Time least = now_.steady + part_of(lease_, settings_.rules.start_with);
  if (!pending_start_ || !grant_is_leaders_ || granted_until_ <= least) return;
  workers_ = Workers::kRunning;
  workers_round_ = pending_start_->id;
  act(member_action::StartWorkers{*std::exchange(pending_start_, std::nullopt), granted_until_});
}

void Member::stop_workers(member_action::StopWorkers order) {
  workers_ = Workers::kStopping;
  order.round = workers_round_;
  act(std::move(order));
}

void Member::workers_ended(bool saved, bool done, std::uint16_t master_port, std::optional<int> leaves_with) {
  if (!has_workers()) return;
  if (master_port != 0) master_port_ = master_port;
  const bool were_running = workers_ == Workers::kRunning;
  workers_ = done && were_running ? Workers::kDone : Workers::kNone;
  if (over_) return finish(over_->exit_code, over_->why);
  if (saving_) {
    saved_ = saved;
    if (leader_) {
      act(member_action::Send{leader_->link, Stopped{.round = workers_round_, .saved = saved}});
    } else {
      finish(saved ? static_cast<int>(ExitCode::kPreempted) : 128 + stop_signal_, "stopped by a signal");
    }
    return;
  }
  if (leaves_with && may_leave()) {
    const bool coordinates = leader_ && leader_->link == kSelfLink;
    if (leader_ && !coordinates) act(member_action::Send{leader_->link, Leave{"it is of no more use"}});
    finish(*leaves_with, "this node leaves the job: a device of it has failed");
    if (coordinates) act(member_action::Resign{});
    return;
  }
  if (stop_signal_ != 0 && (!leader_ || leader_->link != kSelfLink)) {
    if (leader_) act(member_action::Send{leader_->link, Leave{"a signal"}});
    return finish(128 + stop_signal_, "stopped by a signal");
  }
  if (!leader_) return;
  if (workers_ == Workers::kDone) {
    act(member_action::Send{leader_->link, Done{workers_round_}});
  } else {
    act(member_action::Send{leader_->link, Ready{.round = workers_round_, .master_port = master_port_}});
  }
}

// A coordinator leaves only those who can choose another one. Otherwise it stays, and the failure is judged.
bool Member::may_leave() const {
  if (!leader_ || leader_->link != kSelfLink) return true;
  const Config& round = record_.standing.current;
  Tally others(round.nodes);
  for (std::int32_t rank = 0; rank < round.nodes; ++rank) others.add(rank == round.rank ? -1 : rank);
  return others.enough(settings_.rules);
}

void Member::stop_requested(int signal) {
  if (stop_signal_ != 0) return;
  stop_signal_ = signal;
  if (leader_ && (has_workers() || leader_->link == kSelfLink)) {
    act(member_action::Send{leader_->link, StopAsk{signal}});
    return;
  }
  if (has_workers()) return;  // they are being stopped already
  if (leader_) act(member_action::Send{leader_->link, Leave{"a signal"}});
  finish(128 + signal, "stopped by a signal");
}

// Whoever the job's end reaches stops its workers first.
void Member::finish(int exit_code, const std::string& why) {
  if (workers_ == Workers::kRunning) stop_workers({.reason = StopReason::kJobOver, .why = why});
  if (leader_) act(member_action::Close{leader_->link});
  for (Target& target : targets_) {
    if (target.link != 0 && !leads(target.link)) act(member_action::Close{target.link});
    target.link = 0;
  }
  leader_.reset();
  pending_start_.reset();
  if (has_workers()) {
    over_ = rendezvous::JobOver{.exit_code = exit_code, .why = why};
    phase_ = Phase::kFollowing;  // nobody, but it does not look either
    return;
  }
  phase_ = Phase::kOver;
  act(member_action::JobOver{exit_code, why});
}

}  // namespace ddprun::rendezvous
