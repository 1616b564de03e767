// The interface to an arbiter, which decides which one of two nodes may lead. The arbiter is an etcd server
// (etcd_arbiter.hpp), or a run directory that both nodes share (directory_arbiter.hpp). node_shell.hpp sends the queries of
// rendezvous/node/arbitration.hpp to the arbiter, and returns the answers.
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
  std::string why{};  // if `answer` is kNone: the reason, including the arbiter's name
};

class ArbiterPort {
 public:
  using Then = std::function<void(ArbiterReply)>;

  ArbiterPort() = default;
  virtual ~ArbiterPort() = default;
  ArbiterPort(const ArbiterPort&) = delete;
  ArbiterPort& operator=(const ArbiterPort&) = delete;

  // Stores `self` under `key` if `key` has no text yet, and reports whether the stored text is `self`. Call this on the thread
  // of the io_context; it does not block. The function calls `then` once, on that thread, within `limit`.
  virtual void query(const std::string& key, const std::string& self, milliseconds limit, Then then) = 0;
};

// Returns the key under which the arbiter stores its vote in a round. The key is unique among all rounds of all jobs.
inline std::string key_of(const Ballot& ballot) {
  return to_hex(ballot.founder) + "/" + std::to_string(ballot.origin.term) + "." + std::to_string(ballot.origin.round);
}

// Returns a hash of a text. Two nodes compare the hashes to check that their texts are equal. The result is never 0, which
// means "unknown".
inline std::uint64_t mark_of(std::string_view text) {
  std::uint64_t mark = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) mark = (mark ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mark == 0 ? 1 : mark;
}

}  // namespace ddprun::rendezvous
