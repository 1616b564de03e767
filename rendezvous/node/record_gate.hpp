// What of a node's words must wait until its record is on disk. A record takes as long as the disk takes; meanwhile leases are
// kept and workers are looked after, but nothing is said that a later start of this node, which would not remember it, could
// contradict: no vote, no promise, no knowledge of a round, no release. node.hpp says what is to be done, the shell (and the
// simulator) passes all of it through this and says when a record has been written. Pure.
//
//     Vote, Hello                  wait for all records before them
//     Ping                         goes at once, with the installed round and the promise of what is written
//     a coordinator's words        wait while the promise of its own term is not written; Release waits for its roster too
//     Pong                         goes at once otherwise, and names no round committed whose record is still on the way
//     HandOver                     waits for all records before it, and Finish for it: a later start of this node must not have
//                                  the vote that is given away
//     StartWorkers                 waits for all records before it: what a round has cost must not be forgotten
//     other orders to the workers  go at once; one that was not carried out yet is forgotten when it is to stop
//     Resume, Resumed, Received    go at once: what they count is not remembered
//     Entrust                      goes at once: who is dead votes no more, whatever it wrote
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
  // `written`: of an earlier start.
  explicit RecordGate(const Rules& rules = {}, Record written = {})
      : waits_(rules.words_wait_for_records), written_(std::move(written)) {}

  // What may be done now, in order, of all that one event has brought. A Remember in it, at most one and the first, is to be
  // written after those before, and followed by a call of written(): of what one event changes, all is remembered or nothing.
  std::vector<NodeAction> pass(std::vector<NodeAction> actions);

  // The oldest record that was not written yet is, or cannot be (`ok`: false) and nothing is remembered: a vote that waited for
  // it is not cast. What may be done now.
  std::vector<NodeAction> written(bool ok);

  // Whether workers that were to be stopped had not been started yet: the caller tells the node that they have ended. Once.
  bool take_unstarted() { return std::exchange(unstarted_, false); }
  bool promise_is_written() const;

 private:
  struct Held {
    NodeAction action;
    LinkId link = 0;
    std::uint64_t record = 0;  // by number
  };
  bool passes(NodeAction& action);
  bool concerns_held_start(NodeAction& action);
  bool must_wait(node_action::ToListener& action) const;
  bool must_wait(node_action::ToDialler& action) const;
  bool somebody_waits_on(LinkId link) const;
  bool hands_over() const;

  bool waits_;
  bool unstarted_ = false;      // and nobody was told yet
  bool never_started_ = false;  // those that were to be stopped last
  Record written_;
  std::deque<Record> on_the_way_;
  std::uint64_t newest_ = 0;  // number of the newest record
  std::vector<Held> held_;
};

}  // namespace ddprun::rendezvous
