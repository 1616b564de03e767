// Voters that are not connected to this node during an election. Their votes can only be for this node, so the election counts
// them immediately. There are three kinds:
// - The dead coordinator of a two-node round, if its guardian process has sent a death notice to this node.
// - A coordinator that has left and transferred the leadership to this node.
// - The arbiter of a two-node round that has voted for this node (arbitration.hpp).
//
// The code is pure: no I/O, no clock. node.cpp uses it.
#pragma once

#include <optional>

#include "rendezvous/member/member.hpp"
#include "rendezvous/node/arbitration.hpp"
#include "rendezvous/node/leader_election.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// The artificial link number of a departed coordinator in the election. No connection has this number.
inline constexpr LinkId kDeadVoterLink = kDialled | kAnnounce;
// The artificial link number of an arbiter in the election. No connection has this number.
inline constexpr LinkId kArbiterVoterLink = kDialled | kAnnounce | kResume;
inline constexpr bool is_connection(LinkId link) {
  return link != kDeadVoterLink && link != kArbiterVoterLink;
}

// A coordinator that died in a two-node round, in which it had group rank 0. No process will use its node id again, so its
// vote in that round belongs to the other node permanently. The vote counts even if the other node has led the round in the
// meantime, and has stepped down again.
struct DeadCoordinator {
  NodeId node{};
  RoundId origin{};  // identifies the round (Config::origin())
};

// Returns a Hello on behalf of the dead coordinator, for the election on the surviving node. `survivor` is the record of that
// node. Returns nullopt if the coordinator died in neither of the two rounds of that record.
std::optional<Hello> hello_of_dead(const DeadCoordinator& coordinator, const Record& survivor);

// Returns a Hello on behalf of a coordinator that has transferred its leadership to this node. `survivor` is the record of this
// node, which may have started another round since the transfer. In that round the departed node counts as if it had installed
// the round (Membership::install). So the Hello contains that round.
Hello hello_of_departed(const TransferLeadership& message, const Record& survivor);

// Records whether the coordinator is dead. Also adds voters to an election although they are not connected to this node.
class DepartedVoters {
 public:
  // Call this when the coordinator has died. Returns false if this death was already recorded.
  bool note_dead(const DeadCoordinator& coordinator);
  // Adds to the election the voters that are not connected to this node, or removes them. Call this before each attempt to
  // start an election, because the member's rounds may have changed.
  void update(LeaderElection& election, const Member& member, const Arbitration& arbitration) const;
  // Casts the votes of the voters that are not connected to this node, right after an election has started.
  static void vote(LeaderElection& election);
  // Returns the departed coordinator if the election counts its vote; nullopt if not.
  static std::optional<Authority::Departed> departed(const LeaderElection& election);

 private:
  std::optional<DeadCoordinator> dead_;
};

}  // namespace ddprun::rendezvous
