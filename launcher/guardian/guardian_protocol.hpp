// The messages between agent and guardian: fixed-size records over a SOCK_SEQPACKET socket pair, one record a packet. Both ends
// are the same program image (fork without exec), so plain structs are safe. A spawn request carries descriptors: stdout,
// stderr and, if the worker has one, the channel. The command to run follows the record as bytes. If it is longer than
// kMostInMessage, it is in a memfd, which is the last descriptor. A kReport request carries a memfd, a kStore request one
// listening socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "launcher/events/memory_evidence.hpp"
#include "launcher/guardian/last_word.hpp"
#include "launcher/leftovers/sweep_state.hpp"

namespace ddprun::guardian {

struct Request {
  enum class Kind : std::int32_t {
    kSpawn,     // answered by kStarted or kNotStarted
    kEmploy,    // the spare with that number becomes a worker of this round; no answer
    kSignal,    // send `signal` to the worker's process group or to its leftovers; 0: only `stops` counts; no answer
    kSpeaker,   // the process `pid` has spoken on that worker's channel; no answer
    kFarewell,  // the agent ends normally: its report is complete; no answer
    kDeadline,  // kill all workers at deadline_ns, unless another deadline arrives before; no answer
    kEntrust,   // `last_word` replaces the earlier one; no answer
    kSweep,     // end the round's leftovers, by `how`; answered by kSwept when none is left that must be awaited
    kReport,    // the current report in a memfd: the guardian writes it if the agent dies before it could; no answer
    kStore,     // one more listening socket of the store of this round's scripts; kStoreSays may follow
    kEndStore,  // kill the store and close its sockets; no answer
  };
  Kind kind = Kind::kSignal;
  std::int32_t worker = 0;
  std::int32_t signal = 0;
  std::int32_t stops = 0;         // kSignal: the worker is being stopped, so its leftovers count as the worker
  SweepState::How how{};          // kSweep
  std::int32_t next_round = 0;    // kSweep: another round follows
  std::int64_t timeout_ms = 0;    // kSweep: SweepState::Order::timeout
  std::int32_t pid = 0;           // kSpeaker
  std::int32_t rank = -1;         // kEmploy: value of its variable RANK
  std::int32_t store_port = 0;    // kEmploy: value of its variable MASTER_PORT
  std::int32_t descriptors = 0;   // number of descriptors sent with the request; the receiver may have no free ones for them
  std::int32_t shares_input = 0;  // kSpawn: SpawnRequest::shares_input
  std::int32_t spare = 0;         // kSpawn: SpawnRequest::spare
  std::int32_t only_this_machine = 0;  // kStore: connections of clients on other machines are closed
  std::int32_t more_follow = 0;        // kStore: more sockets of the same round follow
  std::int64_t deadline_ns = 0;        // CLOCK_BOOTTIME, which includes time in which the machine is suspended; 0: none
  LastWord last_word{};
};

struct Notice {
  enum class Kind : std::int32_t {
    kStarted,
    kNotStarted,
    kContinued,
    kExited,
    kSwept,
    kStoreSays,
    kIsAwaited,  // the worker's own process exited with 0, but its leftover `pid` works for the job; `text` is its name
    kWasEnded,   // a leftover of some worker was sent a signal to end; `text` is its name
    kSignalled,  // a descendant of the guardian has sent `signal` to the guardian
  };
  Kind kind = Kind::kSwept;
  std::int32_t worker = 0;
  std::int32_t pid = 0;
  std::int32_t code = 0;  // kExited
  std::int32_t signal = 0;
  std::int32_t core_dumped = 0;
  std::int32_t error = 0;  // errno of fork, exec or an earlier call; 0: the program ran
  std::int32_t stage = 0;  // SpawnError::Stage
  // kExited: the guardian has no other descendants, so a sweep has nothing to do.
  std::int32_t nothing_is_left = 0;
  std::int32_t overdue = 0;      // kExited: killed by the guardian at the deadline of kDeadline
  std::int64_t time_ns = 0;      // CLOCK_REALTIME
  std::int64_t stopped_us = 0;   // kContinued: for how long the worker was stopped
  std::array<char, 240> text{};  // kStoreSays: a line for the user; otherwise the name of a leftover; ends in a zero byte
  MemoryEvidence memory{};       // kExited: set if the worker failed and was not killed by the agent
};

inline constexpr int kMaxDescriptors = 4;
inline constexpr std::size_t kMostInMessage = 16 << 10;  // bytes after a request

}  // namespace ddprun::guardian
