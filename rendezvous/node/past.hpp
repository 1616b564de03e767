// What follows from earlier processes of the job on this machine: how long the node looks for the job that it remembers,
// whether it may lead without an election, and what the next process here must know. node.hpp owns one and asks it. Pure.
//
// This class owns the memory, the time at which the first other node was met, and whether the memory is removed at the end.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/member/action.hpp"
#include "rendezvous/node/memory.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// How long a cut-off node looks for the job that it remembers, counted from the first other node that is there, before it gives
// up its identity.
inline constexpr milliseconds kLookForOldJob{10000};
// An election is over after so many leases, its welcome included: a vote may have to wait for one and a quarter.
inline constexpr int kElectionTakes = 2;

class Past {
 public:
  // `alone`: the user says that no earlier start of this job runs elsewhere.
  Past(Memory memory, bool alone, const Rules& rules);

  // The process that this one continues; nothing: none.
  const std::optional<Memory::Self>& self() const { return memory_.self; }
  // The first record of this process.
  Record record() const;
  // True until it gives the round up.
  bool remembers_round() const { return remembers_; }
  const std::vector<Address>& places() const { return memory_.places; }

  void met_somebody(Time now) {
    if (!met_) met_ = now;
  }
  // This node has given its vote, or asked for others'. A candidate has a majority of the round at hand, so the job may be led
  // again when the last vote comes.
  void voted(Time now) { voted_ = now; }
  // For a node that remembers a round and finds no coordinator. Other nodes of that round may look too. When another node has
  // been there for a while, and no election is under way, this node gives up its identity. Its promises go with the identity,
  // so no node is bound any more.
  std::optional<Time> may_give_up_at(Time now, nanoseconds lease) const;
  // Returns the record under the new identity.
  Record give_up(const Record& record);

  // A message for the time before that.
  NodeNotice waits_for(const Record& record, std::int64_t here, std::int64_t needed) const;

  // When an unelected coordinator may release its first round: nobody leads unelected over a job that may be running.
  FirstRound first_round(const Record& record, const CoordinatorSettings& settings, Time now) const;
  // The first term of such a coordinator. Another job of this name may have used terms that this node does not know: it must
  // take none of them again.
  std::uint64_t first_term(const Record& record, std::uint64_t incarnation) const;

  // The process ends. Returns the record that the next process must find instead of the present one, if any. `leads`: it
  // coordinates.
  std::optional<Record> end(const member_action::JobOver& over, const Record& record, bool leads);
  // Whether nothing is to be remembered; valid after end().
  bool forgets() const { return forgets_; }

 private:
  Memory memory_;
  bool alone_;
  Rules rules_;
  bool remembers_;
  bool forgets_ = false;
  std::optional<Time> met_;
  std::optional<Time> voted_;
};

}  // namespace ddprun::rendezvous
