// The coordinator of a job: who is here, when a round starts, when it ends, and when the job is over, as a pure state machine.
// Connections, messages and the time go in; messages and facts come out. node.hpp holds one when its node leads; the node's own
// member is one of its members, over kSelfLink.
//
//     gathering -> running -> ending -> [pausing] -> gathering ...      a failure, or a change of members
//                  running -> saving -> over                            a signal
//                  running -> over                                      all done
//
// It leads as long as a majority of the round's nodes answers (quorum.hpp, rules.hpp); otherwise it steps down, by when all
// workers have stopped, since it granted them no more time than it had itself.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "rendezvous/machines/link.hpp"
#include "rendezvous/machines/member.hpp"
#include "rendezvous/machines/message.hpp"
#include "rendezvous/machines/quorum.hpp"
#include "rendezvous/machines/rules.hpp"

namespace ddprun::rendezvous {

// What becomes of a job whose round failed. The launcher's restart policy answers; it must be a pure function.
struct Verdict {
  bool restart = false;
  int exit_code = 1;  // when it is not restarted
  std::string why{};  // "restart 1 of 3"
  milliseconds delay{};
  Budget after{};  // restart_count is counted by the coordinator
};
using JudgeFailure = std::function<Verdict(const FailureReport& first, const Budget& before)>;

struct CoordinatorSettings {
  NodeId self{};
  RunDigest run{};
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  milliseconds last_call{2000};    // from min_nodes on, how long to wait for more
  milliseconds regroup_call{300};  // after succession, how long to wait for the others
  milliseconds join_timeout{600000};
  milliseconds lease{5000};
  std::int32_t max_restarts = 0;  // only passed on: `judge` decides
  JudgeFailure judge{};
  std::string master_addr{};      // as typed; empty: the address of group rank 0's node
  std::uint16_t master_port = 0;  // 0: what group rank 0's node offers
  std::string job{};              // for `ddprun join`
  // A node that is lost that often within the window is set aside for the cool-down.
  int flaps = 4;
  milliseconds flap_window{60000};
  milliseconds cool_down{30000};
  Rules rules{};
};

// What it begins with: nothing, or what an election gave.
struct Authority {
  std::uint64_t term = 1;
  bool elected = false;
  Standing known{};  // newest round among the electors
  Roster roster{};   // if this node released that round
};

namespace coordinator_event {
struct Opened {
  LinkId link = 0;
};
struct Closed {
  LinkId link = 0;
};
struct Heard {
  LinkId link = 0;
  FromMember message{};
};
struct Tick {};
}  // namespace coordinator_event
using CoordinatorEvent =
    std::variant<coordinator_event::Opened, coordinator_event::Closed, coordinator_event::Heard, coordinator_event::Tick>;

namespace coordinator_action {
struct Send {
  LinkId link = 0;
  FromCoordinator message{};
};
struct Close {  // after what was sent before has gone
  LinkId link = 0;
};
// A worker of another node asks the store; the shell serves it and sends the StoreAnswer over the link.
struct ServeStore {
  LinkId link = 0;
  StoreAsk ask{};
};
struct Say {
  Notice notice{};
};
// It leads no more: close all links. Its own member looks for the next coordinator.
struct StepDown {
  std::string why{};
  std::uint64_t term = 0;  // that somebody has promised; 0: not known
  Address leader{};        // where another coordinator is, if known
};
// To be written before any of the messages that follow is sent.
struct KeepRoster {
  Roster roster{};
};
// Everybody knows that the job is over, or was given the time to.
struct Finished {};
}  // namespace coordinator_action
using CoordinatorAction =
    std::variant<coordinator_action::Send, coordinator_action::Close, coordinator_action::ServeStore, coordinator_action::Say,
                 coordinator_action::StepDown, coordinator_action::KeepRoster, coordinator_action::Finished>;

class Coordinator {
 public:
  Coordinator(CoordinatorSettings settings, const Authority& authority, Now now);

  // Feeds one event; the actions are to be carried out in order.
  std::vector<CoordinatorAction> on(const CoordinatorEvent& event, Now now);
  // When the next Tick is due.
  std::optional<Time> next_deadline() const;

  // What keeps the next round from starting, for people and for the simulator's stories.
  std::string waits_for() const;
  std::uint64_t term() const { return term_; }
  RoundId round() const { return current_.id; }
  // Whether a node with that address is here.
  bool knows(const Address& address) const;

 private:
  enum class Phase { kGathering, kRunning, kEnding, kPausing, kSaving, kOver, kSteppedDown };

  // A node: here (it has a link), or gone but still counted in a round's majority.
  struct Peer {
    Hello hello;
    std::optional<LinkId> link;
    std::uint64_t order = 0;  // of joining
    bool welcome = false;
    bool ready = false;
    bool done = false;
    bool departed = false;
    std::int32_t rank = -1;           // in the current round
    std::int32_t previous_rank = -1;  // in the one before
    bool installed = false;           // the current round
    RoundId owes_ready{};             // the round whose workers it still has
    std::uint16_t master_port = 0;
    std::int64_t answered = 0;  // newest stamp of ours that came back
    Time heard{};
    std::list<NodeId>::iterator age{};
  };
  struct HashId {
    std::size_t operator()(const NodeId& id) const;
  };
  struct Losses {
    std::vector<Time> times;
    Time set_aside_until{};
  };

  // coordinator_entry.cpp: who comes in
  static std::string name_of(const Hello& hello);
  void greet(LinkId link, const Hello& hello);
  bool acceptable(LinkId link, const Hello& hello);
  void receive_visit(LinkId link, const Hello& hello);
  bool make_place(LinkId link, const Hello& hello);
  void welcome(Peer& peer);

  // coordinator.cpp: who is here
  void hear(Peer& peer, const Hello&) { close_and_lose(peer, "said hello twice"); }
  void hear(Peer& peer, const Ready& message);
  void hear(Peer& peer, const FailureReport& message);
  void hear(Peer& peer, const Done& message);
  void hear(Peer& peer, const StopAsk& message);
  void hear(Peer& peer, const StopReady& message);
  void hear(Peer& peer, const Stopped& message);
  void hear(Peer& peer, const Leave& message);
  void hear(Peer& peer, const Ping& message);
  std::chrono::nanoseconds grant() const;
  void answer(const Peer& peer, std::int64_t stamp);
  void answer_again();
  void hear(Peer&, const Vote&) {}  // of the election that it has won already
  void hear(Peer& peer, const StoreAsk& message);
  void close_and_lose(Peer& peer, const std::string& why);
  void lose(Peer& peer, const std::string& why);
  void note_loss(const NodeId& id);
  void tick();
  void drop_silent();
  void set_ready(Peer& peer, bool ready);

  // coordinator_round.cpp: rounds; coordinator_end.cpp: how they and the job end
  void consider();
  void form();
  void release(const std::vector<Peer*>& by_rank, const struct Placement& placement);
  Release release_for(const Peer& peer) const;
  void note_installed(Peer& peer);
  void check_committed();
  void forget_previous();
  void keep_roster(const std::vector<Peer*>& by_rank);
  enum class Others { kStop, kHold };  // what becomes of workers that could go on
  void end_round(OverReason reason, const std::string& why, Others others);
  void check_ended();
  void judge();
  void gather(milliseconds call);
  void begin_saving(std::int32_t signal);
  void check_saving();
  void check_done();
  void finish(int exit_code, const std::string& why);
  std::int64_t spares_ready() const { return ready_; }  // while a round runs: its own nodes are not

  // coordinator_lease.cpp: authority
  Time authority_end() const;
  Time authority_under(bool current) const;
  void check_authority();

  bool here(const Peer& peer) const { return peer.link.has_value() && peer.welcome; }
  Peer* peer_of(LinkId link);
  void send(const Peer& peer, FromCoordinator message);
  void say(Notice::Kind kind, std::string text, std::int64_t count = 0, std::int64_t of = 0);
  void close(LinkId link);
  template <class Action>
  void act(Action action) {
    actions_.emplace_back(std::move(action));
  }

  CoordinatorSettings settings_;
  Now now_;
  std::vector<CoordinatorAction> actions_;
  Phase phase_ = Phase::kGathering;

  std::uint64_t term_ = 1;
  bool elected_ = false;
  std::int64_t last_round_ = -1;
  Config current_;   // rank: this node's
  Config previous_;  // exists until current_ is committed
  bool committed_ = true;
  std::unordered_map<NodeId, std::int32_t, HashId> inherited_ranks_;  // of a round that this node released in an earlier term
  Tally installed_current_;
  Tally installed_previous_;
  Budget budget_;
  Release release_;  // what is the same for everybody

  std::unordered_map<NodeId, Peer, HashId> peers_;
  std::unordered_map<LinkId, NodeId> links_;
  std::unordered_set<LinkId> strangers_;                   // have not said hello yet
  std::deque<std::pair<Time, LinkId>> hello_due_;          // in the order of time; those that said it are skipped
  std::unordered_map<std::int32_t, NodeId> rank_holders_;  // wanted group rank
  std::list<NodeId> by_age_;                               // those with a link, longest unheard first
  std::unordered_map<NodeId, Losses, HashId> losses_;
  std::uint64_t next_order_ = 0;

  std::int64_t ready_ = 0;                         // nodes here that are
  std::unordered_set<NodeId, HashId> awaited_;     // nodes here that still have workers of an ended round
  std::int32_t seated_ = 0;                        // of the running round: here
  std::int32_t done_ = 0;                          // of the running round
  std::vector<NodeId> round_nodes_;                // of the running round, in the order of group ranks
  std::optional<FailureReport> failure_;           // the ending round's first cause
  bool members_changed_ = false;                   // while it ended
  std::string verdict_;                            // why it was restarted, for people
  std::unordered_set<NodeId, HashId> unsaved_;     // kSaving: have not ended
  std::unordered_set<NodeId, HashId> unanswered_;  // kSaving: have not said how far they are
  std::int64_t agreed_step_ = -1;
  bool step_told_ = false;
  bool all_saved_ = true;
  std::int32_t stop_signal_ = 0;
  JobOver over_;

  std::optional<Time> call_ends_;  // last call, or regroup call
  std::optional<Time> join_ends_;  // too few nodes
  std::optional<Time> absorb_at_;  // late joiners
  std::optional<Time> pause_ends_;
  std::optional<Time> linger_ends_;
  Time stays_until_{};       // it was elected just now: without authority yet, it waits for the first answers
  Time authority_begins_{};  // of the release: who can be asked for a vote as part of that round heard of it after this
  mutable Time authority_end_{};
  mutable std::optional<Time> authority_counted_;  // when authority_end_ was found
  std::map<NodeId, std::int64_t> short_answers_;   // newest pings that got too little to start workers with
};

}  // namespace ddprun::rendezvous
