// What agents say to each other to agree on rounds: values only. codec.hpp turns them into frames and back; coordinator.hpp,
// member.hpp and succession.hpp are the machines that speak them. Who dials speaks FromMember, who listens FromCoordinator; a
// candidate for succession listens, so its requests for votes are FromCoordinator too.
//
// Every message has a constant size but for bounded text: none lists the members, so that a round costs N and not N².
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/channel/message.hpp"
#include "common/failure/restart_history.hpp"

namespace ddprun::rendezvous {

inline constexpr std::uint16_t kProtocolVersion = 7;
inline constexpr std::size_t kSuccessors = 4;             // named in a release
inline constexpr std::int32_t kMaxWorkersPerNode = 4096;  // of one agent
inline constexpr std::int32_t kMaxNodes = 1 << 20;

using NodeId = std::array<std::uint8_t, 16>;  // random, kept by an agent over reconnects and restarts
using FarewellKey = std::array<std::uint8_t, 32>;
using RunDigest = std::array<std::uint8_t, 32>;  // of the run id: two jobs never mix

struct Address {
  std::string host{};  // as another node can dial it: numeric, or a name
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};

// Rounds are ordered by the term of the coordinator that made them, then by their number; both only grow.
struct RoundId {
  std::uint64_t term = 0;
  std::int64_t round = -1;
  auto operator<=>(const RoundId&) const = default;  // NOLINT(modernize-use-nullptr): no pointer is here
};

// Who has a third vote in a round of two nodes: it gives it to the first of them that asks, once and for ever.
enum class Arbiter : std::uint8_t {
  kNone,          // nobody: half of the nodes is a majority with group rank 0 among them
  kRunDirectory,  // that both nodes share
  kEtcd,          // --arbiter
};

// One agreed membership as one of its nodes remembers it: enough to say what a majority of it is. A successor that inherits a
// round releases it again, the same nodes with the same ranks, under its own term: quorum.hpp says why.
struct Config {
  RoundId id{};
  std::uint64_t born = 0;            // the term in which it was released first
  std::int32_t nodes = 0;            // 0: there is none
  std::int32_t rank = -1;            // this node's group rank in it; -1: it is not part of it (a spare)
  Arbiter arbiter = Arbiter::kNone;  // of a round of two
  NodeId founder{};  // who released it first, where there is an arbiter: it knows the round by that and origin()
  bool exists() const { return nodes > 0; }
  RoundId origin() const { return {born, id.round}; }  // equal for the same membership
  bool has_arbiter() const { return arbiter != Arbiter::kNone; }
  // Those whose majority counts. The arbiter's place is behind the nodes' ranks.
  std::int32_t voters() const { return nodes + (has_arbiter() ? 1 : 0); }
  bool operator==(const Config&) const = default;
};

// What is counted over the whole job: restarts, and rounds. Every member keeps it, so that a successor goes on counting.
struct Budget {
  std::int32_t restart_count = 0;  // over the whole job, TORCHELASTIC_RESTART_COUNT
  RestartHistory history{};        // what the restart policy counts; nobody else looks into it
  std::int32_t first_number = 0;   // of round 0, as people count rounds and name folders
  bool operator==(const Budget&) const = default;
};

enum class Workers : std::uint8_t { kNone, kRunning, kStopping, kDone };

// Where a node stands: told with each Hello, kept on disk under its identity (member/record.hpp).
struct Standing {
  std::uint64_t promised_term = 0;  // it follows no coordinator of a lower term and votes once in each
  Config current{};                 // the newest round it was released into
  Config previous{};                // the one before, until `current` is known to be committed: see quorum.hpp
  Budget budget{};
  bool operator==(const Standing&) const = default;
};

// How the job of that round ends, before it does: coordinator/concluding.hpp says why.
struct Ending {
  RoundId origin{};  // Config::origin()
  std::int32_t exit_code = 0;
  std::string why{};
  bool exists() const { return origin.round >= 0; }
};

// ---- from the one who dialled ----

struct Hello {
  std::uint16_t protocol = kProtocolVersion;  // first on the wire in every version
  NodeId node{};
  std::uint64_t incarnation = 0;  // of the process: its start in nanoseconds; of two with one identity the later is right
  std::uint64_t attempt = 0;      // counts the hellos of the process: an older one may arrive later, over another connection
  RunDigest run{};
  std::int32_t wanted_group_rank = -1;  // --node-rank
  std::string role = "default";
  std::int32_t local_world_size = 1;
  std::string hostname{};           // for people
  Address listens{};                // where successors would be dialled: the connected socket's address
  std::uint16_t master_port = 0;    // held for the next round, should this node be group rank 0
  std::int32_t next_number = 0;     // the first one that no round has had in this node's run directory
  bool wants_job = false;           // ddprun join: has address and token only
  std::uint16_t farewell_port = 0;  // of datagrams, at that address: where the guardian of a dead coordinator is heard
  FarewellKey farewell_key{};       // by which it is known
  std::uint64_t arbiter = 0;        // what --arbiter names; 0: nothing
  std::uint64_t run_directory = 0;  // who held its lock when this node tried it, or this node if it does; 0: neither
  bool coordinates = false;         // a coordinator that visits an address where nodes may be that don't know it
  Workers workers = Workers::kNone;
  RoundId workers_round{};  // of those that are still running or stopping
  bool failed = false;      // one of them, and no round has begun since: its FailureReport follows the welcome, and then Ready
  Standing standing{};
  Ending ending{};  // of the current round's job, when the node knows it
  std::pair<std::uint64_t, std::uint64_t> said() const { return {incarnation, attempt}; }  // orders the hellos of a node
};

// The workers of that round are gone, with all they started; the node can take part in the next one.
struct Ready {
  RoundId round{};
  std::uint16_t master_port = 0;
};

// A worker failed: the evidence that the restart policy judges.
struct FailureReport {
  RoundId round{};
  std::string hostname{};
  FailedRound failed{};
  std::int64_t time_ns = 0;  // CLOCK_REALTIME of the node
  std::int64_t skew_ns = 0;  // the coordinator's clock minus the node's, as far as the node knows
  std::string message{};
  bool others_stay = false;  // the other workers' state is sound: they can be held for the next round instead of stopped
  std::int64_t coordinator_time_ns() const {  // wraps instead of overflowing: the numbers may be anybody's
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(time_ns) + static_cast<std::uint64_t>(skew_ns));
  }
};

// All workers of the node ended well.
struct Done {
  RoundId round{};
};

// A signal reached this node: it wants to stop, and the job with it when too few would be left.
struct StopAsk {
  std::int32_t signal = 0;
  bool saves = false;  // when only this node leaves, all save first: nobody else could keep what the workers hold
};

// Answer to StopAndSave: the most steps that any worker of this node has started; -1: all have finished.
struct StopReady {
  RoundId round{};
  std::int64_t started = -1;
};

// The node's workers have ended after StopAndSave.
struct Stopped {
  RoundId round{};
  bool saved = false;
};

// Last words: the node's workers are gone and it does not come back.
struct Leave {
  std::string why{};
};

// Sent now and then (Member::ping) and on every release. Stamps are nanoseconds of the sender's own steady clock and mean
// something to it only: who gets its own stamp back knows that the other side was reachable after that moment.
struct Ping {
  std::int64_t stamp = 0;
  std::int64_t echo = 0;  // newest stamp of the coordinator's; 0: none yet
  std::int64_t realtime_ns = 0;
  RoundId installed{};
  std::uint64_t received = 0;  // messages of the session (rendezvous/node/session.hpp)
};

// Answer to VoteRequest. Given when both terms are equal; otherwise it says which term would have been too low.
struct Vote {
  std::uint64_t term = 0;           // the request's
  std::uint64_t promised_term = 0;  // the voter's, now
  std::int64_t echo = 0;            // the request's stamp
  bool given() const { return term == promised_term; }
};

// Answer to Conclude.
struct Concluded {
  RoundId origin{};
};

// A worker's question to the job's store (decision 10).
struct StoreAsk {
  RoundId round{};
  std::int32_t rank = 0;  // global, of the worker
  channel::StoreRequest request{};
};

// Over a new connection, instead of a hello: the one before was reset. The hello that opened the session, and how many of its
// messages have come. rendezvous/node/session.hpp says what happens then.
struct Resume {
  NodeId node{};
  std::uint64_t incarnation = 0;
  std::uint64_t attempt = 0;
  std::uint64_t received = 0;
};

// Of a session, in both directions: so many of the other side's messages have come.
struct Received {
  std::uint64_t count = 0;
};

using FromMember = std::variant<Hello, Ready, FailureReport, Done, StopAsk, StopReady, Stopped, Leave, Ping, Vote, StoreAsk,
                                Resume, Received, Concluded>;

// ---- from the one who listens ----

struct Welcome {
  std::uint64_t term = 0;
  NodeId coordinator{};
  std::int64_t lease_ms = 0;
  std::string job{};  // for `ddprun join`: config, arguments and options
};

enum class Refusal : std::uint8_t {
  kVersion,    // another protocol
  kRun,        // another run id
  kRankTaken,  // somebody else has this --node-rank
  kBadHello,   // values that make no sense
  kReplaced,   // a later process has this identity
  kSetAside,   // lost too often: come back after retry_after_ms
  kOver,       // the job has ended
};

struct Refused {
  std::uint16_t protocol = kProtocolVersion;  // with reason and text first on the wire in every version
  Refusal reason = Refusal::kVersion;
  std::string text{};
  std::int64_t retry_after_ms = 0;  // kSetAside; kRankTaken: once
};

// Not here: the coordinator is there. A coordinator that visits is told of a later term than its own.
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

// A round: who the receiver is in it. group_rank -1: it is a spare and only learns who leads.
struct Release {
  RoundId id{};
  std::uint64_t born = 0;  // see Config
  bool start = true;       // false: the round is over or not the receiver's; it is only to be remembered
  std::int32_t group_rank = -1;
  std::int32_t nodes = 0;
  Arbiter arbiter = Arbiter::kNone;
  NodeId founder{};
  Config previous{};             // the round that this one replaces, with the receiver's rank in it
  std::int32_t rank_offset = 0;  // the receiver's first global rank
  std::int32_t world_size = 0;
  std::int32_t role_rank_offset = 0;
  std::int32_t role_world_size = 0;
  Address master{};
  Budget budget{};
  std::int32_t max_restarts = 0;
  Successor coordinator{};
  std::vector<Successor> successors{};  // at most kSuccessors, spread over the round, by rank, without the coordinator
};

enum class OverReason : std::uint8_t { kWorkerFailure, kMembershipChange };

// The round ends: stop the workers, or hold them, and say Ready.
struct RoundOver {
  RoundId round{};
  OverReason reason = OverReason::kMembershipChange;
  std::string why{};        // for people: "node b was lost", "2 nodes joined"
  FailureReport failure{};  // kWorkerFailure: the first cause, as known now
  bool hold = false;        // workers that can leave their group wait for the next round with their state
};

// A signal ends the job, or one node leaves it: workers agree on a step and save. Or the round is over, and the job ends
// without the next one: the workers of this node that wait for it save what they hold, by themselves.
struct StopAndSave {
  RoundId round{};
  std::int32_t signal = 0;
  bool goes_on = false;  // then the round is over, and the others are in the next one
  bool held = false;     // those that wait
};

struct StopAt {
  RoundId round{};
  std::int64_t step = 0;
};

// The job is going to end so: remember it, and say that you do.
struct Conclude {
  Ending ending{};
};

// The coordinator's node leaves the job in order: nothing that it granted runs any more, it grants nothing from now on, and it
// votes for nobody but that node. coordinator/handing_over.hpp says when it may say so.
struct HandOver {
  NodeId node{};        // that leaves
  Successor to{};       // first in line now
  Standing standing{};  // of the node that leaves: its vote is for `to` alone
};

// For people: whom the job waits for. The coordinator's console is not the one that everybody reads.
struct Waiting {
  std::string text{};
};

// Of the job that has that round. Who knows a later one than a coordinator is told by somebody who leads it no more, or never
// did.
struct JobOver {
  RoundId round{};
  std::int32_t exit_code = 0;
  std::string why{};
  std::int64_t ended_ms_ago = 0;  // whoever began after that waits for the next job here
};

struct Pong {
  std::int64_t echo = 0;  // the ping's stamp
  std::int64_t stamp = 0;
  std::int64_t realtime_ns = 0;
  std::int64_t grant_ns = 0;   // workers may run for that long after the ping was sent
  RoundId committed{};         // see quorum.hpp
  std::uint64_t received = 0;  // messages of the session
};

// "Make me coordinator of this term." From a candidate.
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

// Answer to Resume; what it has missed follows.
struct Resumed {
  std::uint64_t received = 0;
};

using FromCoordinator = std::variant<Welcome, Refused, Redirect, Release, RoundOver, StopAndSave, StopAt, JobOver, Pong,
                                     VoteRequest, StoreAnswer, Resumed, Received, Conclude, HandOver, Waiting>;

}  // namespace ddprun::rendezvous
