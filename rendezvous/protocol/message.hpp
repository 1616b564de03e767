// The messages by which agents agree on rounds (a round is one start of all workers on agreed nodes). codec.hpp encodes and
// decodes them. The state machines in coordinator.hpp, member.hpp and leader_election.hpp send and receive them.
//
// The agent that dials sends FromMember, and the agent that accepts the connection sends FromCoordinator. In an election the
// voters dial the candidates, so VoteRequest is a FromCoordinator too.
//
// Every message has a constant size, except for texts, which have a limit. No message lists the members of a round. So the
// messages that start a round of N nodes have a total size proportional to N, and not to N².
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "common/failure/restart_history.hpp"
#include "rendezvous/protocol/round.hpp"

namespace ddprun::rendezvous {

inline constexpr std::uint16_t kProtocolVersion = 13;
static_assert(kCauses == 19,
              "expected 19 values of Cause, because a message has a counter for each value: if you change Cause, increase "
              "kProtocolVersion");
inline constexpr std::int32_t kMaxWorkersPerNode = 4096;  // maximum number of workers of one agent
inline constexpr std::int32_t kMaxNodes = 1 << 20;
inline constexpr std::size_t kMaxQueryBytes = 4u << 10;  // maximum size of a ClusterQuery's text
inline constexpr std::size_t kMaxAnswerBytes = 64u << 10;

// ---- messages of the agent that dialed ----

// A node's description of itself. It stays constant while the process runs, except for the ports of the next round.
struct NodeDescription {
  NodeId node{};
  // start time of the process in ns; if two processes have the same identity, only the later one is valid
  std::uint64_t incarnation = 0;
  RunDigest run{};
  std::int32_t wanted_group_rank = -1;  // --node-rank; -1: not given
  std::string role = "default";
  std::int32_t local_world_size = 1;
  std::string hostname{};  // for messages
  Address listens{};       // the address at which other nodes can dial this node
  // port that this node has reserved for the process group, in case it gets group rank 0 in the next round
  std::uint16_t master_port = 0;
  std::int32_t next_number = 0;         // the lowest free round number in this node's run directory
  std::uint16_t death_notice_port = 0;  // UDP port, at the host of `listens`, that receives the death notice of the coordinator
  DeathNoticeKey death_notice_key{};    // authenticates death notices to this node
  std::uint64_t arbiter = 0;            // digest of --arbiter; 0: not given
  // identifies the process that holds the lock of this node's run directory; 0: unknown. Two nodes with an equal value share
  // the directory.
  std::uint64_t run_directory = 0;
  std::uint64_t command = 0;   // digest of the program and its arguments; 0: not given (ddprun join)
  std::int32_t min_nodes = 0;  // MIN and MAX of --nnodes; 0: not given (ddprun join)
  std::int32_t max_nodes = 0;
};

// Identifies a session by the Hello that opened it. The combination of the two numbers and the node id is unique, because a
// node increments `attempt` for each Hello.
struct SessionId {
  NodeId node{};
  std::uint64_t incarnation = 0;
  std::uint64_t attempt = 0;
  auto operator<=>(const SessionId&) const = default;
};

struct Hello : NodeDescription {
  std::uint16_t protocol = kProtocolVersion;  // the first field on the wire in every version, so that any version can read it
  std::uint64_t attempt = 0;  // number of this Hello; an earlier Hello may arrive later, over another connection
  // true if the sender is a coordinator that announces itself to nodes that do not have its address
  bool coordinates = false;
  Workers workers = Workers::kNone;
  RoundId workers_round{};  // the round of the workers that are running or being stopped on this node
  // True if a worker has failed, and no round has started since then. After the Welcome the node sends FailureReport, then
  // Ready.
  bool failed = false;
  PersistentState state{};
  Ending ending{};  // how the job ends, if the node was informed that its current round is the last round of the job
  SessionId session() const { return {node, incarnation, attempt}; }
  // Orders the Hellos of a node: the value of a later Hello is greater.
  std::pair<std::uint64_t, std::uint64_t> sequence() const { return {incarnation, attempt}; }
};

// All workers of `round` on this node, and all processes that they started, have ended. The node can join the next round.
struct Ready {
  RoundId round{};
  std::uint16_t master_port = 0;
  RoundId installed{};  // the newest round in the node's persistent state, as in Ping
};

// A worker has failed. The restart policy uses this report for its decision.
struct FailureReport {
  RoundId round{};
  std::string hostname{};
  FailedRound failed{};
  std::int64_t time_ns = 0;  // CLOCK_REALTIME of the node
  // the node's estimate of the difference: time of the coordinator's clock minus time of this node's clock
  std::int64_t skew_ns = 0;
  std::string message{};
  // true if the training state of the other workers is valid, so that they may keep it for the next round
  bool others_stay = false;
  // Returns the time on the coordinator's clock. The values are added as unsigned numbers: another node may send any values,
  // and a signed overflow is undefined.
  std::int64_t coordinator_time_ns() const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(time_ns) + static_cast<std::uint64_t>(skew_ns));
  }
};

// All workers of the node have ended with exit code 0.
struct Done {
  RoundId round{};
};

// This node received a stop signal and leaves the job. If too few nodes would remain, the whole job stops.
struct StopRequest {
  std::int32_t signal = 0;
  // true: if only this node leaves, all workers must save first, because the workers on the other nodes cannot keep their
  // state
  bool saves = false;
};

// Answer to StopAndSave. `started` is the maximum number of steps that a worker of this node has started, or -1 if all workers
// have finished.
struct StopReady {
  RoundId round{};
  std::int64_t started = -1;
};

// The node has handled StopAndSave: its workers have ended, or are held (`holds`).
struct Stopped {
  RoundId round{};
  bool saved = false;
  // true: the process group of the round was not formed, so the workers are held (they keep their state and wait for the next
  // round)
  bool holds = false;
};

// The last message of a node that leaves the job. Its workers have ended, and the node does not come back under this identity.
struct Leave {
  std::string why{};
};

// Sent periodically and after each Release (Member::ping). A stamp is the time in nanoseconds on the sender's clock, so only
// the sender can interpret it. A node that receives its own stamp back can conclude that the other node has received a message
// since that time.
struct Ping {
  std::int64_t stamp = 0;
  std::int64_t echo = 0;  // the newest stamp received from the coordinator; 0: none yet
  std::int64_t realtime_ns = 0;
  RoundId installed{};
  std::uint64_t received = 0;  // number of session messages that the sender has received (rendezvous/node/session.hpp)
};

// Answer to VoteRequest. The vote is granted if `term` equals `promised_term`. If the two terms differ, the voter has already
// promised another term.
struct Vote {
  std::uint64_t term = 0;           // the term in the VoteRequest
  std::uint64_t promised_term = 0;  // the term that the voter has promised, including this vote
  std::int64_t echo = 0;            // the stamp in the VoteRequest
  bool granted() const { return term == promised_term; }
};

// Answer to ProposeEnd: the node has stored how the job ends.
struct EndAccepted {
  RoundId origin{};
};

// A worker's request to the job's key-value store (decision 10).
struct StoreQuery {
  RoundId round{};
  std::int32_t rank = 0;  // the worker's global rank
  channel::StoreRequest request{};
};

// The first message over a new connection after a reset of the previous one, instead of a Hello. It resumes the session
// (rendezvous/node/session.hpp).
struct Resume {
  SessionId session{};
  std::uint64_t received = 0;  // number of session messages that the sender has received
};

// Acknowledges messages of a session. Both nodes send it. `count` is the number of session messages that the sender has
// received.
struct Received {
  std::uint64_t count = 0;
};

// A query about the whole job, for example from `ddprun status`. The node that received the query from a local process sends
// it to the coordinator. The coordinator forwards the query to every node or to one node, forwards each node's answer, and
// stores nothing. The querying process counts the answers, and decides how long it waits.
struct ClusterQuery {
  std::uint64_t number = 0;     // chosen by the sender, and repeated in the answers
  std::uint32_t max_bytes = 0;  // limit for the text of one node's answer
  std::string text{};
  NodeId to{};  // the node to query; all zeros: every node
};

// Answer to NodeQuery.
struct NodeAnswer {
  NodeId requester{};
  std::uint64_t number = 0;
  std::string text{};
};

using FromMember = std::variant<Hello, Ready, FailureReport, Done, StopRequest, StopReady, Stopped, Leave, Ping, Vote,
                                StoreQuery, Resume, Received, EndAccepted, ClusterQuery, NodeAnswer>;

// ---- messages of the agent that accepted the connection ----

struct Welcome {
  std::uint64_t term = 0;
  NodeId coordinator{};
  std::int64_t lease_ms = 0;
  // time of the coordinator's clock, as in Pong. The node's first Ping already returns it, so that no Pong is needed before
  // the first Ping.
  std::int64_t stamp = 0;
  std::string hostname{};  // the coordinator's host name, for messages and for the history of nodes
};

enum class Refusal : std::uint8_t {
  kVersion,    // a different protocol version
  kRun,        // a different run id
  kRankTaken,  // another node has the same --node-rank
  kBadHello,   // the Hello has invalid values, or values that differ from the job's
  kReplaced,   // another process with this identity is connected, and it was started later than this one
  kSetAside,   // the node was lost too often; it may rejoin after retry_after_ms
};

struct Refused {
  std::uint16_t protocol = kProtocolVersion;  // protocol, reason and text are the first fields on the wire in every version
  Refusal reason = Refusal::kVersion;
  std::string text{};
  // kSetAside: do not retry before this time. Other reasons: retry once after this time, or never if the value is 0.
  std::int64_t retry_after_ms = 0;
};

// The sender is not the coordinator. `coordinator` is the coordinator's address, if the sender has it. A coordinator that
// announces itself gets a Redirect if a coordinator with a later term exists.
struct Redirect {
  std::uint64_t term = 0;
  Address coordinator{};
};

// Starts a round (in Raft: a new configuration). Contains the ranks of the receiver. A spare has group_rank -1; it only records
// which node leads.
struct Release {
  RoundId id{};
  std::uint64_t born = 0;  // has the same meaning as in Config
  // false: the receiver records the round but starts no workers, because the round has ended or the receiver has no rank in it
  bool start = true;
  std::int32_t group_rank = -1;
  std::int32_t nodes = 0;
  Arbiter arbiter = Arbiter::kNone;
  NodeId founder{};
  Config previous{};             // the previous round, including the receiver's rank
  std::int32_t rank_offset = 0;  // the receiver's first global rank
  std::int32_t world_size = 0;
  std::int32_t role_rank_offset = 0;
  std::int32_t role_world_size = 0;
  Address master{};
  Budget budget{};
  std::int32_t max_restarts = 0;
  Successor coordinator{};
  // candidates in the next election, excluding the coordinator: at most kSuccessors, sorted by rank and spread evenly over the
  // round's nodes
  std::vector<Successor> successors{};
};

enum class OverReason : std::uint8_t { kWorkerFailure, kMembershipChange };

// The round has ended. The receiver stops or holds its workers, and answers Ready.
struct RoundOver {
  RoundId round{};
  OverReason reason = OverReason::kMembershipChange;
  std::string why{};        // for messages, such as "node b was lost" or "2 nodes joined"
  FailureReport failure{};  // for kWorkerFailure: the first failure that is known at this time
  bool hold = false;        // true: workers that can leave their process group keep their state and wait for the next round
};

// Orders workers to save. If `held` is false, the round is running, and a signal ends the job or a node leaves the job. All
// workers agree on a step and save after that step. If `held` is true, the round has ended and no round follows. In this case,
// only the held workers of the receiver save their state.
struct StopAndSave {
  RoundId round{};
  std::int32_t signal = 0;
  bool continues = false;  // true: after the save, the remaining nodes start a new round
  bool held = false;       // true: only the workers that wait for the next round save
};

struct StopAt {
  RoundId round{};
  std::int64_t step = 0;
};

// Proposes how the job ends. The receiver stores the proposal and answers EndAccepted.
struct ProposeEnd {
  Ending ending{};
};

// The coordinator's node leaves the job, and another node must lead. All grants of this coordinator (permissions for workers
// to run) have ended, and it gives no further grants. So the receivers need not wait before the next election. The departing
// node's vote is for `to` only. coordinator/leadership_transfer.hpp decides when this message may be sent.
struct TransferLeadership {
  NodeId node{};            // the departing node
  Successor to{};           // the node that should lead now
  PersistentState state{};  // the departing node's state
};

// Allows a node that received a stop signal to leave after its workers have ended. It is sent when the other nodes can
// continue without this node, or when there is no state to save. The node waits for this message, because the other nodes may
// be about to receive the same signal.
struct MayLeave {
  RoundId round{};
};

// A text for users: the nodes for which the job waits. It is sent to all nodes, because users may not see the coordinator's
// console.
struct Waiting {
  std::string text{};
};

// The job has ended; `round` was its last round. A node that has recorded a later round ignores the message, because its
// sender is not the coordinator of the later round.
struct JobOver {
  RoundId round{};
  std::int32_t exit_code = 0;
  std::string why{};
  // Time in milliseconds since the end of the job. A node that was started after the end of the job does not stop, because it
  // waits for the next job at this address.
  std::int64_t ended_ms_ago = 0;
};

struct Pong {
  std::int64_t echo = 0;  // the stamp of the Ping that this message answers
  std::int64_t stamp = 0;
  std::int64_t realtime_ns = 0;
  std::int64_t grant_ns = 0;   // how long workers may run, counted from the time at which the Ping was sent
  RoundId committed{};         // the newest committed round (quorum.hpp)
  std::uint64_t received = 0;  // number of session messages that the sender has received
};

// A candidate requests the receiver's vote for `term`.
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

// Answer to Resume. `received` is the number of session messages that the sender has received. After this message, the
// coordinator sends the messages that the member has not received.
struct Resumed {
  std::uint64_t received = 0;
};

// A ClusterQuery as the coordinator forwards it to a node.
struct NodeQuery {
  NodeId requester{};
  std::uint64_t number = 0;
  std::uint32_t max_bytes = 0;
  std::string text{};
};

// One node's answer to a ClusterQuery that the receiver sent.
struct JobAnswer {
  std::uint64_t number = 0;
  std::int32_t nodes = 0;  // number of connected nodes, including the node that answers
  NodeId node{};           // the node that gave the answer
  std::string text{};      // empty if the query was for one node, and that node is not connected
};

using FromCoordinator =
    std::variant<Welcome, Refused, Redirect, Release, RoundOver, StopAndSave, StopAt, JobOver, Pong, VoteRequest, StoreAnswer,
                 Resumed, Received, ProposeEnd, TransferLeadership, Waiting, NodeQuery, JobAnswer, MayLeave>;

}  // namespace ddprun::rendezvous
