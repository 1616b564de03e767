#include "rendezvous/member/voter.hpp"

#include <algorithm>

namespace ddprun::rendezvous {

void Voter::leader_contact(Time now) {
  last_contact_ = now;
  promised_ = true;
}

Time Voter::may_vote_at(nanoseconds lease) const {
  return promised_ ? last_contact_ + part_of(lease, rules_.vote_after) : Time{};
}

Time Voter::may_campaign_at(nanoseconds lease) const {
  if (!voted_at_) return may_vote_at(lease);
  return std::max(may_vote_at(lease), *voted_at_ + part_of(lease, rules_.voter_backoff));
}

bool Voter::may_promise(std::uint64_t term, std::uint64_t promised_term) const {
  return term > promised_term || (term == promised_term && !rules_.one_vote_per_term);
}

// Only the term decides whether the vote is granted. The candidate has received this node's rounds in its Hello, and decides
// for which majorities the vote counts (leader_election.cpp). Only a message of the coordinator starts the period of 1.25
// leases in which this node does not vote. A vote does not start that period. So after a split vote, the candidates can try
// again soon.
Vote Voter::answer(const VoteRequest& request, std::uint64_t promised_term, Time now) {
  Vote vote{.term = request.term, .promised_term = request.term, .echo = request.stamp};
  if (may_promise(request.term, promised_term)) {
    voted_at_ = now;
  } else {
    // This node has already promised the requested term or a later one. The two terms in the answer must differ, so that the
    // answer does not count as a granted vote.
    vote.promised_term = promised_term == request.term ? request.term + 1 : promised_term;
  }
  return vote;
}

}  // namespace ddprun::rendezvous
