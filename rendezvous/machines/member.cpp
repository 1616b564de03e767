// Implementation of member.hpp: the events, what a coordinator says of presence and rounds, and time. Votes are in
// member_votes.cpp, the workers in member_workers.cpp, looking for a coordinator in member_search.cpp.
#include "rendezvous/machines/member.hpp"

#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"

namespace ddprun::rendezvous {
namespace {

using StopReason = member_action::StopWorkers::Reason;
// Parts of the lease between two pings. Who waits for the first round has no workers that need a grant and counts in nobody's
// majority: it only shows that it is here. Of ten thousand that wait, pings would soon be most of the coordinator's work.
constexpr double kPing = 0.2;
constexpr double kPingBeforeTheFirstRound = 0.4;

}  // namespace

Member::Member(MemberSettings settings, std::optional<Record> record, Now now)
    : settings_(std::move(settings)), now_(now), lease_(settings_.lease), master_port_(settings_.master_port) {
  if (record) record_ = std::move(*record);
  // An earlier process may have told a coordinator just now that it hears it, which is a promise.
  last_contact_ = now_.steady;
  promised_ = record_.standing.promised_term > 0;
  looking_since_ = now_.steady;
  set_targets();
}

std::vector<MemberAction> Member::on(const MemberEvent& event, Now now) {
  now_ = now;
  if (phase_ == Phase::kOver) return {};
  std::visit(
      [this](const auto& concrete) {
        using Event = std::decay_t<decltype(concrete)>;
        if constexpr (std::is_same_v<Event, member_event::Opened>) {
          if (Target* target = target_of(concrete.link)) target->open = true;
          say_hello(concrete.link, concrete.local_host);
        } else if constexpr (std::is_same_v<Event, member_event::Closed>) {
          waiting_votes_.erase(concrete.link);
          if (Target* target = target_of(concrete.link)) {
            target->link = 0;
            target->open = false;
            target->next_try = now_.steady + settings_.redial + milliseconds(settings_.id[0] % 64);
          }
          if (leads(concrete.link)) lose_leader("the connection to the coordinator was closed", /*at_once=*/false);
        } else if constexpr (std::is_same_v<Event, member_event::Heard>) {
          if (leads(concrete.link)) {
            last_contact_ = now_.steady;
            promised_ = true;
          }
          std::visit([&](const auto& message) { hear(concrete.link, message); }, concrete.message);
        } else if constexpr (std::is_same_v<Event, member_event::WorkersFailed>) {
          if (!has_workers()) return;
          workers_ = Workers::kStopping;
          FailureReport report = concrete.report;
          report.round = workers_round_;
          report.hostname = settings_.hostname;
          report.skew_ns = skew_ns_;
          if (leader_) act(member_action::Send{leader_->link, std::move(report)});
        } else if constexpr (std::is_same_v<Event, member_event::WorkersEnded>) {
          workers_ended(concrete.saved, false, concrete.master_port, concrete.leaves_with);
        } else if constexpr (std::is_same_v<Event, member_event::WorkersDone>) {
          workers_ended(true, true, concrete.master_port);
        } else if constexpr (std::is_same_v<Event, member_event::StopRequested>) {
          stop_requested(concrete.signal);
        } else if constexpr (std::is_same_v<Event, member_event::StepsStarted>) {
          if (leader_) act(member_action::Send{leader_->link, StopReady{.round = workers_round_, .started = concrete.started}});
        } else if constexpr (std::is_same_v<Event, member_event::AskStore>) {
          if (leader_ && has_workers()) {
            act(member_action::Send{leader_->link, StoreAsk{workers_round_, concrete.rank, concrete.request}});
          }
        }
      },
      event);
  // Whatever woke it: what time ended has ended, and targets that are due are dialled.
  if (phase_ != Phase::kOver) tick();
  return std::exchange(actions_, {});
}

// ---- what the other side says ----

void Member::hear(LinkId link, const Welcome& message) {
  if (phase_ != Phase::kLooking || leader_) {
    if (!leads(link)) act(member_action::Close{link});
    return;
  }
  if (message.term < record_.standing.promised_term) {  // it was coordinator once
    act(member_action::Close{link});
    if (Target* target = target_of(link)) *target = Target{.address = target->address, .next_try = now_.steady + lease_ / 5};
    return;
  }
  leader_ = Leader{.link = link, .term = message.term, .address = {}};
  phase_ = Phase::kFollowing;
  was_welcome_ = true;
  lease_ = milliseconds(std::clamp<std::int64_t>(message.lease_ms, 1, std::int64_t{3600} * 1000));
  last_contact_ = now_.steady;
  promised_ = true;
  leader_stamp_ = 0;
  grant_is_leaders_ = false;
  best_round_trip_.reset();
  waiting_votes_.clear();
  for (Target& target : targets_) {
    if (target.link == link) {
      leader_->address = target.address;
    } else if (target.link != 0) {
      act(member_action::Close{target.link});
    }
    target.link = target.link == link ? link : 0;
  }
  if (message.term > record_.standing.promised_term) {
    record_.standing.promised_term = message.term;
    remember();
  }
  also_try(leader_->address);  // to be found again before its first release came
  if (!message.job.empty()) act(member_action::GotJob{message.job});
  say(Notice::Kind::kFollowing, "joined");
  ping();
  // They may have ended since the hello was sent.
  if (!has_workers()) act(member_action::Send{link, Ready{.round = workers_round_, .master_port = master_port_}});
}

void Member::hear(LinkId link, const Refused& message) {
  Target* target = target_of(link);
  if (message.reason == Refusal::kSetAside) {
    if (target != nullptr) {
      const auto wait = std::clamp<std::int64_t>(message.retry_after_ms, 1, std::int64_t{3600} * 1000);
      *target = Target{.address = target->address, .next_try = now_.steady + milliseconds(wait)};
      looking_since_ = std::max(looking_since_, target->next_try);
      act(member_action::Close{link});
    }
    return;
  }
  // Another job may be where ours was: only who never belonged to a job takes that as the answer.
  if (was_welcome_ && message.reason != Refusal::kReplaced) return;
  finish(static_cast<int>(ExitCode::kUsage), "the coordinator refused this node: " + message.text);
}

void Member::hear(LinkId link, const Redirect& message) {
  Target* from = target_of(link);
  if (phase_ != Phase::kLooking || from == nullptr) return;
  if (message.term < record_.standing.promised_term) return;
  from->link = 0;
  from->open = false;
  from->next_try = now_.steady + lease_ / 5;
  act(member_action::Close{link});
  also_try(message.coordinator);
}

void Member::hear(LinkId link, const Release& message) {
  if (!leads(link) || message.nodes < 1 ||
      message.id <= record_.standing.current.id) {  // no coordinator that has authority says that
    return;
  }
  const bool starts = message.start && message.group_rank >= 0;
  if (starts && has_workers() && settings_.rules.wait_for_ready) return;  // it was not asked whether it is ready
  record_.standing.current = Config{.id = message.id, .born = message.born, .nodes = message.nodes, .rank = message.group_rank};
  record_.standing.previous = message.previous;
  record_.standing.budget = message.budget;
  record_.coordinator = message.coordinator;
  // An inherited round names none: those who were named before are still in it.
  if (message.start || !message.successors.empty()) record_.successors = message.successors;
  remember();
  pending_start_.reset();
  if (starts) {
    workers_ = Workers::kNone;
    saving_ = false;
    pending_start_ = message;
  }
  ping();
  start_if_granted();
}

void Member::hear(LinkId link, const Pong& message) {
  if (!leads(link) || message.echo <= 0 || message.echo > stamp_of(now_.steady)) return;
  const bool first = leader_stamp_ == 0;
  leader_stamp_ = std::max(leader_stamp_, message.stamp);
  const Time asked = time_of(message.echo);  // the answer may have been on its way for long
  const nanoseconds grant = std::clamp(nanoseconds(message.grant_ns), nanoseconds{0}, lease_);
  const bool renews = grant_is_leaders_ || !has_workers();  // what an earlier coordinator granted ends when it said
  if (renews && (asked + grant > granted_until_ || !grant_is_leaders_)) {
    granted_until_ = asked + grant;
    grant_is_leaders_ = true;
    if (has_workers()) act(member_action::ExtendGrant{granted_until_});
  }
  const std::int64_t round_trip = stamp_of(now_.steady) - message.echo;
  if (!best_round_trip_ || round_trip < *best_round_trip_) {
    best_round_trip_ = round_trip;
    skew_ns_ = static_cast<std::int64_t>(static_cast<std::uint64_t>(message.realtime_ns) -
                                         static_cast<std::uint64_t>(now_.realtime_ns - round_trip / 2));
  }
  if (record_.standing.previous.exists() && message.committed == record_.standing.current.id) {
    record_.standing.previous = Config{};
    remember();
  }
  start_if_granted();
  // A new coordinator has no authority over a round before its first stamps come back.
  if (first && record_.standing.current.exists()) ping();
}

// ---- time ----

void Member::ping() {
  next_ping_ = now_.steady + part_of(lease_, record_.standing.current.exists() ? kPing : kPingBeforeTheFirstRound);
  act(member_action::Send{leader_->link, Ping{.stamp = stamp_of(now_.steady),
                                              .echo = leader_stamp_,
                                              .realtime_ns = now_.realtime_ns,
                                              .installed = record_.standing.current.id}});
}

void Member::tick() {
  const bool grant_over = granted_until_ <= now_.steady && settings_.rules.grant_ends_workers;
  if (leader_) {
    const bool silent = last_contact_ + part_of(lease_, settings_.rules.give_up) <= now_.steady;
    if ((has_workers() && grant_over && grant_is_leaders_) || silent) {
      const LinkId link = leader_->link;
      lose_leader("the coordinator does not answer", /*at_once=*/true);
      act(member_action::Close{link});
    } else if (next_ping_ <= now_.steady) {
      ping();
    }
  }
  // Stopping them kindly may take longer than they may run.
  if ((!leader_ || !grant_is_leaders_) && has_workers() && grant_over && granted_until_ != Time{}) {
    granted_until_ = Time{};
    stop_workers({.reason = StopReason::kCoordinatorLost, .at_once = true, .why = "no coordinator"});
  }
  if (phase_ != Phase::kLooking) return;
  if (now_.steady >= may_vote_at()) {
    for (const auto& [link, request] : std::exchange(waiting_votes_, {})) vote(link, request);
  }
  const milliseconds patience = was_welcome_ ? settings_.rejoin_for : settings_.join_timeout;
  if (looking_since_ + patience <= now_.steady) {
    const std::string seconds = std::to_string(patience.count() / 1000) + " s";
    if (was_welcome_ && record_.standing.current.exists()) {
      finish(static_cast<int>(ExitCode::kMinority), "cut off from the majority of the nodes for " + seconds);
    } else {
      finish(static_cast<int>(ExitCode::kPeersMissing), "no coordinator answered for " + seconds);
    }
    return;
  }
  dial_due();
}

std::optional<Time> Member::next_deadline() const {
  if (phase_ == Phase::kOver) return std::nullopt;
  std::optional<Time> next;
  const auto consider = [&](Time time) {
    if (!next || time < *next) next = time;
  };
  if (has_workers() && granted_until_ != Time{} && settings_.rules.grant_ends_workers) consider(granted_until_);
  if (leader_) {
    consider(last_contact_ + part_of(lease_, settings_.rules.give_up));
    consider(next_ping_);
  }
  if (phase_ == Phase::kLooking) {
    consider(looking_since_ + (was_welcome_ ? settings_.rejoin_for : settings_.join_timeout));
    for (const Target& target : targets_) consider(target.link != 0 ? target.dialled + lease_ : target.next_try);
    if (!waiting_votes_.empty()) consider(may_vote_at());
  }
  return next;
}

Member::Target* Member::target_of(LinkId link) {
  if (link == 0) return nullptr;
  for (Target& target : targets_) {
    if (target.link == link) return &target;
  }
  return nullptr;
}

}  // namespace ddprun::rendezvous
