// The vote of a coordinator that is gone, as an elector that can only vote for this node. Either the coordinator is dead in a
// round of two, and its guardian has reported that to this node. Or it has left and handed over to this node. node.cpp adds it
// to the electors. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// The link number of this elector; no such connection exists.
inline constexpr LinkId kOfTheDead = kDialled | kAnnounce;
// The same for an arbiter (arbitration.hpp).
inline constexpr LinkId kOfTheArbiter = kDialled | kAnnounce | kResume;
inline constexpr bool is_connection(LinkId link) {
  return link != kOfTheDead && link != kOfTheArbiter;
}

// A coordinator that died in a round of two, in which it had group rank 0. Its identity died with it, so its vote in that round
// stays with the other node. That holds even if the other node has led the round under a later term and has stepped down again.
struct DeadCoordinator {
  NodeId node{};
  RoundId origin{};  // Config::origin() of the round
};

// The Hello that the dead coordinator would send. `survivor` is the record of the other node. nullopt if the coordinator died
// in neither round of that record.
inline std::optional<Hello> hello_of_the_dead(const DeadCoordinator& who, const Record& survivor) {
  const auto died_in = [&who](const Config& round) { return round.exists() && round.origin() == who.origin; };
  if (!died_in(survivor.state.current) && !died_in(survivor.state.previous)) return std::nullopt;
  Hello dead;
  dead.node = who.node;
  dead.incarnation = UINT64_MAX;
  dead.state.promised_term = survivor.state.promised_term;
  dead.state.current = survivor.state.current;
  dead.state.current.rank = died_in(survivor.state.current) ? 0 : -1;
  dead.state.previous = survivor.state.previous;  // it may have died before enough nodes had installed the current round
  dead.state.previous.rank = died_in(survivor.state.previous) ? 0 : -1;
  return dead;
}

// The Hello of a node that has left and handed over. The other node, `survivor`, may have released a round since. That round
// was committed as if the departed node had installed it (Coordinator: departed). So its Hello must contain the round.
inline Hello hello_of_who_left(const HandOver& message, const Record& survivor) {
  Hello left;
  left.node = message.node;
  left.incarnation = UINT64_MAX;
  left.state = message.state;
  if (survivor.state.current.id <= message.state.current.id) return left;
  const auto with_its_rank = [&](Config round) {
    round.rank = -1;
    for (const Config& known : {message.state.current, message.state.previous}) {
      if (round.exists() && known.exists() && known.origin() == round.origin()) round.rank = known.rank;
    }
    return round;
  };
  left.state.current = with_its_rank(survivor.state.current);
  left.state.previous = with_its_rank(survivor.state.previous);
  return left;
}

}  // namespace ddprun::rendezvous
