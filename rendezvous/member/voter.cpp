// Implementation of voter.hpp.
#include "rendezvous/member/voter.hpp"

#include <algorithm>

namespace ddprun::rendezvous {

void Voter::heard_leader(Time now) {
  last_contact_ = now;
  promised_ = true;
}

Time Voter::may_vote_at(nanoseconds lease) const {
  return promised_ ? last_contact_ + part_of(lease, rules_.vote_after) : Time{};
}

Time Voter::may_stand_at(nanoseconds lease) const {
  if (!voted_at_) return may_vote_at(lease);
  return std::max(may_vote_at(lease), *voted_at_ + part_of(lease, rules_.voter_stands_back));
}

bool Voter::may_promise(std::uint64_t term, std::uint64_t promised_term) const {
  return term > promised_term || (term == promised_term && !rules_.one_vote_a_term);
}

// Only the term matters here. The candidate knows from this node's Hello which rounds it has, and counts its vote accordingly
// (succession.cpp). A vote is no promise to wait; only a member that answers its coordinator's messages promises that. So after
// a split vote, the candidates can just try again.
Vote Voter::answer(const VoteRequest& request, std::uint64_t promised_term, Time now) {
  Vote vote{.term = request.term, .promised_term = request.term, .echo = request.stamp};
  if (may_promise(request.term, promised_term)) {
    voted_at_ = now;
  } else {
    // This term was promised before, perhaps to another candidate. So the answer must not count as a vote for this candidate.
    vote.promised_term = promised_term == request.term ? request.term + 1 : promised_term;
  }
  return vote;
}

}  // namespace ddprun::rendezvous
