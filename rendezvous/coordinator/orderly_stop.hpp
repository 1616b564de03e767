// Decides how a job stops in an orderly way: a signal ends the job, or some nodes leave it while the others continue. A stop
// starts with the first stop request of a node. It ends when the job ends, or when the leaving nodes have left. This class
// makes the decisions, and the coordinator (coordinator.hpp) carries them out and changes its phase. The code is pure: no I/O,
// no clock.
//
//     stop requests -- after a while, or if too few nodes would stay --> save together --> finish, or end the round
//                   `--- enough nodes stay, and their workers can keep their state --> end the round, the nodes leave
//     the round is over, but its workers hold their state --> the next round starts only to save it
//     no such round can start, or no restart is possible --> one node after the other is requested to save --> finish
//
// A scheduler that stops a job signals all of its nodes, but not at the same moment (drain.hpp). So the coordinator waits a
// short time for further signals. Then the workers of all nodes save after the same step (coordinated_save.hpp). If they
// cannot save together, one node saves the state that its workers have kept (salvage_save.hpp).
//
// This class stores which nodes have requested to leave, how far a save has progressed, and whether the next round starts only
// to save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/coordinator/coordinated_save.hpp"
#include "rendezvous/coordinator/drain.hpp"
#include "rendezvous/coordinator/late_nodes.hpp"
#include "rendezvous/coordinator/leadership_transfer.hpp"
#include "rendezvous/coordinator/salvage_save.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/membership/peers.hpp"
#include "rendezvous/membership/round_progress.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/job_end.hpp"

namespace ddprun::rendezvous {

namespace stop_decision {
struct Wait {};
struct Advance {};  // The coordinator must check now whether a round can start.
struct EndRound {
  std::string why{};
  bool hold = false;  // if true, workers whose state is valid keep it and wait for the next round
};
struct Save {};  // The workers save now. The coordinator waits for StopReady and Stopped of their nodes.
struct Finish {  // the job ends
  JobEnd end{};
};
}  // namespace stop_decision
using StopDecision = std::variant<stop_decision::Wait, stop_decision::Advance, stop_decision::EndRound, stop_decision::Save,
                                  stop_decision::Finish>;

class OrderlyStop {
 public:
  // The state of the current round. An orderly stop proceeds differently in each of these states.
  enum class Round {
    kNone,     // no round of this job has started yet
    kRunning,  // the workers of the round are running
    kHeld,     // the round has ended, and its workers keep their state and wait
    kStopped,  // the round has ended, and its workers have exited
    kFailed,   // the round has failed, and its workers have exited
    kSaving,   // the workers of the round are saving
    kJobEnds,  // the job is about to end, or has ended
  };

  OrderlyStop(const CoordinatorSettings& settings, const Membership& membership, const RoundProgress& round_progress,
              const LeadershipTransfer& leadership_transfer, Peers& peers, LateNodes& late_nodes, Outbox& outbox);

  // ---- events ----
  StopDecision requested(Peer& peer, const StopRequest& message, Round round, Time now);
  // Both receive() functions may be called only while workers are saving.
  StopDecision receive(const Peer& peer, const StopReady& message, Time now);
  StopDecision receive(Peer& peer, const Stopped& message, Time now);
  void lost(const Peer& peer);
  // Call this when all workers of the node have finished. The node then stays until the job ends.
  void done(const Peer& peer);
  StopDecision round_started(Time now);
  // Call this if held workers have kept their state and the job ends without another round. One node then saves that state. If
  // no node can save, the job ends with the verdict `otherwise`.
  StopDecision salvage(const Verdict& otherwise) { return salvage(otherwise, peers_.round_members()); }

  // ---- checks after an event or at a deadline ----
  StopDecision check_leaving(Round round, Time now);
  StopDecision check_saving(Time now);  // Call this only while workers are saving.
  bool is_overdue(Time now) const { return save_next_ && save_next_->by <= now; }
  // Call this if the round that should start only to save has not started before its deadline.
  StopDecision give_up(const std::string& why) { return finish_unsaved(save_next_->signal, why); }
  // Call this if too few nodes are ready for the round that should start only to save.
  StopDecision save_without_round();

  // ---- state ----
  bool is_pending() const { return !drain_.empty() || save_next_; }
  // Returns true if no round may start, because nodes have requested to leave and the state of their workers may still be
  // saved.
  bool holds_back_rounds() const { return !drain_.empty() && !save_next_; }
  bool saves_next() const { return save_next_.has_value(); }
  std::size_t waits_for() const { return save_->waits_for(); }
  std::optional<Time> leaving_deadline() const { return drain_.deadline(); }
  std::optional<Time> save_deadline() const { return save_next_ ? std::optional(save_next_->by) : std::nullopt; }

 private:
  // Set if a stop signal arrived while workers were held (they keep their state for the next round). In this case the next
  // round starts only to save that state.
  struct SaveNext {
    std::int32_t signal = 0;
    Time by{};
  };

  bool enough_stay() const;
  bool self_stays() const;
  StopDecision check_leaving_between_rounds(Round round, Time now);
  StopDecision stop_between_rounds(std::int32_t signal, Round round, Time now);
  StopDecision finish_unsaved(std::int32_t signal, const std::string& why);
  StopDecision end_round(Round round, bool hold, Time now);
  void allow_all_to_leave(Round round, Time now);
  void allow_to_leave(Peer& peer, Round round, Time now);
  StopDecision save(std::int32_t signal, bool continues, Time now);
  StopDecision salvage(const Verdict& otherwise, const std::vector<Peer*>& nodes);
  StopDecision salvage_after_stop(std::int32_t signal, const std::string& why, const std::vector<Peer*>& nodes);
  StopDecision salvage_by_next_node();

  const CoordinatorSettings& settings_;
  const Membership& membership_;
  const RoundProgress& round_progress_;
  const LeadershipTransfer& leadership_transfer_;
  Peers& peers_;
  LateNodes& late_nodes_;
  Outbox& outbox_;

  Drain drain_;
  std::optional<SaveNext> save_next_;
  std::optional<CoordinatedSave> save_;
  bool continues_after_saving_ = false;
  // set while the coordinator orders one node after the other to save; contains the nodes that have not received the order yet
  std::optional<SalvageSave> salvage_save_;
};

}  // namespace ddprun::rendezvous
