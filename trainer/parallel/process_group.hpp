// Makes the process group of a round. It needs a store: the agent's over the worker channel, otherwise TCPStore at
// MASTER_ADDR:MASTER_PORT (as a client only if the agent hosts it), and HashStore in a world of one. On the store it makes Gloo
// for the CPU (bound to loopback if all workers are on one node) or NCCL for CUDA.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

class GroupBreaker;

// Returns the base store of this process; `channel` may be null. Throws UsageError if MASTER_ADDR or MASTER_PORT is missing or
// unusable. `generation` is that of make_process_group(): over a channel, a wait ends when the agent orders a newer one.
c10::intrusive_ptr<c10d::Store> make_store(const WorkerEnvironment& environment, AgentChannel* channel,
                                           std::chrono::milliseconds timeout, int generation = AgentChannel::kAnyGeneration);

// Returns when all ranks of this generation have called it. Gloo also waits for them, but its wait can't be interrupted.
void meet_in_store(const WorkerEnvironment& environment, const c10::intrusive_ptr<c10d::Store>& store, int generation,
                   std::chrono::milliseconds timeout);

// Whether another thread can end the waits of this device's group (group_breaker.hpp). True for Gloo. True for NCCL if
// `live_nccl` is set, since each step then waits for its GPU (Peers::arrive).
bool group_can_be_broken(c10::Device device, const WorkerEnvironment& environment, bool live_nccl);

// Makes a group over all ranks. `generation` (the restart count) separates its keys from those of earlier groups on the same
// store. `breaker` can end the group's waits; those of NCCL only with `live_nccl`.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const WorkerEnvironment& environment,
                                                          const c10::intrusive_ptr<c10d::Store>& store, c10::Device device,
                                                          int generation, std::chrono::milliseconds timeout,
                                                          GroupBreaker* breaker = nullptr, bool live_nccl = false);

// True if the exception of a collective means that a peer is gone ("Connection closed by peer", "Connection reset by peer",
// ...).
bool is_lost_peer(const std::exception& error);

}  // namespace ddprun::trainer
