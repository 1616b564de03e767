// The consequences of earlier processes of the job on this machine: how long the node looks for the job in its record, whether
// it may lead without an election, and what the next process here must know. node.hpp owns one and calls it. Pure.
//
// This class owns the memory, the time when the first other node was met, and whether the memory is removed at the end.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/member/action.hpp"
#include "rendezvous/node/memory.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// How long a cut-off node looks for the job in its record before it gives up its identity. The time counts from the first
// contact with another node.
inline constexpr milliseconds kLookForOldJob{10000};
// An election, with its welcome, ends within this many leases. A vote may have to wait for one and a quarter of them.
inline constexpr int kElectionTakes = 2;

class Past {
 public:
  // `alone`: the user says that no earlier start of this job runs elsewhere.
  Past(Memory memory, bool alone, const Rules& rules);

  // The process that this one continues; nullopt if there is none.
  const std::optional<Memory::Self>& self() const { return memory_.self; }
  // The first record of this process.
  Record record() const;
  // True until the node gives up the round in its record.
  bool remembers_round() const { return remembers_; }
  const std::vector<Address>& places() const { return memory_.places; }

  void met_somebody(Time now) {
    if (!met_) met_ = now;
  }
  // This node has voted, or has requested votes. A candidate is connected to a majority of the round, so the job may be led
  // again when the last vote arrives.
  void voted(Time now) { voted_ = now; }
  // For a node with a round in its record that finds no coordinator. Other nodes of that round may search too. This node gives
  // up its identity after another node has been connected for a while and no election is under way. Its promises go with the
  // identity, so no node is bound any more.
  std::optional<Time> may_give_up_at(Time now, nanoseconds lease) const;
  // Returns the record under the new identity.
  Record give_up(const Record& record);

  // A message for the time before the identity is given up.
  NodeNotice waits_for(const Record& record, std::int64_t here, std::int64_t needed) const;

  // The time at which an unelected coordinator may release its first round. The wait keeps it from leading while the job may
  // still run elsewhere.
  FirstRound first_round(const Record& record, const CoordinatorSettings& settings, Time now) const;
  // The first term of such a coordinator. Another job of this name may have used terms that this node does not know. None of
  // them may be used again.
  std::uint64_t first_term(const Record& record, std::uint64_t incarnation) const;

  // The process ends. Returns the record that the next process must find instead of the current one, if any. `leads`: this node
  // coordinates.
  std::optional<Record> end(const member_action::JobOver& over, const Record& record, bool leads);
  // True if the caller must delete the record of the old job. Valid after end().
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
