// Implementation of member.hpp. The functions are in this order: the search for a coordinator, votes, contact with the
// coordinator, rounds, workers, the end of the job, and timeouts.
//
// Note [Why this file is long] The member is one state machine and cannot be split. The coordinator's messages decide what the
// member does with its workers, and the exits of workers decide what the member sends. Classes with separate state are in
// other files: the search, the votes, the worker lease, the clock offset and the record.
#include "rendezvous/member/member.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {

Member::Member(MemberSettings settings, std::optional<Record> record, Now now)
    : settings_(std::move(settings)),
      now_(now),
      record_(record ? *std::move(record) : Record{}),
      search_(settings_),
      voter_(settings_.rules, record_.state.promised_term > 0, now.steady),
      started_at_(now.steady),
      searching_since_(now.steady),
      lease_(settings_.lease),
      master_port_(settings_.master_port) {
  search_.begin(others_of(record_, settings_.node));
}

std::vector<MemberAction> Member::on(const MemberEvent& event, Now now) {
  now_ = now;
  if (phase_ == Phase::kOver) return {};
  std::visit([this](const auto& concrete) { handle(concrete); }, event);
  // tick() is called after each event. It handles timeouts, and dials each address whose next attempt is due.
  if (phase_ != Phase::kOver) tick();
  return take();
}

// ---- the search for a coordinator ----

void Member::handle(const node_event::LinkOpened& event) {
  if (phase_ == Phase::kSearching && (event.link == kSelfLink || search_.dialled(event.link))) {
    if (event.link == kSelfLink)
      searching_since_ =
          // This node now leads, so its search timeout starts again. If the machine was suspended, a timeout that started with
          // the search could have expired already.
          now_.steady;
    act(node_action::ToListener{event.link, hello(event.local_host)});
  } else {
    act(node_action::CloseLink{event.link});
  }
}

Hello Member::hello(const std::string& local_host) {
  Hello hello{settings_};
  hello.attempt = ++hellos_;
  if (hello.listens.host.empty()) hello.listens.host = local_host.empty() ? settings_.own_host : local_host;
  hello.master_port = master_port_;
  hello.workers = workers_;
  hello.workers_round = workers_round_;
  hello.failed = failure_ && settings_.rules.failures_are_resent;
  hello.state = record_.state;
  if (knows_end()) hello.ending = ending_;
  return hello;
}

void Member::receive(LinkId link, const Welcome& message) {
  if (phase_ != Phase::kSearching || leader_) {
    if (!leads(link)) act(node_action::CloseLink{link});
    return;
  }
  // The sender leads in an earlier term than this node has promised, so this node cannot follow the sender. This node retries
  // later.
  if (message.term < record_.state.promised_term) {
    act(node_action::CloseLink{link});
    return search_.retry_lasting(link, now_.steady + lease_ / 5);
  }
  enter(Phase::kFollowing);
  was_welcome_ = true;
  lease_ = clamped_milliseconds(message.lease_ms);
  voter_.leader_contact(now_.steady);
  voter_.forget_all();
  // A node that becomes the coordinator itself keeps the TransferLeadership message of the previous coordinator. If it steps
  // down before its first release, it needs the message for another election.
  if (link != kSelfLink) leadership_transfer_.reset();
  leader_stamp_ = std::max(std::int64_t{0}, message.stamp);
  worker_lease_.lose_leader();
  clock_.begin();
  leader_ = Leader{.link = link, .term = message.term, .address = search_.settle(link, actions_), .hostname = message.hostname};
  const bool leads_elsewhere = link != kSelfLink && !record_.knows_round() && settings_.rules.lost_job_is_remembered;
  if (message.term > record_.state.promised_term || (leads_elsewhere && !record_.job_elsewhere)) {
    record_.state.promised_term = std::max(message.term, record_.state.promised_term);
    record_.job_elsewhere = record_.job_elsewhere || leads_elsewhere;
    remember();
  }
  add_hint(leader_->address);  // If the link is lost before the first release arrives, the next search dials this address.
  notify(NodeNotice::Kind::kFollowing, "joined");
  ping();
  // Sends the stop request again, because the new coordinator has not received it.
  if (got_signal() && (coordinates() || has_workers())) send_to_leader(stop_);
  if (got_signal() && !coordinates() && workers_ == Workers::kNone) {
    return leave("a signal", end_after_saving(End::kLeft));  // the signal came while this node was the coordinator
  }
  if (failure_ && settings_.rules.failures_are_resent) send_to_leader(*failure_);
  // The workers may have ended after the Hello was sent, or the Done message may have been lost with the previous link. So Done
  // or Ready is sent again.
  if (workers_ == Workers::kDone) {
    send_to_leader(Done{workers_round_});
  } else if (!has_workers()) {
    send_ready(workers_round_);
  }
}

void Member::receive(LinkId link, const Refused& message) {
  // The coordinator has another node with this rank or identity. That node may be dead, and the coordinator may not have
  // detected this yet. So this node retries once, after more than one lease. A second refusal proves that the other node is
  // alive.
  const bool retry_once = message.retry_after_ms > 0 && !std::exchange(was_refused_, true);
  if (message.reason == Refusal::kSetAside || retry_once) {
    if (!search_.dialled(link)) return;
    const Time next_try = now_.steady + clamped_milliseconds(message.retry_after_ms);
    search_.retry_lasting(link, next_try);
    searching_since_ = std::max(searching_since_, next_try);
    act(node_action::CloseLink{link});
    return;
  }
  // This address may now be used by another job, whose coordinator sent the refusal. So a node that already belonged to a job
  // ignores the refusal and continues its search.
  if (was_welcome_ && message.reason != Refusal::kReplaced) return;
  finish({node_end::refused_by_coordinator(message.text), End::kGivenUp});
}

void Member::receive(LinkId link, const Redirect& message) {
  if (phase_ != Phase::kSearching || !search_.dialled(link)) return;
  // Dials the address again, even if the coordinator at this address has an earlier term than this node has promised. That
  // coordinator may need this node for a majority, and must receive the later term from this node.
  search_.retry(link, now_.steady + lease_ / 5);
  act(node_action::CloseLink{link});
  add_hint(message.coordinator);
}

// ---- votes ----

void Member::receive(LinkId link, const VoteRequest& message) {
  if (leader_) return;
  search_.answered(link, now_.steady);
  if (now_.steady < may_vote_at()) {
    voter_.keep(link, message);
  } else {
    vote(link, message);
  }
}

void Member::vote(LinkId link, const VoteRequest& request) {
  const Vote vote = voter_.answer(request, record_.state.promised_term, now_.steady);
  if (vote.granted()) {
    record_.state.promised_term = request.term;
    remember();
  }
  act(node_action::ToListener{link, vote});
}

bool Member::promise(std::uint64_t term, Now now) {
  now_ = now;
  if (!voter_.may_promise(term, record_.state.promised_term)) return false;
  record_.state.promised_term = term;
  remember();
  return true;
}

void Member::leader_is_dead() {
  voter_.release();
  if (!leader_ || leader_->link == kSelfLink) return;
  const LinkId link = leader_->link;
  lose_leader("the agent of the coordinator's node is dead", /*immediately=*/false);
  act(node_action::CloseLink{link});
}

void Member::keep_roster(Roster roster) {
  record_.roster = std::move(roster);
  remember();
}

void Member::note_job_elsewhere() {
  if (!record_.knows_round() && !std::exchange(record_.job_elsewhere, true)) remember();
}

// ---- following the coordinator ----

void Member::handle(const node_event::FromListener& event) {
  if (leads(event.link)) voter_.leader_contact(now_.steady);
  std::visit([&](const auto& message) { receive(event.link, message); }, event.message);
}

Address Member::leader_listens() const {
  const bool is_recorded = leader_ && record_.coordinator.address.port != 0 && record_.state.current.id.term == leader_->term;
  return is_recorded ? record_.coordinator.address : leader_address();
}

void Member::send_to_leader(FromMember message) {
  if (leader_) act(node_action::ToListener{leader_->link, std::move(message)});
}

void Member::ping() {
  next_ping_ = now_.steady + part_of(lease_, record_.state.current.exists() ? kPing : kPingWithoutRound);
  send_to_leader(Ping{.stamp = stamp_of(now_.steady),
                      .echo = leader_stamp_,
                      .realtime_ns = now_.realtime_ns,
                      .installed = record_.state.current.id});
}

void Member::receive(LinkId link, const Pong& message) {
  if (!leads(link) || message.echo <= 0 || message.echo > stamp_of(now_.steady)) return;
  leader_stamp_ = std::max(leader_stamp_, message.stamp);
  const nanoseconds length = std::clamp(nanoseconds(message.grant_ns), nanoseconds{0}, lease_);
  // The grant counts from the time at which the ping was sent, because the answer may have been delayed.
  if (worker_lease_.extend(time_of(message.echo), length, has_workers()) && has_workers()) {
    act(member_action::ExtendWorkerLease{worker_lease_.until()});
  }
  clock_.receive(message, now_);
  if (record_.state.previous.exists() && message.committed == record_.state.current.id) {
    record_.state.previous = Config{};
    remember();
  }
  start_if_granted();
}

void Member::handle(const node_event::LinkClosed& event) {
  voter_.forget(event.link);
  search_.closed(event.link, now_.steady);
  if (leads(event.link)) lose_leader("the connection to the coordinator was closed", /*immediately=*/false);
}

void Member::lose_leader(const std::string& why, bool immediately) {
  const bool was_leader = coordinates();
  const std::string failed_host = was_leader || !leader_ ? "" : leader_->hostname;
  leader_.reset();
  worker_lease_.lose_leader();
  pending_start_.reset();
  // The coordinator is lost, so the workers cannot receive the step at which they must save. The job continues after this kind
  // of save, so the workers need not save.
  if (save_ == Save::kThenContinue) save_ = Save::kNone;
  // Workers may continue without a grant only if a test has turned off the rule grant_ends_workers.
  const bool may_continue = immediately && !settings_.rules.grant_ends_workers;
  // If the job is about to end, workers that are saving are not stopped here. These workers may complete the save before their
  // grant ends. At the end of the grant, tick() kills them.
  if (workers_ == Workers::kRunning && !is_saving() && !may_continue) {
    stop_workers({.reason = StopReason::kCoordinatorLost,
                  .immediately = immediately,
                  .why = why,
                  .hold = !immediately && !got_signal()});
  }
  if (is_saving() && !has_workers()) return finish(end_after_saving(End::kGivenUp));
  // A node that has no coordinator needs no permission to leave.
  if (got_signal() && !was_leader && in_round() && !has_workers()) {
    return finish({node_end::left(stop_.signal), End::kLeft});
  }
  search(why, failed_host);
}

void Member::search(const std::string& why, const std::string& failed_host) {
  enter(Phase::kSearching);
  searching_since_ = now_.steady;
  act(NodeNotice{.kind = NodeNotice::Kind::kSearching, .text = why, .failed_host = failed_host});
  search_.begin(others_of(record_, settings_.node));
}

// ---- rounds ----

void Member::receive(LinkId link, const Release& message) {
  if (!leads(link) || message.nodes < 1 ||
      message.id <= record_.state.current.id) {  // A coordinator with a valid lease never sends an old round.
    return;
  }
  const bool starts = message.start && message.group_rank >= 0;
  if (starts && has_workers() && settings_.rules.wait_for_ready)
    return;  // The workers of this node are still running, so the node is not ready for another round.
  // The release may have a later term than the Welcome. If a joining node has promised a later term, the coordinator increases
  // its own term (Coordinator::handle_hello).
  record_.state.promised_term = std::max(record_.state.promised_term, message.id.term);
  record_.state.current = config_of(message);
  record_.state.previous = message.previous;
  // Drop this node's failure report if the coordinator has already counted the failure. A release that starts a round proves
  // this. A restart count above the count of this node also proves it: a new coordinator may have inherited that count from a
  // node with a newer round.
  if (message.start || message.budget.restart_count > record_.state.budget.restart_count) failure_.reset();
  record_.state.budget = message.budget;
  record_.job_elsewhere = record_.place_is_new = false;
  record_.coordinator = message.coordinator;
  // When a round of an earlier coordinator is released again, the message may contain no successors. In this case the recorded
  // successors are still valid, because the round is the same.
  if (message.start || !message.successors.empty()) record_.successors = message.successors;
  remember();
  pending_start_.reset();
  if (starts) {
    workers_ = Workers::kNone;
    save_ = Save::kNone;
    saved_ = leave_allowed_ = false;
    pending_start_ = message;
    // The stop signal arrived between two rounds, and this release starts workers again. So the request is repeated.
    if (got_signal()) send_to_leader(stop_);
  }
  ping();
  start_if_granted();
}

void Member::start_if_granted() {
  // Start the workers only if the grant is long enough. A short grant could end before the next answer extends it.
  const Time least = now_.steady + part_of(lease_, settings_.rules.min_grant_to_start);
  if (!pending_start_ || !worker_lease_.is_leaders() || worker_lease_.is_over(least)) return;
  workers_ = Workers::kRunning;
  workers_round_ = pending_start_->id;
  act(member_action::StartWorkers{*std::exchange(pending_start_, std::nullopt), worker_lease_.until()});
  if (is_saving()) act(StopAndSave{.round = workers_round_, .signal = stop_.signal});
}

void Member::receive(LinkId link, const RoundOver& message) {
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
    save_ = Save::kNone;
    if (leaves()) return leave("a signal", end_after_saving(End::kLeft));
    if (!message.hold) act(member_action::DismissHeld{message.why});
    send_ready(message.round);
  }
}

void Member::receive(LinkId link, const StopAndSave& message) {
  if (!leads(link) || message.round != record_.state.current.id) return;
  if (message.held) return save_held_state(message);
  save_ = message.continues ? Save::kThenContinue : Save::kThenEnd;
  if (!got_signal() && !message.continues) stop_.signal = message.signal;
  if (pending_start_) return;  // The workers have not started yet. start_if_granted() forwards the message after the start.
  if (workers_ == Workers::kRunning) {
    act(message);
  } else if (!has_workers()) {
    send_to_leader(Stopped{.round = message.round, .saved = workers_ == Workers::kDone});
  }
}

// Saves the state of held workers after the end of a round. The workers run again for this save, but only within the time that
// the coordinator has granted.
void Member::save_held_state(const StopAndSave& order) {
  const bool may_run = workers_ == Workers::kNone && worker_lease_.is_leaders() && !worker_lease_.is_over(now_.steady);
  if (!may_run) return send_to_leader(Stopped{.round = order.round});
  save_ = Save::kThenContinue;
  workers_ = Workers::kRunning;
  workers_round_ = order.round;
  act(member_action::ExtendWorkerLease{worker_lease_.until()});
  act(order);
}

void Member::receive(LinkId link, const StopAt& message) {
  if (leads(link) && workers_ == Workers::kRunning && message.round == workers_round_) act(message);
}

void Member::receive(LinkId link, const StoreAnswer& message) {
  if (leads(link) && has_workers() && message.round == workers_round_) {
    act(message);
  }
}

// ---- the workers ----

void Member::stop_workers(member_action::StopWorkers order) {
  workers_ = Workers::kStopping;
  order.round = workers_round_;
  act(std::move(order));
}

// Ready contains the newest round in the record. The record of that round may not have been on disk yet when the last ping was
// sent.
void Member::send_ready(const RoundId& round) {
  send_to_leader(Ready{.round = round, .master_port = master_port_, .installed = record_.state.current.id});
}

void Member::handle(const FailureReport& event) {
  if (!has_workers()) return;
  workers_ = Workers::kStopping;
  FailureReport report = event;
  report.round = workers_round_;
  report.hostname = settings_.hostname;
  report.skew_ns = clock_.skew_ns();
  failure_ = report;
  send_to_leader(std::move(report));
}

void Member::handle(const StopReady& event) {
  send_to_leader(StopReady{.round = workers_round_, .started = event.started});
}

void Member::handle(const StoreQuery& event) {
  if (has_workers()) send_to_leader(StoreQuery{workers_round_, event.rank, event.request});
}

// Pings report a record only when it is on disk. During the bootstrap of a job the coordinator grants no time until enough
// nodes have reported the round. So the member sends a ping as soon as the record is written.
void Member::handle(const member_event::RecordWritten&) {
  // Until the round is committed, the coordinator also needs a majority of the previous round. In a small previous round, the
  // loss of one more node could cost that majority. So the member pings early to get the round committed soon.
  const Config& before = record_.state.previous;
  const bool ping_early = before.exists() && before.voters() <= kFewNodes;
  if (leader_ && (pending_start_ || worker_lease_.is_over(now_.steady) || ping_early)) ping();
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
  if (phase_ == Phase::kEnding) return finish(std::move(finish_));
  if (is_saving()) {
    saved_ = event.saved;
    if (!leader_) return finish(end_after_saving(End::kGivenUp));
    return send_to_leader(Stopped{.round = workers_round_, .saved = event.saved, .holds = event.holds});
  }
  if (event.leaves_with && may_leave()) {
    return leave("a device has failed",
                 {{*event.leaves_with, "this node leaves the job: one of its devices has failed"}, End::kLeft});
  }
  if (workers_ == Workers::kDone) send_to_leader(Done{workers_round_});
  if (leaves()) return leave("a signal", {node_end::left(stop_.signal), End::kLeft});
  if (workers_ != Workers::kDone) send_ready(workers_round_);
}

// Returns true if this node may leave the job after a device failure. A coordinator may leave only if the other nodes can
// elect a new coordinator. If they cannot, it stays, and the restart policy judges the failure.
bool Member::may_leave() const {
  if (!coordinates()) return true;
  return others_are_enough(record_.state.current, settings_.rules);
}

// ---- the end ----

void Member::handle(const StopRequest& event) {
  if (got_signal()) return;
  stop_.signal = event.signal;
  if (knows_end()) return;
  stop_.saves = event.saves;
  if (leader_ && (has_workers() || coordinates() || in_round())) return send_to_leader(event);
  if (has_workers() || is_saving()) return;  // The workers are already being stopped. The node leaves when they have ended.
  // The workers of this node have finished, so the node waits for the end of the job. A second signal ends the node sooner.
  if (leader_ && workers_ == Workers::kDone && workers_round_ == record_.state.current.origin()) return;
  leave("a signal", {node_end::left(stop_.signal), End::kLeft});
}

void Member::receive(LinkId link, const JobOver& message) {
  if (leads(link)) return finish({{message.exit_code, message.why}, End::kOver});
  if (phase_ != Phase::kSearching || (link != kSelfLink && !search_.dialled(link))) return;
  // Two kinds of JobOver must be ignored. One kind belongs to a round before the round that this node has recorded. The other
  // kind belongs to a job that ended before this process started. This process waits for the next job.
  const bool was_earlier_job =
      !was_welcome_ && !record_.knows_round() && started_at_ + milliseconds(message.ended_ms_ago) > now_.steady;
  if (!was_earlier_job && message.round >= record_.state.current.id)
    return finish({{message.exit_code, message.why}, End::kOver});
  if (was_earlier_job) notify(NodeNotice::Kind::kWaiting, "a job at this address has just ended; waiting for the next one");
  act(node_action::CloseLink{link});
  search_.retry_lasting(link, now_.steady + lease_ / 5);
}

void Member::receive(LinkId link, const ProposeEnd& message) {
  if (!leads(link)) return;
  ending_ = message.ending;
  send_to_leader(EndAccepted{message.ending.origin});
}

// When this message arrives, no worker runs with a grant of the old coordinator any more. So this node may vote immediately.
void Member::receive(LinkId link, const TransferLeadership& message) {
  if (!leads(link) || link == kSelfLink) return;
  voter_.release();
  record_.coordinator = message.to;
  add_hint(message.to.address);
  leader_->hostname.clear();  // no host name, because the old coordinator did not fail
  lose_leader("the coordinator has left the job", /*immediately=*/false);
  if (message.to.node == settings_.node) leadership_transfer_ = message;
  act(node_action::CloseLink{link});
}

void Member::receive(LinkId link, const Waiting& message) {
  if (leads(link)) notify(NodeNotice::Kind::kWaiting, message.text);
}

void Member::receive(LinkId link, const MayLeave& message) {
  if (!leads(link) || !got_signal() || message.round != record_.state.current.id) return;
  leave_allowed_ = true;
  if (has_workers() || workers_ == Workers::kDone) return;  // The node leaves when the round or the job ends.
  leave("a signal", end_after_saving(End::kLeft));
}

// Returns how this node exits after a save. The job may continue on other nodes.
node_action::Finish Member::end_after_saving(End end) const {
  return {node_end::left_after_order_to_save(stop_.signal, saved_), end};
}

// Returns how this node exits if it has found no coordinator within patience().
node_action::Finish Member::end_of_search() const {
  const bool belonged = was_welcome_ && record_.state.current.exists();
  const std::string seconds = std::to_string(patience().count() / 1000) + " s";
  if (!belonged) return {node_end::no_coordinator(seconds), End::kGivenUp};
  std::string why = "cut off from the majority of the nodes for " + seconds;
  if (is_other_of_two(record_) && !record_.state.current.has_arbiter()) {
    why +=
        ". In a job of two nodes, a node continues alone only if the other node reports that its ddprun has died, or if an "
        "arbiter chooses it. The arbiter is an etcd server (--arbiter) or a --run-dir that both nodes share. In a job of three "
        "nodes, any two continue";
  }
  return {node_end::minority(std::move(why)), End::kGivenUp};
}

void Member::leave(const std::string& why, node_action::Finish end) {
  send_to_leader(Leave{why});
  finish(std::move(end));
}

// Ends the participation of this node in the job. If workers are running, they are stopped first, and the node finishes when
// they have ended.
void Member::finish(node_action::Finish end) {
  if (workers_ == Workers::kRunning) stop_workers({.reason = StopReason::kJobOver, .why = end.why});
  if (leader_) act(node_action::CloseLink{leader_->link});
  search_.end(leader_ ? std::optional(leader_->link) : std::nullopt, actions_);
  leader_.reset();
  pending_start_.reset();
  if (has_workers()) {
    finish_ = std::move(end);
    return enter(Phase::kEnding);
  }
  enter(Phase::kOver);
  act(std::move(end));
}

// ---- time ----

void Member::tick() {
  const bool grant_over = worker_lease_.is_over(now_.steady) && settings_.rules.grant_ends_workers;
  if (leader_) {
    const bool silent = voter_.last_contact() + part_of(lease_, settings_.rules.give_up) <= now_.steady;
    if ((has_workers() && grant_over && worker_lease_.is_leaders()) || silent) {
      const LinkId link = leader_->link;
      lose_leader("the coordinator does not answer", /*immediately=*/true);
      act(node_action::CloseLink{link});
    } else if (next_ping_ <= now_.steady) {
      ping();
    }
  }
  // A graceful stop may take longer than the remaining time of the grant. When the grant ends, the remaining workers are
  // killed.
  if ((!leader_ || !worker_lease_.is_leaders()) && has_workers() && grant_over && worker_lease_.exists()) {
    worker_lease_.forget();
    stop_workers({.reason = StopReason::kCoordinatorLost, .immediately = true, .why = "no coordinator"});
  }
  if (phase_ != Phase::kSearching) return;
  if (now_.steady >= may_vote_at()) {
    for (const auto& [link, request] : voter_.take()) vote(link, request);
  }
  if (searching_since_ + patience() > now_.steady) {
    for (const LinkId silent : search_.dial_due(lease_, now_.steady, actions_)) voter_.forget(silent);
    return;
  }
  // The search has timed out, so no coordinator will send JobOver. If the end of the job was proposed to this node, that
  // proposal becomes final.
  if (knows_end()) return finish({{ending_.exit_code, ending_.why}, End::kOver});
  if (got_signal()) return finish(end_after_saving(End::kGivenUp));
  finish(end_of_search());
}

std::optional<Time> Member::next_deadline() const {
  if (phase_ == Phase::kOver) return std::nullopt;
  std::optional<Time> next;
  if (has_workers() && worker_lease_.exists() && settings_.rules.grant_ends_workers) keep_earlier(next, worker_lease_.until());
  if (leader_) {
    keep_earlier(next, voter_.last_contact() + part_of(lease_, settings_.rules.give_up));
    keep_earlier(next, next_ping_);
  }
  if (phase_ == Phase::kSearching) {
    keep_earlier(next, searching_since_ + patience());
    keep_earlier(next, search_.next_deadline(lease_));
    if (voter_.has_waiting()) keep_earlier(next, may_vote_at());
  }
  return next;
}

}  // namespace ddprun::rendezvous
