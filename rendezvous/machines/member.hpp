// One node's place in the job, as a pure state machine: it looks for the coordinator, follows it, is released into rounds, and
// votes for a successor when the coordinator is lost. What it wants of the agent comes out as plain actions: start workers with
// these ranks, stop them, the job is over. node.hpp holds one and carries its messages.
//
//     looking -- Welcome --> following -- Release, grant --> workers run -- RoundOver --> stop, Ready --> ...
//        ^----------- link closed, or no answer: workers stop -----------'
//
// How it meets the launcher's AgentState (one node's workers): an agent of a networked job has both, and the shell connects
// them.
//     Member's StartWorkers            AgentState starts the round it names instead of counting rounds itself
//     Member's StopWorkers             AgentState stops the round's workers (at_once: SIGKILL), or holds them, and judges
//     nothing Member's StopAndSave, StopAt     AgentState's signal path; its StopAgreement's answer goes to StepsStarted first
//     AgentState's first failure       WorkersFailed at once, so that all nodes stop within one message's time
//     AgentState's RoundSwept          WorkersEnded, or WorkersDone when all ended well
//     AgentState's SignalArrived       StopRequested; the second one stays with AgentState: it kills
//     Member's JobOver                 AgentState's Finish, with this exit code
// decide_restart then runs at the coordinator (Coordinator's judge), once for the whole job.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/machines/link.hpp"
#include "rendezvous/machines/message.hpp"
#include "rendezvous/machines/rules.hpp"

namespace ddprun::rendezvous {

struct MemberSettings {
  NodeId id{};
  std::uint64_t incarnation = 0;
  RunDigest run{};
  std::int32_t wanted_group_rank = -1;
  std::string role = "default";
  std::int32_t local_world_size = 1;
  std::string hostname{};
  Address listens{};  // host empty: the address of the socket that reaches the coordinator
  std::uint16_t master_port = 0;
  std::vector<Address> endpoints{};  // where the job was said to be; empty on the node that coordinates first
  bool wants_job = false;
  milliseconds lease{5000};  // until a coordinator says another
  milliseconds join_timeout{600000};
  milliseconds rejoin_for{30000};  // how long a node whose coordinator was lost looks for the others: then it is the minority
  milliseconds redial{500};
  Rules rules{};
};

// Who is in a round, by group rank, as its coordinator remembers it. It alone can say of a node that never heard of the round
// that it is part of it, so it can lead on when it comes back, whoever its release had reached.
struct Roster {
  RoundId origin{};  // Config::origin()
  std::vector<NodeId> nodes{};
  bool operator==(const Roster&) const = default;
};

// What must survive a restart of the agent under the same identity, for as long as the machine is up: without it the node must
// take a new identity. Small and rare: once a round and once a vote. It must be written before what follows it is sent.
struct Record {
  Standing standing{};
  Successor coordinator{};
  std::vector<Successor> successors{};
  Roster roster{};  // of the newest round that this node released
};

namespace member_event {
struct Opened {
  LinkId link = 0;
  std::string local_host{};  // of the socket
};
struct Closed {  // or could not be opened
  LinkId link = 0;
};
struct Heard {
  LinkId link = 0;
  FromCoordinator message{};
};
struct Tick {};
// Of the workers here. The first that failed is reported at once, and another one if it turns out to be the cause; the agent
// stops the others of the node itself.
struct WorkersFailed {
  FailureReport report{};  // round, hostname and skew are filled in here
};
// All of the round's workers and what they started are gone, or wait for the next round and do nothing meanwhile.
struct WorkersEnded {
  bool saved = false;                // after StopAndSave
  std::uint16_t master_port = 0;     // held for the next round
  std::optional<int> leaves_with{};  // the node leaves the job for good, with that exit code
};
struct WorkersDone {  // the same, and all of them ended well
  std::uint16_t master_port = 0;
};
struct StopRequested {
  int signal = 0;
};
// Answer to StopAndSave: the most steps that a worker here has started; -1: none will start any more.
struct StepsStarted {
  std::int64_t started = -1;
};
struct AskStore {
  std::int32_t rank = 0;
  channel::StoreRequest request{};
};
}  // namespace member_event
using MemberEvent = std::variant<member_event::Opened, member_event::Closed, member_event::Heard, member_event::Tick,
                                 member_event::WorkersFailed, member_event::WorkersEnded, member_event::WorkersDone,
                                 member_event::StopRequested, member_event::StepsStarted, member_event::AskStore>;

namespace member_action {
struct Dial {  // answer with Opened or Closed
  LinkId link = 0;
  Address address{};
};
struct Send {
  LinkId link = 0;
  FromMember message{};
};
struct Close {
  LinkId link = 0;
};
struct Remember {
  Record record{};
};
struct StartWorkers {
  Release release{};
  Time until{};  // as ExtendGrant
};
// Workers may run until then and must be killed at that time by whatever watches them, this agent stopped or not, unless it is
// extended: by then somebody else may lead.
struct ExtendGrant {
  Time until{};
};
struct StopWorkers {
  enum class Reason { kWorkerFailure, kMembershipChange, kCoordinatorLost, kJobOver };
  RoundId round{};
  Reason reason{};
  bool at_once = false;  // SIGKILL
  std::string why{};
  std::optional<FailureReport> failure{};  // kWorkerFailure: of another node's worker
  bool hold = false;                       // those that can wait for the next round with their state may do so: WorkersEnded
};
// Workers that wait for the next round, for a failure of this node's own, have a state that is not to be kept.
struct DismissHeld {
  std::string why{};
};
struct StopAndSave {
  int signal = 0;
};
struct StopAt {
  std::int64_t step = 0;
};
struct AnswerStore {
  std::int32_t rank = 0;
  channel::StoreReply reply{};
};
struct GotJob {  // ddprun join: config, arguments and options
  std::string job{};
};
struct Say {
  Notice notice{};
};
struct Resign {};  // after JobOver: the coordinator in this node ends too, without the job's end
struct JobOver {   // the workers are gone
  int exit_code = 0;
  std::string why{};
};
}  // namespace member_action
using MemberAction =
    std::variant<member_action::Dial, member_action::Send, member_action::Close, member_action::Remember,
                 member_action::StartWorkers, member_action::ExtendGrant, member_action::StopWorkers,
                 member_action::DismissHeld, member_action::StopAndSave, member_action::StopAt, member_action::AnswerStore,
                 member_action::GotJob, member_action::Say, member_action::JobOver, member_action::Resign>;

class Member {
 public:
  // `record`: of an earlier process with this identity.
  Member(MemberSettings settings, std::optional<Record> record, Now now);

  std::vector<MemberAction> on(const MemberEvent& event, Now now);
  std::optional<Time> next_deadline() const;

  // ---- for succession (node.cpp) ----
  bool looking() const { return phase_ == Phase::kLooking; }
  bool following() const { return phase_ == Phase::kFollowing; }
  bool over() const { return phase_ == Phase::kOver; }
  const Standing& standing() const { return record_.standing; }
  Address leader_address() const;
  std::uint64_t leader_term() const { return leader_ ? leader_->term : 0; }
  // 0: first in line, when the coordinator is lost.
  std::size_t place_in_line() const;
  Time may_vote_at() const;
  // For itself, before others: not while somebody whom it voted for may win.
  Time may_stand_at() const;
  const Roster& roster() const { return record_.roster; }
  // Before the release goes out.
  void keep_roster(Roster roster, std::vector<MemberAction>& actions);
  // Somebody may be there who leads, or knows who does.
  void also_try(const Address& address);
  // Where nodes may be that look for a coordinator.
  std::vector<Address> known_places() const;
  Hello hello(const std::string& local_host);
  // The vote for itself; false if it has promised that term already.
  bool promise(std::uint64_t term, Now now, std::vector<MemberAction>& actions);

 private:
  enum class Phase { kLooking, kFollowing, kOver };
  struct Leader {
    LinkId link = 0;
    std::uint64_t term = 0;
    Address address{};
  };
  struct Target {
    Address address{};
    bool lasting = true;  // not only because of a Redirect
    LinkId link = 0;      // 0: none
    bool open = false;
    Time next_try{};
    Time dialled{};
  };

  void hear(LinkId link, const Welcome& message);
  void hear(LinkId link, const Refused& message);
  void hear(LinkId link, const Redirect& message);
  void hear(LinkId link, const Release& message);
  void hear(LinkId link, const RoundOver& message);
  void hear(LinkId link, const rendezvous::StopAndSave& message);
  void hear(LinkId link, const rendezvous::StopAt& message);
  void hear(LinkId link, const rendezvous::JobOver& message);
  void hear(LinkId link, const Pong& message);
  void hear(LinkId link, const VoteRequest& message);
  void hear(LinkId link, const StoreAnswer& message);

  void workers_ended(bool saved, bool done, std::uint16_t master_port, std::optional<int> leaves_with = std::nullopt);
  bool may_leave() const;
  void stop_requested(int signal);
  void tick();
  void look();
  std::vector<Successor> others_of_the_record() const;
  void set_targets();
  void dial_due();
  void say_hello(LinkId link, const std::string& local_host);
  void lose_leader(const std::string& why, bool at_once);
  void start_if_granted();
  void stop_workers(member_action::StopWorkers order);
  void ping();
  void vote(LinkId link, const VoteRequest& request);
  void remember() { act(member_action::Remember{record_}); }
  void finish(int exit_code, const std::string& why);
  bool leads(LinkId link) const { return leader_ && leader_->link == link; }
  Target* target_of(LinkId link);
  bool has_workers() const { return workers_ == Workers::kRunning || workers_ == Workers::kStopping; }
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }
  void say(Notice::Kind kind, std::string text) { act(member_action::Say{Notice{.kind = kind, .text = std::move(text)}}); }

  MemberSettings settings_;
  Now now_;
  std::vector<MemberAction> actions_;
  Phase phase_ = Phase::kLooking;
  Record record_;
  std::vector<Target> targets_;
  std::deque<Address> hints_;  // newest last
  std::uint64_t next_link_ = 1;
  std::uint64_t hellos_ = 0;
  Time looking_since_{};
  bool was_welcome_ = false;  // by any coordinator

  std::optional<Leader> leader_;
  nanoseconds lease_;
  Time last_contact_{};           // with a coordinator
  bool promised_ = false;         // whether last_contact_ holds it back from voting
  std::optional<Time> voted_at_;  // for another one
  std::int64_t leader_stamp_ = 0;
  Time next_ping_{};
  Time granted_until_{};
  bool grant_is_leaders_ = false;  // not of an earlier coordinator
  std::optional<std::int64_t> best_round_trip_;
  std::int64_t skew_ns_ = 0;
  std::map<LinkId, VoteRequest> waiting_votes_;  // answered when may_vote_at has come

  Workers workers_ = Workers::kNone;
  RoundId workers_round_{};
  std::optional<Release> pending_start_;  // released, and waiting for a grant
  std::uint16_t master_port_ = 0;
  bool saving_ = false;
  bool saved_ = false;
  int stop_signal_ = 0;
  std::optional<rendezvous::JobOver> over_;  // said when the workers are gone
};

}  // namespace ddprun::rendezvous
