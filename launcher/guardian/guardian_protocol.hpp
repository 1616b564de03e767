// The messages between the agent and the guardian. They are fixed-size records over a SOCK_SEQPACKET socket pair, one record
// per packet. Both ends are the same program image (fork without exec), so plain structs are safe.
//
// A kSpawn request carries the descriptors of stdout, stderr and, if the worker has one, the channel. The command follows the
// record as bytes. If it is longer than kMaxPacketBytes, it is in a memfd, which is the last descriptor. A kReport request
// carries a memfd, and a kStore request carries one listening socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "launcher/events/memory_evidence.hpp"
#include "launcher/guardian/death_notice.hpp"
#include "launcher/leftovers/sweep_state.hpp"

namespace ddprun::guardian {

struct Request {
  enum class Kind : std::int32_t {
    kSpawn,     // start a worker or a spare; the guardian replies with kStarted or kNotStarted
    kActivate,  // turn the spare with this number into a worker of the current round; no reply
    kSignal,  // send `signal` to the worker's process group, or to the processes it left behind; 0: only set `stops`; no reply
    kChannelPid,      // process `pid` has sent a message on this worker's channel; no reply
    kCleanShutdown,   // the agent exits normally and its report is complete; no reply
    kDeadline,        // kill all workers at deadline_ns; replaces the previous deadline; no reply
    kSetDeathNotice,  // send `death_notice` if the agent dies; replaces the previous one; no reply
    // end the processes that the round left behind, as `how` requires; the reply kSwept follows when the round no longer waits
    // for any of these processes
    kSweep,
    kReport,    // memfd with the current report, which the guardian writes if the agent dies before writing it; no reply
    kStore,     // one listening socket of the store for this round's scripts; kStoreMessage notices may follow
    kEndStore,  // end the store and close its sockets; the guardian closes a received pipe end as confirmation
  };
  Kind kind = Kind::kSignal;
  std::int32_t worker = 0;
  std::int32_t signal = 0;
  // kSignal: 1 if the signal is part of a stop of the worker. Then the worker counts as running until the processes that it
  // left behind have exited.
  std::int32_t stops = 0;
  SweepState::How how{};          // kSweep
  std::int32_t next_round = 0;    // kSweep: 1 if another round follows
  std::int64_t timeout_ms = 0;    // kSweep: time limit in milliseconds (SweepState::Order::timeout)
  std::int32_t pid = 0;           // kChannelPid: the process that has sent messages on the worker's channel
  std::int32_t rank = -1;         // kActivate: value of the worker's variable RANK
  std::int32_t store_port = 0;    // kActivate: value of the worker's variable MASTER_PORT
  std::int32_t descriptors = 0;   // number of descriptors that were sent; fewer arrive if the receiver has too few free ones
  std::int32_t shares_input = 0;  // kSpawn: 1 if the worker reads the agent's stdin (SpawnRequest::shares_input)
  std::int32_t spare = 0;         // kSpawn: SpawnRequest::spare
  std::int32_t only_this_machine = 0;  // kStore: 1 if the store closes connections from other machines
  std::int32_t more_follow = 0;        // kStore: 1 if more sockets of the same store follow
  std::int64_t deadline_ns = 0;        // kDeadline: time on CLOCK_BOOTTIME, which runs while the machine is suspended; 0: none
  DeathNotice death_notice{};
};

struct Notice {
  enum class Kind : std::int32_t {
    kStarted,
    kNotStarted,
    kContinued,
    kExited,
    kSwept,
    kStoreMessage,
    // the worker's process exited with 0, but the leftover process `pid` still works for the job; `text` is its name
    kLeftoverAwaited,
    kLeftoverEnded,  // the guardian has sent a signal to a leftover process; `text` is the name of the process
    kSignalled,      // a process of the job has sent `signal` to the guardian, for example to stop the job
  };
  Kind kind = Kind::kSwept;
  std::int32_t worker = 0;
  std::int32_t pid = 0;
  std::int32_t code = 0;  // kExited: the exit code
  std::int32_t signal = 0;
  std::int32_t core_dumped = 0;
  std::int32_t error = 0;  // errno of fork, exec or the setup before it; 0: the program was executed
  std::int32_t stage = 0;  // the failed step, a SpawnError::Stage
  // kExited: 1 if the guardian has no other descendants; the round then needs no sweep
  std::int32_t no_children_left = 0;
  std::int32_t lease_expired = 0;  // kExited: 1 if the guardian killed the worker because the lease had expired
  std::int64_t time_ns = 0;        // time of the event, on CLOCK_REALTIME
  std::int64_t stopped_us = 0;     // kContinued: time in microseconds for which the worker was stopped (SIGSTOP)
  std::array<char, 240> text{};    // kStoreMessage: a line for the user; kLeftover...: name of the process; zero-terminated
  MemoryEvidence memory{};         // kExited: set if the worker failed although the agent had not killed it
};

inline constexpr int kMaxDescriptors = 4;
inline constexpr std::size_t kMaxPacketBytes = 16 << 10;  // maximum number of bytes that follow a request

}  // namespace ddprun::guardian
