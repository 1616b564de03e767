// What a node makes of earlier processes of its job here: how long it looks for the job that it remembers, whether it may lead
// without an election, and what the next process here is to know. node.hpp owns one and asks it. Pure.
//
// It owns the memory, the time at which the first other node was met, and whether all of it is forgotten at the end.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/member/action.hpp"
#include "rendezvous/node/memory.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// How long a node that was cut off looks for the job that it remembers, once somebody is there, before it gives up who it was.
inline constexpr milliseconds kLookForOldJob{10000};

class Past {
 public:
  // `alone`: the user's word that no earlier start of this job runs elsewhere.
  Past(Memory memory, bool alone, const Rules& rules);

  // Whom this process continues; nothing: nobody.
  const std::optional<Memory::Self>& self() const { return memory_.self; }
  // The first record of this process.
  Record record() const;
  // A round, until it gives it up.
  bool remembers_round() const { return remembers_; }
  const std::vector<Address>& places() const { return memory_.places; }

  void met_somebody(Time now) {
    if (!met_) met_ = now;
  }
  // For a node that remembers a round and finds nobody who leads. The others of it may look too; once somebody was there for a
  // while, it gives up who it was. Its promises go with its identity, so they bind nobody any more.
  std::optional<Time> may_give_up_at(Time now) const;
  // Returns the record of who it is then.
  Record give_up(const Record& record);

  // For people, while it does not.
  NodeNotice waits_for(const Record& record, std::int64_t here, std::int64_t needed) const;

  // When a coordinator that nobody elected may release its first round: nobody leads unelected over a job that may be running.
  FirstRound first_round(const Record& record, const CoordinatorSettings& settings, Time now) const;
  // The term of such a coordinator. Of another job of this name terms are known that this node does not know: none of them is
  // taken twice.
  std::uint64_t first_term(const Record& record, std::uint64_t incarnation) const;

  // The process ends. Returns what the next one is to find in place of what there is, if anything. `leads`: it coordinates.
  std::optional<Record> end(const member_action::JobOver& over, const Record& record, bool leads);
  // Whether nothing is to be remembered, after end().
  bool forgets() const { return forgets_; }

 private:
  Memory memory_;
  bool alone_;
  Rules rules_;
  bool remembers_;
  bool forgets_ = false;
  std::optional<Time> met_;
};

}  // namespace ddprun::rendezvous
