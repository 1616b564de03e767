// The messages between agent and guardian: fixed-size records over a SOCK_SEQPACKET socket pair, one record a packet. Both ends
// are the same program image (fork without exec), so plain structs are safe. A spawn request carries descriptors: stdout,
// stderr and, if the worker has one, the channel. What to run follows the record as bytes; where they are more than
// kMostInMessage, they are in a memfd, the last descriptor. A report carries a memfd, a store one listening socket.
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
    kEmploy,    // the spare with that number is a worker of this round from here on; no answer
    kSignal,    // `signal` to the worker's process group, or to what it has left; 0: only `stops` counts; no answer
    kSpeaker,   // the process `pid` has spoken on that worker's channel; no answer
    kFarewell,  // the agent ends by itself: the report is complete; no answer
    kDeadline,  // kill everything at deadline_ns, unless another one arrives before; no answer
    kEntrust,   // `last_word` replaces the earlier one; there is no answer
    kSweep,     // end what the round has left behind, by `how`; answered by kSwept when none is left that must be awaited
    kReport,    // the present report in a memfd: if the agent dies before it could, the guardian writes it; no answer
    kStore,     // one more socket at which this round's scripts find their store; answered by kStoreSays, if at all
    kEndStore,  // kill the store and close its sockets; no answer
  };
  Kind kind = Kind::kSignal;
  std::int32_t worker = 0;
  std::int32_t signal = 0;
  std::int32_t stops = 0;              // kSignal: the worker is being stopped, so what it has left counts as the worker
  SweepState::How how{};               // kSweep
  std::int32_t next_round = 0;         // kSweep: another round follows
  std::int64_t timeout_ms = 0;         // kSweep: SweepState::Order::timeout
  std::int32_t pid = 0;                // kSpeaker
  std::int32_t rank = -1;              // kEmploy: its variable RANK
  std::int32_t store_port = 0;         // kEmploy: its variable MASTER_PORT
  std::int32_t descriptors = 0;        // that travel with it; the receiver may have no free ones for them
  std::int32_t shares_input = 0;       // kSpawn: SpawnRequest::shares_input
  std::int32_t spare = 0;              // kSpawn: SpawnRequest::spare
  std::int32_t only_this_machine = 0;  // kStore: clients of other machines are cut off
  std::int32_t more_follow = 0;        // kStore: of the same round
  std::int64_t deadline_ns = 0;        // CLOCK_BOOTTIME, which includes the time that a machine sleeps; 0: none
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
    kIsAwaited,  // the worker's own process has exited with 0; process `pid`, which it left, works for the job: `text`
    kWasEnded,   // a process that some worker has left was sent a signal to end: `text`
    kSignalled,  // a process below the guardian has sent `signal` to it
  };
  Kind kind = Kind::kSwept;
  std::int32_t worker = 0;
  std::int32_t pid = 0;
  std::int32_t code = 0;  // kExited
  std::int32_t signal = 0;
  std::int32_t core_dumped = 0;
  std::int32_t error = 0;  // errno of fork, exec or an earlier call; 0: the program ran
  std::int32_t stage = 0;  // SpawnError::Stage
  // kExited: no other process is left below the guardian either, so a sweep has nothing to do.
  std::int32_t nothing_is_left = 0;
  std::int32_t overdue = 0;      // kExited: killed by the guardian, at the deadline that kDeadline had set
  std::int64_t time_ns = 0;      // CLOCK_REALTIME
  std::int64_t stopped_us = 0;   // kContinued: for how long the worker was stopped
  std::array<char, 240> text{};  // kStoreSays: a line for people; a leftover's name; with a zero at its end
  MemoryEvidence memory{};       // of a worker that failed and was not killed by the agent
};

inline constexpr int kMaxDescriptors = 4;
inline constexpr std::size_t kMostInMessage = 16 << 10;  // bytes behind a request

}  // namespace ddprun::guardian
