// The types for a round (one start of all workers on agreed nodes) and for a node's persistent state. Messages (message.hpp),
// records on disk and state machines share these types. All types are plain values.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/failure/restart_history.hpp"

namespace ddprun::rendezvous {

inline constexpr std::size_t kSuccessors = 4;  // maximum number of candidates for the next election in a Release message

using NodeId = std::array<std::uint8_t, 16>;  // random; an agent keeps its id when it reconnects or restarts
struct HashNodeId {
  std::size_t operator()(const NodeId& id) const {
    std::size_t hash = 0;
    std::memcpy(&hash, id.data(), sizeof hash);
    return hash;
  }
};
using DeathNoticeKey = std::array<std::uint8_t, 32>;
using RunDigest = std::array<std::uint8_t, 32>;  // digest of the run id; nodes with different digests belong to different jobs

struct Address {
  std::string host{};  // a host name or numeric address that other nodes can reach
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// Rounds are ordered by the term of their coordinator, then by their number. Neither the term nor the number ever decreases.
struct RoundId {
  std::uint64_t term = 0;
  std::int64_t round = -1;
  auto operator<=>(const RoundId&) const = default;  // NOLINT(modernize-use-nullptr): not a pointer
};

// The arbiter, which has the third vote in a round of two nodes. It permanently gives its vote to the first node that requests
// it.
enum class Arbiter : std::uint8_t {
  kNone,          // no arbiter: exactly half of the nodes is a majority if it includes group rank 0
  kRunDirectory,  // the run directory, which both nodes share
  kEtcd,          // the etcd server of --arbiter
};

// The data about a round that each of its nodes stores. From this data, a node can compute how many votes are a majority. A
// coordinator that inherits a round releases it again under its own term, with the same nodes and ranks (quorum.hpp). This
// changes id.term, but not `born`.
struct Config {
  RoundId id{};
  std::uint64_t born = 0;            // the term in which the round was first released
  std::int32_t nodes = 0;            // 0: no round
  std::int32_t rank = -1;            // this node's group rank in the round; -1: the node is a spare
  Arbiter arbiter = Arbiter::kNone;  // used only in a round of two nodes
  // The node that first released the round. Used only if there is an arbiter, because it stores its vote under `founder` and
  // origin().
  NodeId founder{};
  bool exists() const { return nodes > 0; }
  // identifies the round, even after a later coordinator has released it again
  RoundId origin() const { return {born, id.round}; }
  bool has_arbiter() const { return arbiter != Arbiter::kNone; }
  // Returns the number of voters. An arbiter has the rank after the last node.
  std::int32_t voters() const { return nodes + (has_arbiter() ? 1 : 0); }
  bool operator==(const Config&) const = default;
};

// The numbers of restarts and rounds of the whole job. Every member records them, so that an elected coordinator can continue
// to count.
struct Budget {
  std::int32_t restart_count = 0;  // restarts of the whole job: TORCHELASTIC_RESTART_COUNT
  RestartHistory history{};        // state of the restart policy; the rendezvous only stores it
  std::int32_t first_number = 0;   // the number that messages and folder names show for the job's round 0
  bool operator==(const Budget&) const = default;
};

enum class Workers : std::uint8_t { kNone, kRunning, kStopping, kDone };

// A node's persistent state (Raft). The node sends it with each Hello, and stores it on disk under its identity
// (member/record.hpp).
struct PersistentState {
  std::uint64_t promised_term = 0;  // the node refuses lower terms, and votes once in each term
  Config current{};                 // the newest round that the node has installed
  Config previous{};  // the previous round; empty after the node was informed that `current` is committed (quorum.hpp)
  Budget budget{};
  bool operator==(const PersistentState&) const = default;
};

// How the job ends. The nodes agree on it before any of them exits (coordinator/end_commit.hpp).
struct Ending {
  RoundId origin{};  // equals Config::origin() of the job's last round
  std::int32_t exit_code = 0;
  std::string why{};
  bool exists() const { return origin.round >= 0; }
};

struct Successor {
  std::int32_t group_rank = -1;
  NodeId node{};
  Address address{};
  bool operator==(const Successor&) const = default;
};

}  // namespace ddprun::rendezvous
