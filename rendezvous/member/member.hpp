// One node's part in the job, as a pure state machine. It looks for the coordinator, follows it, is released into rounds, and
// votes for a successor when the coordinator is lost. Its requests to the agent are plain actions: start workers with these
// ranks, stop them, the job is over. node.hpp holds one and carries its messages.
//
//     looking -- Welcome --> following -- Release, grant --> workers run -- RoundOver --> stop, Ready --> ...
//        ^----------- link closed, or no answer: workers stop -----------'
//
// It owns the phase, the record, the leader with its last message, and the state of this node's workers. leader_search.hpp
// decides whom to dial, voter.hpp when to vote, and grant.hpp until when workers may run.
//
// How it is connected to the launcher's AgentState (one node's workers): an agent of a networked job has both, and the shell
// passes on their actions and events.
//     Member's StartWorkers            AgentState starts this round instead of counting rounds itself
//     Member's StopWorkers             AgentState stops the round's workers (at_once: SIGKILL) or holds them, and judges
//     Member's StopAndSave, StopAt     AgentState's signal path; its StopAgreement's answer goes to StepsStarted first
//     AgentState's first failure       WorkersFailed immediately, so that all nodes stop within one message's time
//     AgentState's RoundSwept          WorkersEnded, or WorkersDone if all ended well
//     AgentState's SignalArrived       StopRequested; AgentState handles the second one itself: it kills
//     Member's JobOver                 AgentState's Finish, with this exit code
// decide_restart then runs at the coordinator (Coordinator's judge), once for the whole job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/member/action.hpp"
#include "rendezvous/member/clock_offset.hpp"
#include "rendezvous/member/grant.hpp"
#include "rendezvous/member/leader_search.hpp"
#include "rendezvous/member/record.hpp"
#include "rendezvous/member/settings.hpp"
#include "rendezvous/member/voter.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"

namespace ddprun::rendezvous {

namespace member_event {
struct Opened {
  LinkId link = 0;
  std::string local_host{};  // the local address of the socket
};
struct Closed {  // or failed to open
  LinkId link = 0;
};
struct Heard {
  LinkId link = 0;
  FromCoordinator message{};
};
struct Tick {};
// Failures of this node's workers. The first failure is reported immediately, and a later one if it turns out to be the cause.
// The agent itself stops the node's other workers.
struct WorkersFailed {
  FailureReport report{};  // the member fills in round, hostname and skew
};
// All workers of the round are gone, with all processes that they started. Or they are idle and wait for the next round.
struct WorkersEnded {
  bool saved = false;                // true after StopAndSave
  std::uint16_t master_port = 0;     // reserved for the next round
  std::optional<int> leaves_with{};  // set if the node leaves the job permanently: its exit code
  bool holds = false;                // as in Stopped
};
struct WorkersDone {  // instead of WorkersEnded, if all workers exited with code 0
  std::uint16_t master_port = 0;
};
struct StopRequested {
  int signal = 0;
  bool saves = false;  // StopAsk::saves
};
// Answer to StopAndSave: the most steps that a worker of this node has started; -1: no worker will start another step.
struct StepsStarted {
  std::int64_t started = -1;
};
struct AskStore {
  std::int32_t rank = 0;
  channel::StoreRequest request{};
};
// A query about the whole job. Without a coordinator it is dropped. The answers arrive as HearAnswer.
struct AskJob {
  JobQuestion question{};
};
// The answer to BeAsked. Its text has at most NodeQuestion::most_bytes.
struct AnswerQuestion {
  NodeAnswer answer{};
};
// A record of this node is on disk. Only sent if messages wait for that (record_gate.hpp).
struct RecordWritten {};
}  // namespace member_event
using MemberEvent = std::variant<member_event::Opened, member_event::Closed, member_event::Heard, member_event::Tick,
                                 member_event::WorkersFailed, member_event::WorkersEnded, member_event::WorkersDone,
                                 member_event::StopRequested, member_event::StepsStarted, member_event::AskStore,
                                 member_event::AskJob, member_event::AnswerQuestion, member_event::RecordWritten>;

class Member {
 public:
  // `record` was written by an earlier process with this identity.
  Member(MemberSettings settings, std::optional<Record> record, Now now);

  std::vector<MemberAction> on(const MemberEvent& event, Now now);
  std::optional<Time> next_deadline() const;

  // ---- for succession (node.cpp) ----
  bool looking() const { return phase_ == Phase::kLooking; }
  bool following() const { return phase_ == Phase::kFollowing; }
  bool over() const { return phase_ == Phase::kOver; }
  bool was_welcome() const { return was_welcome_; }
  bool has_workers() const { return workers_ == Workers::kRunning || workers_ == Workers::kStopping; }
  const Record& record() const { return record_; }
  const PersistentState& state() const { return record_.state; }
  Address leader_address() const { return leader_ ? leader_->address : Address{}; }
  std::uint64_t leader_term() const { return leader_ ? leader_->term : 0; }
  LinkId leader_link() const { return leader_ ? leader_->link : 0; }
  nanoseconds lease() const { return lease_; }
  // The listening address in the coordinator's own messages. The address at which this node found it may be closed by now, or
  // may lead to another process.
  Address leader_listens() const;
  // 0: the first candidate after a loss of the coordinator.
  std::size_t place_in_line() const { return rendezvous::place_in_line(record_, settings_.id); }
  Time may_vote_at() const { return voter_.may_vote_at(lease_); }
  // The time from which this node may be a candidate itself. It must wait while a candidate that got its vote may win.
  Time may_stand_at() const { return voter_.may_stand_at(lease_); }
  const Roster& roster() const { return record_.roster; }
  // Call it before the release is sent.
  void keep_roster(Roster roster, std::vector<MemberAction>& actions);
  // Another node knows a round of this job, and this node knows none.
  void note_job_elsewhere(std::vector<MemberAction>& actions) {
    if (record_.knows_round() || std::exchange(record_.job_elsewhere, true)) return;
    actions.emplace_back(member_action::Remember{record_, settings_.id});
  }
  // Sets MemberSettings::own_host.
  void known_as(const std::string& own_host) { settings_.own_host = own_host; }
  // The next Hello contains it.
  void saw_run_directory(std::uint64_t holder) { settings_.run_directory = holder; }
  // The coordinator is dead, so promises to it no longer bind this node.
  void leader_is_dead(std::vector<MemberAction>& actions);
  // The coordinator's last message before it left, if it names this node as its successor. nullptr again once a node leads.
  const HandOver* handed_over() const { return handed_over_ ? &*handed_over_ : nullptr; }
  // Closes the member's links, because another Member replaces it.
  void abandon(std::vector<MemberAction>& actions) { search_.end(std::nullopt, actions); }
  // The node at that address may lead, or may know the leader.
  void also_try(const Address& address) { search_.hint(address, looking(), now_.steady); }
  // The addresses at which nodes may look for a coordinator.
  std::vector<Address> known_places() const { return search_.places(others_of(record_, settings_.id)); }
  Hello hello(const std::string& local_host);
  // Another node of the round, which also looks for a coordinator, has sent the job's end.
  void learn_end(const Ending& ending) {
    if (!knows_end()) ending_ = ending;
  }
  // Records this node's vote for itself. Returns false if it has already promised that term.
  bool promise(std::uint64_t term, Now now, std::vector<MemberAction>& actions);

 private:
  enum class Phase { kLooking, kFollowing, kOver };
  struct Leader {
    LinkId link = 0;
    std::uint64_t term = 0;
    Address address{};
  };

  void handle(const member_event::Opened& event);
  void handle(const member_event::Closed& event);
  void handle(const member_event::Heard& event);
  void handle(const member_event::Tick&) {}  // on() ticks after each event
  void handle(const member_event::WorkersFailed& event);
  void handle(const member_event::WorkersEnded& event);
  void handle(const member_event::WorkersDone& event);
  void handle(const member_event::StopRequested& event);
  void handle(const member_event::StepsStarted& event);
  void handle(const member_event::AskStore& event);
  void handle(const member_event::AskJob& event) { tell_leader(event.question); }
  void handle(const member_event::AnswerQuestion& event) { tell_leader(event.answer); }
  void handle(const member_event::RecordWritten&);

  void hear(LinkId link, const Welcome& message);
  void hear(LinkId link, const Refused& message);
  void hear(LinkId link, const Redirect& message);
  void hear(LinkId link, const Release& message);
  void hear(LinkId link, const RoundOver& message);
  void hear(LinkId link, const rendezvous::StopAndSave& message);
  void save_what_is_held(const RoundId& round);
  void hear(LinkId link, const rendezvous::StopAt& message);
  void hear(LinkId link, const rendezvous::JobOver& message);
  void hear(LinkId link, const Conclude& message);
  void hear(LinkId link, const HandOver& message);
  void hear(LinkId link, const Waiting& message);
  void hear(LinkId link, const MayLeave& message);
  void hear(LinkId link, const Pong& message);
  void hear(LinkId link, const VoteRequest& message);
  void hear(LinkId link, const StoreAnswer& message);
  void hear(LinkId link, const NodeQuestion& message) {
    if (leads(link)) act(member_action::BeAsked{message});
  }
  void hear(LinkId link, const JobAnswer& message) {
    if (leads(link)) act(member_action::HearAnswer{message});
  }
  void hear(LinkId, const Resumed&) {}  // both belong to the session (rendezvous/node)
  void hear(LinkId, const Received&) {}

  // ---- the coordinator ----
  void lose_leader(const std::string& why, bool at_once);
  void ping();
  void vote(LinkId link, const VoteRequest& request);
  bool leads(LinkId link) const { return leader_ && leader_->link == link; }
  bool coordinates() const { return leads(kSelfLink); }
  void tell_leader(FromMember message);
  void remember() { act(member_action::Remember{record_, settings_.id}); }

  // ---- the workers ----
  void start_if_granted();
  void stop_workers(member_action::StopWorkers order);
  void workers_ended(const member_event::WorkersEnded& event, bool done);
  bool may_leave() const;
  // True if the node leaves after a signal. The coordinator decides that: until then, the state that the workers hold may still
  // be saved.
  bool leaves() const { return stop_signal_ != 0 && (!leader_ || let_go_); }
  // True if this node has a rank in the current round, or in the last one while the next is prepared.
  bool in_round() const { return record_.state.current.rank >= 0 && workers_ != Workers::kDone; }
  void say_ready(const RoundId& round);

  // True if the node knows the end of the job in its current round. The end of an older round does not count.
  bool knows_end() const { return ending_.exists() && ending_.origin == record_.state.current.origin(); }
  void tick();
  milliseconds patience() const {
    if (!was_welcome_) return settings_.join_timeout;
    return is_other_of_two(record_) ? settings_.rejoin_for / 2 : settings_.rejoin_for;
  }
  using End = member_action::JobOver::End;
  void after_saving(End end);
  void finish(int exit_code, const std::string& why, End end);
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }
  void say(NodeNotice::Kind kind, std::string text) {
    act(member_action::Say{NodeNotice{.kind = kind, .text = std::move(text)}});
  }

  MemberSettings settings_;
  Now now_;
  std::vector<MemberAction> actions_;
  Phase phase_ = Phase::kLooking;
  Record record_;

  // ---- parts ----
  LeaderSearch search_;
  Voter voter_;
  Grant grant_;
  ClockOffset clock_;

  // ---- the coordinator that it looks for or follows ----
  Time began_;
  Time looking_since_{};
  bool was_welcome_ = false;  // a coordinator has accepted this process
  bool was_refused_ = false;
  std::uint64_t hellos_ = 0;
  std::optional<Leader> leader_;
  nanoseconds lease_;
  std::int64_t leader_stamp_ = 0;
  std::optional<HandOver> handed_over_;
  Time next_ping_{};

  // ---- the workers ----
  Workers workers_ = Workers::kNone;
  RoundId workers_round_{};
  std::optional<FailureReport> failure_;  // failure of this node's workers, until the next round; kept for the next coordinator
  std::optional<Release> pending_start_;  // a release that waits for a grant
  std::uint16_t master_port_ = 0;
  bool saving_ = false;
  bool goes_on_ = false;  // the job continues after saving
  bool saved_ = false;
  int stop_signal_ = 0;
  bool stop_saves_ = false;
  bool let_go_ = false;
  Ending ending_;                               // known before the job ends
  std::optional<member_action::JobOver> over_;  // carried out after the workers are gone
};

}  // namespace ddprun::rendezvous
