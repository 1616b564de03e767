// Decides which messages and other actions of a node must wait until its record is on disk (in Raft: persist before you
// respond). The code is pure: no I/O, no clock.
//
// The problem. Suppose a node votes, and its agent is restarted before the vote is on disk. The new process could vote for
// another candidate in the same term, and two coordinators could win. But a write may take seconds on a slow disk, and
// meanwhile the node must keep its lease and serve its workers. So a message waits only if it depends on an unwritten record: a
// vote, a promise, a report of a recorded round, or a release. The shell (or the simulator) passes all actions of a node
// through this class, and reports each written record. The rules for each action:
//
//     Vote, Hello                  Waits for all earlier records.
//     Ping                         Sent immediately. It reports the round and the promise of the newest written record.
//     a coordinator's messages     Wait until this node's promise of the coordinator's term is written.
//       Release                      Also waits for the record with the roster.
//       Pong                         Then sent immediately. It reports a round as committed only if the round is recorded here.
//       TransferLeadership           Also waits for all earlier records, and a Finish waits for it. So a later process of this
//                                    node does not use the vote that this message transfers to another node.
//     StartWorkers                 Waits for all earlier records. So an agent that starts again still counts this restart of
//                                  the job.
//     other worker actions         Executed immediately. A stop removes a StartWorkers that is still waiting.
//     Resume, Resumed, Received    Sent immediately, because the counts of sessions are not in the record.
//     SetDeathNotice               Executed immediately, because a dead node does not vote, even if its record contains no
//                                  vote.
//     Forget                       Passed on immediately. The caller executes it after all earlier writes of records.
//     other messages               Stay behind the waiting messages of the same link, because a session needs their order
//                                  (session.hpp). Closing a link drops a Hello or Vote that waits for that link.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous {

class RecordGate {
 public:
  // `written` is the record that is on disk at the start.
  explicit RecordGate(const Rules& rules = {}, Record written = {})
      : waits_(rules.messages_wait_for_records), written_(std::move(written)) {}

  // Takes all actions of one event, and returns the actions to carry out now, in order. If the first action is Remember, the
  // caller must write that record after all earlier records, and then call written(). There is at most one Remember for each
  // event, so the changes of one event are recorded together or not at all.
  std::vector<NodeAction> pass(std::vector<NodeAction> actions);

  // Call this when the oldest unwritten record is on disk. If `ok` is false, the write has failed, and a vote that waited for
  // this record is dropped. Returns the actions to carry out now.
  std::vector<NodeAction> written(bool ok);

  // Returns true if a stop has removed a StartWorkers action that was held back. These workers were never started, so the
  // caller must report to the node that they have ended. Returns true only once for each removed action.
  bool take_unstarted() { return std::exchange(unstarted_, false); }
  bool promise_is_written() const;

 private:
  struct Held {
    NodeAction action;
    LinkId link = 0;
    std::uint64_t record = 0;  // number of the record that must be written before the action is carried out
  };
  bool passes(NodeAction& action);
  bool concerns_held_start(NodeAction& action);
  bool must_wait(node_action::ToListener& action) const;
  bool must_wait(node_action::ToDialler& action) const;
  bool has_held_on(LinkId link) const;
  bool has_held_transfer() const;

  bool waits_;
  bool unstarted_ = false;      // true until take_unstarted() is called for a removed StartWorkers
  bool never_started_ = false;  // true if the workers of the last stop were never started
  Record written_;
  std::deque<Record> in_flight_;
  std::uint64_t newest_ = 0;  // number of the newest record; records are numbered from 1
  std::vector<Held> held_;
};

}  // namespace ddprun::rendezvous
