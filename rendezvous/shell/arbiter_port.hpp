// The interface to the arbiter that decides which of two nodes may lead: an etcd server (etcd_arbiter.hpp), or the run
// directory that both share (directory_arbiter.hpp). node_shell.hpp passes the queries of rendezvous/node/arbitration.hpp to it
// and the answers back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/identity/hex.hpp"
#include "rendezvous/node/arbitration.hpp"

namespace ddprun::rendezvous {

struct ArbiterReply {
  BallotAnswer answer = BallotAnswer::kNone;
  std::string why{};  // kNone: the reason, for messages, including the arbiter's name
};

class ArbiterPort {
 public:
  using Then = std::function<void(ArbiterReply)>;

  ArbiterPort() = default;
  virtual ~ArbiterPort() = default;
  ArbiterPort(const ArbiterPort&) = delete;
  ArbiterPort& operator=(const ArbiterPort&) = delete;

  // Call it on the io_context's thread, which it never blocks. It writes `self` to `place` if nothing is stored there yet, and
  // returns the stored text. It calls `then` once, on that thread, within `limit`, and never after the end of this object.
  virtual void ask(const std::string& place, const std::string& self, milliseconds limit, Then then) = 0;
};

// The name under which the arbiter stores one decision: unique among all rounds of all jobs.
inline std::string place_of(const Ballot& ballot) {
  return to_hex(ballot.founder) + "/" + std::to_string(ballot.origin.term) + "." + std::to_string(ballot.origin.round);
}

// A hash of a text, so that two nodes can compare what they have in common. Never 0.
inline std::uint64_t mark_of(std::string_view text) {
  std::uint64_t mark = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) mark = (mark ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mark == 0 ? 1 : mark;
}

}  // namespace ddprun::rendezvous
