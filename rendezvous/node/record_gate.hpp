// Which messages and orders of a node must wait until its record is on disk (in Raft: persist before you respond). Writing
// takes as long as the disk takes. Meanwhile leases are kept and workers are served, but the node sends nothing that a
// restarted process, which would not remember it, could contradict: no vote, promise, knowledge of a round, or release. The
// shell (or the simulator) passes all actions of node.hpp through this class, and reports when a record has been written. Pure.
//
//     Vote, Hello                  wait for all records before them
//     Ping                         goes at once, with the installed round and the promise of what is written
//     a coordinator's messages     wait while the promise of its own term is not written; Release waits for its roster too
//     Pong                         goes at once otherwise, and names no round committed whose record is not written yet
//     HandOver                     waits for all records before it, and Finish for it: a later start of this node must not have
//                                  the vote that is given away
//     StartWorkers                 waits for all records before it: what a round has cost must not be forgotten
//     other orders to the workers  go at once; one that was not carried out yet is forgotten when it is to stop
//     Resume, Resumed, Received    go at once: what they count is not remembered
//     Entrust                      goes at once: a dead node votes no more, whatever it wrote
//     Forget                       comes with the end, behind all records: the writer keeps their order
//     all else                     stays behind what waits on the same link, since a session counts it (session.hpp); a
//                                  greeting that waits on a link that is closed goes
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

  // What may be done now, in order, of all actions of one event. If they include a Remember (at most one, as the first), write
  // that record after the earlier ones, and call written() then: the changes of one event are recorded together or not at all.
  std::vector<NodeAction> pass(std::vector<NodeAction> actions);

  // The oldest unwritten record is written. Or it cannot be (`ok` is false), and nothing is recorded: a vote that waited for it
  // is not cast. Returns what may be done now.
  std::vector<NodeAction> written(bool ok);

  // Whether workers that had to be stopped were not started yet: the caller tells the node that they have ended. Returns true
  // once.
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
  bool unstarted_ = false;      // the node was not told yet
  bool never_started_ = false;  // those that had to be stopped last
  Record written_;
  std::deque<Record> on_the_way_;
  std::uint64_t newest_ = 0;  // the number of the newest record
  std::vector<Held> held_;
};

}  // namespace ddprun::rendezvous
