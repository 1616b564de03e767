// Makes the group in which the workers of a round talk to each other: a store (the agent's over the worker channel, else
// TCPStore at MASTER_ADDR:MASTER_PORT, as a client only when the agent hosts it; none needed for a world of one: HashStore),
// and on it Gloo for the CPU (bound to loopback when all workers are on one node) or NCCL for CUDA.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

class GroupBreaker;

// The base store of this process; `channel` may be null. Throws UsageError when MASTER_ADDR or MASTER_PORT is missing or can't
// be used. `generation` as below: over a channel, waiting ends when the agent orders a newer one.
c10::intrusive_ptr<c10d::Store> make_store(const WorkerEnvironment& environment, AgentChannel* channel,
                                           std::chrono::milliseconds timeout, int generation = AgentChannel::kAnyGeneration);

// Returns when all ranks of this generation are here. Gloo waits for them as well, but can't be told to give up.
void meet_in_store(const WorkerEnvironment& environment, const c10::intrusive_ptr<c10d::Store>& store, int generation,
                   std::chrono::milliseconds timeout);

// Another thread can end what this device's group waits for (group_breaker.hpp): true of Gloo, and of NCCL where that is asked
// for (`live_nccl`), since each step then waits for its GPU (Peers::arrive).
bool group_can_be_broken(c10::Device device, const WorkerEnvironment& environment, bool live_nccl);

// A group over all ranks. `generation` keeps its keys apart from those of groups made before on the same store (the restart
// count). `breaker`: can end it. Without `live_nccl` it does not end what NCCL waits for.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const WorkerEnvironment& environment,
                                                          const c10::intrusive_ptr<c10d::Store>& store, c10::Device device,
                                                          int generation, std::chrono::milliseconds timeout,
                                                          GroupBreaker* breaker = nullptr, bool live_nccl = false);

// True when an exception of a collective says that a peer is gone ("Connection closed by peer", "Connection reset by peer",
// ...).
bool is_lost_peer(const std::exception& error);

}  // namespace ddprun::trainer
