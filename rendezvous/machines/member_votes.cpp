// Implementation of member.hpp, second part: votes and promises.
#include <algorithm>

#include "rendezvous/machines/member.hpp"

namespace ddprun::rendezvous {

Time Member::may_vote_at() const {
  return promised_ ? last_contact_ + part_of(lease_, settings_.rules.vote_after) : Time{};
}

Time Member::may_stand_at() const {
  if (!voted_at_) return may_vote_at();
  return std::max(may_vote_at(), *voted_at_ + part_of(lease_, settings_.rules.voter_stands_back));
}

void Member::hear(LinkId link, const VoteRequest& message) {
  if (leader_) return;
  if (Target* target = target_of(link)) target->dialled = now_.steady;  // it is there, and counts on this node
  if (now_.steady < may_vote_at()) {
    waiting_votes_.insert_or_assign(link, message);
  } else {
    vote(link, message);
  }
}

void Member::vote(LinkId link, const VoteRequest& request) {
  const std::uint64_t promised = record_.standing.promised_term;
  const bool in_term = request.term > promised || (request.term == promised && !settings_.rules.one_vote_a_term);
  // What this node knows the candidate has from its hello, and counts it so (succession.cpp): nothing but the term matters
  // here. A vote is no promise to keep still: only who follows a coordinator and answers it makes that one. So a split vote
  // costs nothing but another try.
  if (in_term) {
    record_.standing.promised_term = request.term;
    voted_at_ = now_.steady;
    remember();
  }
  // A term that was promised before, perhaps to another candidate, is no vote for this one.
  const std::uint64_t says = record_.standing.promised_term;
  const std::uint64_t answer = !in_term && says == request.term ? request.term + 1 : says;
  act(member_action::Send{link, Vote{.term = request.term, .promised_term = answer, .echo = request.stamp}});
}

bool Member::promise(std::uint64_t term, Now now, std::vector<MemberAction>& actions) {
  now_ = now;
  if (term < record_.standing.promised_term || (term == record_.standing.promised_term && settings_.rules.one_vote_a_term)) {
    return false;
  }
  record_.standing.promised_term = term;
  actions.emplace_back(member_action::Remember{record_});
  return true;
}

void Member::keep_roster(Roster roster, std::vector<MemberAction>& actions) {
  record_.roster = std::move(roster);
  actions.emplace_back(member_action::Remember{record_});
}

std::size_t Member::place_in_line() const {
  if (record_.coordinator.node == settings_.id) return 0;
  for (std::size_t i = 0; i < record_.successors.size(); ++i) {
    if (record_.successors[i].node == settings_.id) return i + 1;
  }
  return kSuccessors + 1;
}

Address Member::leader_address() const {
  return leader_ ? leader_->address : Address{};
}

}  // namespace ddprun::rendezvous
