// Decides which messages and orders of a node must wait until its record is on disk (in Raft: persist before you respond). A
// write takes as long as the disk takes. Meanwhile leases are kept and workers are served. But the node sends nothing that a
// restarted process could contradict because it does not remember it: no vote, promise, knowledge of a round, or release. The
// shell (or the simulator) passes all actions of node.hpp through this class, and reports each written record. Pure.
//
//     Vote, Hello                  wait for all records before them
//     Ping                         is sent immediately, with the round and the promise of the written record
//     a coordinator's messages     wait until the promise of its own term is written; Release also waits for its roster
//     Pong                         otherwise sent immediately; it reports no round as committed whose record is not written yet
//     HandOver                     waits for all records before it, and Finish for it: after a later start, this node does not
//                                  have the vote that it gives away
//     StartWorkers                 waits for all records before it: the restarts that a round has cost must not be forgotten
//     other orders to the workers  are passed on immediately; a stop order removes a start that still waits
//     Resume, Resumed, Received    are sent immediately: their counts are not in the record
//     Entrust                      is passed on immediately: a dead node does not vote, whatever its record says
//     Forget                       comes at the end, behind all records: the writer keeps their order
//     everything else              stays behind the messages that wait on the same link, since a session counts them
//                                  (session.hpp); closing a link drops a greeting that waits on it
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous {

class RecordGate {
 public:
  // `written` is the record of an earlier start.
  explicit RecordGate(const Rules& rules = {}, Record written = {})
      : waits_(rules.words_wait_for_records), written_(std::move(written)) {}

  // Takes all actions of one event. Returns those that may be carried out now, in order. If they include a Remember (at most
  // one, as the first), write that record after the earlier ones, and then call written(). So the changes of one event are
  // recorded together or not at all.
  std::vector<NodeAction> pass(std::vector<NodeAction> actions);

  // The oldest unwritten record has been written. If `ok` is false, it cannot be written, and nothing is recorded: a vote that
  // waited for it is dropped. Returns the actions that may be carried out now.
  std::vector<NodeAction> written(bool ok);

  // True if workers had to be stopped before they were started: the caller then reports to the node that they have ended.
  // Returns true once.
  bool take_unstarted() { return std::exchange(unstarted_, false); }
  bool promise_is_written() const;

 private:
  struct Held {
    NodeAction action;
    LinkId link = 0;
    std::uint64_t record = 0;  // the number of the record
  };
  bool passes(NodeAction& action);
  bool concerns_held_start(NodeAction& action);
  bool must_wait(node_action::ToListener& action) const;
  bool must_wait(node_action::ToDialler& action) const;
  bool somebody_waits_on(LinkId link) const;
  bool hands_over() const;

  bool waits_;
  bool unstarted_ = false;      // not yet reported to the node
  bool never_started_ = false;  // the workers that were stopped last
  Record written_;
  std::deque<Record> on_the_way_;
  std::uint64_t newest_ = 0;  // the number of the newest record
  std::vector<Held> held_;
};

}  // namespace ddprun::rendezvous
