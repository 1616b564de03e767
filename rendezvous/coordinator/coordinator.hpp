// The coordinator of a job: who is here, when a round starts, when it ends, and when the job is over, as a pure state machine.
// Connections, messages and the time go in; messages and facts come out. node.hpp holds one when its node leads; the node's own
// member is one of its members, over kSelfLink.
//
//     gathering -> running -> ending -> [pausing] -> gathering ...      a failure, or a change of members
//                  running -> saving -> concluding -> over              a signal
//                  running -> concluding -> over                        all done
//                  running -> [saving] -> ending -> handed over         a signal to its own node, when the others continue
//        ending -> [saving] -> concluding -> over                       no further restart
//
// It leads as long as a majority of the round's nodes answers (leadership.hpp, rules.hpp); otherwise it steps down, by when all
// workers have stopped, since it granted them no more time than it had itself.
//
// It owns the phase, the running round's progress, the cause of its end, the job's budget, and what it waits for until when.
// The rest is owned by its parts: who is here (peers.hpp, strangers.hpp, losses.hpp), of the round (round_nodes.hpp), which
// nodes are the job (membership.hpp), until when it leads (leadership.hpp), how all stop after a signal (saving.hpp), and when
// it hands over (handing_over.hpp).
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
// The arbiter of a round of two has given its vote to this node, once and for ever.
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

  // The rounds whose arbiter must be asked now (leadership.hpp).
  std::vector<Config> alone_in() const {
    const bool ends = phase_ == Phase::kOver || phase_ == Phase::kSteppedDown;
    return ends ? std::vector<Config>() : leadership_.alone_in(membership_, peers_, now_.steady);
  }

  // The reason why the next round does not start, for messages and for the simulator.
  std::string waits_for() const;
  // All its nodes are being stopped, or one of them at least.
  bool is_stopping() const {
    return !leaving_.empty() || save_next_ || phase_ == Phase::kSaving || phase_ == Phase::kConcluding;
  }
  std::uint64_t term() const { return term_; }
  RoundId round() const { return membership_.current().id; }
  std::int64_t counted() const { return leadership_.counted(); }
  // Whether the node with that address is here.
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
  void hear(Peer&, const Vote&) {}  // a vote of the election that it has already won
  void hear(Peer& peer, const StoreAsk& message);
  void hear(Peer& peer, const JobQuestion& message) { ask_nodes(peer, message, peers_, outbox_); }
  void hear(Peer& peer, const NodeAnswer& message) { pass_on(peer, message, peers_, outbox_); }
  void hear(Peer&, const Resume&) {}  // both belong to the session (rendezvous/node)
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
  std::int64_t spares_ready() const { return peers_.ready(); }  // while a round runs: nodes of the round do not count

  // ---- how a round ends ----
  enum class Others { kStop, kHold };  // what happens to workers that could continue
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

  // The parts that it owns.
  Strangers strangers_;
  Stragglers stragglers_;
  Peers peers_;
  Losses losses_;
  Membership membership_;
  Leadership leadership_;
  Founding founding_;
  Gathering gathering_;
  std::optional<Saving> saving_;  // from kSaving on
  bool goes_on_after_saving_ = false;
  std::optional<LastSave> last_save_;  // set when no round follows: waiting nodes are asked to save, one after another
  Concluding concluding_;              // from kConcluding on

  // About the running round, and how it ended.
  Budget budget_;
  Release release_;  // the part that is the same for all nodes
  RoundNodes round_nodes_;
  Leaving leaving_;
  HandingOver handing_over_;
  bool held_ = false;                     // the round ended so that workers may wait with their state
  std::optional<FailureReport> failure_;  // the first cause
  bool members_changed_ = false;          // while the round ended
  bool judged_ = false;                   // its failure is judged
  JobOver over_;

  // The signal that came while workers waited with their state: the next round begins only to save it.
  std::optional<std::int32_t> save_next_;
  Time save_next_by_{};  // when waiting for that is given up

  std::optional<Time> absorb_at_;  // when late joiners are taken in
  std::optional<Time> pause_ends_;
  Time over_at_{};
  std::optional<Time> linger_ends_;
};

}  // namespace ddprun::rendezvous
