// Decides what a node does if an earlier process on this machine took part in the same job. The code is pure (no I/O, no
// clock). Node (node.hpp) uses this class.
//
// A restarted agent may find a record of its job. If the job is still running elsewhere, the node must search for it, and must
// not lead a second copy of the job. If the job has ended, the node must give up the search at some time. This class decides
// how long a node searches, when it may lead without an election, and which record it leaves for the next process.
//
// This class owns the restored state, the time of the first contact with another node, and the decision to delete the record.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/member/action.hpp"
#include "rendezvous/node/restored_state.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// How long a node searches for the job in its record before it uses a new node id. The time counts from the first contact with
// another node.
inline constexpr milliseconds kOldJobSearch{10000};
// Number of leases within which an election ends, including the winner's Welcome. A voter may delay its vote for 1.25 leases.
inline constexpr int kElectionTakes = 2;

class PreviousJob {
 public:
  // `alone` has the meaning of NodeSettings::alone. If it is true, the node need not search for the old job.
  PreviousJob(RestoredState restored, bool alone, const Rules& rules);

  // Returns the earlier process whose node id this process uses; nullopt if there is none.
  const std::optional<RestoredState::Identity>& self() const { return restored_state_.self; }
  // Returns the record with which this process starts.
  Record record() const;
  // Returns true if the record of an earlier process contains a round. Returns false after this node has given up the node id
  // of that process.
  bool remembers_round() const { return remembers_; }
  const std::vector<Address>& addresses() const { return restored_state_.addresses; }

  void met_node(Time now) {
    if (!met_) met_ = now;
  }
  // Call this when this node has voted or has requested votes. A candidate is connected to a majority of the round of the old
  // job, so that job may soon have a coordinator. So the node must not give up the job yet.
  void voted(Time now) { voted_ = now; }
  // Returns the time at which a node without a coordinator may give up its old node id and the recorded round. Returns nullopt
  // if it may not. Two conditions must hold: another node has been connected for kOldJobSearch, and no election can still be
  // running. The promises of the old node id then have no effect, because no node uses that id any more.
  std::optional<Time> may_give_up_at(Time now, nanoseconds lease) const;
  // Gives up the old node id. Returns the record for the new node id.
  Record give_up(const Record& record);

  // Returns a notice for users: the node is still waiting for nodes of the old job.
  NodeNotice waits_for(const Record& record, std::int64_t connected, std::int64_t needed) const;

  // Returns the condition under which a coordinator that was not elected may start its first round. The condition prevents a
  // second copy of a job that might still be running elsewhere.
  FirstRound first_round(const Record& record, const CoordinatorSettings& settings, Time now) const;
  // Returns the first term of a coordinator that was not elected. Another job of this name may have used terms that this node
  // has not recorded. So the returned term is larger than any term that the other job can have used.
  std::uint64_t first_term(const Record& record, std::uint64_t incarnation) const;

  // Call this when the process ends. Returns the record to leave for the next process; nullopt if the current record stays.
  // `leads` is true if this node is the coordinator.
  std::optional<Record> end(const node_action::Finish& over, const Record& record, bool leads);
  // Returns true if the caller must delete the record. Call this only after end().
  bool forgets() const { return forgets_; }

 private:
  RestoredState restored_state_;
  bool alone_;
  Rules rules_;
  bool remembers_;
  bool forgets_ = false;
  std::optional<Time> met_;
  std::optional<Time> voted_;
};

}  // namespace ddprun::rendezvous
