// Decides when a node may vote for a successor of its coordinator or be a candidate itself, and for which candidate it may
// vote. The member reports each message of its coordinator: a node that answers a coordinator promises not to vote for a while.
// Pure.
//
// This class owns that promise, and the vote requests that wait for its end. The promised term is in the record.
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
  // `promised`: an earlier process may have answered a coordinator just before, and so have made this promise.
  Voter(const Rules& rules, bool promised, Time now) : rules_(rules), last_contact_(now), promised_(promised) {}

  void heard_leader(Time now);
  void release() { promised_ = false; }  // its coordinator gives no more grants
  Time last_contact() const { return last_contact_; }
  Time may_vote_at(nanoseconds lease) const;
  // The time from which this node may be a candidate. It must wait while a candidate that got its vote may win.
  Time may_stand_at(nanoseconds lease) const;

  // True if a node that has promised `promised_term` may still promise `term`.
  bool may_promise(std::uint64_t term, std::uint64_t promised_term) const;
  // Answers a vote request. If the vote is given(), the caller must record the request's term before it sends the answer.
  Vote answer(const VoteRequest& request, std::uint64_t promised_term, Time now);

  // ---- requests that came too early ----
  void keep(LinkId link, const VoteRequest& request) { waiting_.insert_or_assign(link, request); }
  void forget(LinkId link) { waiting_.erase(link); }
  void forget_all() { waiting_.clear(); }
  bool keeps_some() const { return !waiting_.empty(); }
  std::map<LinkId, VoteRequest> take() { return std::exchange(waiting_, {}); }

 private:
  Rules rules_;
  Time last_contact_;             // with any coordinator
  bool promised_;                 // true if that contact keeps it from voting
  std::optional<Time> voted_at_;  // for another candidate
  std::map<LinkId, VoteRequest> waiting_;
};

}  // namespace ddprun::rendezvous
