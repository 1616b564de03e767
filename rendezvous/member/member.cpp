// Implementation of member.hpp: its events, its search for and contact with the coordinator, its workers, and time.
//
// Note [Why this file is long]
// It is one state machine: messages of the coordinator decide what it may do with its workers, and ends of workers decide what
// it sends. The search, the votes, the grant, the clock and the record have separate files.
#include "rendezvous/member/member.hpp"

#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"

namespace ddprun::rendezvous {
namespace {

using StopReason = member_action::StopWorkers::Reason;

}  // namespace

Member::Member(MemberSettings settings, std::optional<Record> record, Now now)
    : settings_(std::move(settings)),
      now_(now),
      record_(record ? *std::move(record) : Record{}),
      search_(settings_),
      voter_(settings_.rules, record_.state.promised_term > 0, now.steady),
      began_(now.steady),
      looking_since_(now.steady),
      lease_(settings_.lease),
      master_port_(settings_.master_port) {
  search_.begin(others_of(record_, settings_.id));
}

std::vector<MemberAction> Member::on(const MemberEvent& event, Now now) {
  now_ = now;
  if (phase_ == Phase::kOver) return {};
  std::visit([this](const auto& concrete) { handle(concrete); }, event);
  // After any event: handle timeouts, and dial the addresses that are due.
  if (phase_ != Phase::kOver) tick();
  return std::exchange(actions_, {});
}

// ---- looking for a coordinator ----

void Member::handle(const member_event::Opened& event) {
  if (phase_ == Phase::kLooking && (event.link == kSelfLink || search_.dialled(event.link))) {
    if (event.link == kSelfLink)
      looking_since_ = now_.steady;  // this node leads itself, so it needs no search, even after a long suspend of the machine
    act(member_action::Send{event.link, hello(event.local_host)});
  } else {
    act(member_action::Close{event.link});
  }
}

Hello Member::hello(const std::string& local_host) {
  Hello hello = hello_of(settings_);
  hello.attempt = ++hellos_;
  if (hello.listens.host.empty()) hello.listens.host = local_host.empty() ? settings_.own_host : local_host;
  hello.master_port = master_port_;
  hello.next_number = settings_.next_number;
  hello.workers = workers_;
  hello.workers_round = workers_round_;
  hello.failed = failure_ && settings_.rules.failures_are_said_again;
  hello.state = record_.state;
  if (knows_end()) hello.ending = ending_;
  return hello;
}

void Member::hear(LinkId link, const Welcome& message) {
  if (phase_ != Phase::kLooking || leader_) {
    if (!leads(link)) act(member_action::Close{link});
    return;
  }
  if (message.term < record_.state.promised_term) {  // the sender was coordinator in an earlier term
    act(member_action::Close{link});
    return search_.retry_lasting(link, now_.steady + lease_ / 5);
  }
  phase_ = Phase::kFollowing;
  was_welcome_ = true;
  lease_ = sensible(message.lease_ms);
  voter_.heard_leader(now_.steady);
  voter_.forget_all();
  // handed_over_ stays if this node leads itself: it may step down before it has released a round.
  if (link != kSelfLink) handed_over_.reset();
  leader_stamp_ = std::max(std::int64_t{0}, message.stamp);
  grant_.lose_leader();
  clock_.begin();
  leader_ = Leader{.link = link, .term = message.term, .address = search_.settle(link, actions_)};
  const bool leads_elsewhere = link != kSelfLink && !record_.knows_round() && settings_.rules.lost_job_is_remembered;
  if (message.term > record_.state.promised_term || (leads_elsewhere && !record_.job_elsewhere)) {
    record_.state.promised_term = std::max(message.term, record_.state.promised_term);
    record_.job_elsewhere = record_.job_elsewhere || leads_elsewhere;
    remember();
  }
  also_try(leader_->address);  // so that it can be found again if it is lost before its first release arrives
  say(NodeNotice::Kind::kFollowing, "joined");
  ping();
  // Repeats a stop signal that came while there was no coordinator, or that only the previous coordinator knows.
  if (stop_signal_ != 0 && (coordinates() || has_workers())) tell_leader(StopAsk{stop_signal_, stop_saves_});
  if (stop_signal_ != 0 && !coordinates() &&
      workers_ == Workers::kNone) {  // this node was the coordinator when the signal came, and no longer is
    tell_leader(Leave{"a signal"});
    return after_saving(End::kLeft);
  }
  if (failure_ && settings_.rules.failures_are_said_again) tell_leader(*failure_);
  // The workers may have ended after the Hello was sent, or their Done was lost with the previous link.
  if (workers_ == Workers::kDone) {
    tell_leader(Done{workers_round_});
  } else if (!has_workers()) {
    say_ready(workers_round_);
  }
}

void Member::hear(LinkId link, const Refused& message) {
  // The node that holds this place may have died without a message. If it is still a member one lease later, it is alive.
  const bool once_more = message.retry_after_ms > 0 && !std::exchange(was_refused_, true);
  if (message.reason == Refusal::kSetAside || once_more) {
    if (!search_.dialled(link)) return;
    const Time next_try = now_.steady + sensible(message.retry_after_ms);
    search_.retry_lasting(link, next_try);
    looking_since_ = std::max(looking_since_, next_try);
    act(member_action::Close{link});
    return;
  }
  // Another job may now use our job's old address. So only a node that never belonged to a job takes this refusal as final.
  if (was_welcome_ && message.reason != Refusal::kReplaced) return;
  finish(static_cast<int>(ExitCode::kUsage), "the coordinator refused this node: " + message.text, End::kGivenUp);
}

void Member::hear(LinkId link, const Redirect& message) {
  if (phase_ != Phase::kLooking || !search_.dialled(link)) return;
  // This is also done for a coordinator with an earlier term than this node has promised. That coordinator may need this node,
  // and must learn of the later term.
  search_.retry(link, now_.steady + lease_ / 5);
  act(member_action::Close{link});
  also_try(message.coordinator);
}

// ---- votes ----

void Member::hear(LinkId link, const VoteRequest& message) {
  if (leader_) return;
  search_.heard(link, now_.steady);
  if (now_.steady < may_vote_at()) {
    voter_.keep(link, message);
  } else {
    vote(link, message);
  }
}

void Member::vote(LinkId link, const VoteRequest& request) {
  const Vote vote = voter_.answer(request, record_.state.promised_term, now_.steady);
  if (vote.given()) {
    record_.state.promised_term = request.term;
    remember();
  }
  act(member_action::Send{link, vote});
}

bool Member::promise(std::uint64_t term, Now now, std::vector<MemberAction>& actions) {
  now_ = now;
  if (!voter_.may_promise(term, record_.state.promised_term)) return false;
  record_.state.promised_term = term;
  actions.emplace_back(member_action::Remember{record_, settings_.id});
  return true;
}

void Member::leader_is_dead(std::vector<MemberAction>& actions) {
  voter_.release();
  if (!leader_ || leader_->link == kSelfLink) return;
  const LinkId link = leader_->link;
  lose_leader("the agent of the coordinator's node is dead", /*at_once=*/false);
  act(member_action::Close{link});
  actions = std::exchange(actions_, {});
}

void Member::keep_roster(Roster roster, std::vector<MemberAction>& actions) {
  record_.roster = std::move(roster);
  actions.emplace_back(member_action::Remember{record_, settings_.id});
}

// ---- following it ----

void Member::handle(const member_event::Heard& event) {
  if (leads(event.link)) voter_.heard_leader(now_.steady);
  std::visit([&](const auto& message) { hear(event.link, message); }, event.message);
}

Address Member::leader_listens() const {
  const bool told = leader_ && record_.coordinator.address.port != 0 && record_.state.current.id.term == leader_->term;
  return told ? record_.coordinator.address : leader_address();
}

void Member::tell_leader(FromMember message) {
  if (leader_) act(member_action::Send{leader_->link, std::move(message)});
}

void Member::ping() {
  next_ping_ = now_.steady + part_of(lease_, record_.state.current.exists() ? kPing : kPingBeforeTheFirstRound);
  tell_leader(Ping{.stamp = stamp_of(now_.steady),
                   .echo = leader_stamp_,
                   .realtime_ns = now_.realtime_ns,
                   .installed = record_.state.current.id});
}

void Member::hear(LinkId link, const Pong& message) {
  if (!leads(link) || message.echo <= 0 || message.echo > stamp_of(now_.steady)) return;
  leader_stamp_ = std::max(leader_stamp_, message.stamp);
  const nanoseconds length = std::clamp(nanoseconds(message.grant_ns), nanoseconds{0}, lease_);
  // The grant counts from the ping, since the answer may have been delayed.
  if (grant_.extend(time_of(message.echo), length, has_workers()) && has_workers()) {
    act(member_action::ExtendGrant{grant_.until()});
  }
  clock_.hear(message, now_);
  if (record_.state.previous.exists() && message.committed == record_.state.current.id) {
    record_.state.previous = Config{};
    remember();
  }
  start_if_granted();
}

void Member::handle(const member_event::Closed& event) {
  voter_.forget(event.link);
  search_.closed(event.link, now_.steady);
  if (leads(event.link)) lose_leader("the connection to the coordinator was closed", /*at_once=*/false);
}

void Member::lose_leader(const std::string& why, bool at_once) {
  const bool led_itself = coordinates();
  leader_.reset();
  grant_.lose_leader();
  pending_start_.reset();
  // There will be a next round, and without a coordinator no node can learn the step at which to save.
  if (goes_on_) saving_ = false;
  // A test turns this rule off: then workers continue without a grant.
  const bool may_go_on = at_once && !settings_.rules.grant_ends_workers;
  // Workers that save are not stopped: the remaining nodes will be in a round of the next coordinator. They wait for its
  // message, and need no grant for that.
  if (workers_ == Workers::kRunning && !saving_ && !may_go_on) {
    stop_workers(
        {.reason = StopReason::kCoordinatorLost, .at_once = at_once, .why = why, .hold = !at_once && stop_signal_ == 0});
  }
  if (saving_ && !has_workers()) return after_saving(End::kGivenUp);
  if (stop_signal_ != 0 && !led_itself && in_round() && !has_workers()) {  // no coordinator can allow it to leave
    return finish(128 + stop_signal_, "stopped by a signal", End::kLeft);
  }
  phase_ = Phase::kLooking;
  looking_since_ = now_.steady;
  say(NodeNotice::Kind::kLooking, why);
  search_.begin(others_of(record_, settings_.id));
}

// ---- rounds ----

void Member::hear(LinkId link, const Release& message) {
  if (!leads(link) || message.nodes < 1 ||
      message.id <= record_.state.current.id) {  // a coordinator with authority sends no such release
    return;
  }
  const bool starts = message.start && message.group_rank >= 0;
  if (starts && has_workers() && settings_.rules.wait_for_ready)
    return;  // its last workers are still running, so it was not ready
  // The term is later than that of the Welcome if the coordinator raised its term for a node that joined after this one
  // (Coordinator::greet).
  record_.state.promised_term = std::max(record_.state.promised_term, message.id.term);
  record_.state.current = config_of(message);
  record_.state.previous = message.previous;
  // In both cases the budget already includes the failure. A starting round counts it. A new coordinator that inherits an
  // uncommitted round gets the count from a node that knew that round.
  if (message.start || message.budget.restart_count > record_.state.budget.restart_count) failure_.reset();
  record_.state.budget = message.budget;
  record_.job_elsewhere = record_.place_is_new = false;
  record_.coordinator = message.coordinator;
  // The release of an inherited round names no successors: the earlier ones are still in the round.
  if (message.start || !message.successors.empty()) record_.successors = message.successors;
  remember();
  pending_start_.reset();
  if (starts) {
    workers_ = Workers::kNone;
    saving_ = saved_ = let_go_ = false;
    pending_start_ = message;
    // The workers were done when the stop was requested, and now run again.
    if (stop_signal_ != 0) tell_leader(StopAsk{stop_signal_, stop_saves_});
  }
  ping();
  start_if_granted();
}

void Member::start_if_granted() {
  // If answers are slow, a grant with little time left could end before it is renewed.
  const Time least = now_.steady + part_of(lease_, settings_.rules.start_with);
  if (!pending_start_ || !grant_.is_leaders() || grant_.is_over(least)) return;
  workers_ = Workers::kRunning;
  workers_round_ = pending_start_->id;
  act(member_action::StartWorkers{*std::exchange(pending_start_, std::nullopt), grant_.until()});
  if (saving_) act(member_action::StopAndSave{stop_signal_});
}

void Member::hear(LinkId link, const RoundOver& message) {
  if (!leads(link) || message.round != record_.state.current.id || record_.state.current.rank < 0) return;
  pending_start_.reset();
  if (workers_ == Workers::kRunning) {
    const bool failed = message.reason == OverReason::kWorkerFailure;
    stop_workers({.reason = failed ? StopReason::kWorkerFailure : StopReason::kMembershipChange,
                  .why = message.why,
                  .failure = failed ? std::optional(message.failure) : std::nullopt,
                  .hold = message.hold && !leaves()});
  } else if (!has_workers()) {
    workers_ = Workers::kNone;
    saving_ = false;
    if (leaves()) {
      tell_leader(Leave{"a signal"});
      return after_saving(End::kLeft);
    }
    if (!message.hold) act(member_action::DismissHeld{message.why});
    say_ready(message.round);
  }
}

void Member::hear(LinkId link, const rendezvous::StopAndSave& message) {
  if (!leads(link) || message.round != record_.state.current.id) return;
  if (message.held) return save_what_is_held(message.round);
  saving_ = true;
  goes_on_ = message.goes_on;
  if (stop_signal_ == 0 && !goes_on_) stop_signal_ = message.signal;
  if (pending_start_) return;  // the round was released only to save, and start_if_granted() does that
  if (workers_ == Workers::kRunning) {
    act(member_action::StopAndSave{message.signal});
  } else if (!has_workers()) {
    tell_leader(Stopped{.round = message.round, .saved = workers_ == Workers::kDone});
  }
}

// The round is over on this node. Now its workers run again to save, but only within the coordinator's grant.
void Member::save_what_is_held(const RoundId& round) {
  const bool may_run = workers_ == Workers::kNone && grant_.is_leaders() && !grant_.is_over(now_.steady);
  if (!may_run) return tell_leader(Stopped{.round = round});
  saving_ = goes_on_ = true;
  workers_ = Workers::kRunning;
  workers_round_ = round;
  act(member_action::ExtendGrant{grant_.until()});
  act(member_action::StopAndSave{.held = true});
}

void Member::hear(LinkId link, const rendezvous::StopAt& message) {
  if (leads(link) && workers_ == Workers::kRunning && message.round == workers_round_) act(member_action::StopAt{message.step});
}

void Member::hear(LinkId link, const StoreAnswer& message) {
  if (leads(link) && has_workers() && message.round == workers_round_) {
    act(member_action::AnswerStore{message.rank, message.reply});
  }
}

// ---- the workers ----

void Member::stop_workers(member_action::StopWorkers order) {
  workers_ = Workers::kStopping;
  order.round = workers_round_;
  act(std::move(order));
}

// The record of the release is on disk by now. It was not when the release arrived.
void Member::say_ready(const RoundId& round) {
  tell_leader(Ready{.round = round, .master_port = master_port_, .installed = record_.state.current.id});
}

void Member::handle(const member_event::WorkersFailed& event) {
  if (!has_workers()) return;
  workers_ = Workers::kStopping;
  FailureReport report = event.report;
  report.round = workers_round_;
  report.hostname = settings_.hostname;
  report.skew_ns = clock_.skew_ns();
  failure_ = report;
  tell_leader(std::move(report));
}

void Member::handle(const member_event::StepsStarted& event) {
  tell_leader(StopReady{.round = workers_round_, .started = event.started});
}

void Member::handle(const member_event::AskStore& event) {
  if (has_workers()) tell_leader(StoreAsk{workers_round_, event.rank, event.request});
}

// Earlier pings could not report records that were not yet on disk. A coordinator that founds a job gives no grant before it
// has that report.
void Member::handle(const member_event::RecordWritten&) {
  // Until the round is committed, the previous round counts as well. If it had only a few nodes, the loss of one more may cost
  // its majority.
  const Config& before = record_.state.previous;
  const bool hurries = before.exists() && before.voters() <= kFewNodes;
  if (leader_ && (pending_start_ || grant_.is_over(now_.steady) || hurries)) ping();
}

void Member::handle(const member_event::WorkersEnded& event) {
  workers_ended(event, /*done=*/false);
}

void Member::handle(const member_event::WorkersDone& event) {
  workers_ended({.saved = true, .master_port = event.master_port}, /*done=*/true);
}

void Member::workers_ended(const member_event::WorkersEnded& event, bool done) {
  if (!has_workers()) return;
  if (event.master_port != 0) master_port_ = event.master_port;
  const bool were_running = workers_ == Workers::kRunning;
  workers_ = done && were_running ? Workers::kDone : Workers::kNone;
  if (over_) return finish(over_->exit_code, over_->why, over_->end);
  if (saving_) {
    saved_ = event.saved;
    if (!leader_) return after_saving(End::kGivenUp);
    return tell_leader(Stopped{.round = workers_round_, .saved = event.saved, .holds = event.holds});
  }
  if (event.leaves_with && may_leave()) {
    tell_leader(Leave{"it is of no more use"});
    return finish(*event.leaves_with, "this node leaves the job: a device of it has failed", End::kLeft);
  }
  if (workers_ == Workers::kDone) tell_leader(Done{workers_round_});
  if (leaves()) {
    tell_leader(Leave{"a signal"});
    return finish(128 + stop_signal_, "stopped by a signal", End::kLeft);
  }
  if (workers_ != Workers::kDone) say_ready(workers_round_);
}

// The job may continue elsewhere, without this node or under another coordinator.
void Member::after_saving(End end) {
  finish(saved_ ? static_cast<int>(ExitCode::kPreempted) : 128 + stop_signal_,
         saved_ ? "stopped by a signal after saving" : "stopped by a signal before it could save", end);
}

// A coordinator leaves only if the others can elect another one. Otherwise it stays, and the failure is judged.
bool Member::may_leave() const {
  if (!coordinates()) return true;
  return others_are_enough(record_.state.current, settings_.rules);
}

// ---- the end ----

void Member::handle(const member_event::StopRequested& event) {
  if (stop_signal_ != 0) return;
  stop_signal_ = event.signal;
  if (knows_end()) return;
  stop_saves_ = event.saves;
  if (leader_ && (has_workers() || coordinates() || in_round())) return tell_leader(StopAsk{event.signal, event.saves});
  if (has_workers() || saving_) return;  // the workers are already being stopped, or a decision is pending
  // The node's work is done, and the node ends with the job. A second signal ends it sooner.
  if (leader_ && workers_ == Workers::kDone && workers_round_ == record_.state.current.origin()) return;
  tell_leader(Leave{"a signal"});
  finish(128 + event.signal, "stopped by a signal", End::kLeft);
}

void Member::hear(LinkId link, const rendezvous::JobOver& message) {
  if (leads(link)) return finish(message.exit_code, message.why, End::kOver);
  if (phase_ != Phase::kLooking || (link != kSelfLink && !search_.dialled(link))) return;
  // The end of an earlier round than this node knows is not the end of this job. Nor is an end from before the start of this
  // process: this process was started for the next job.
  const bool was_before = !was_welcome_ && !record_.knows_round() && began_ + milliseconds(message.ended_ms_ago) > now_.steady;
  if (!was_before && message.round >= record_.state.current.id) return finish(message.exit_code, message.why, End::kOver);
  if (was_before) say(NodeNotice::Kind::kWaiting, "a job has just ended at this address; waiting for the next one there");
  act(member_action::Close{link});
  search_.retry_lasting(link, now_.steady + lease_ / 5);
}

void Member::hear(LinkId link, const Conclude& message) {
  if (!leads(link)) return;
  ending_ = message.ending;
  tell_leader(Concluded{message.ending.origin});
}

// No worker runs under a grant of the coordinator any more, so the next coordinator need not wait.
void Member::hear(LinkId link, const HandOver& message) {
  if (!leads(link) || link == kSelfLink) return;
  voter_.release();
  record_.coordinator = message.to;
  also_try(message.to.address);
  lose_leader("the coordinator has left the job", /*at_once=*/false);
  if (message.to.node == settings_.id) handed_over_ = message;
  act(member_action::Close{link});
}

void Member::hear(LinkId link, const Waiting& message) {
  if (leads(link)) say(NodeNotice::Kind::kWaiting, message.text);
}

void Member::hear(LinkId link, const MayLeave& message) {
  if (!leads(link) || stop_signal_ == 0 || message.round != record_.state.current.id) return;
  let_go_ = true;
  if (has_workers() || workers_ == Workers::kDone) return;  // the end of the round or of the job follows
  tell_leader(Leave{"a signal"});
  after_saving(End::kLeft);
}

// Workers are stopped first. The process ends when they are gone.
void Member::finish(int exit_code, const std::string& why, End end) {
  if (workers_ == Workers::kRunning) stop_workers({.reason = StopReason::kJobOver, .why = why});
  if (leader_) act(member_action::Close{leader_->link});
  search_.end(leader_ ? std::optional(leader_->link) : std::nullopt, actions_);
  leader_.reset();
  pending_start_.reset();
  if (has_workers()) {
    over_ = member_action::JobOver{.exit_code = exit_code, .why = why, .end = end};
    phase_ = Phase::kFollowing;  // it has no coordinator, but it does not search either
    return;
  }
  phase_ = Phase::kOver;
  act(member_action::JobOver{exit_code, why, end});
}

// ---- time ----

void Member::tick() {
  const bool grant_over = grant_.is_over(now_.steady) && settings_.rules.grant_ends_workers;
  if (leader_) {
    const bool silent = voter_.last_contact() + part_of(lease_, settings_.rules.give_up) <= now_.steady;
    if ((has_workers() && grant_over && grant_.is_leaders()) || silent) {
      const LinkId link = leader_->link;
      lose_leader("the coordinator does not answer", /*at_once=*/true);
      act(member_action::Close{link});
    } else if (next_ping_ <= now_.steady) {
      ping();
    }
  }
  // A graceful stop may take longer than the rest of the grant.
  if ((!leader_ || !grant_.is_leaders()) && has_workers() && grant_over && grant_.exists()) {
    grant_.forget();
    stop_workers({.reason = StopReason::kCoordinatorLost, .at_once = true, .why = "no coordinator"});
  }
  if (phase_ != Phase::kLooking) return;
  if (now_.steady >= may_vote_at()) {
    for (const auto& [link, request] : voter_.take()) vote(link, request);
  }
  if (looking_since_ + patience() > now_.steady) {
    for (const LinkId silent : search_.dial_due(lease_, now_.steady, actions_)) voter_.forget(silent);
    return;
  }
  if (knows_end())
    return finish(ending_.exit_code, ending_.why, End::kOver);  // no other node is left that could elect a coordinator
  if (stop_signal_ != 0) return after_saving(End::kGivenUp);
  const member_action::JobOver end = end_of_search(record_, was_welcome_, patience());
  finish(end.exit_code, end.why, end.end);
}

std::optional<Time> Member::next_deadline() const {
  if (phase_ == Phase::kOver) return std::nullopt;
  std::optional<Time> next;
  const auto consider = [&](const std::optional<Time>& time) {
    if (time && (!next || *time < *next)) next = time;
  };
  if (has_workers() && grant_.exists() && settings_.rules.grant_ends_workers) consider(grant_.until());
  if (leader_) {
    consider(voter_.last_contact() + part_of(lease_, settings_.rules.give_up));
    consider(next_ping_);
  }
  if (phase_ == Phase::kLooking) {
    consider(looking_since_ + patience());
    consider(search_.next_deadline(lease_));
    if (voter_.keeps_some()) consider(may_vote_at());
  }
  return next;
}

}  // namespace ddprun::rendezvous
