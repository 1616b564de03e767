// When a node may vote for a successor of its coordinator, or stand for it itself, and for whom. The member tells it each time
// its coordinator is heard: whoever answers a coordinator promises to keep still for a while. Pure.
//
// It owns that promise, and the requests that wait for its end. The promised term is the record's.
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
  // `promised`: an earlier process may have told a coordinator just now that it hears it, which is a promise.
  Voter(const Rules& rules, bool promised, Time now) : rules_(rules), last_contact_(now), promised_(promised) {}

  void heard_leader(Time now);
  void release() { promised_ = false; }  // its coordinator grants nothing any more
  Time last_contact() const { return last_contact_; }
  Time may_vote_at(nanoseconds lease) const;
  // For itself, before others: not while somebody whom it voted for may win.
  Time may_stand_at(nanoseconds lease) const;

  // Whether a node that has promised that term may still promise this one.
  bool may_promise(std::uint64_t term, std::uint64_t promised_term) const;
  // The answer to a request. Where it is given(), the caller remembers the request's term before it sends it.
  Vote answer(const VoteRequest& request, std::uint64_t promised_term, Time now);

  // ---- requests that came too early ----
  void keep(LinkId link, const VoteRequest& request) { waiting_.insert_or_assign(link, request); }
  void forget(LinkId link) { waiting_.erase(link); }
  void forget_all() { waiting_.clear(); }
  bool keeps_some() const { return !waiting_.empty(); }
  std::map<LinkId, VoteRequest> take() { return std::exchange(waiting_, {}); }

 private:
  Rules rules_;
  Time last_contact_;             // with a coordinator
  bool promised_;                 // whether that holds it back from voting
  std::optional<Time> voted_at_;  // for another one
  std::map<LinkId, VoteRequest> waiting_;
};

}  // namespace ddprun::rendezvous
