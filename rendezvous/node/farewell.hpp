// The part of a coordinator that is gone in the succession: an elector who votes for this node and nobody else. One that is
// dead, of a round of two, whose guardian has said farewell to the other node; or one that has left, and handed over to this
// node. node.cpp adds it to the electors. Pure.
#pragma once

#include <cstdint>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// Its place among the links of electors.
inline constexpr LinkId kOfTheDead = kDialled | kAnnounce;
// That of an arbiter, which has no connection either (arbitration.hpp).
inline constexpr LinkId kOfTheArbiter = kDialled | kAnnounce | kResume;
inline constexpr bool is_connection(LinkId link) {
  return link != kOfTheDead && link != kOfTheArbiter;
}

// What it would say. `survivor`: the record of the other node; the dead one coordinated its round, with group rank 0.
inline Hello hello_of_the_dead(const Record& survivor) {
  Hello dead;
  dead.node = survivor.coordinator.node;
  dead.incarnation = UINT64_MAX;
  dead.standing.promised_term = survivor.standing.promised_term;
  dead.standing.current = survivor.standing.current;
  dead.standing.current.rank = 0;
  dead.standing.previous = survivor.standing.previous;  // it may have died before enough of them knew of the current one
  dead.standing.previous.rank = -1;
  return dead;
}

// What the node would say that has left, and handed over.
inline Hello hello_of_who_left(const HandOver& message) {
  Hello left;
  left.node = message.node;
  left.incarnation = UINT64_MAX;
  left.standing = message.standing;
  return left;
}

}  // namespace ddprun::rendezvous
