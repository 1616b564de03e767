// Decides when a node may vote for a successor of its coordinator or be a candidate itself, and for which term it may vote. A
// node that has received a message of its coordinator promises not to vote until 1.25 leases have passed (Rules::vote_after).
// The coordinator's own lease depends on that promise. So the member calls this class for each message of its coordinator. The
// code is pure: no I/O, no clock.
//
// This class owns the start time of that promise, and the vote requests that wait until the promise ends. The promised term is
// in the record.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

class Voter {
 public:
  // `promised` is true if an earlier process of this node may have made the promise not to vote shortly before `now`.
  Voter(const Rules& rules, bool promised, Time now) : rules_(rules), last_contact_(now), promised_(promised) {}

  void leader_contact(Time now);
  void release() { promised_ = false; }  // ends the promise not to vote, because the coordinator gives no more grants
  Time last_contact() const { return last_contact_; }
  Time may_vote_at(nanoseconds lease) const;
  // Returns the earliest time at which this node may become a candidate. After a vote for another candidate, this node waits
  // for Rules::voter_backoff.
  Time may_campaign_at(nanoseconds lease) const;

  // Returns true if a node whose latest promised term is `promised_term` may vote in `term`.
  bool may_promise(std::uint64_t term, std::uint64_t promised_term) const;
  // Returns the answer to a vote request. If the answer is granted(), the caller must record the term of the request before it
  // sends the answer.
  Vote answer(const VoteRequest& request, std::uint64_t promised_term, Time now);

  // ---- vote requests that wait until this node may vote ----
  void keep(LinkId link, const VoteRequest& request) { waiting_.insert_or_assign(link, request); }
  void forget(LinkId link) { waiting_.erase(link); }
  void forget_all() { waiting_.clear(); }
  bool has_waiting() const { return !waiting_.empty(); }
  std::map<LinkId, VoteRequest> take() { return std::exchange(waiting_, {}); }

 private:
  Rules rules_;
  Time last_contact_;             // when the last message of any coordinator arrived
  bool promised_;                 // true while the promise not to vote, made at last_contact_, is valid
  std::optional<Time> voted_at_;  // when this node last voted for another candidate
  std::map<LinkId, VoteRequest> waiting_;
};

}  // namespace ddprun::rendezvous
