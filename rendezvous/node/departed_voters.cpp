#include "rendezvous/node/departed_voters.hpp"

#include "rendezvous/coordinator/entry.hpp"

namespace ddprun::rendezvous {
namespace {

const Hello* voter_of(const LeaderElection& election, LinkId link) {
  const auto found = election.known_voters().find(link);
  return found == election.known_voters().end() ? nullptr : &found->second.hello;
}

// Registers `hello` as the voter with that link number, or removes the voter if `hello` is not set. A voter that is registered
// again loses its vote, so the function does nothing if the rounds of the voter have not changed. The function does not
// compare the promised term, because that term changes right after the start of each election.
void replace(LeaderElection& election, LinkId link, const std::optional<Hello>& hello) {
  const Hello* const counted = voter_of(election, link);
  const bool same_rounds = counted != nullptr && hello && counted->state.current == hello->state.current &&
                           counted->state.previous == hello->state.previous;
  if (same_rounds) return;
  election.remove(link);
  if (hello) election.add(link, *hello);
}

}  // namespace

std::optional<Hello> hello_of_dead(const DeadCoordinator& coordinator, const Record& survivor) {
  const auto died_in = [&coordinator](const Config& round) { return round.exists() && round.origin() == coordinator.origin; };
  if (!died_in(survivor.state.current) && !died_in(survivor.state.previous)) return std::nullopt;
  Hello dead;
  dead.node = coordinator.node;
  dead.incarnation = UINT64_MAX;
  dead.state.promised_term = survivor.state.promised_term;
  dead.state.current = survivor.state.current;
  dead.state.current.rank = died_in(survivor.state.current) ? 0 : -1;
  // The current round may not be committed yet, so the Hello also contains the previous round.
  dead.state.previous = survivor.state.previous;
  dead.state.previous.rank = died_in(survivor.state.previous) ? 0 : -1;
  return dead;
}

Hello hello_of_departed(const TransferLeadership& message, const Record& survivor) {
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

bool DepartedVoters::note_dead(const DeadCoordinator& coordinator) {
  if (dead_ && dead_->origin == coordinator.origin) return false;
  dead_ = coordinator;
  return true;
}

// Updates the voters that have no connection. In a two-node round, the node with group rank 1 is not a majority alone. If the
// other node has died or has transferred the leadership, this node also has the vote of the other node. If the arbiter of a
// round has voted for this node, this node has the arbiter's vote too.
void DepartedVoters::update(LeaderElection& election, const Member& member, const Arbitration& arbitration) const {
  std::optional<Hello> gone;
  if (const auto* left = member.leadership_transfer(); left != nullptr && is_plausible(left->state)) {
    gone = hello_of_departed(*left, member.record());
  } else if (dead_) {
    gone = hello_of_dead(*dead_, member.record());
  }
  replace(election, kDeadVoterLink, gone);
  replace(election, kArbiterVoterLink, arbitration.voter(member.record()));
}

void DepartedVoters::vote(LeaderElection& election) {
  const std::uint64_t term = election.election()->term;
  for (const LinkId link : {kDeadVoterLink, kArbiterVoterLink})
    election.receive(link, Vote{.term = term, .promised_term = term});
}

std::optional<Authority::Departed> DepartedVoters::departed(const LeaderElection& election) {
  const Hello* const gone = voter_of(election, kDeadVoterLink);
  if (gone == nullptr) return std::nullopt;
  return Authority::Departed{gone->node, gone->state.current.rank, gone->state.previous.rank};
}

}  // namespace ddprun::rendezvous
