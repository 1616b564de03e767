// The messages by which agents agree on rounds: values only. codec.hpp turns them into frames and back; coordinator.hpp,
// member.hpp and succession.hpp are the state machines that send and receive them. The side that dials sends FromMember, the
// side that listens FromCoordinator. A candidate in an election listens, so its VoteRequest is a FromCoordinator too.
//
// Every message has a constant size, apart from bounded texts. No message lists the members, so a round of N nodes costs N and
// not N².
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "common/failure/restart_history.hpp"

namespace ddprun::rendezvous {

inline constexpr std::uint16_t kProtocolVersion = 12;
static_assert(kCauses == 19, "messages count by cause, so a new cause needs a new kProtocolVersion");
inline constexpr std::size_t kSuccessors = 4;             // named in a release
inline constexpr std::int32_t kMaxWorkersPerNode = 4096;  // one agent's workers
inline constexpr std::int32_t kMaxNodes = 1 << 20;
inline constexpr std::size_t kMaxQuestionBytes = 4u << 10;  // limits of a query to the job's nodes, and of one node's answer
inline constexpr std::size_t kMaxAnswerBytes = 64u << 10;

using NodeId = std::array<std::uint8_t, 16>;  // random; an agent keeps it when it reconnects or restarts
struct HashNodeId {
  std::size_t operator()(const NodeId& id) const {
    std::size_t hash = 0;
    std::memcpy(&hash, id.data(), sizeof hash);
    return hash;
  }
};
using FarewellKey = std::array<std::uint8_t, 32>;
using RunDigest = std::array<std::uint8_t, 32>;  // digest of the run id, so that two jobs never mix

struct Address {
  std::string host{};  // as another node can dial it: numeric, or a name
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// Rounds are ordered by the term of their coordinator, then by number; both never decrease.
struct RoundId {
  std::uint64_t term = 0;
  std::int64_t round = -1;
  auto operator<=>(const RoundId&) const = default;  // NOLINT(modernize-use-nullptr): no pointer is here
};

// The arbiter that has the third vote in a round of two nodes. It gives that vote to the first node that asks, permanently.
enum class Arbiter : std::uint8_t {
  kNone,          // no arbiter: half of the nodes is a majority if group rank 0 is among them
  kRunDirectory,  // the run directory that both nodes share
  kEtcd,          // the etcd server of --arbiter
};

// One agreed membership from the view of one of its nodes, sufficient to decide what its majority is. A successor that inherits
// a round releases it again under its own term, with the same nodes and ranks; quorum.hpp explains why.
struct Config {
  RoundId id{};
  std::uint64_t born = 0;            // the term in which the round was first released
  std::int32_t nodes = 0;            // 0: no round
  std::int32_t rank = -1;            // this node's group rank in it; -1: the node is a spare
  Arbiter arbiter = Arbiter::kNone;  // only in a round of two
  NodeId founder{};  // with an arbiter: the node that released the round first; founder and origin() identify it there
  bool exists() const { return nodes > 0; }
  RoundId origin() const { return {born, id.round}; }  // equal for the same membership
  bool has_arbiter() const { return arbiter != Arbiter::kNone; }
  // The number of votes. An arbiter has the rank after the last node.
  std::int32_t voters() const { return nodes + (has_arbiter() ? 1 : 0); }
  bool operator==(const Config&) const = default;
};

// The counts of the whole job: restarts and rounds. Every member stores them, so that an elected coordinator can continue to
// count.
struct Budget {
  std::int32_t restart_count = 0;  // of the whole job: TORCHELASTIC_RESTART_COUNT
  RestartHistory history{};        // counts of the restart policy; the rendezvous does not read them
  std::int32_t first_number = 0;   // the number of round 0 in messages and folder names
  bool operator==(const Budget&) const = default;
};

enum class Workers : std::uint8_t { kNone, kRunning, kStopping, kDone };

// A node's persistent state (Raft). The node sends it with each Hello, and stores it on disk under its identity
// (member/record.hpp).
struct PersistentState {
  std::uint64_t promised_term = 0;  // the node follows no coordinator of a lower term, and votes once in each term
  Config current{};                 // the newest round into which it was released
  Config previous{};                // the previous round, until `current` is known to be committed (quorum.hpp)
  Budget budget{};
  bool operator==(const PersistentState&) const = default;
};

// The job's end, agreed before it takes effect. coordinator/concluding.hpp explains why.
struct Ending {
  RoundId origin{};  // Config::origin() of the job's last round
  std::int32_t exit_code = 0;
  std::string why{};
  bool exists() const { return origin.round >= 0; }
};

// ---- from the one who dialled ----

struct Hello {
  std::uint16_t protocol = kProtocolVersion;  // first on the wire in every version
  NodeId node{};
  std::uint64_t incarnation = 0;  // start time of the process in ns: of two processes with one identity the later counts
  std::uint64_t attempt = 0;      // counts the Hellos of a process: an older one may arrive later, over another connection
  RunDigest run{};
  std::int32_t wanted_group_rank = -1;  // --node-rank
  std::string role = "default";
  std::int32_t local_world_size = 1;
  std::string hostname{};           // for messages
  Address listens{};                // the connected socket's local address, at which other nodes can dial this one
  std::uint16_t master_port = 0;    // reserved for the next round, if this node gets group rank 0
  std::int32_t next_number = 0;     // the first round number that is free in this node's run directory
  std::uint16_t farewell_port = 0;  // UDP, at that address: the guardian of a dead coordinator sends its farewell there
  FarewellKey farewell_key{};       // proves that farewells to this node are genuine
  std::uint64_t arbiter = 0;        // a digest of --arbiter; 0: not given
  std::uint64_t run_directory = 0;  // identifies the holder of its lock when this node tried to take it; 0: unknown
  std::uint64_t command = 0;        // a digest of the program and its arguments; 0: not given (ddprun join)
  std::int32_t min_nodes = 0;       // --nnodes, MIN and MAX; 0: not given (ddprun join)
  std::int32_t max_nodes = 0;
  bool coordinates = false;  // true: a coordinator announces itself at addresses where nodes may not know it
  Workers workers = Workers::kNone;
  RoundId workers_round{};  // the round of its workers that still run or stop
  bool failed = false;      // a worker has failed, and no round has begun since: FailureReport follows the welcome, then Ready
  PersistentState state{};
  Ending ending{};  // of the current round's job, if the node knows it
  std::pair<std::uint64_t, std::uint64_t> said() const { return {incarnation, attempt}; }  // orders the Hellos of one node
};

// All workers of that round are gone, with all processes that they started. The node can join the next round.
struct Ready {
  RoundId round{};
  std::uint16_t master_port = 0;
  RoundId installed{};  // as in Ping
};

// A worker has failed. The restart policy judges this evidence.
struct FailureReport {
  RoundId round{};
  std::string hostname{};
  FailedRound failed{};
  std::int64_t time_ns = 0;  // CLOCK_REALTIME of the node
  std::int64_t skew_ns = 0;  // the coordinator's clock minus the node's, according to the node's estimate
  std::string message{};
  bool others_stay = false;  // the other workers' state is valid, so they may be held for the next round instead of stopped
  std::int64_t coordinator_time_ns() const {  // wraps instead of overflowing: a peer may send any numbers
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(time_ns) + static_cast<std::uint64_t>(skew_ns));
  }
};

// All workers of the node have ended with exit code 0.
struct Done {
  RoundId round{};
};

// This node got a signal and wants to stop. The job also stops if too few nodes would remain.
struct StopAsk {
  std::int32_t signal = 0;
  bool saves = false;  // if only this node leaves, all workers save first, since no other node could keep their state
};

// Answer to StopAndSave: the most steps that any worker of this node has started; -1: all workers have finished.
struct StopReady {
  RoundId round{};
  std::int64_t started = -1;
};

// The node's workers have ended after StopAndSave.
struct Stopped {
  RoundId round{};
  bool saved = false;
  bool holds = false;  // the workers wait with their state instead of ending, since the round's group did not form
};

// The last message of a node that leaves: its workers are gone, and it will not come back.
struct Leave {
  std::string why{};
};

// Sent periodically (Member::ping) and on every release. Stamps are nanoseconds of the sender's own clock, and only the sender
// can interpret them. A node that gets its own stamp back knows that the other side was reachable after that moment.
struct Ping {
  std::int64_t stamp = 0;
  std::int64_t echo = 0;  // the newest stamp of the coordinator; 0: none yet
  std::int64_t realtime_ns = 0;
  RoundId installed{};
  std::uint64_t received = 0;  // number of session messages received (rendezvous/node/session.hpp)
};

// Answer to VoteRequest. The vote is granted if both terms are equal; otherwise `promised_term` shows why the request was
// refused.
struct Vote {
  std::uint64_t term = 0;           // the term of the request
  std::uint64_t promised_term = 0;  // the voter's promised term after this answer
  std::int64_t echo = 0;            // the stamp of the request
  bool given() const { return term == promised_term; }
};

// Answer to Conclude: the node has recorded the ending.
struct Concluded {
  RoundId origin{};
};

// A worker's request to the job's key-value store (decision 10).
struct StoreAsk {
  RoundId round{};
  std::int32_t rank = 0;  // the worker's global rank
  channel::StoreRequest request{};
};

// Sent over a new connection instead of a Hello, after a reset of the previous connection. It contains the id of the Hello that
// opened the session, and the number of session messages received. rendezvous/node/session.hpp describes the reaction.
struct Resume {
  NodeId node{};
  std::uint64_t incarnation = 0;
  std::uint64_t attempt = 0;
  std::uint64_t received = 0;
};

// Acknowledges messages of a session, in both directions: the number of messages received from the other side.
struct Received {
  std::uint64_t count = 0;
};

// A query to this node about the whole job. The coordinator forwards it to every node, or to one. Each node answers separately,
// and the coordinator passes the answers on without storing anything. The process that asks counts the answers, and decides how
// long it waits.
struct JobQuestion {
  std::uint64_t number = 0;      // chosen by the sender
  std::uint32_t most_bytes = 0;  // limit for a node's answer
  std::string text{};
  NodeId to{};  // the only node to query; all zeros: every node
};

// Answer to NodeQuestion.
struct NodeAnswer {
  NodeId asker{};
  std::uint64_t number = 0;
  std::string text{};
};

using FromMember = std::variant<Hello, Ready, FailureReport, Done, StopAsk, StopReady, Stopped, Leave, Ping, Vote, StoreAsk,
                                Resume, Received, Concluded, JobQuestion, NodeAnswer>;

// ---- from the one who listens ----

struct Welcome {
  std::uint64_t term = 0;
  NodeId coordinator{};
  std::int64_t lease_ms = 0;
  std::int64_t stamp = 0;  // as in Pong: the node's first ping sends it back, which saves a round trip
};

enum class Refusal : std::uint8_t {
  kVersion,    // another protocol version
  kRun,        // another run id
  kRankTaken,  // another node has this --node-rank
  kBadHello,   // invalid values, or values that differ from the job's
  kReplaced,   // a later process with this identity is connected
  kSetAside,   // the node was lost too often, and may come back after retry_after_ms
};

struct Refused {
  std::uint16_t protocol = kProtocolVersion;  // together with reason and text first on the wire in every version
  Refusal reason = Refusal::kVersion;
  std::string text{};
  std::int64_t retry_after_ms = 0;  // kSetAside: no earlier attempt; others: retry once after this time (0: never)
};

// This node is not the coordinator; `coordinator` is its address, if known. A coordinator that announces itself gets this if a
// later term than its own exists.
struct Redirect {
  std::uint64_t term = 0;
  Address coordinator{};
};

struct Successor {
  std::int32_t group_rank = -1;
  NodeId node{};
  Address address{};
  bool operator==(const Successor&) const = default;
};

// The start of a round (Raft's new configuration), with the receiver's ranks. A spare gets group_rank -1: it only learns the
// leader.
struct Release {
  RoundId id{};
  std::uint64_t born = 0;  // see Config
  bool start = true;       // false: start no workers, only record the round; it is over, or the receiver is not part of it
  std::int32_t group_rank = -1;
  std::int32_t nodes = 0;
  Arbiter arbiter = Arbiter::kNone;
  NodeId founder{};
  Config previous{};             // the previous round, with the receiver's rank in it
  std::int32_t rank_offset = 0;  // the receiver's first global rank
  std::int32_t world_size = 0;
  std::int32_t role_rank_offset = 0;
  std::int32_t role_world_size = 0;
  Address master{};
  Budget budget{};
  std::int32_t max_restarts = 0;
  Successor coordinator{};
  std::vector<Successor> successors{};  // the candidates for the next election: at most kSuccessors, spread over the round, by
                                        // rank, without the coordinator
};

enum class OverReason : std::uint8_t { kWorkerFailure, kMembershipChange };

// The round is over: stop or hold the workers, and answer Ready.
struct RoundOver {
  RoundId round{};
  OverReason reason = OverReason::kMembershipChange;
  std::string why{};        // for messages: "node b was lost", "2 nodes joined"
  FailureReport failure{};  // kWorkerFailure: the earliest cause known so far
  bool hold = false;        // workers that can leave their group keep their state and wait for the next round
};

// A signal ends the job, or one node leaves it: all workers agree on a step and save. Or, with `held`, the round is over and no
// round follows. The waiting workers of this node then save the state that they hold, each separately.
struct StopAndSave {
  RoundId round{};
  std::int32_t signal = 0;
  bool goes_on = false;  // after the save the round ends, and the remaining nodes begin the next one
  bool held = false;     // only workers that wait for the next round save
};

struct StopAt {
  RoundId round{};
  std::int64_t step = 0;
};

// The job is going to end in this way: record it, and answer Concluded.
struct Conclude {
  Ending ending{};
};

// The coordinator's node leaves the job in an orderly way. No worker runs under its grants any more, it gives no further
// grants, and its vote is for `to` only. coordinator/handing_over.hpp decides when it may send this.
struct HandOver {
  NodeId node{};            // the node that leaves
  Successor to{};           // the first successor, which should lead now
  PersistentState state{};  // the state of the node that leaves
};

// Allows a node that was asked to stop to leave after its workers are gone: the others continue without it, or there is nothing
// to save. Until this arrives the node waits, since signals may be on the way to the other nodes.
struct MayLeave {
  RoundId round{};
};

// A message for users: which nodes the job waits for. Few users read the coordinator's own console.
struct Waiting {
  std::string text{};
};

// The job of that round has ended. A node that knows a later round ignores it: the sender no longer leads that round, or never
// did.
struct JobOver {
  RoundId round{};
  std::int32_t exit_code = 0;
  std::string why{};
  std::int64_t ended_ms_ago = 0;  // a node that started later waits for the next job at this address
};

struct Pong {
  std::int64_t echo = 0;  // the stamp of the ping
  std::int64_t stamp = 0;
  std::int64_t realtime_ns = 0;
  std::int64_t grant_ns = 0;   // how long workers may run after the ping was sent
  RoundId committed{};         // the newest committed round (quorum.hpp)
  std::uint64_t received = 0;  // number of session messages received
};

// A candidate asks for a vote for this term.
struct VoteRequest {
  std::uint64_t term = 0;
  NodeId candidate{};
  std::int64_t stamp = 0;
};

struct StoreAnswer {
  RoundId round{};
  std::int32_t rank = 0;
  channel::StoreReply reply{};
};

// Answer to Resume. The messages that the other side lacks follow.
struct Resumed {
  std::uint64_t received = 0;
};

// A JobQuestion in the form that every node gets.
struct NodeQuestion {
  NodeId asker{};
  std::uint64_t number = 0;
  std::uint32_t most_bytes = 0;
  std::string text{};
};

// One node's answer to a JobQuestion of this node.
struct JobAnswer {
  std::uint64_t number = 0;
  std::int32_t nodes = 0;  // number of connected nodes, including this one
  NodeId node{};           // the node that answers
  std::string text{};      // empty: the only queried node is not connected
};

using FromCoordinator =
    std::variant<Welcome, Refused, Redirect, Release, RoundOver, StopAndSave, StopAt, JobOver, Pong, VoteRequest, StoreAnswer,
                 Resumed, Received, Conclude, HandOver, Waiting, NodeQuestion, JobAnswer, MayLeave>;

}  // namespace ddprun::rendezvous
