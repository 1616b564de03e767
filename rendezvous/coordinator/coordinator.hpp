// The coordinator of a job (a leader in Raft). It decides who takes part in a round, when a round starts and ends, and when the
// job is over. It is a pure state machine: connections, messages and the time go in, messages and facts come out. node.hpp owns
// one while its node leads. The node's own member is one of its members, over kSelfLink.
//
//     gathering -> running -> ending -> [pausing] -> gathering ...      a failure, or a change of members
//                  running -> saving -> concluding -> over              a signal
//                  running -> concluding -> over                        all done
//                  running -> [saving] -> ending -> handed over         a signal to its own node, when the others continue
//        ending -> [saving] -> concluding -> over                       no further restart
//
// The problem. Each node sees a failure differently. A worker on node b crashes. A moment later the workers of a and c fail,
// since their peer is gone. Nodes that decide alone could count three restarts for one crash, and disagree about ranks. So one
// node decides for all. But that node can die, freeze or be cut off between any two messages.
//
// The idea. A round ends at the first report. The failure is judged when all workers of the round are gone or held. Suppose the
// report of a arrives first. The coordinator sends RoundOver to all nodes, so that no worker waits for a dead peer. Then the
// report of b arrives and replaces that of a as the cause: "my peer is gone" is a consequence. Among other failures the
// earliest is the cause. When the last node is Ready, the policy judges the crash on b: one restart for the whole job. If a
// node was lost meanwhile, no restart is counted, since a lost node makes workers fail.
//
// Its state must not die with it. Each release carries the restart counts, and each Hello carries the rounds that a node knows.
// So a successor continues from the Hellos of its electors. The coordinator leads as long as a majority of the round's nodes
// answers, and steps down otherwise (leadership.hpp, rules.hpp). It never grants workers more time than it has itself, so the
// grants end before another node can lead. on() checks the authority before each event. A process that was frozen may wake with
// an expired lease and a full queue. It must not answer any of it.
//
// What was tried. Four waits look superfluous. Without each of them the simulator found failures (docs/internals/decisions).
//   No round starts before a majority knows the last one. Otherwise a coordinator needed three majorities, and jobs got stuck.
//   A node is ready only after it has answered its Welcome. A Hello may arrive seconds after its machine has lost power.
//   After a stop signal, stop_call must pass for signals to other nodes. Otherwise the first node left alone, and jobs ended
//   unsaved: a scheduler signals all nodes of a job, but not at the same moment.
//   A majority knows the job's end before it is final (concluding.hpp). Otherwise a successor ran a finished job again.
// The wait for workers is bounded, since a worker that is stuck in the kernel never ends (stragglers.hpp).
//
// The cost. All decisions pass through one node. If it is lost without a handover or a farewell, the job has no coordinator for
// at least 1.25 leases.
//
// The class owns the phase, the state and end of the running round, the job's budget, and the deadlines. Its parts own the
// rest: connected nodes (peers.hpp, strangers.hpp, losses.hpp), nodes of the round (round_nodes.hpp), nodes whose majority
// counts (membership.hpp), the lease (leadership.hpp), the save after a signal (saving.hpp), and the handover
// (handing_over.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/coordinator/concluding.hpp"
#include "rendezvous/coordinator/founding.hpp"
#include "rendezvous/coordinator/gathering.hpp"
#include "rendezvous/coordinator/handing_over.hpp"
#include "rendezvous/coordinator/last_save.hpp"
#include "rendezvous/coordinator/leadership.hpp"
#include "rendezvous/coordinator/leaving.hpp"
#include "rendezvous/coordinator/questions.hpp"
#include "rendezvous/coordinator/saving.hpp"
#include "rendezvous/coordinator/stragglers.hpp"
#include "rendezvous/presence/losses.hpp"
#include "rendezvous/presence/membership.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/presence/round_nodes.hpp"
#include "rendezvous/presence/strangers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

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
// The arbiter of a round of two has voted for this node. That vote is final.
struct ArbiterVotes {
  RoundId origin{};
};
}  // namespace coordinator_event
using CoordinatorEvent = std::variant<coordinator_event::Opened, coordinator_event::Closed, coordinator_event::Heard,
                                      coordinator_event::Tick, coordinator_event::ArbiterVotes>;

class Coordinator {
 public:
  Coordinator(CoordinatorSettings settings, const Authority& authority, Now now);

  // Handles one event. Carry out the actions in order.
  std::vector<CoordinatorAction> on(const CoordinatorEvent& event, Now now);
  // When the next Tick is due.
  std::optional<Time> next_deadline() const;

  // Rounds whose arbiter must be queried now (leadership.hpp).
  std::vector<Config> alone_in() const {
    const bool ends = phase_ == Phase::kOver || phase_ == Phase::kSteppedDown;
    return ends ? std::vector<Config>() : leadership_.alone_in(membership_, peers_, now_.steady);
  }

  // The reason why the next round does not start, for messages and for the simulator.
  std::string waits_for() const;
  // True while nodes want to leave after a stop signal, while workers save, or while the job is about to end.
  bool is_stopping() const {
    return !leaving_.empty() || save_next_ || phase_ == Phase::kSaving || phase_ == Phase::kConcluding;
  }
  std::uint64_t term() const { return term_; }
  RoundId round() const { return membership_.current().id; }
  std::int64_t counted() const { return leadership_.counted(); }
  // True if a node that listens at that address is connected.
  bool knows(const Address& address) const { return peers_.knows(address); }

 private:
  enum class Phase { kGathering, kRunning, kEnding, kPausing, kSaving, kConcluding, kOver, kSteppedDown };

  // ---- events ----
  void handle(const coordinator_event::Opened& event) { strangers_.add(event.link, now_.steady); }
  void handle(const coordinator_event::Closed& event);
  void handle(const coordinator_event::Heard& event);
  void handle(const coordinator_event::Tick&);
  void handle(const coordinator_event::ArbiterVotes& event);
  void hear(Peer& peer, const Hello&) { close_and_lose({peer.hello.node}, "said hello twice"); }
  void hear(Peer& peer, const Ready& message);
  void hear(Peer& peer, const FailureReport& message);
  void hear(Peer& peer, const Concluded& message);
  void hear(Peer& peer, const Done& message);
  void hear(Peer& peer, const StopAsk& message);
  void hear(Peer& peer, const StopReady& message);
  void hear(Peer& peer, const Stopped& message);
  void hear(Peer& peer, const Leave& message);
  void hear(Peer& peer, const Ping& message);
  void hear(Peer&, const Vote&) {}  // late: the election is already won
  void hear(Peer& peer, const StoreAsk& message);
  void hear(Peer& peer, const JobQuestion& message) { ask_nodes(peer, message, peers_, outbox_); }
  void hear(Peer& peer, const NodeAnswer& message) { pass_on(peer, message, peers_, outbox_); }
  void hear(Peer&, const Resume&) {}  // Resume and Received belong to the session (rendezvous/node)
  void hear(Peer&, const Received&) {}

  // ---- who comes in ----
  void greet(LinkId link, const Hello& hello);
  void turn_away(LinkId link);
  void welcome(Peer& peer);
  void note_spare(const Peer& peer);

  // ---- who is lost ----
  void close_and_lose(const std::vector<NodeId>& nodes, const std::string& why);
  void lose(const std::vector<NodeId>& nodes, const std::string& why);
  bool note_lost(const NodeId& id, const std::string& news);
  void drop_silent();
  void check_stragglers();

  // ---- authority ----
  void check_authority();
  void step_down(coordinator_action::StepDown why);
  bool hand_over_if_due();

  // ---- when a round starts ----
  void gather(milliseconds call);
  void consider();
  void form();
  void note_installed(Peer& peer);
  void note_committed();
  bool self_is_ready() const;
  bool inherits_round() const;
  bool all_are_ready() const;
  std::int64_t spares_ready() const { return peers_.ready(); }  // valid while a round runs: its own nodes are not ready

  // ---- how a round ends ----
  enum class Others { kStop, kHold };  // for workers that are able to continue
  void end_round(OverReason reason, const std::string& why, Others others);
  void check_ended();
  void judge();
  void give_up(const Verdict& verdict);

  // ---- how the job ends ----
  bool enough_stay() const;
  void check_leaving();
  void check_leaving_between_rounds();
  void end_round_for_leaving(Others others);
  void let_go_of_leaving();
  void let_go(Peer& peer);
  void stop_between_rounds(std::int32_t signal);
  void finish_unsaved(std::int32_t signal, const std::string& why);
  void begin_saving(std::int32_t signal, bool goes_on = false);
  void save_what_is_held();
  void save_what_is_held(const rendezvous::Verdict& otherwise, const std::vector<Peer*>& nodes);
  void save_after_stop(std::int32_t signal, const std::string& why, const std::vector<Peer*>& nodes);
  void check_saving();
  void note_done(Peer& peer, const RoundId& round);
  void check_done();
  void finish(int exit_code, const std::string& why);
  void conclude(Peer& peer);
  void check_concluded();
  void say_over();

  void close(LinkId link);
  template <class Action>
  void act(Action action) {
    outbox_.act(std::move(action));
  }

  CoordinatorSettings settings_;
  Now now_;
  Outbox outbox_;
  Phase phase_ = Phase::kGathering;
  std::uint64_t term_ = 1;
  bool elected_ = false;

  // ---- parts ----
  Strangers strangers_;
  Stragglers stragglers_;
  Peers peers_;
  Losses losses_;
  Membership membership_;
  Leadership leadership_;
  Founding founding_;
  Gathering gathering_;
  std::optional<Saving> saving_;  // set from kSaving on
  bool goes_on_after_saving_ = false;
  std::optional<LastSave> last_save_;  // set if no round follows: one node after another is asked to save
  Concluding concluding_;              // used from kConcluding on

  // ---- the running round, and how it ended ----
  Budget budget_;
  Release release_;  // the part that is equal for all nodes
  RoundNodes round_nodes_;
  Leaving leaving_;
  HandingOver handing_over_;
  bool held_ = false;                     // workers were allowed to keep their state and wait
  std::optional<FailureReport> failure_;  // the earliest cause
  bool members_changed_ = false;          // a node was lost while the round ended, so the failure costs no restart
  bool judged_ = false;                   // the failure is counted in the budget
  JobOver over_;

  // Set if a signal came while workers waited with their state: the next round starts only to save that state.
  std::optional<std::int32_t> save_next_;
  Time save_next_by_{};  // deadline for the start of that round

  std::optional<Time> absorb_at_;  // when the round ends to admit nodes that joined late
  std::optional<Time> pause_ends_;
  Time over_at_{};
  std::optional<Time> linger_ends_;
};

}  // namespace ddprun::rendezvous
