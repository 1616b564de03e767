// Implementation of member.hpp. Order of the file: what the coordinator says, votes, the workers, looking for a coordinator.
#include "rendezvous/member.hpp"

#include <algorithm>
#include <utility>

#include "common/exit_code.hpp"

namespace ddprun::rendezvous {
namespace {

using StopReason = member_action::StopWorkers::Reason;
constexpr std::size_t kMostTargets = 16;
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

void Member::also_try(const Address& address) {
  if (address.port == 0 || address == settings_.listens) return;
  std::erase(hints_, address);
  hints_.push_back(address);
  if (hints_.size() > kSuccessors) hints_.pop_front();
  if (phase_ != Phase::kLooking) return;
  for (Target& target : targets_) {
    if (target.address == address) {
      if (target.link == 0) target.next_try = std::min(target.next_try, now_.steady);
      return;
    }
  }
  if (targets_.size() >= kMostTargets) {
    std::erase_if(targets_, [](const Target& target) { return !target.lasting && target.link == 0; });
  }
  if (targets_.size() < kMostTargets) targets_.push_back(Target{.address = address, .lasting = false});
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

void Member::hear(LinkId link, const RoundOver& message) {
  if (!leads(link) || message.round != record_.standing.current.id || record_.standing.current.rank < 0) return;
  pending_start_.reset();
  if (workers_ == Workers::kRunning) {
    const bool failed = message.reason == OverReason::kWorkerFailure;
    stop_workers(failed ? StopReason::kWorkerFailure : StopReason::kMembershipChange, /*at_once=*/false, message.why,
                 failed ? std::optional(message.failure) : std::nullopt);
  } else if (!has_workers()) {
    workers_ = Workers::kNone;
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

// ---- votes ----

Time Member::may_vote_at() const {
  return promised_ ? last_contact_ + part_of(lease_, settings_.rules.vote_after) : Time{};
}

Time Member::may_stand_at() const {
  if (!voted_at_) return may_vote_at();
  return std::max(may_vote_at(), *voted_at_ + part_of(lease_, settings_.rules.voter_stands_back));
}

void Member::hear(LinkId link, const VoteRequest& message) {
  if (leader_) return;
  if (Target* target = target_of(link)) target->dialled = now_.steady;  // it is there, and counts on this node
  if (now_.steady < may_vote_at()) {
    waiting_votes_.insert_or_assign(link, message);
  } else {
    vote(link, message);
  }
}

void Member::vote(LinkId link, const VoteRequest& request) {
  const std::uint64_t promised = record_.standing.promised_term;
  const bool in_term = request.term > promised || (request.term == promised && !settings_.rules.one_vote_a_term);
  // What this node knows the candidate has from its hello, and counts it so (succession.cpp): nothing but the term matters
  // here. A vote is no promise to keep still: only who follows a coordinator and answers it makes that one. So a split vote
  // costs nothing but another try.
  if (in_term) {
    record_.standing.promised_term = request.term;
    voted_at_ = now_.steady;
    remember();
  }
  // A term that was promised before, perhaps to another candidate, is no vote for this one.
  const std::uint64_t says = record_.standing.promised_term;
  const std::uint64_t answer = !in_term && says == request.term ? request.term + 1 : says;
  act(member_action::Send{link, Vote{.term = request.term, .promised_term = answer, .echo = request.stamp}});
}

bool Member::promise(std::uint64_t term, Now now, std::vector<MemberAction>& actions) {
  now_ = now;
  if (term < record_.standing.promised_term || (term == record_.standing.promised_term && settings_.rules.one_vote_a_term)) {
    return false;
  }
  record_.standing.promised_term = term;
  actions.emplace_back(member_action::Remember{record_});
  return true;
}

void Member::keep_roster(Roster roster, std::vector<MemberAction>& actions) {
  record_.roster = std::move(roster);
  actions.emplace_back(member_action::Remember{record_});
}

std::size_t Member::place_in_line() const {
  if (record_.coordinator.node == settings_.id) return 0;
  for (std::size_t i = 0; i < record_.successors.size(); ++i) {
    if (record_.successors[i].node == settings_.id) return i + 1;
  }
  return kSuccessors + 1;
}

Address Member::leader_address() const {
  return leader_ ? leader_->address : Address{};
}

// ---- workers ----

void Member::start_if_granted() {
  // One that is about to end would end before it is renewed where answers are slow.
  const Time least = now_.steady + part_of(lease_, settings_.rules.start_with);
  if (!pending_start_ || !grant_is_leaders_ || granted_until_ <= least) return;
  workers_ = Workers::kRunning;
  workers_round_ = pending_start_->id;
  act(member_action::StartWorkers{*std::exchange(pending_start_, std::nullopt), granted_until_});
}

void Member::stop_workers(StopReason reason, bool at_once, const std::string& why, std::optional<FailureReport> failure) {
  workers_ = Workers::kStopping;
  act(member_action::StopWorkers{workers_round_, reason, at_once, why, std::move(failure)});
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
  if (leaves_with && (!leader_ || leader_->link != kSelfLink)) {  // a coordinator can't leave: the failure is judged then
    if (leader_) act(member_action::Send{leader_->link, Leave{"it is of no more use"}});
    return finish(*leaves_with, "this node leaves the job: a device of it has failed");
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
  if (workers_ == Workers::kRunning) stop_workers(StopReason::kJobOver, /*at_once=*/false, why);
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

// ---- without a coordinator ----

void Member::lose_leader(const std::string& why, bool at_once) {
  leader_.reset();
  grant_is_leaders_ = false;
  pending_start_.reset();
  // Broken on purpose, it goes on without a grant.
  const bool may_go_on = at_once && !settings_.rules.grant_ends_workers;
  if (workers_ == Workers::kRunning && !saving_ && !may_go_on) stop_workers(StopReason::kCoordinatorLost, at_once, why);
  if (saving_ && !has_workers()) {
    return finish(saved_ ? static_cast<int>(ExitCode::kPreempted) : 128 + stop_signal_, "stopped by a signal");
  }
  phase_ = Phase::kLooking;
  looking_since_ = now_.steady;
  say(Notice::Kind::kLooking, why);
  set_targets();
}

// Without itself: its own address as others see it may be none that it knows as its own.
std::vector<Successor> Member::others_of_the_record() const {
  if (!record_.standing.current.exists()) return {};
  std::vector<Successor> nodes{record_.coordinator};
  nodes.insert(nodes.end(), record_.successors.begin(), record_.successors.end());
  std::erase_if(nodes, [&](const Successor& node) { return node.node == settings_.id; });
  return nodes;
}

// The coordinator may only have lost the connection, and who restarts is a candidate too: so it is dialled as well.
void Member::set_targets() {
  targets_.clear();
  const auto add = [&](const Address& address) {
    const bool known = std::any_of(targets_.begin(), targets_.end(), [&](const Target& t) { return t.address == address; });
    if (address.port != 0 && address != settings_.listens && !known) targets_.push_back(Target{.address = address});
  };
  for (const Successor& node : others_of_the_record()) add(node.address);
  for (const Address& endpoint : settings_.endpoints) add(endpoint);
  for (const Address& hint : hints_) {
    const std::size_t before = targets_.size();
    add(hint);
    if (targets_.size() > before) targets_.back().lasting = false;
  }
}

std::vector<Address> Member::known_places() const {
  std::vector<Address> places = settings_.endpoints;
  for (const Successor& node : others_of_the_record()) places.push_back(node.address);
  places.insert(places.end(), hints_.begin(), hints_.end());
  return places;
}

void Member::dial_due() {
  for (Target& target : targets_) {
    // A candidate that says nothing for a lease may be out of reach, and what it knows of this node is old.
    if (target.link != 0 && target.dialled + lease_ <= now_.steady) {
      act(member_action::Close{target.link});
      waiting_votes_.erase(target.link);
      target.link = 0;
      target.next_try = now_.steady;
    }
    if (target.link != 0 || target.next_try > now_.steady) continue;
    target.link = kDialled | next_link_++;
    target.open = false;
    target.dialled = now_.steady;
    act(member_action::Dial{target.link, target.address});
  }
}

void Member::say_hello(LinkId link, const std::string& local_host) {
  if (phase_ != Phase::kLooking || (link != kSelfLink && target_of(link) == nullptr)) {
    act(member_action::Close{link});
    return;
  }
  act(member_action::Send{link, hello(local_host)});
}

Hello Member::hello(const std::string& local_host) {
  Hello hello;
  hello.node = settings_.id;
  hello.incarnation = settings_.incarnation;
  hello.attempt = ++hellos_;
  hello.run = settings_.run;
  hello.wanted_group_rank = settings_.wanted_group_rank;
  hello.role = settings_.role;
  hello.local_world_size = settings_.local_world_size;
  hello.hostname = settings_.hostname;
  hello.listens = settings_.listens;
  if (hello.listens.host.empty()) hello.listens.host = local_host;
  hello.master_port = master_port_;
  hello.wants_job = settings_.wants_job && !was_welcome_;
  hello.workers = workers_;
  hello.workers_round = workers_round_;
  hello.standing = record_.standing;
  return hello;
}

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
    stop_workers(StopReason::kCoordinatorLost, /*at_once=*/true, "no coordinator");
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
